//===- PrintMaskTiles.cpp - draws a mask's tile map ------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Analysis/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_PRINTMASKTILES
#include "flashattn/Analysis/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

// The reference of `flash-run --verify` has an evaluator of its own, to be independent of this one.
static int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> operands) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return operands[dim.getPosition()];
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return operands[2 + symbol.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t lhs = evaluate(binary.getLHS(), operands), rhs = evaluate(binary.getRHS(), operands);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return lhs + rhs;
  case AffineExprKind::Mul:
    return lhs * rhs;
  case AffineExprKind::Mod:
    return llvm::mod(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(lhs, rhs);
  case AffineExprKind::CeilDiv:
    return llvm::divideCeilSigned(lhs, rhs);
  default:
    llvm_unreachable("leaves are done above");
  }
}

bool flashattn::isVisible(ArrayRef<IntegerSet> visible, int64_t p, int64_t k, int64_t nq,
                          int64_t nk) {
  int64_t operands[] = {p, k, nq, nk};
  return llvm::any_of(visible, [&](IntegerSet set) {
    return llvm::all_of(llvm::zip(set.getConstraints(), set.getEqFlags()), [&](auto constraint) {
      int64_t value = evaluate(std::get<0>(constraint), operands);
      return std::get<1>(constraint) ? value == 0 : value >= 0;
    });
  });
}

namespace {

struct PrintMaskTiles : flashattn::impl::PrintMaskTilesBase<PrintMaskTiles> {
  using PrintMaskTilesBase::PrintMaskTilesBase;

  void runOnOperation() override {
    for (auto [option, name] : {std::pair(&tileM, "tile-m"), std::pair(&tileN, "tile-n"),
                                std::pair(&nq, "nq"), std::pair(&nk, "nk")}) {
      bool given = option->hasValue() || *option != 0;
      if (given && *option < 1) {
        getOperation()->emitError()
            << "expected option '" << name << "' of at least 1 but got " << option->getValue();
        return signalPassFailure();
      }
    }
    WalkResult result = getOperation()->walk([&](AttentionOp op) {
      warnHiddenRows(op);
      return WalkResult(draw(op));
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  LogicalResult draw(AttentionOp op);
};

} // namespace

LogicalResult PrintMaskTiles::draw(AttentionOp op) {
  int64_t sizes[2];
  for (auto [size, option, name, type] : {std::tuple(&sizes[0], &nq, "nq", op.getQ().getType()),
                                          std::tuple(&sizes[1], &nk, "nk", op.getK().getType())}) {
    *size = *option != 0 ? option->getValue() : type.getDimSize(op.getSeqDim());
    if (ShapedType::isDynamic(*size))
      return op.emitError() << "expected option '" << name << "' as the size is dynamic in "
                            << type;
    if (*size < 1)
      return op.emitError() << "expected a size of at least 1 for '" << name << "' but got "
                            << *size;
  }
  auto [numQueries, numKeys] = sizes;

  // A3
  int64_t start = op.getAlign() == Align::TopLeft ? 0 : numKeys - numQueries;
  if (offset.hasValue() || offset != 0) {
    start = offset;
  } else if (Value operand = op.getOffset()) {
    std::optional<int64_t> constant = getConstantIntValue(operand);
    if (!constant)
      return op.emitError() << "expected option 'offset' as the op's offset is not a constant";
    start = *constant;
  }

  raw_ostream &os = llvm::outs();
  os << "mask ";
  if (std::optional<MaskAttrInterface> mask = op.getMask())
    os << *mask;
  else
    os << "none";
  os << ": nq = " << numQueries << ", nk = " << numKeys << ", tile-m = " << tileM
     << ", tile-n = " << tileN << ", offset = " << start << "\n";

  // The intervals are folded from constants, in a module of their own.
  SmallVector<IntegerSet> visible = op.getVisibleSets();
  TileIntervalPlan plan(visible, TileAxis::Keys, tileN);
  Location loc = op.getLoc();
  int64_t numTiles = llvm::divideCeil(numKeys, tileN);
  int64_t full = 0, partial = 0, empty = 0, pairs = 0;
  for (int64_t q = 0; q < numQueries; q += tileM) {
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(loc);
    OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(builder, loc, value);
    };
    int64_t rows = std::min<int64_t>(tileM, numQueries - q);
    std::string line(numTiles, '.');
    for (const TileInterval &interval :
         plan.emit(builder, loc, constant(start + q), constant(start + q + rows - 1),
                   constant(start), constant(numQueries), constant(numKeys))) {
      int64_t begin = *getConstantIntValue(interval.begin);
      int64_t fullBegin = *getConstantIntValue(interval.fullBegin);
      int64_t fullEnd = *getConstantIntValue(interval.fullEnd);
      int64_t end = *getConstantIntValue(interval.end);
      for (int64_t t = begin; t < end; ++t) {
        int64_t columns = std::min<int64_t>(tileN, numKeys - t * tileN);
        if (t >= fullBegin && t < fullEnd) {
          line[t] = '#';
          ++full;
          pairs += rows * columns;
          continue;
        }
        line[t] = '+';
        ++partial;
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j)
            pairs += isVisible(visible, start + q + i, t * tileN + j, numQueries, numKeys);
      }
    }
    empty += llvm::count(line, '.');
    os << line << "\n";
  }
  os << full << " full, " << partial << " partial, " << empty << " empty; " << pairs << " of "
     << numQueries * numKeys << " pairs visible\n";
  os.flush();
  return success();
}
