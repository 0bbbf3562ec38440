//===- ExpandRescale.cpp - flashattn-expand-rescale ------------------------===//
//
// Any base at all may be taken off the exponents of a row, as long as sum and output
// keep to the same one. An old maximum does while no weight outgrows its type.
//
//===----------------------------------------------------------------------===//

#include "OnlineSoftmax.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Builds what one op is made of.
class SoftmaxStepExpander : TileBuilder {
public:
  SoftmaxStepExpander(RewriterBase &b, SoftmaxStepOp op)
      : TileBuilder(b, op.getLoc()), b(b), op(op), tile(cast<VectorType>(op.getScores().getType())),
        rows(cast<VectorType>(op.getOld().getType())), m(tile.getDimSize(0)), n(tile.getDimSize(1)),
        lanes(op.getThreadsPerRow()) {
    b.setInsertionPoint(op);
  }

  void run();

private:
  Value reduceLanes(Value of, Value acc, vector::CombiningKind kind);
  Value reduceRows(Value of);
  ExponentBase getBase(Value base);
  /// Scores against a new base, and what takes sums to it.
  struct Moved {
    Value shiftedScores, negated, factor;
  };
  Moved move(Value scores, Value base);
  SmallVector<Value> makeWeights(Value shiftedScores, Value negatedBase);
  SmallVector<Value> rescale(Value factor);
  Value makeScoresAgain();
  Value findGrown(Value weights, Value sums);
  void judgeNothing();
  void judgeByScores();
  void judgeByWeights();

  RewriterBase &b;
  SoftmaxStepOp op;
  VectorType tile, rows;
  int64_t m, n, lanes;
};
} // namespace

/// vector<MxL>: of what each lane has of a row, without any exchange.
Value SoftmaxStepExpander::reduceLanes(Value of, Value acc, vector::CombiningKind kind) {
  constexpr int64_t kPair = 2; // adjacent columns that one lane holds
  auto type = VectorType::get({m, n / (lanes * kPair), lanes, kPair}, getElementTypeOrSelf(of));
  Value grouped = vector::ShapeCastOp::create(b, loc, type, of);
  return vector::MultiDimReductionOp::create(b, loc, grouped, acc,
                                             ArrayRef<bool>{false, true, false, true}, kind);
}

/// The largest of each row of `of` and of its old base.
Value SoftmaxStepExpander::reduceRows(Value of) {
  return vector::MultiDimReductionOp::create(b, loc, of, op.getOld(), ArrayRef<bool>{false, true},
                                             vector::CombiningKind::MAXNUMF);
}

ExponentBase SoftmaxStepExpander::getBase(Value base) {
  return ExponentBase(b, loc, base, op.getFactor());
}

/// The warp subtracts shifts from the scores only if one of its rows has a shift: few tiles do.
SoftmaxStepExpander::Moved SoftmaxStepExpander::move(Value scores, Value base) {
  ExponentBase old = getBase(op.getOld()), next = getBase(base);
  // A row that has seen nothing has a shift, and sums of 0.
  Value hasSeen =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, op.getOld(), minusInf(rows));
  Value wasShifted = arith::AndIOp::create(b, loc, old.isShifted(), hasSeen);
  Value shifts = arith::OrIOp::create(b, loc, next.isShifted(), wasShifted);
  auto moved = scf::IfOp::create(
      b, loc, AnyRowOp::create(b, loc, shifts),
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(
            b, loc,
            ValueRange{next.shift(scores), next.getNegated(), old.getRescaleThreshold(next)});
      },
      [&](OpBuilder &, Location) {
        Value difference = arith::SubFOp::create(b, loc, next.getUnshifted(), old.getUnshifted());
        scf::YieldOp::create(
            b, loc,
            ValueRange{scores, next.getUnshifted(), math::Exp2Op::create(b, loc, difference)});
      });
  return {moved.getResult(0), moved.getResult(1), moved.getResult(2)};
}

/// Weights, of shifted scores, and their sums.
SmallVector<Value> SoftmaxStepExpander::makeWeights(Value shiftedScores, Value negatedBase) {
  Value weights = buildWeights(b, loc, shiftedScores, op.getFactor(), negatedBase);
  Value zero = splat(f32Vector({m, lanes}), 0);
  return {weights, reduceLanes(weights, zero, vector::CombiningKind::ADD)};
}

/// What was summed times `factor`, vector<M>.
SmallVector<Value> SoftmaxStepExpander::rescale(Value factor) {
  return llvm::map_to_vector(op.getValues(), [&](Value value) -> Value {
    auto type = cast<VectorType>(value.getType());
    Value spread = type.getRank() == 1 ? factor : alongRow(factor, type.getDimSize(1));
    return arith::MulFOp::create(b, loc, value, spread);
  });
}

void SoftmaxStepExpander::judgeNothing() {
  Value max = reduceRows(op.getScores());
  Moved moved = move(op.getScores(), max);
  // What this takes is hidden by the exponentials behind it.
  SmallVector<Value> rescaled = rescale(moved.factor);
  SmallVector<Value> results = makeWeights(moved.shiftedScores, moved.negated);
  results.push_back(max);
  llvm::append_range(results, rescaled);
  b.replaceOp(op, results);
}

/// Where a score exceeds the old base by more than the threshold, or the old base is one that must
/// be subtracted from the scores. There are two branches, and what need not wait for what was
/// summed stands between them.
void SoftmaxStepExpander::judgeByScores() {
  Value largest =
      reduceLanes(op.getScores(), minusInf(f32Vector({m, lanes})), vector::CombiningKind::MAXNUMF);
  Value threshold = arith::ConstantOp::create(b, loc, op.getThresholdAttr());
  threshold = b.createOrFold<arith::DivFOp>(loc, threshold, op.getFactor());
  Value limit = arith::AddFOp::create(b, loc, op.getOld(), broadcast(rows, threshold));
  // -inf beside anything, a row that has seen nothing and now does, compares true.
  Value grown =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, largest, alongRow(limit, lanes));
  ExponentBase old = getBase(op.getOld());
  grown = arith::OrIOp::create(b, loc, grown, alongRow(old.isShifted(), lanes));
  Value any = AnyRowOp::create(b, loc, grown);
  auto moved = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &, Location) {
        Value max = reduceRows(largest);
        Moved to = move(op.getScores(), max);
        scf::YieldOp::create(b, loc, ValueRange{to.shiftedScores, to.negated, max, to.factor});
      },
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(
            b, loc, ValueRange{op.getScores(), old.getUnshifted(), op.getOld(), splat(rows, 1)});
      });
  SmallVector<Value> results = makeWeights(moved.getResult(0), moved.getResult(1));
  results.push_back(moved.getResult(2));
  auto rescaled = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, rescale(moved.getResult(3))); },
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, op.getValues()); });
  llvm::append_range(results, rescaled.getResults());
  b.replaceOp(op, results);
}

/// The region's scores, here. What comes from memory is read again, lest these are found to be the
/// same as those that are there and kept, in registers, until here.
Value SoftmaxStepExpander::makeScoresAgain() {
  Block *body = &op.getRecompute().front();
  SmallVector<Value> factors;
  for (Value factor : op.getFactors()) {
    Operation *def = factor.getDefiningOp();
    bool isRead = def && hasSingleEffect<MemoryEffects::Read>(def);
    factors.push_back(isRead ? b.clone(*def)->getResult(0) : factor);
  }
  Value scores = body->getTerminator()->getOperand(0);
  b.eraseOp(body->getTerminator());
  b.inlineBlockBefore(body, b.getInsertionBlock(), b.getInsertionPoint(), factors);
  return scores;
}

/// vector<MxL>: where a lane's `weights`, or their `sums`, exceed what the threshold lets them be.
/// So does NaN, of infinite scores.
Value SoftmaxStepExpander::findGrown(Value weights, Value sums) {
  VectorType type = f32Vector({m, lanes});
  Value limit = splat(type, std::exp2(op.getThreshold()->convertToDouble()));
  if (!op.getSums().use_empty())
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, sums, limit);
  // Nobody sums them up: the largest, as an integer, since none is negative. Of those ptxas takes
  // three at once.
  auto toBits = [&](Value v) -> Value {
    auto shape = cast<VectorType>(v.getType()).getShape();
    return b.createOrFold<arith::BitcastOp>(loc, VectorType::get(shape, b.getI32Type()), v);
  };
  Value largest =
      reduceLanes(toBits(weights), toBits(splat(type, 0)), vector::CombiningKind::MAXSI);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, largest, toBits(limit));
}

/// Weights against the old base, and another time where some outgrew it, or where it is one that
/// must be subtracted from the scores.
void SoftmaxStepExpander::judgeByWeights() {
  ExponentBase old = getBase(op.getOld());
  SmallVector<Value> made = makeWeights(op.getScores(), old.getUnshifted());
  Value grown = findGrown(made[0], made[1]);
  grown = arith::OrIOp::create(b, loc, grown, alongRow(old.isShifted(), lanes));
  Value any = AnyRowOp::create(b, loc, grown);
  auto branch = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &, Location) {
        Value scores = makeScoresAgain(), max = reduceRows(scores);
        Moved to = move(scores, max);
        SmallVector<Value> again = makeWeights(to.shiftedScores, to.negated);
        again.push_back(max);
        llvm::append_range(again, rescale(to.factor));
        scf::YieldOp::create(b, loc, again);
      },
      [&](OpBuilder &, Location) {
        made.push_back(op.getOld());
        llvm::append_range(made, op.getValues());
        scf::YieldOp::create(b, loc, made);
      });
  b.replaceOp(op, branch.getResults());
}

void SoftmaxStepExpander::run() {
  if (!op.getThreshold())
    judgeNothing();
  else if (op.getRecompute().empty())
    judgeByScores();
  else
    judgeByWeights();
}

void mlir::flashattn::expandWeights(RewriterBase &b, SoftmaxStepOp op) {
  SoftmaxStepExpander(b, op).run();
}
