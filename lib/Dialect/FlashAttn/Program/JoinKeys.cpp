//===- JoinKeys.cpp --------------------------------------------------------===//

#include "JoinKeys.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

JoinedKeys mlir::flashattn::joinIntervals(OpBuilder &b, Location loc,
                                          ArrayRef<TileInterval> pieces, int64_t tileN) {
  TileBuilder build(b, loc);
  constexpr int64_t rows = LoadTileOp::kPieceRows;
  JoinedKeys joined;
  Value length = build.index(0), before = build.index(0); // pieces so far, and where they end
  Value last;                                             // where the last interval is cut off
  for (const TileInterval &interval : pieces) {
    joined.parts.push_back({build.mul(length, rows),
                            build.mul(build.sub(interval.begin, before), rows),
                            rows * getConstantIntValue(before).value_or(0)});
    last = length;
    length = build.add(length, build.sub(interval.end, interval.begin));
    before = interval.end;
  }
  // Tiles of the last interval alone may be full.
  int64_t perTile = tileN / rows;
  auto place = [&](Value piece) { return build.add(last, build.sub(piece, pieces.back().begin)); };
  Value zero = build.index(0), end = build.ceilDiv(length, perTile);
  Value fullBegin = build.ceilDiv(place(pieces.back().fullBegin), perTile);
  Value fullEnd = build.div(place(pieces.back().fullEnd), build.index(perTile));
  joined.interval = {zero, fullBegin, build.max(fullBegin, fullEnd), end};
  return joined;
}
