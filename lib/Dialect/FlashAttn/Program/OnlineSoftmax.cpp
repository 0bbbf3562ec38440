//===- OnlineSoftmax.cpp --------------------------------------------------===//
//
// All targets lower the softmax that is built here.
//
//===----------------------------------------------------------------------===//

#include "OnlineSoftmax.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Bases
//===----------------------------------------------------------------------===//

ExponentBase::ExponentBase(OpBuilder &b, Location loc, Value base, Value factor)
    : TileBuilder(b, loc), rows(cast<VectorType>(base.getType())), factor(factor) {
  constexpr double kLargest = 1 << 8; // largest |c base| without a shift
  Value limit = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(kLargest));
  limit = b.createOrFold<arith::DivFOp>(loc, limit, factor);
  shifted = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT,
                                  math::AbsFOp::create(b, loc, base), broadcast(rows, limit));
  // A6: -inf - -inf would be NaN.
  finite = arith::MaxNumFOp::create(b, loc, base, splat(rows, -std::numeric_limits<float>::max()));
  shifts = arith::SelectOp::create(b, loc, shifted, finite, splat(rows, 0));
  Value minusFactor = arith::NegFOp::create(b, loc, factor);
  unshifted = arith::MulFOp::create(b, loc, base, broadcast(rows, minusFactor));
  negated = arith::SelectOp::create(b, loc, shifted, splat(rows, 0), unshifted);
}

Value ExponentBase::shift(Value scores) const {
  int64_t columns = cast<VectorType>(scores.getType()).getDimSize(1);
  return arith::SubFOp::create(b, loc, scores, alongRow(shifts, columns));
}

Value mlir::flashattn::buildWeights(OpBuilder &b, Location loc, Value shiftedScores, Value factor,
                                    Value negated) {
  TileBuilder tiles(b, loc);
  auto tile = cast<VectorType>(shiftedScores.getType());
  // One FMA and one exp2 per element.
  Value exponents = math::FmaOp::create(b, loc, shiftedScores, tiles.broadcast(tile, factor),
                                        tiles.alongRow(negated, tile.getDimSize(1)));
  return math::Exp2Op::create(b, loc, exponents);
}

Value ExponentBase::getRescaleThreshold(const ExponentBase &next) const {
  Value shift = arith::SubFOp::create(b, loc, shifts, next.shifts);
  Value rest = arith::SubFOp::create(b, loc, next.negated, negated);
  return math::Exp2Op::create(b, loc,
                              math::FmaOp::create(b, loc, shift, broadcast(rows, factor), rest));
}

Value ExponentBase::getLog(const Factor &scale) const {
  Value ofShift = arith::MulFOp::create(b, loc, shifts, splat(rows, scale));
  Value rest = arith::MulFOp::create(b, loc, negated, splat(rows, -M_LN2));
  return arith::SelectOp::create(b, loc, shifted, ofShift, rest);
}

Value ExponentBase::getRest() const {
  Value difference = arith::SubFOp::create(b, loc, finite, shifts);
  return math::FmaOp::create(b, loc, difference, broadcast(rows, factor), negated);
}

Value ExponentBase::getLogError(Value log, const Factor &scale) const {
  Value minusLog = arith::NegFOp::create(b, loc, log);
  Value ofShift = math::FmaOp::create(b, loc, shifts, splat(rows, scale), minusLog);
  Value rest = math::FmaOp::create(b, loc, negated, splat(rows, -M_LN2), minusLog);
  return arith::SelectOp::create(b, loc, shifted, ofShift, rest);
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

OnlineSoftmax::OnlineSoftmax(OpBuilder &b, Location loc, ScheduleAttr schedule, int64_t dv,
                             const Factor &factor, bool wantsLse)
    : TileBuilder(b, loc), schedule(schedule), m(schedule.getTileM()), n(schedule.getTileN()),
      dv(dv), lanes(schedule.getThreadsPerRow()),
      ones(schedule.sumsByProducts(dv) ? LoadTileOp::kOnes : 0), sumsWeights(!ones || wantsLse),
      c(factor) {
  if (c.value)
    c = {1, scalar(c)};
  // F3: the largest power of 2 in f8E4M3FN is 2^8. Two-level sums rescale at each step anyway.
  constexpr float kLargestF8 = 8;
  if (isF8(schedule.getDotType()))
    log2Largest = b.getF32FloatAttr(kLargestF8);
  else if (std::optional<int64_t> growth = schedule.getMapping().getThresholdOfRescale())
    threshold = b.getF32FloatAttr(*growth);
}

RowState OnlineSoftmax::begin() const {
  VectorType sumType = lanes == 1 ? f32Vector({m}) : f32Vector({m, lanes});
  return {minusInf(f32Vector({m})), sumsWeights ? splat(sumType, 0) : Value(),
          dv ? splat(f32Vector({m, dv + ones}), 0) : Value()};
}

/// Builds the step of programs with one lane per row, that is, on the CPU. The branches of
/// stepInLanes would cost more there than the subtraction of shifts.
Value OnlineSoftmax::stepInLane(RowState &state, Value scores) const {
  Value max = vector::MultiDimReductionOp::create(
      b, loc, scores, state.max, ArrayRef<bool>{false, true}, vector::CombiningKind::MAXNUMF);
  ExponentBase old(b, loc, state.max, scalar(c)), base(b, loc, max, scalar(c));
  Value rescale = old.getRescaleThreshold(base);
  Value p = buildWeights(b, loc, base.shift(scores), scalar(c), base.getNegated());
  state.sum = vector::MultiDimReductionOp::create(
      b, loc, p, arith::MulFOp::create(b, loc, state.sum, rescale), ArrayRef<bool>{false, true},
      vector::CombiningKind::ADD);
  if (state.out)
    state.out = arith::MulFOp::create(b, loc, state.out, alongRow(rescale, dv));
  state.max = max;
  return p;
}

/// Builds the step of programs in which several lanes share a row.
Value OnlineSoftmax::stepInLanes(RowState &state, Value scores, ValueRange factors,
                                 function_ref<Value(ValueRange)> multiply) const {
  SmallVector<Value> summed(llvm::drop_begin(state.values()));
  bool hasTwoLevels = isF8(schedule.getDotType()) && state.out;
  if (hasTwoLevels)
    summed.back() = splat(f32Vector({m}), 1);
  auto weights =
      SoftmaxStepOp::create(b, loc, scores, state.max, scalar(c), threshold, lanes, summed);
  weights.setLog2LargestAttr(log2Largest);
  if (!factors.empty()) {
    OpBuilder::InsertionGuard guard(b);
    weights.getFactorsMutable().assign(factors);
    Block *again = b.createBlock(&weights.getRecompute(), {}, factors.getTypes(),
                                 SmallVector<Location>(factors.size(), loc));
    TileYieldOp::create(b, loc, multiply(again->getArguments()));
  }
  if (sumsWeights)
    state.sum = arith::AddFOp::create(b, loc, weights.getRescaled().front(), weights.getSums());
  if (hasTwoLevels)
    state.rescale = weights.getRescaled().back();
  else if (state.out)
    state.out = weights.getRescaled().back();
  state.max = weights.getBase();
  return weights.getWeights();
}

void OnlineSoftmax::addProduct(RowState &state, Value weights, Value values) const {
  if (!state.rescale) {
    state.out = product(weights, values, state.out);
    return;
  }
  // Sums of f8 products keep few bits, so that each tile has sums of its own.
  auto type = cast<VectorType>(state.out.getType());
  Value sums = product(weights, values, splat(type, 0));
  state.out =
      math::FmaOp::create(b, loc, state.out, alongRow(state.rescale, type.getDimSize(1)), sums);
}

Value OnlineSoftmax::step(RowState &state, Value scores, ValueRange factors,
                          function_ref<Value(ValueRange)> multiply) const {
  Value p = lanes > 1 ? stepInLanes(state, scores, factors, multiply) : stepInLane(state, scores);
  if (schedule.getDotType() != b.getF32Type())
    p = arith::TruncFOp::create(b, loc, VectorType::get({m, n}, schedule.getDotType()), p);
  return p;
}

/// Returns the row sum in the columns of ones, which are all equal: vector<M>.
Value OnlineSoftmax::getProductSum(Value out) const {
  Value columns = vector::ExtractStridedSliceOp::create(
      b, loc, out, ArrayRef<int64_t>{0, dv}, ArrayRef<int64_t>{m, ones}, ArrayRef<int64_t>{1, 1});
  Value sum =
      vector::MultiDimReductionOp::create(b, loc, columns, splat(f32Vector({m}), 0),
                                          ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  return arith::MulFOp::create(b, loc, sum, splat(f32Vector({m}), 1.0 / ones));
}

/// A5: adds the sink to the row sums `sums`, and sets in `rows` the value that they are relative
/// to. Returns the factor for the row's output, vector<M>.
Value OnlineSoftmax::joinSink(FinishedRows &rows, MutableArrayRef<Value> sums, Value logit) const {
  VectorType rowType = f32Vector({m});
  Value zero = splat(rowType, 0), inf = splat(rowType, INFINITY);
  rows.sink = vector::BroadcastOp::create(b, loc, rowType, logit);
  ExponentBase base(b, loc, rows.base, scalar(c));
  // The base minus the sink, first as a natural logarithm.
  Value log = base.getLog(c * M_LN2), above = arith::SubFOp::create(b, loc, log, rows.sink);
  above = arith::AddFOp::create(b, loc, above, base.getLogError(log, c * M_LN2));
  above = arith::MulFOp::create(b, loc, above, splat(rowType, M_LOG2E));
  // A6: a row without a key has a sum of 0, and a sink of -inf adds nothing to a sum.
  Value empty =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, rows.base, minusInf(rowType));
  Value none =
      arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, rows.sink, minusInf(rowType));
  above = arith::SelectOp::create(b, loc, empty, minusInf(rowType), above);
  above = arith::SelectOp::create(b, loc, none, inf, above);
  rows.above = above;
  rows.isSink = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, above, zero);
  Value rescale = math::Exp2Op::create(b, loc, arith::MinimumFOp::create(b, loc, above, zero));
  Value below = arith::MinimumFOp::create(b, loc, arith::NegFOp::create(b, loc, above), zero);
  Value added = math::Exp2Op::create(b, loc, below);
  for (Value &sum : sums)
    sum = math::FmaOp::create(b, loc, sum, rescale, added);
  return rescale;
}

FinishedRows OnlineSoftmax::finish(RowState state, function_ref<Value()> loadSink) const {
  VectorType rowType = f32Vector({m});
  // The first sum divides the output, and the last enters the log-sum-exp.
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
  FinishedRows rows;
  rows.base = state.max;
  Value sinkRescale;
  if (Value logit = loadSink())
    sinkRescale = joinSink(rows, sums, logit);
  Value zero = splat(rowType, 0);
  rows.sum = sums.back();
  rows.isEmpty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sums.front(), zero);
  Value inverse = arith::DivFOp::create(b, loc, splat(rowType, 1), sums.front());
  inverse = arith::SelectOp::create(b, loc, rows.isEmpty, zero, inverse);
  if (sinkRescale)
    inverse = arith::MulFOp::create(b, loc, inverse, sinkRescale);
  if (out)
    rows.out = arith::MulFOp::create(b, loc, out, alongRow(inverse, dv));
  return rows;
}

/// lse = c ln 2 base + ln 2 log2 sum
std::pair<Value, Value> OnlineSoftmax::logSumExpParts(const FinishedRows &rows) const {
  VectorType rowType = f32Vector({m});
  ExponentBase base(b, loc, rows.base, scalar(c));
  Value high = base.getLog(c * M_LN2), low = base.getLogError(high, c * M_LN2);
  low = math::FmaOp::create(b, loc, math::Log2Op::create(b, loc, rows.sum), splat(rowType, M_LN2),
                            low);
  return {arith::SelectOp::create(b, loc, rows.isEmpty, minusInf(rowType), high),
          arith::SelectOp::create(b, loc, rows.isEmpty, splat(rowType, 0), low)};
}

Value OnlineSoftmax::logSumExp(const FinishedRows &rows) const {
  auto [high, low] = logSumExpParts(rows);
  Value value = arith::AddFOp::create(b, loc, high, low);
  if (!rows.sink)
    return value;
  Value log = math::Log2Op::create(b, loc, rows.sum);
  Value ofSink = math::FmaOp::create(b, loc, log, splat(f32Vector({m}), M_LN2), rows.sink);
  return arith::SelectOp::create(b, loc, rows.isSink, ofSink, value);
}

Value OnlineSoftmax::logSumAgainstMax(const FinishedRows &rows) const {
  Value log = math::Log2Op::create(b, loc, rows.sum);
  log = arith::SubFOp::create(b, loc, log, ExponentBase(b, loc, rows.base, scalar(c)).getRest());
  if (!rows.sink)
    return log;
  Value ofSink = arith::SubFOp::create(b, loc, log, rows.above);
  return arith::SelectOp::create(b, loc, rows.isSink, ofSink, log);
}
