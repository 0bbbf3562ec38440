//===- TileAccess.cpp - tile accesses as vector transfers -----------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

template <typename AccessOp>
static SmallVector<Value> tileOriginOf(OpBuilder &b, AccessOp op, ValueRange indices) {
  TileBuilder build(b, op.getLoc());
  SmallVector<Value> origin(indices);
  for (auto [dim, size] : llvm::zip_equal(op.getDims(), op.getTileShape()))
    if (dim >= 0)
      origin[dim] = build.mul(origin[dim], size);
  return origin;
}

SmallVector<Value> mlir::flashattn::getTileOrigin(OpBuilder &b, LoadTileOp op, ValueRange indices) {
  return tileOriginOf(b, op, indices);
}
SmallVector<Value> mlir::flashattn::getTileOrigin(OpBuilder &b, StoreTileOp op,
                                                  ValueRange indices) {
  return tileOriginOf(b, op, indices);
}

/// Returns the map from the dimensions of the memref to those of the tile along `dims`.
template <typename AccessOp> static AffineMap mapOf(OpBuilder &b, AccessOp op) {
  SmallVector<AffineExpr> results = llvm::map_to_vector(op.getDims(), [&](int64_t dim) {
    return dim < 0 ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(dim);
  });
  return AffineMap::get(op.getMemRefType().getRank(), 0, results, b.getContext());
}

Value mlir::flashattn::takeRows(OpBuilder &b, Location loc, Value memref, unsigned rowDim,
                                Value from, Value below) {
  TileBuilder build(b, loc);
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, loc, memref);
  SmallVector<OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(sizes.size(), b.getIndexAttr(1));
  if (below)
    sizes[rowDim] = getAsOpFoldResult(below);
  if (from && !isZeroInteger(from)) {
    Value end = getValueOrCreateConstantIndexOp(b, loc, sizes[rowDim]);
    offsets[rowDim] = getAsOpFoldResult(from);
    sizes[rowDim] = getAsOpFoldResult(build.sub(end, from));
  }
  return memref::SubViewOp::create(b, loc, memref, offsets, sizes, strides);
}

PagePlace mlir::flashattn::findPage(OpBuilder &b, Location loc, const PageMap &pages, Value row) {
  TileBuilder build(b, loc);
  if (pages.first)
    row = build.add(row, build.toI32(pages.first));
  Value size = build.i32(pages.size);
  PagePlace place{Value(), arith::DivUIOp::create(b, loc, row, size),
                  arith::RemUIOp::create(b, loc, row, size)};
  auto is = [&](arith::CmpIPredicate predicate, Value bound) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, place.number, build.toI32(bound));
  };
  for (auto [begin, end] : llvm::zip_equal(pages.begins, pages.ends)) {
    Value isInside = arith::AndIOp::create(b, loc, is(arith::CmpIPredicate::sge, begin),
                                           is(arith::CmpIPredicate::slt, end));
    place.exists =
        place.exists ? arith::OrIOp::create(b, loc, place.exists, isInside).getResult() : isInside;
  }
  // Lists may still have tiles if no interval is left of a mask that hides everything.
  if (!place.exists)
    place.exists = arith::ConstantIntOp::create(b, loc, b.getI1Type(), 0);
  return place;
}

Value mlir::flashattn::loadPage(OpBuilder &b, Location loc, const PageMap &pages, Value number) {
  TileBuilder build(b, loc);
  // The last tile may have rows past the last page.
  Value last = build.toI32(build.sub(build.dim(pages.table, 1), build.index(1)));
  Value at[] = {pages.sequence, build.toIndex(arith::MinUIOp::create(b, loc, number, last))};
  return memref::LoadOp::create(b, loc, pages.table, at);
}

void mlir::flashattn::expandToTransfer(RewriterBase &b, LoadTileOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices());
  Value source = op.getSource();
  Value begin = op.getBeginRow(), end = op.getEndRow();
  if (begin || end) {
    // A view of the rows that exist makes the read pad before `begin` and from `end` on.
    source = takeRows(b, loc, source, *op.getRowDim(), begin, end);
    if (begin) {
      Value &row = origin[*op.getRowDim()];
      row = arith::SubIOp::create(b, loc, row, begin);
    }
  }
  Type element = op.getMemRefType().getElementType();
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
  auto read = vector::TransferReadOp::create(b, loc, VectorType::get(op.getTileShape(), element),
                                             source, origin, zero, mapOf(b, op), op.getInBounds());
  b.replaceOp(op, b.createOrFold<vector::ShapeCastOp>(loc, op.getTileType(), read));
}

void mlir::flashattn::expandToTransfer(RewriterBase &b, StoreTileOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  SmallVector<Value> origin = getTileOrigin(b, op, op.getIndices());
  auto type = VectorType::get(op.getTileShape(), op.getTileType().getElementType());
  Value tile = b.createOrFold<vector::ShapeCastOp>(loc, type, op.getTile());
  b.replaceOpWithNewOp<vector::TransferWriteOp>(op, tile, op.getTarget(), origin, mapOf(b, op),
                                                op.getInBounds());
}
