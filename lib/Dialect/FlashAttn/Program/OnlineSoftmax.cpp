//===- OnlineSoftmax.cpp ---------------------------------------------------===//
//
// Every target lowers what is built here; none computes a softmax of its own.
//
//===----------------------------------------------------------------------===//

#include "OnlineSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

OnlineSoftmax::OnlineSoftmax(OpBuilder &b, Location loc, ScheduleAttr schedule, int64_t dv,
                             const Factor &factor, bool wantsLse)
    : TileBuilder(b, loc), schedule(schedule), m(schedule.getTileM()), n(schedule.getTileN()),
      dv(dv), lanes(schedule.getLanes()), ones(schedule.sumsByProducts(dv) ? LoadTileOp::kOnes : 0),
      sumsWeights(!ones || wantsLse), c(factor) {
  if (c.value)
    c = {1, scalar(c)};
  if (RolesAttr roles = schedule.getRoles())
    growth = b.getF32FloatAttr(roles.getRescale());
}

RowState OnlineSoftmax::begin() const {
  VectorType sumType = lanes == 1 ? f32Vector({m}) : f32Vector({m, lanes});
  return {minusInf(f32Vector({m})), sumsWeights ? splat(sumType, 0) : Value(),
          splat(f32Vector({m, dv + ones}), 0)};
}

/// Adds the exponentials of a tile to the row sum. With `lanes` > 1 columns
/// (g, lane, c) of the tile go to partial sum `lane`, so that threads that share a row
/// add what they hold and meet only once, at the end.
Value OnlineSoftmax::sumUp(Value exponentials, Value sum) const {
  if (lanes == 1)
    return vector::MultiDimReductionOp::create(
        b, loc, exponentials, sum, ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  constexpr int64_t pair = 2; // adjacent columns that one lane holds
  Value grouped = vector::ShapeCastOp::create(
      b, loc, f32Vector({m, n / (lanes * pair), lanes, pair}), exponentials);
  return vector::MultiDimReductionOp::create(
      b, loc, grouped, sum, ArrayRef<bool>{false, true, false, true}, vector::CombiningKind::ADD);
}

/// The step of programs in which sum and output are rescaled at every tile.
Value OnlineSoftmax::stepAlways(RowState &state, Value scores) const {
  VectorType rowType = f32Vector({m});
  Value max = vector::MultiDimReductionOp::create(
      b, loc, scores, state.max, ArrayRef<bool>{false, true}, vector::CombiningKind::MAXNUMF);
  // A6: a row that has seen no key yet has max = -inf; exponents are then taken against 0,
  // since -inf - -inf is NaN.
  Value unseen = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, max, minusInf(rowType));
  Value base = arith::SelectOp::create(b, loc, unseen, splat(rowType, 0), max);
  Value rescale = math::Exp2Op::create(
      b, loc,
      arith::MulFOp::create(b, loc, arith::SubFOp::create(b, loc, state.max, base),
                            splat(rowType, c)));
  // exp2(c s - c base), one FMA and one exp2 an element.
  Value negBase = arith::MulFOp::create(b, loc, base, splat(rowType, -c));
  Value exponent =
      math::FmaOp::create(b, loc, scores, splat(f32Vector({m, n}), c), alongRow(negBase, n));
  Value p = math::Exp2Op::create(b, loc, exponent);
  Value sumScale = lanes == 1 ? rescale : alongRow(rescale, lanes);
  state.sum = sumUp(p, arith::MulFOp::create(b, loc, state.sum, sumScale));
  state.out = arith::MulFOp::create(b, loc, state.out, alongRow(rescale, dv));
  state.max = max;
  return p;
}

/// The step of programs that rescale where a base has moved.
Value OnlineSoftmax::stepWhereMoved(RowState &state, Value scores, ValueRange factors,
                                    function_ref<Value(ValueRange)> multiply) const {
  SmallVector<Value> summed = {state.out};
  if (sumsWeights)
    summed.insert(summed.begin(), state.sum);
  auto weights = WeightsOp::create(b, loc, scores, state.max, scalar(c), growth, lanes, summed);
  if (!factors.empty()) {
    OpBuilder::InsertionGuard guard(b);
    weights.getFactorsMutable().assign(factors);
    Block *again = b.createBlock(&weights.getAgain(), {}, factors.getTypes(),
                                 SmallVector<Location>(factors.size(), loc));
    TileYieldOp::create(b, loc, multiply(again->getArguments()));
  }
  if (sumsWeights)
    state.sum = arith::AddFOp::create(b, loc, weights.getRescaled().front(), weights.getSums());
  state.out = weights.getRescaled().back();
  state.max = weights.getBase();
  return weights.getWeights();
}

Value OnlineSoftmax::step(RowState &state, Value scores, ValueRange factors,
                          function_ref<Value(ValueRange)> multiply) const {
  Value p = schedule.getRoles() ? stepWhereMoved(state, scores, factors, multiply)
                                : stepAlways(state, scores);
  if (schedule.getDotType() != b.getF32Type())
    p = arith::TruncFOp::create(b, loc, VectorType::get({m, n}, schedule.getDotType()), p);
  return p;
}

/// vector<M>: the sum that the columns of ones have, all of them the same.
Value OnlineSoftmax::getProductSum(Value out) const {
  Value columns = vector::ExtractStridedSliceOp::create(
      b, loc, out, ArrayRef<int64_t>{0, dv}, ArrayRef<int64_t>{m, ones}, ArrayRef<int64_t>{1, 1});
  Value sum =
      vector::MultiDimReductionOp::create(b, loc, columns, splat(f32Vector({m}), 0),
                                          ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  return arith::MulFOp::create(b, loc, sum, splat(f32Vector({m}), 1.0 / ones));
}

/// A5: updates the row's sums; returns the factor of its output, vector<M>, and leaves in
/// `state.max` the base of the exponents, times c.
Value OnlineSoftmax::joinSink(RowState &state, MutableArrayRef<Value> sums, Value logit) const {
  VectorType rowType = f32Vector({m});
  Value log2e = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(M_LOG2E));
  logit = arith::MulFOp::create(b, loc, logit, log2e);
  Value sink = vector::BroadcastOp::create(b, loc, rowType, logit);
  Value max = arith::MulFOp::create(b, loc, state.max, splat(rowType, c));
  Value both = arith::MaxNumFOp::create(b, loc, max, sink);
  // A6: neither keys nor a sink; -inf - -inf would be NaN.
  Value none = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, both, minusInf(rowType));
  Value base = arith::SelectOp::create(b, loc, none, splat(rowType, 0), both);
  auto exponential = [&](Value x) -> Value {
    return math::Exp2Op::create(b, loc, arith::SubFOp::create(b, loc, x, base));
  };
  Value rescale = exponential(max), added = exponential(sink);
  for (Value &sum : sums)
    sum = arith::AddFOp::create(b, loc, arith::MulFOp::create(b, loc, sum, rescale), added);
  state.max = base;
  return rescale;
}

FinishedRows OnlineSoftmax::finish(RowState state, function_ref<Value()> loadSink) const {
  VectorType rowType = f32Vector({m});
  // What the output is divided by first, and last what the log-sum-exp has.
  SmallVector<Value> sums;
  Value out = state.out;
  if (ones) {
    sums.push_back(getProductSum(out));
    out = vector::ExtractStridedSliceOp::create(b, loc, out, ArrayRef<int64_t>{0, 0},
                                                ArrayRef<int64_t>{m, dv}, ArrayRef<int64_t>{1, 1});
  }
  if (sumsWeights)
    sums.push_back(lanes > 1 ? vector::MultiDimReductionOp::create(
                                   b, loc, state.sum, splat(rowType, 0),
                                   ArrayRef<bool>{false, true}, vector::CombiningKind::ADD)
                             : state.sum);
  Value sinkRescale;
  if (loadSink)
    sinkRescale = joinSink(state, sums, loadSink());
  Value zero = splat(rowType, 0);
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sums.front(), zero);
  Value inverse = arith::DivFOp::create(b, loc, splat(rowType, 1), sums.front());
  inverse = arith::SelectOp::create(b, loc, empty, zero, inverse);
  if (sinkRescale)
    inverse = arith::MulFOp::create(b, loc, inverse, sinkRescale);
  out = arith::MulFOp::create(b, loc, out, alongRow(inverse, dv));
  return {out, state.max, sums.back(), empty, /*hasSink=*/sinkRescale != nullptr};
}

/// lse = ln 2 (c base + log2 sum)
Value OnlineSoftmax::logSumExp(const FinishedRows &rows) const {
  VectorType rowType = f32Vector({m});
  Value log = math::Log2Op::create(b, loc, rows.sum);
  Value value = rows.hasSink
                    ? arith::AddFOp::create(b, loc, rows.base, log).getResult()
                    : math::FmaOp::create(b, loc, rows.base, splat(rowType, c), log).getResult();
  value = arith::MulFOp::create(b, loc, value, splat(rowType, M_LN2));
  return arith::SelectOp::create(b, loc, rows.isEmpty, minusInf(rowType), value);
}
