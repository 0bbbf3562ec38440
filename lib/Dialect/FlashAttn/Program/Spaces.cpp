//===- Spaces.cpp - items of the spaces of programs -----------------------===//

#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Finds the segment of a tile by binary search: the first tiles of the segments increase.
class SegmentFinder : TileBuilder {
public:
  SegmentFinder(OpBuilder &b, Location loc, const RaggedAxes &ragged, Value size)
      : TileBuilder(b, loc), tiles(ragged.segmentTiles), whole(tiles * ragged.tileRows),
        starts(ragged.starts), segments(toI32(add(dim(starts, 0), index(1)))) {
    // The number of rows, rounded up to a multiple of `whole`, less one.
    Value units = sub(div(toI32(size), i32(tiles)), segments);
    lastRow = add(mul32(units, whole), i32(whole - 1));
  }

  /// Returns the segment, i32, and its first tile.
  std::pair<Value, Value> find(Value tile) {
    Type type = b.getI32Type();
    auto loop = scf::WhileOp::create(b, loc, TypeRange{type, type}, ValueRange{i32(0), segments});
    {
      OpBuilder::InsertionGuard guard(b);
      Block *before = b.createBlock(&loop.getBefore(), {}, {type, type}, {loc, loc});
      Value width = sub(before->getArgument(1), before->getArgument(0));
      Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, width, i32(1));
      scf::ConditionOp::create(b, loc, any, before->getArguments());
      Block *after = b.createBlock(&loop.getAfter(), {}, {type, type}, {loc, loc});
      Value low = after->getArgument(0), high = after->getArgument(1);
      Value middle = arith::ShRUIOp::create(b, loc, add(low, high), i32(1));
      Value isBehind =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, firstTile(middle), tile);
      scf::YieldOp::create(
          b, loc, ValueRange{select(isBehind, middle, low), select(isBehind, high, middle)});
    }
    Value segment = loop.getResult(0);
    Value isFirst = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, segment, i32(0));
    Value known = arith::MaxUIOp::create(b, loc, segment, i32(1));
    return {segment, select(isFirst, i32(0), firstTile(known))};
  }

private:
  Value mul32(Value x, int64_t y) { return mul(x, i32(y)); }

  /// Returns the first tile of `segment`, which is at least 1.
  Value firstTile(Value segment) {
    Value at = toIndex(sub(segment, i32(1)));
    Value row = memref::LoadOp::create(b, loc, starts, at);
    row = min(max(row, i32(0)), lastRow);
    return mul32(add(div(row, i32(whole)), segment), tiles);
  }

  int64_t tiles, whole;
  Value starts, segments, lastRow;
};
} // namespace

std::pair<Value, Value> mlir::flashattn::findSegment(OpBuilder &b, Location loc,
                                                     const RaggedAxes &ragged, Value tiles,
                                                     Value number) {
  TileBuilder build(b, loc);
  Value tile = build.toI32(number);
  auto [segment, first] = SegmentFinder(b, loc, ragged, tiles).find(tile);
  Value index = build.toIndex(segment);
  return {index, build.toIndex(build.sub(tile, first))};
}

Value mlir::flashattn::countPoints(OpBuilder &b, SpaceOpInterface space) {
  TileBuilder build(b, space.getLoc());
  OperandRange sizes = space.getSizes();
  Value count = sizes.front();
  for (Value size : sizes.drop_front())
    count = build.mul(count, size);
  return count;
}

SmallVector<Value> mlir::flashattn::emitItem(OpBuilder &b, SpaceOpInterface space, Value number,
                                             PointOrder order) {
  Location loc = space.getLoc();
  TileBuilder build(b, loc);
  OperandRange sizes = space.getSizes();
  bool isIndex = number.getType().isIndex();
  Value rest = number, one = isIndex ? build.index(1) : build.i32(1);
  SmallVector<Value> coordinates(sizes.size());
  for (int64_t i = sizes.size() - 1; i >= 0; --i) {
    Value size = isIndex ? sizes[i] : build.toI32(sizes[i]), coordinate = rest;
    if (i > 0) {
      coordinate = arith::RemUIOp::create(b, loc, rest, size);
      rest = arith::DivUIOp::create(b, loc, rest, size);
    }
    // Key tiles run first to last: the first one has the most queries.
    bool isLast = i == static_cast<int64_t>(sizes.size()) - 1;
    if (isLast ? cast<ProgramAxisAttr>(space.getAxes()[i]).getValue() != ProgramAxis::KeyTile
               : order == PointOrder::Descending)
      coordinate =
          arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, size, coordinate), one);
    coordinates[i] = coordinate;
  }
  for (Value &coordinate : coordinates)
    coordinate = build.toIndex(coordinate);
  return emitItemAt(b, space, coordinates);
}

SmallVector<Value> mlir::flashattn::emitItemAt(OpBuilder &b, SpaceOpInterface space,
                                               ValueRange coordinates) {
  SmallVector<Value> item(coordinates);
  if (std::optional<RaggedAxes> ragged = space.getRagged())
    std::tie(item.front(), item.back()) =
        findSegment(b, space.getLoc(), *ragged, space.getSizes().back(), item.back());
  return item;
}

void mlir::flashattn::eraseProgram(RewriterBase &rewriter, ProgramOp program) {
  SpaceOpInterface space = program.getSpaceOp();
  rewriter.eraseOp(program);
  if (space->use_empty())
    rewriter.eraseOp(space);
}
