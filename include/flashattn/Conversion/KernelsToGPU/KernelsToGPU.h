//===- KernelsToGPU.h - the kernels beside the tile programs -----*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
#define FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// At the beginning of `program`, which every thread of a kernel runs: lets the kernel behind it
/// start, which finds out meanwhile what it has to do. Behind a wait of the program's own, so that
/// what a kernel reads before it waits is safe from all but the one right before it.
void addLaunchDependents(Block &program);

/// Lets `program`, which every thread of a kernel runs, wait for the kernel before it, in front of
/// its first access to memory: what only counts blocks and threads need not wait.
void addWaitForPrerequisites(Block &program);

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
