//===- Kernels.h - kernels that are built directly --------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H
#define FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H

#include "flashattn/Conversion/KernelsToGPU/KernelsToGPU.h"

namespace mlir::flashattn {

/// Builds a kernel launch that implements `op` on memrefs, with one block per row.
void buildCombineKernel(OpBuilder &b, CombineOp op);

/// Builds a kernel launch that implements `op`, with one block per list.
void buildListKernel(OpBuilder &b, ListTilesOp op);

/// Builds a kernel launch that implements `op`, with one warp per range.
void buildRangeKernel(OpBuilder &b, TileRangesOp op);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_KERNELSTOGPU_KERNELS_H
