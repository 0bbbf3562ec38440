//===- ExpandGroupOps.h - ops of the gpu dialect for many threads -*- C++ -*-===//

#ifndef FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H
#define FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::flashattn {

/// Writes what threads of a block or a warp compute together in kernels of a user's own, reductions,
/// shuffles of other than 32 bits and numbers of warps, in the ops that every target of a GPU has.
/// Leaves kernels without these as they are.
LogicalResult expandGroupOps(gpu::GPUModuleOp container);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_PIPELINES_EXPANDGROUPOPS_H
