//===- ExpandRescale.cpp - flashattn-expand-rescale -----------------------===//
//
// Any base may be subtracted from the exponents of a row, as long as sum and output use the same
// base. An old maximum can be kept while no unnormalized probability exceeds the range of its type.
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
/// Expands one `flashattn.softmax_step`.
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
  /// Scores relative to a new base, and the factor that rescales sums to it.
  struct Moved {
    Value shiftedScores, negated, factor;
  };
  Moved move(Value scores, Value base);
  SmallVector<Value> makeWeights(Value shiftedScores, Value negatedBase);
  SmallVector<Value> rescale(Value factor);
  Value recomputeScores();
  Value findGrown(Value weights, Value sums);
  void rescaleAlways();
  void rescaleByScores();
  void rescaleByProbabilities();

  RewriterBase &b;
  SoftmaxStepOp op;
  VectorType tile, rows;
  int64_t m, n, lanes;
};
} // namespace

/// Reduces the elements of a row that each lane holds, without an exchange: vector<MxL>.
Value SoftmaxStepExpander::reduceLanes(Value of, Value acc, vector::CombiningKind kind) {
  constexpr int64_t kPair = 2; // adjacent columns that one lane holds
  auto type = VectorType::get({m, n / (lanes * kPair), lanes, kPair}, getElementTypeOrSelf(of));
  Value grouped = vector::ShapeCastOp::create(b, loc, type, of);
  return vector::MultiDimReductionOp::create(b, loc, grouped, acc,
                                             ArrayRef<bool>{false, true, false, true}, kind);
}

/// Returns the maximum of each row of `of` and of its old base: vector<M>. With `log2_largest`, the
/// maximum of `of` is reduced first.
Value SoftmaxStepExpander::reduceRows(Value of) {
  if (std::optional<APFloat> largest = op.getLog2Largest()) {
    Value max = vector::MultiDimReductionOp::create(
        b, loc, of, minusInf(rows), ArrayRef<bool>{false, true}, vector::CombiningKind::MAXNUMF);
    Value offset = arith::ConstantOp::create(b, loc, op.getLog2LargestAttr());
    offset = b.createOrFold<arith::DivFOp>(loc, offset, op.getFactor());
    max = arith::SubFOp::create(b, loc, max, broadcast(rows, offset));
    return arith::MaxNumFOp::create(b, loc, op.getOld(), max);
  }
  return vector::MultiDimReductionOp::create(b, loc, of, op.getOld(), ArrayRef<bool>{false, true},
                                             vector::CombiningKind::MAXNUMF);
}

ExponentBase SoftmaxStepExpander::getBase(Value base) {
  return ExponentBase(b, loc, base, op.getFactor());
}

/// Changes the base. The warp subtracts shifts from the scores only if one of its rows has a shift,
/// which is rare.
SoftmaxStepExpander::Moved SoftmaxStepExpander::move(Value scores, Value base) {
  ExponentBase old = getBase(op.getOld()), next = getBase(base);
  // A row that has seen no key has a shift, but its sums are 0.
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

/// Returns the unnormalized probabilities of shifted scores, and their sums by lane.
SmallVector<Value> SoftmaxStepExpander::makeWeights(Value shiftedScores, Value negatedBase) {
  Value weights = buildWeights(b, loc, shiftedScores, op.getFactor(), negatedBase);
  Value zero = splat(f32Vector({m, lanes}), 0);
  return {weights, reduceLanes(weights, zero, vector::CombiningKind::ADD)};
}

/// Returns the op's `values` times `factor`, vector<M>.
SmallVector<Value> SoftmaxStepExpander::rescale(Value factor) {
  return llvm::map_to_vector(op.getValues(), [&](Value value) -> Value {
    auto type = cast<VectorType>(value.getType());
    Value spread = type.getRank() == 1 ? factor : alongRow(factor, type.getDimSize(1));
    return arith::MulFOp::create(b, loc, value, spread);
  });
}

void SoftmaxStepExpander::rescaleAlways() {
  Value max = reduceRows(op.getScores());
  Moved moved = move(op.getScores(), max);
  // The exponentials that follow hide the latency of the rescaling.
  SmallVector<Value> rescaled = rescale(moved.factor);
  SmallVector<Value> results = makeWeights(moved.shiftedScores, moved.negated);
  results.push_back(max);
  llvm::append_range(results, rescaled);
  b.replaceOp(op, results);
}

/// Changes the base if a score exceeds the old base by more than the threshold, or if the old base
/// has a shift. There are two branches, and operations that do not need the earlier sums are
/// between them.
void SoftmaxStepExpander::rescaleByScores() {
  Value largest =
      reduceLanes(op.getScores(), minusInf(f32Vector({m, lanes})), vector::CombiningKind::MAXNUMF);
  Value threshold = arith::ConstantOp::create(b, loc, op.getThresholdAttr());
  threshold = b.createOrFold<arith::DivFOp>(loc, threshold, op.getFactor());
  Value limit = arith::AddFOp::create(b, loc, op.getOld(), broadcast(rows, threshold));
  // In a row that has seen no key the limit is -inf, so that any visible score exceeds it.
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

/// Inlines the region that recomputes the scores. Tiles are read from memory again; otherwise, CSE
/// would replace the scores by the existing ones and keep those in registers.
Value SoftmaxStepExpander::recomputeScores() {
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

/// Returns whether a lane's `weights`, or their `sums`, exceed the limit of the threshold, or are
/// NaN because of infinite scores: vector<MxLxi1>.
Value SoftmaxStepExpander::findGrown(Value weights, Value sums) {
  VectorType type = f32Vector({m, lanes});
  Value limit = splat(type, std::exp2(op.getThreshold()->convertToDouble()));
  if (!op.getSums().use_empty())
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, sums, limit);
  // The sums are unused, so the maximum is tested, as an integer, since no value is negative: ptxas
  // merges two integer maxima into one instruction with three operands.
  auto toBits = [&](Value v) -> Value {
    auto shape = cast<VectorType>(v.getType()).getShape();
    return b.createOrFold<arith::BitcastOp>(loc, VectorType::get(shape, b.getI32Type()), v);
  };
  Value largest =
      reduceLanes(toBits(weights), toBits(splat(type, 0)), vector::CombiningKind::MAXSI);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, largest, toBits(limit));
}

/// Computes probabilities relative to the old base, and recomputes them with a new base if some
/// exceed the limit or the old base has a shift.
void SoftmaxStepExpander::rescaleByProbabilities() {
  ExponentBase old = getBase(op.getOld());
  SmallVector<Value> made = makeWeights(op.getScores(), old.getUnshifted());
  Value grown = findGrown(made[0], made[1]);
  grown = arith::OrIOp::create(b, loc, grown, alongRow(old.isShifted(), lanes));
  Value any = AnyRowOp::create(b, loc, grown);
  auto branch = scf::IfOp::create(
      b, loc, any,
      [&](OpBuilder &, Location) {
        Value scores = recomputeScores(), max = reduceRows(scores);
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
    rescaleAlways();
  else if (op.getRecompute().empty())
    rescaleByScores();
  else
    rescaleByProbabilities();
}

void mlir::flashattn::expandSoftmaxSteps(RewriterBase &b, SoftmaxStepOp op) {
  SoftmaxStepExpander(b, op).run();
}
