//===- ListTilesOp.cpp - lists of visible key tiles, and ranges of values -===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Verifies a region of `count` indices, and returns its terminator.
static FailureOr<YieldIntervalsOp> verifyRegion(Operation *op, Region &region, unsigned count) {
  SmallVector<Type> indices(count, IndexType::get(op->getContext()));
  Block &body = region.front();
  if (!llvm::equal(body.getArgumentTypes(), indices)) {
    InFlightDiagnostic error = op->emitOpError() << "expected a region of (";
    llvm::interleaveComma(indices, error);
    error << ") but got (";
    llvm::interleaveComma(body.getArgumentTypes(), error);
    return error << ")";
  }
  if (body.empty())
    return op->emitOpError()
           << "expected 'flashattn.yield_intervals' at the end of a region but got no op";
  auto yield = dyn_cast<YieldIntervalsOp>(body.back());
  if (!yield)
    return body.back().emitOpError()
           << "expected 'flashattn.yield_intervals' at the end of a region but got '"
           << body.back().getName() << "'";
  return yield;
}

LogicalResult ListTilesOp::verify() {
  if (getTile().size() != 3 || llvm::any_of(getTile(), [](int64_t n) { return n < 1; })) {
    InFlightDiagnostic error = emitOpError() << "expected 3 positive sizes of 'tile' but got [";
    llvm::interleaveComma(getTile(), error);
    return error << "]";
  }
  MemRefType bounds = getBounds().getType(), tiles = getTiles().getType();
  if (bounds.getDimSize(3) != 2)
    return emitOpError() << "expected a last dimension of 'bounds' of size 2 but got " << bounds;
  for (int64_t i = 0; i < 3; ++i)
    if (bounds.getDimSize(i) != tiles.getDimSize(i))
      return emitOpError() << "expected dimension " << i << " of 'tiles' to be that of 'bounds', "
                           << bounds << ", but got " << tiles;
  if (bool(getAttnMask()) == !getTest().empty())
    return emitOpError() << "expected either 'attn_mask' or a region 'test' but got "
                         << (getAttnMask() ? "both" : "neither");
  for (Region *region : {&getIntervals(), &getTest()}) {
    if (region->empty())
      continue;
    FailureOr<YieldIntervalsOp> yield = verifyRegion(*this, *region, region == &getTest() ? 4 : 3);
    if (failed(yield))
      return failure();
    if (yield->getBounds().size() % 4 != 0)
      return yield->emitOpError() << "expected 4 bounds for each interval but got "
                                  << yield->getBounds().size();
  }
  return success();
}

LogicalResult TileRangesOp::verify() {
  MemRefType ranges = getRanges().getType();
  if (ranges.getDimSize(3) != 2)
    return emitOpError() << "expected a last dimension of 'ranges' of size 2 but got " << ranges;
  FailureOr<YieldIntervalsOp> yield = verifyRegion(*this, getRows(), 3);
  if (failed(yield))
    return failure();
  if (size_t expected = getCopies() ? 4 : 3; yield->getBounds().size() != expected)
    return yield->emitOpError() << "expected " << expected << " values but got "
                                << yield->getBounds().size();
  return success();
}
