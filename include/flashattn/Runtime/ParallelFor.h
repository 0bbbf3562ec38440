//===- ParallelFor.h - runtime functions of the CPU target ------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_PARALLELFOR_H
#define FLASHATTN_RUNTIME_PARALLELFOR_H

#include <cstdint>

/// Runs `body(context, i)` for every i in [0, count) on all threads of the pool and returns when
/// all are done. Programs are assigned to threads one at a time, in order, so that uneven ones are
/// balanced. Called by code that convert-flashattn-to-cpu generates.
extern "C" void flashattnParallelFor(int64_t count, void (*body)(void *context, int64_t i),
                                     void *context);

/// Returns the number of threads of the pool, including the caller: the value of the environment
/// variable FLASHATTN_NUM_THREADS, from 1 to 1024, or the number of processors that this process
/// may use. Another value causes a warning on standard error.
extern "C" int64_t flashattnThreadCount();

namespace mlir::flashattn {

/// The context for which the code on this thread runs. The threads of a parallel loop inherit it
/// from the caller.
void *getThreadContext();
void setThreadContext(void *context);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_PARALLELFOR_H
