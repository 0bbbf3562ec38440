//===- KernelBuilder.h - arithmetic of Hopper kernels -----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_KERNELBUILDER_H
#define FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_KERNELBUILDER_H

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {

/// Builders of index arithmetic and tile subviews for the warp-specialized kernels.
class KernelBuilder : public TileBuilder {
public:
  KernelBuilder(RewriterBase &b, Location loc) : TileBuilder(b, loc), b(b) {}

  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }

  /// Broadcasts `v` of lane 0, below 2^31, to all lanes of the warp.
  Value fromLane0(Value v) {
    return toIndex(gpu::ShuffleOp::create(b, loc, toI32(v), i32(0), i32(32), gpu::ShuffleMode::IDX)
                       .getShuffleResult());
  }

  /// Returns `step` (i32) modulo `places`. 32-bit, because consumers have no registers to spare.
  Value slotOf(Value step, int64_t places) {
    return toIndex(arith::RemUIOp::create(b, loc, step, i32(places)));
  }

  /// Returns the parity of `step` div `places`, beginning with 0, or with 1 if `inverted`.
  Value parityOf(Value step, int64_t places, bool inverted = false) {
    Value turn = arith::DivUIOp::create(b, loc, step, i32(places));
    if (inverted)
      turn = add(turn, i32(1));
    return arith::AndIOp::create(b, loc, turn, i32(1));
  }

  /// Returns tile `number` of `tiles`, memref<N x panels x rows x columns>.
  Value tileAt(Value tiles, Value number) {
    auto type = cast<MemRefType>(tiles.getType());
    ArrayRef<int64_t> shape = type.getShape();
    SmallVector<OpFoldResult> offsets(4, b.getIndexAttr(0));
    SmallVector<OpFoldResult> strides(4, b.getIndexAttr(1)), sizes;
    offsets[0] = number;
    sizes.push_back(b.getIndexAttr(1));
    for (int64_t size : shape.drop_front())
      sizes.push_back(b.getIndexAttr(size));
    auto reduced = memref::SubViewOp::inferRankReducedResultType(shape.drop_front(), type, offsets,
                                                                 sizes, strides);
    return memref::SubViewOp::create(b, loc, cast<MemRefType>(reduced), tiles, offsets, sizes,
                                     strides);
  }

  /// Returns the first `count` panels of `tile`, memref<panels x rows x columns>.
  Value panelsOf(Value tile, int64_t count) {
    ArrayRef<int64_t> shape = cast<MemRefType>(tile.getType()).getShape();
    if (shape[0] == count)
      return tile;
    SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)), strides(3, b.getIndexAttr(1)), sizes;
    for (int64_t size : {count, shape[1], shape[2]})
      sizes.push_back(b.getIndexAttr(size));
    return memref::SubViewOp::create(b, loc, tile, offsets, sizes, strides);
  }

  /// Returns `count` rows of `tile`, memref<panels x rows x columns>, from row `first`.
  Value rowsOf(Value tile, int64_t first, int64_t count) {
    ArrayRef<int64_t> shape = cast<MemRefType>(tile.getType()).getShape();
    SmallVector<OpFoldResult> strides(3, b.getIndexAttr(1));
    SmallVector<OpFoldResult> offsets = {b.getIndexAttr(0), b.getIndexAttr(first),
                                         b.getIndexAttr(0)};
    SmallVector<OpFoldResult> sizes = {b.getIndexAttr(shape[0]), b.getIndexAttr(count),
                                       b.getIndexAttr(shape[2])};
    return memref::SubViewOp::create(b, loc, tile, offsets, sizes, strides);
  }

protected:
  RewriterBase &b;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_KERNELBUILDER_H
