/*===- AheadOfTime.h - what compiled attention needs around it ---------------===*\
|*
|* Functions that flash-compile has made are called like any other in C, on memory of the
|* device that they run on. Here is what a program needs for that which has no CUDA toolkit;
|* one that has may use that instead: contexts, streams and memory are the same.
|*
|* Every function returns NULL where all went well, otherwise what went wrong: lower case,
|* "expected … but got …" where that applies, valid until the next failure on the thread.
|* All may be called from several threads at once.
|*
\*===----------------------------------------------------------------------===*/

#ifndef FLASHATTN_C_AHEADOFTIME_H
#define FLASHATTN_C_AHEADOFTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A device is the number of a CUDA device, or the CPU. */
enum { FLASHATTN_AOT_CPU = -1 };

/** `bytes` of the device's memory, aligned to 256 bytes, to `memory`. Errors: out of memory; no
   such device. */
const char *flashattnAOTAllocate(int32_t device, size_t bytes, void **memory);

/** Frees what flashattnAOTAllocate gave; NULL is nothing. */
const char *flashattnAOTFree(int32_t device, void *memory);

/** Copies `bytes` of host memory to the device's, or back, behind all work on the legacy default
    stream, NULL, and waits for it. Work on other streams is not waited for. */
const char *flashattnAOTCopyToDevice(int32_t device, void *memory, const void *host, size_t bytes);
const char *flashattnAOTCopyToHost(int32_t device, void *host, const void *memory, size_t bytes);

/** Waits for all work on a CUstream (NULL: the legacy default stream). Errors: what went wrong in
    it. */
const char *flashattnAOTSynchronize(int32_t device, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* FLASHATTN_C_AHEADOFTIME_H */
