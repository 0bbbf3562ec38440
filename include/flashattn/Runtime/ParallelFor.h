//===- ParallelFor.h - what code of the CPU target calls --------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_PARALLELFOR_H
#define FLASHATTN_RUNTIME_PARALLELFOR_H

#include <cstdint>

/// Runs `body(context, i)` for every i in [0, count) on all threads of the pool and
/// returns when all are done. Programs are handed out one at a time, in order, so
/// uneven ones balance. Called by code that convert-flashattn-to-cpu makes.
extern "C" void flashattnParallelFor(int64_t count, void (*body)(void *context, int64_t i),
                                     void *context);

/// Threads of the pool, the caller's included: the environment's FLASHATTN_NUM_THREADS, from 1 to
/// 1024, or the processors that this process may use. Another value is a warning on standard error.
extern "C" int64_t flashattnThreadCount();

namespace mlir::flashattn {

/// Whom the code on this thread runs for. The threads of a parallel loop take it from its caller.
void *getThreadContext();
void setThreadContext(void *context);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_PARALLELFOR_H
