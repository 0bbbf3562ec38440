//===- SplitKeys.cpp -------------------------------------------------------===//

#include "SplitKeys.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Tiles of the intervals before each, and of all.
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

/// The `count` tiles from number `first` on; `before` are those of the intervals before each.
static SmallVector<TileInterval> clip(const TileBuilder &build, ArrayRef<TileInterval> intervals,
                                      ArrayRef<Value> before, Value first, Value count) {
  SmallVector<TileInterval> result;
  for (auto [interval, skipped] : llvm::zip_equal(intervals, before)) {
    // Either may lie outside of the interval, which is empty then.
    Value begin = build.add(interval.begin, build.sub(first, skipped));
    Value end = build.add(begin, count);
    // Bounds that are one value stay one: nothing lies between them.
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
