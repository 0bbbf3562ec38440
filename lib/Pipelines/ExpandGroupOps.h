//===- ExpandGroupOps.h - expansion of collective gpu ops -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H
#define FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// Expands ops that the threads of a block or a warp compute together, in user-written kernels, to
/// ops that every GPU target supports: reductions, shuffles of other than 32 bits, and warp
/// numbers. Does not change kernels without such ops.
LogicalResult expandGroupOps(gpu::GPUModuleOp container);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H
