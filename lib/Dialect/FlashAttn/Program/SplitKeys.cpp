//===- SplitKeys.cpp ------------------------------------------------------===//

#include "SplitKeys.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the number of tiles before each interval, and of all intervals.
static std::pair<SmallVector<Value>, Value> countTiles(const TileBuilder &build,
                                                       ArrayRef<TileInterval> intervals) {
  Value all = build.index(0);
  SmallVector<Value> before;
  for (const TileInterval &interval : intervals) {
    before.push_back(all);
    all = build.add(all, build.sub(interval.end, interval.begin));
  }
  return {before, all};
}

/// Returns the `count` tiles from index `first` on; `before` is the number of tiles before each
/// interval.
static SmallVector<TileInterval> clip(const TileBuilder &build, ArrayRef<TileInterval> intervals,
                                      ArrayRef<Value> before, Value first, Value count) {
  SmallVector<TileInterval> result;
  for (auto [interval, skipped] : llvm::zip_equal(intervals, before)) {
    // Either may be outside the interval, whose result is then empty.
    Value begin = build.add(interval.begin, build.sub(first, skipped));
    Value end = build.add(begin, count);
    // Equal bounds stay the same value, so that the run between them is known to be empty.
    DenseMap<Value, Value> known;
    auto clamp = [&](Value bound) {
      Value &clamped = known[bound];
      if (!clamped)
        clamped = arith::MaxSIOp::create(
            build.b, build.loc, arith::MinSIOp::create(build.b, build.loc, bound, end), begin);
      return clamped;
    };
    result.push_back({clamp(interval.begin), clamp(interval.fullBegin), clamp(interval.fullEnd),
                      clamp(interval.end)});
  }
  return result;
}

SmallVector<TileInterval> mlir::flashattn::takeShare(OpBuilder &b, Location loc,
                                                     ArrayRef<TileInterval> keys, Value part,
                                                     Value parts) {
  TileBuilder build(b, loc);
  auto [before, all] = countTiles(build, keys);
  Value share = build.divide32(build.add(all, build.sub(parts, build.index(1))), parts);
  Value first = arith::MulIOp::create(b, loc, part, share);
  return clip(build, keys, before, first, share);
}

SmallVector<TileInterval> mlir::flashattn::takeTiles(OpBuilder &b, Location loc,
                                                     ArrayRef<TileInterval> tiles, Value first,
                                                     Value count) {
  TileBuilder build(b, loc);
  return clip(build, tiles, countTiles(build, tiles).first, first, count);
}
