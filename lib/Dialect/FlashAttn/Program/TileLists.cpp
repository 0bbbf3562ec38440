//===- TileLists.cpp ------------------------------------------------------===//

#include "TileLists.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

void TileLists::build(OpBuilder &b, Location loc, Value attnMask, ArrayRef<Value> sizes,
                      TileAxis listed, Value count, ArrayRef<int64_t> tile,
                      function_ref<SmallVector<TileInterval>(ValueRange)> intervals) {
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
  bool ofQueries = listed == TileAxis::Queries;
  middle = b.createOrFold<arith::CeilDivUIOp>(loc, count, index(tile[ofQueries ? 1 : 2]));
  Value places = b.createOrFold<arith::MulIOp>(loc, middle, index(2));
  Value lists = index(1);
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicSizes;
  auto append = [&](Value size) {
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      dynamicSizes.push_back(size);
  };
  for (Value size : sizes) {
    lists = b.createOrFold<arith::MulIOp>(loc, lists, size);
    append(size);
  }
  // One allocation for both: on a GPU, an allocation costs the host as much as a launch.
  constexpr int64_t kBytes = 4;
  Value boundsBytes = b.createOrFold<arith::MulIOp>(loc, lists, index(2 * kBytes));
  Value listBytes = b.createOrFold<arith::MulIOp>(
      loc, b.createOrFold<arith::AddIOp>(loc, places, index(2)), index(kBytes));
  buffer =
      memref::AllocOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()),
                              ValueRange{b.createOrFold<arith::MulIOp>(loc, lists, listBytes)});
  auto view = [&](Value last, Value shift) {
    SmallVector<int64_t> outer = shape;
    SmallVector<Value> outerSizes = dynamicSizes;
    append(last);
    auto type = MemRefType::get(shape, b.getI32Type());
    Value result = memref::ViewOp::create(b, loc, type, buffer, shift, dynamicSizes);
    shape = outer;
    dynamicSizes = outerSizes;
    return result;
  };
  bounds = view(index(2), index(0));
  tiles = view(places, boundsBytes);

  auto op =
      ListTilesOp::create(b, loc, attnMask, bounds, tiles, b.getDenseI64ArrayAttr(tile), ofQueries);
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types(3, b.getIndexType());
  SmallVector<Location> locs(3, loc);
  Block *body = b.createBlock(&op.getIntervals(), {}, types, locs);
  SmallVector<Value> yielded;
  for (const TileInterval &tiles : intervals(body->getArguments()))
    yielded.append({tiles.begin, tiles.fullBegin, tiles.fullEnd, tiles.end});
  YieldIntervalsOp::create(b, loc, yielded);
}

/// Returns the indices of `bounds` or `tiles` except for the last. The index is 0 in a dimension of
/// size 1.
SmallVector<Value> TileLists::at(OpBuilder &b, Location loc, ValueRange place) const {
  SmallVector<Value> indices(place);
  for (int64_t i = 0; i < 3; ++i)
    if (cast<MemRefType>(bounds.getType()).getDimSize(i) == 1)
      indices[i] = arith::ConstantIndexOp::create(b, loc, 0);
  return indices;
}

TileInterval TileLists::getInterval(OpBuilder &b, Location loc, ValueRange place) const {
  auto load = [&](int64_t i) {
    SmallVector<Value> indices = at(b, loc, place);
    indices.push_back(arith::ConstantIndexOp::create(b, loc, i));
    Value bound = memref::LoadOp::create(b, loc, bounds, indices);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), bound).getResult();
  };
  Value begin = load(0), end = load(1);
  return {begin, begin, middle, end};
}

std::pair<Value, SmallVector<Value>> TileLists::getList(OpBuilder &b, Location loc,
                                                        ValueRange place) const {
  return {tiles, at(b, loc, place)};
}

void TileLists::free(OpBuilder &b, Location loc) { memref::DeallocOp::create(b, loc, buffer); }

std::optional<TileLists> mlir::flashattn::listGradientTiles(OpBuilder &b, AttentionBackwardOp op,
                                                            const Operands &operands,
                                                            const Sequence &all, TileAxis listed,
                                                            ScheduleAttr of) {
  const Sizes &sizes = operands.getSizes();
  std::optional<int64_t> group = getConstantIntValue(sizes.group);
  auto isSame = [&](unsigned dim) { return op.isBroadcastDim(op.getAttnMask(), dim); };
  bool ofQueries = listed == TileAxis::Queries;
  if (!op.getAttnMask() || (ofQueries && !isSame(1) && !group))
    return std::nullopt;
  int64_t rows = of.countProgramsPerBlock() * of.getTileM(), columns = of.getTileN();
  Value count = ofQueries ? sizes.keys : sizes.queries;
  Value listSizes[] = {isSame(0) && !op.hasOwnSequences() ? operands.index(1) : sizes.batches,
                       isSame(1)   ? operands.index(1)
                       : ofQueries ? sizes.kvHeads
                                   : sizes.heads,
                       isSame(ofQueries ? 3 : 2) && !op.getMask() ? operands.index(1)
                                                                  : operands.ceilDiv(count, rows)};
  SmallVector<int64_t> tile = {1, rows, columns};
  if (ofQueries)
    tile = {group.value_or(1), columns, rows};
  TileLists lists;
  lists.build(b, op.getLoc(), op.getAttnMask(), listSizes, listed,
              ofQueries ? sizes.queries : sizes.keys, tile, [&](ValueRange place) {
                Sequence sequence = operands.getSequence(all, place[0], TileAxis::Queries);
                Value first = operands.mul(place[2], rows);
                return ofQueries ? operands.findQueries(sequence, first, rows, columns)
                                 : operands.findKeys(sequence, first, rows, columns);
              });
  return lists;
}

TileLoopOp mlir::flashattn::createTileLoop(OpBuilder &b, Location loc,
                                           const std::optional<TileLists> &lists,
                                           ArrayRef<TileInterval> intervals, ArrayRef<Value> place,
                                           Value when, ValueRange state, Value rounds) {
  SmallVector<Value> bounds, listIndices;
  for (const TileInterval &interval : intervals)
    bounds.append({interval.begin, interval.fullBegin, interval.fullEnd, interval.end});
  Value list;
  if (lists)
    std::tie(list, listIndices) = lists->getList(b, loc, place);
  return TileLoopOp::create(b, loc, bounds, list, listIndices, when, state, rounds);
}
