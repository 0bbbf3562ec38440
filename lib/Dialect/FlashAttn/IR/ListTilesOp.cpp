//===- ListTilesOp.cpp - lists of visible key tiles -----------------------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

using namespace mlir;
using namespace mlir::flashattn;

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
  SmallVector<Type> indices(3, IndexType::get(getContext()));
  Block &body = getIntervals().front();
  if (!llvm::equal(body.getArgumentTypes(), indices)) {
    InFlightDiagnostic error = emitOpError()
                               << "expected a region of (index, index, index) but got (";
    llvm::interleaveComma(body.getArgumentTypes(), error);
    return error << ")";
  }
  auto yield = dyn_cast<YieldIntervalsOp>(body.back());
  if (!yield)
    return body.back().emitOpError()
           << "expected 'flashattn.yield_intervals' at the end of the intervals but got '"
           << body.back().getName() << "'";
  if (yield.getBounds().size() % 4 != 0)
    return yield.emitOpError() << "expected 4 bounds for each interval but got "
                               << yield.getBounds().size();
  return success();
}
