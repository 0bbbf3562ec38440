//===- ParallelFor.h - runtime functions of the CPU target ------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_PARALLELFOR_H
#define FLASHATTN_RUNTIME_PARALLELFOR_H

#include <cstdint>

/// Runs `body(context, i)` for every i in [0, count) on all threads of the thread pool and returns
/// when all calls are done. Each thread fetches one i at a time, in order, which balances uneven
/// calls. Called by code that convert-flashattn-to-cpu generates.
extern "C" void flashattnParallelFor(int64_t count, void (*body)(void *context, int64_t i),
                                     void *context);

/// Returns the number of threads of the thread pool, including the caller: the value of the
/// environment variable FLASHATTN_NUM_THREADS, from 1 to 1024, or the number of processors that
/// this process may use. An invalid value causes a warning on standard error.
extern "C" int64_t flashattnThreadCount();

namespace mlir::flashattn {

/// Returns or sets the context of the call that runs on this thread. The threads of a parallel loop
/// inherit the context from the caller.
void *getThreadContext();
void setThreadContext(void *context);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_PARALLELFOR_H
