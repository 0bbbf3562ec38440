//===- SplitKeys.cpp -------------------------------------------------------===//

#include "SplitKeys.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

using namespace mlir;
using namespace mlir::flashattn;

SmallVector<TileInterval> mlir::flashattn::takeShare(OpBuilder &b, Location loc,
                                                     ArrayRef<TileInterval> keys, Value part,
                                                     Value parts) {
  TileBuilder build(b, loc);
  auto add = [&](Value x, Value y) { return build.add(x, y); };
  auto sub = [&](Value x, Value y) { return build.sub(x, y); };
  Value all = build.index(0);
  SmallVector<Value> before; // tiles of the intervals before each
  for (const TileInterval &interval : keys) {
    before.push_back(all);
    all = add(all, sub(interval.end, interval.begin));
  }
  Value share = build.divide32(add(all, sub(parts, build.index(1))), parts);
  Value first = arith::MulIOp::create(b, loc, part, share);
  SmallVector<TileInterval> result;
  for (auto [interval, skipped] : llvm::zip_equal(keys, before)) {
    // Either may lie outside of the interval, which is empty then.
    Value begin = add(interval.begin, sub(first, skipped)), end = add(begin, share);
    // Bounds that are one value stay one: nothing lies between them.
    DenseMap<Value, Value> known;
    auto clamp = [&](Value bound) {
      Value &clamped = known[bound];
      if (!clamped)
        clamped = arith::MaxSIOp::create(b, loc, arith::MinSIOp::create(b, loc, bound, end), begin);
      return clamped;
    };
    result.push_back({clamp(interval.begin), clamp(interval.fullBegin), clamp(interval.fullEnd),
                      clamp(interval.end)});
  }
  return result;
}
