//===- Kernels.h - kernels before and after tile programs -------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KERNELS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KERNELS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir::flashattn {

/// Replaces each `flashattn.combine`, `flashattn.list_tiles` and `flashattn.tile_ranges` below
/// `root` by the code that the target's callbacks build. Emits an error at a `flashattn.combine` on
/// tensors.
inline LogicalResult
lowerKernels(Operation *root, llvm::function_ref<void(OpBuilder &, CombineOp)> buildCombine,
             llvm::function_ref<void(OpBuilder &, ListTilesOp)> buildListTiles,
             llvm::function_ref<void(OpBuilder &, TileRangesOp)> buildTileRanges) {
  SmallVector<Operation *> ops;
  root->walk([&](Operation *op) {
    if (isa<CombineOp, ListTilesOp, TileRangesOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder b(op);
    if (auto lists = dyn_cast<ListTilesOp>(op))
      buildListTiles(b, lists);
    else if (auto ranges = dyn_cast<TileRangesOp>(op))
      buildTileRanges(b, ranges);
    else if (auto combine = cast<CombineOp>(op); combine.hasPureBufferSemantics())
      buildCombine(b, combine);
    else
      return op->emitOpError() << "expected memrefs; bufferize before lowering";
    op->erase();
  }
  return success();
}

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KERNELS_H
