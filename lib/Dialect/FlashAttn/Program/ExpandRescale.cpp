//===- ExpandRescale.cpp - flashattn-expand-rescale ------------------------===//
//
// Any base at all may be taken off the exponents of a row, as long as sum and output
// keep to the same one. An old maximum does while no weight outgrows its type.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::flashattn;

void mlir::flashattn::expandRowMax(RewriterBase &b, RowMaxOp op) {
  TileBuilder build(b, op.getLoc());
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto reduceRows = [&](OpBuilder &nested, Value of, Value acc) {
    return vector::MultiDimReductionOp::create(nested, loc, of, acc, ArrayRef<bool>{false, true},
                                               vector::CombiningKind::MAXNUMF);
  };
  if (!op.getGrowth()) {
    Value max = reduceRows(b, op.getScores(), op.getOld());
    b.replaceOp(op, {max, arith::ConstantIntOp::create(b, loc, true, 1)});
    return;
  }
  auto tile = cast<VectorType>(op.getScores().getType());
  int64_t m = tile.getDimSize(0), n = tile.getDimSize(1), lanes = op.getLanes();
  VectorType laneType = build.f32Vector({m, lanes});
  // The maximum by lane, as each thread has it before any exchange.
  constexpr int64_t pair = 2; // adjacent columns that one lane holds
  Value grouped = vector::ShapeCastOp::create(
      b, loc, build.f32Vector({m, n / (lanes * pair), lanes, pair}), op.getScores());
  Value laneMax = vector::MultiDimReductionOp::create(b, loc, grouped, build.minusInf(laneType),
                                                      ArrayRef<bool>{false, true, false, true},
                                                      vector::CombiningKind::MAXNUMF);
  Value limit = arith::AddFOp::create(
      b, loc, op.getOld(), build.splat(build.f32Vector({m}), op.getGrowth()->convertToFloat()));
  limit = build.alongRow(limit, lanes);
  // -inf beside -inf, a row that has seen nothing, compares false; -inf beside anything, true.
  Value grown = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, laneMax, limit);
  Value any = AnyRowOp::create(b, loc, grown);
  auto max = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &nested, Location l) {
        scf::YieldOp::create(nested, l, reduceRows(nested, laneMax, op.getOld()).getResult());
      },
      [&](OpBuilder &nested, Location l) { scf::YieldOp::create(nested, l, op.getOld()); });
  b.replaceOp(op, {max.getResult(0), any});
}

/// `values` of `op` times what takes them from one base to the other.
static SmallVector<Value> buildProducts(OpBuilder &b, RescaleOp op) {
  Location loc = op.getLoc();
  TileBuilder build(b, loc);
  auto rowType = cast<VectorType>(op.getFrom().getType());
  Value difference = arith::SubFOp::create(b, loc, op.getFrom(), op.getTo());
  Value factor = build.splat(rowType, op.getFactor().convertToFloat());
  Value rescale =
      math::Exp2Op::create(b, loc, arith::MulFOp::create(b, loc, difference, factor));
  return llvm::map_to_vector(op.getValues(), [&](Value value) -> Value {
    auto type = cast<VectorType>(value.getType());
    Value spread = type.getRank() == 1 ? rescale : build.alongRow(rescale, type.getDimSize(1));
    return arith::MulFOp::create(b, loc, value, spread);
  });
}

void mlir::flashattn::expandRescale(RewriterBase &b, RescaleOp op) {
  b.setInsertionPoint(op);
  if (matchPattern(op.getMoved(), m_One())) {
    b.replaceOp(op, buildProducts(b, op));
    return;
  }
  auto branch = scf::IfOp::create(
      b, op.getLoc(), op.getMoved(),
      [&](OpBuilder &nested, Location l) {
        scf::YieldOp::create(nested, l, buildProducts(nested, op));
      },
      [&](OpBuilder &nested, Location l) { scf::YieldOp::create(nested, l, op.getValues()); });
  b.replaceOp(op, branch.getResults());
}
