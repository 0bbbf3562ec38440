//===- SplitKeys.cpp -------------------------------------------------------===//

#include "SplitKeys.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::flashattn;

Value mlir::flashattn::divide32(OpBuilder &b, Location loc, Value x, Value y) {
  auto narrow = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v); };
  return arith::IndexCastUIOp::create(b, loc, b.getIndexType(),
                                      arith::DivUIOp::create(b, loc, narrow(x), narrow(y)));
}

SmallVector<TileInterval> mlir::flashattn::takeShare(OpBuilder &b, Location loc,
                                                     ArrayRef<TileInterval> keys, Value part,
                                                     Value parts) {
  auto add = [&](Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); };
  auto sub = [&](Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); };
  Value all = arith::ConstantIndexOp::create(b, loc, 0);
  SmallVector<Value> before; // tiles of the intervals before each
  for (const TileInterval &interval : keys) {
    before.push_back(all);
    all = add(all, sub(interval.end, interval.begin));
  }
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value share = divide32(b, loc, add(all, sub(parts, one)), parts);
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
