//===- KernelsToGPU.h - programmatic dependent launch -----------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
#define FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// Inserts `flashattn.launch_dependents` at the beginning of `program`, which every thread of a
/// kernel runs, so that the prologue of the next kernel overlaps with this kernel. If the program
/// itself waits for earlier kernels, the op is inserted after that wait, so that only the kernel
/// directly before a kernel may still write memory that the kernel reads before its own wait.
void addLaunchDependents(Block &program);

/// Inserts `flashattn.wait_prerequisite_grids` before the first memory access of `program`, which
/// every thread of a kernel runs. Code that only computes indices of blocks and threads precedes
/// the wait.
void addWaitForPrerequisites(Block &program);

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOGPU_KERNELSTOGPU_H
