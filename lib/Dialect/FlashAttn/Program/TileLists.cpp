//===- TileLists.cpp ------------------------------------------------------===//

#include "TileLists.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

ListedPrograms::Place ListedPrograms::locate(const Operands &operands, const Sequence &all,
                                             ValueRange place) const {
  Value batch = place[0], starts = operands.getSegmentStarts(axis);
  if (!starts)
    return {operands.getSequence(all, batch, TileAxis::Queries),
            operands.mul(place[2], together * rows)};
  auto [segment, tile] =
      findSegment(operands.b, operands.loc, {starts, rows, whole / rows, /*leastRows=*/1}, tiles,
                  operands.mul(place[2], together));
  return {operands.getSequence(all, segment, axis), operands.mul(tile, rows)};
}

Value ListedPrograms::getNumber(const Operands &operands, const Sequence &sequence,
                                Value tile) const {
  if (operands.getSegmentStarts(axis)) {
    const auto &packed = axis == TileAxis::Queries ? sequence.packedQueries : sequence.packedKeys;
    Value begin =
        operands.add(operands.div(packed->first, operands.index(whole)), packed->segment);
    tile = operands.add(operands.mul(begin, whole / rows), tile);
  }
  return together == 1 ? tile : operands.divide32(tile, operands.index(together));
}

bool TileLists::areUsed(AttentionOpInterface op, TileAxis listed) {
  return op.getAttnMask() ||
         !(listed == TileAxis::Keys ? op.getPerKey() : op.getPerQuery()).empty();
}

void TileLists::build(OpBuilder &b, Location loc, Value attnMask, ArrayRef<Value> sizes,
                      TileAxis listed, Value count, ArrayRef<int64_t> tile, FindTiles intervals,
                      TestTile test) {
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
  auto fill = [&](Region &region, unsigned count, FindTiles find) {
    SmallVector<Type> types(count, b.getIndexType());
    Block *body = b.createBlock(&region, {}, types, SmallVector<Location>(count, loc));
    SmallVector<Value> yielded;
    for (const TileInterval &tiles : find(body->getArguments()))
      yielded.append({tiles.begin, tiles.fullBegin, tiles.fullEnd, tiles.end});
    YieldIntervalsOp::create(b, loc, yielded);
  };
  fill(op.getIntervals(), 3, intervals);
  if (!attnMask)
    fill(op.getTest(), 4,
         [&](ValueRange arguments) { return test(arguments.drop_back(), arguments.back()); });
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
                                                            ScheduleAttr of, int64_t whole) {
  const Sizes &sizes = operands.getSizes();
  std::optional<int64_t> group = getConstantIntValue(sizes.group);
  bool ofQueries = listed == TileAxis::Queries;
  Value attnMask = op.getAttnMask();
  auto isSame = [&](unsigned dim) { return attnMask && op.isBroadcastDim(attnMask, dim); };
  if (!TileLists::areUsed(op, listed) || (attnMask && ofQueries && !isSame(1) && !group))
    return std::nullopt;
  TileAxis axis = ofQueries ? TileAxis::Keys : TileAxis::Queries;
  ListedPrograms programs{axis, operands.countTiles(axis, of.getTileM(), whole), of.getTileM(),
                          whole, of.countProgramsPerBlock()};
  int64_t rows = programs.together * programs.rows, columns = of.getTileN();
  auto [batches, heads] =
      countLists(op, operands, axis, ofQueries ? sizes.kvHeads : sizes.heads);
  Value count = ofQueries ? sizes.keys : sizes.queries, numbers = operands.ceilDiv(count, rows);
  if (isSame(ofQueries ? 3 : 2) && !op.getMask())
    numbers = operands.index(1);
  else if (operands.getSegmentStarts(axis))
    numbers = operands.ceilDiv(programs.tiles, programs.together);
  SmallVector<int64_t> tile = {1, rows, columns};
  if (ofQueries)
    tile = {group.value_or(1), columns, rows};
  // A list for the query heads of a group knows the values of a query head only if there is one.
  Value one = operands.index(1);
  auto getHead = [&](ValueRange place) {
    return !ofQueries || isConstantIntValue(sizes.group, 1) ? place[1] : Value();
  };
  auto getKvHead = [&](ValueRange place) {
    return ofQueries ? place[1] : operands.div(place[1], operands.max(sizes.group, one));
  };
  auto find = [&](ValueRange place, Value tile) {
    auto [sequence, first] = programs.locate(operands, all, place);
    std::optional<Operands::RowTile> listedTile;
    Operands::RowTile own{ofQueries ? getKvHead(place) : getHead(place), first, rows};
    if (tile)
      listedTile = {ofQueries ? getHead(place) : getKvHead(place), operands.mul(tile, columns),
                    columns};
    return ofQueries ? operands.findQueries(sequence, own, columns, listedTile)
                     : operands.findKeys(sequence, own, columns, listedTile);
  };
  TileLists lists;
  lists.build(
      b, op.getLoc(), attnMask, {batches, heads, numbers}, listed,
      ofQueries ? sizes.queries : sizes.keys, tile,
      [&](ValueRange place) { return find(place, Value()); }, find);
  lists.programs = programs;
  return lists;
}

std::array<Value, 2> mlir::flashattn::countLists(AttentionOpInterface op, const Operands &operands,
                                                 TileAxis rows, Value heads) {
  // The intervals depend on the symbols of the rows, and a test on those of both axes.
  SmallVector<Value> varying(rows == TileAxis::Queries ? op.getPerQuery() : op.getPerKey());
  if (Value attnMask = op.getAttnMask())
    varying.push_back(attnMask);
  else
    llvm::append_range(varying, rows == TileAxis::Queries ? op.getPerKey() : op.getPerQuery());
  auto isSame = [&](unsigned dim) {
    return llvm::all_of(varying, [&](Value v) { return op.isBroadcastDim(v, dim); });
  };
  bool areBatchesSame =
      operands.getSegmentStarts(rows) || (isSame(0) && !op.hasOwnSequences());
  return {areBatchesSame ? operands.index(1) : operands.getSizes().batches,
          isSame(1) ? operands.index(1) : heads};
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
