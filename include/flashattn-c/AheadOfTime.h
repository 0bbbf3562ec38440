/*===- AheadOfTime.h - memory and streams for code of flash-compile ----------===*\
|*
|* A C program calls the functions that flash-compile generates like any other function, on memory
|* of the device on which they run. With this header, a program without a CUDA toolkit can allocate
|* and copy such memory. A program with a toolkit may use the toolkit instead, because contexts,
|* streams and memory are the same.
|*
|* Every function returns NULL on success, and otherwise an error message in lower case, if
|* possible in the form "expected … but got …". The message is valid until the next failure on the
|* thread. Several threads may call any function at once.
|*
\*===----------------------------------------------------------------------===*/

#ifndef FLASHATTN_C_AHEADOFTIME_H
#define FLASHATTN_C_AHEADOFTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** `device` is the number of a CUDA device, or this value for the CPU. */
enum { FLASHATTN_AOT_CPU = -1 };

/** Allocates `bytes` of the device's memory, aligned to 256 bytes, and writes the address to
    `memory`. Errors: out of memory; no such device. */
const char *flashattnAOTAllocate(int32_t device, size_t bytes, void **memory);

/** Frees memory from flashattnAOTAllocate. Does nothing if `memory` is NULL. */
const char *flashattnAOTFree(int32_t device, void *memory);

/** Copies `bytes` bytes from host memory to the device's memory, or back, in the order of the
    legacy default stream (NULL), and waits for the copy. Does not wait for work on other
    streams. */
const char *flashattnAOTCopyToDevice(int32_t device, void *memory, const void *host, size_t bytes);
const char *flashattnAOTCopyToHost(int32_t device, void *host, const void *memory, size_t bytes);

/** Waits for all work on `stream`, a CUstream (NULL: the legacy default stream). Errors: an error
    in that work. */
const char *flashattnAOTSynchronize(int32_t device, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* FLASHATTN_C_AHEADOFTIME_H */
