//===- KernelsToGPU.h - the kernels beside the tile programs -----*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
#define FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// At the beginning of `program`, which every thread of a kernel runs over parts of the keys: lets
/// the kernel behind it start, which merges the parts and finds its rows meanwhile.
void addLaunchDependents(Block &program);

/// Lets `launch` wait for the kernel before it, in front of its first access to memory: what only
/// counts blocks and threads need not wait.
void addWaitForPrerequisites(gpu::LaunchOp launch);

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
