//===- KernelsToGPU.h - kernels next to the tile programs -------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
#define FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// Lets the next kernel start at the beginning of `program`, which every thread of a kernel runs,
/// so that the next kernel can meanwhile determine its work. If the program itself waits for
/// earlier kernels, the next kernel starts after that wait, so that only the kernel directly before
/// it could still write what a kernel reads before its own wait.
void addLaunchDependents(Block &program);

/// Makes `program`, which every thread of a kernel runs, wait for the previous kernel before its
/// first memory access. Code that only computes numbers of blocks and threads need not wait.
void addWaitForPrerequisites(Block &program);

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
