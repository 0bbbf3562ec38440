//===- Kernels.h - the kernels of this folder --------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H
#define FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H

#include "flashattn/Conversion/KernelsToGPU/KernelsToGPU.h"

namespace mlir::flashattn {

/// A launch that does what `op`, on memrefs, does: a block for each row.
void buildCombineKernel(OpBuilder &b, CombineOp op);

/// A launch that does what `op` does: a block for each list.
void buildListKernel(OpBuilder &b, ListTilesOp op);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H
