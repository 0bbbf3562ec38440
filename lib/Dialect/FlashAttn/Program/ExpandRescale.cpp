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
  Value limit = arith::AddFOp::create(b, loc, op.getOld(),
                                      build.broadcast(build.f32Vector({m}), op.getGrowth()));
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

/// What takes rows of `op` from one base to the other, vector<M>.
static Value buildFactor(OpBuilder &b, RescaleOp op) {
  Location loc = op.getLoc();
  auto rowType = cast<VectorType>(op.getFrom().getType());
  Value difference = arith::SubFOp::create(b, loc, op.getFrom(), op.getTo());
  Value factor = TileBuilder(b, loc).broadcast(rowType, op.getFactor());
  return math::Exp2Op::create(b, loc, arith::MulFOp::create(b, loc, difference, factor));
}

/// `values` of `op` times `factor`.
static SmallVector<Value> buildProducts(OpBuilder &b, RescaleOp op, Value factor) {
  TileBuilder build(b, op.getLoc());
  return llvm::map_to_vector(op.getValues(), [&](Value value) -> Value {
    auto type = cast<VectorType>(value.getType());
    Value spread = type.getRank() == 1 ? factor : build.alongRow(factor, type.getDimSize(1));
    return arith::MulFOp::create(b, op.getLoc(), value, spread);
  });
}

void mlir::flashattn::expandRescale(RewriterBase &b, RescaleOp op) {
  b.setInsertionPoint(op);
  if (matchPattern(op.getMoved(), m_One())) {
    // Where both bases are known: what stands between, a tile's exponentials, hides what this
    // takes.
    Operation *known = nullptr;
    for (Value base : {op.getFrom(), op.getTo()})
      if (Operation *def = base.getDefiningOp(); def && def->getBlock() == op->getBlock())
        known = known && def->isBeforeInBlock(known) ? known : def;
    if (known)
      b.setInsertionPointAfter(known);
    Value factor = buildFactor(b, op);
    b.setInsertionPoint(op);
    b.replaceOp(op, buildProducts(b, op, factor));
    return;
  }
  auto branch = scf::IfOp::create(
      b, op.getLoc(), op.getMoved(),
      [&](OpBuilder &nested, Location l) {
        scf::YieldOp::create(nested, l, buildProducts(nested, op, buildFactor(nested, op)));
      },
      [&](OpBuilder &nested, Location l) { scf::YieldOp::create(nested, l, op.getValues()); });
  b.replaceOp(op, branch.getResults());
}
