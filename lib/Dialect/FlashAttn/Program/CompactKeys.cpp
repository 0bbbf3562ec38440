//===- CompactKeys.cpp ----------------------------------------------------===//

#include "CompactKeys.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

CompactKeys mlir::flashattn::compactIntervals(OpBuilder &b, Location loc,
                                              ArrayRef<TileInterval> pieces, int64_t tileN) {
  TileBuilder build(b, loc);
  constexpr int64_t rows = CompactRowsOp::kGranularity;
  // Every program computes this, and a GPU takes two to four times as long over 64 bits.
  auto keys = [&](Value pieces) { return build.mul(build.toIndex(pieces), rows); };
  CompactKeys compact;
  Value length = build.i32(0), before = build.i32(0); // pieces so far, end of the last interval
  Value last, lastBegin; // where the last interval begins: in the sequence, and in pieces
  int64_t least = 0;
  for (const TileInterval &interval : pieces) {
    Value begin = build.toI32(interval.begin), end = build.toI32(interval.end);
    compact.segments.push_back({keys(length), keys(build.sub(begin, before)), rows * least});
    last = length;
    lastBegin = begin;
    length = build.add(length, build.sub(end, begin));
    before = end;
    least = getConstantIntValue(interval.end).value_or(0);
  }
  // Only tiles within the last interval may be full.
  int64_t perTile = tileN / rows;
  auto tiles = [&](Value piece, int64_t more) {
    return build.div(build.add(piece, build.i32(more)), build.i32(perTile));
  };
  auto place = [&](Value piece) {
    return build.add(last, build.sub(build.toI32(piece), lastBegin));
  };
  Value end = tiles(length, perTile - 1);
  Value fullBegin = tiles(place(pieces.back().fullBegin), perTile - 1);
  Value fullEnd = build.max(fullBegin, tiles(place(pieces.back().fullEnd), 0));
  compact.interval = {build.index(0), build.toIndex(fullBegin), build.toIndex(fullEnd),
                      build.toIndex(end)};
  return compact;
}
