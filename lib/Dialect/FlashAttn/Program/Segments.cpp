//===- Segments.cpp - programs over packed rows ---------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/Segments.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Finds the segment of a tile by binary search: the first tiles of the segments increase.
class SegmentFinder : TileBuilder {
public:
  SegmentFinder(OpBuilder &b, Location loc, Value starts, Value size, int64_t tileRows,
                int64_t segmentTiles)
      : TileBuilder(b, loc), tiles(segmentTiles), whole(tiles * tileRows), starts(starts),
        segments(toI32(add(dim(starts, 0), index(1)))) {
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

void mlir::flashattn::findSegment(OpBuilder &b, ProgramOp program, Value starts, Value size,
                                  MutableArrayRef<Value> numbers) {
  if (starts)
    findSegment(b, program.getLoc(), starts, size, program.getTileRows(), program.getSegmentTiles(),
                numbers);
}

void mlir::flashattn::findSegment(OpBuilder &b, Location loc, Value starts, Value size,
                                  int64_t tileRows, int64_t segmentTiles,
                                  MutableArrayRef<Value> numbers) {
  TileBuilder build(b, loc);
  Value tile = build.toI32(numbers.back());
  auto [segment, first] = SegmentFinder(b, loc, starts, size, tileRows, segmentTiles).find(tile);
  numbers.front() = build.toIndex(segment);
  numbers.back() = build.toIndex(build.sub(tile, first));
}
