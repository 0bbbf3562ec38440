//===- OnlineSoftmax.h - softmax over tiles, in its one place ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// What a row carries from one key tile to the next. With s the scores before the factor c and the
/// exponentials taken as exp2(c s - c base):
struct RowState {
  Value max; ///< vector<M>: the base of the exponents, -inf before the first visible key
  /// Sum of the exponentials: vector<M>, or vector<MxL> partial sums; null where nobody wants one
  /// beside that of the weights as they are rounded.
  Value sum;
  /// vector<MxDv>: sum of the exponentials times v, and times ones behind it; null without v.
  Value out;

  SmallVector<Value> values() const {
    SmallVector<Value> all = {max};
    for (Value v : {sum, out})
      if (v)
        all.push_back(v);
    return all;
  }
  /// The same with `v` in place of `values()`.
  RowState with(ValueRange v) const {
    return {v[0], sum ? v[1] : Value(), out ? v.back() : Value()};
  }
};

/// What is subtracted from the exponents of rows: exp2(c (s - shift) + negated) is the weight of a
/// score s, and base c = shift c - negated. One of the two is 0.
///
/// One FMA, with a shift of 0, makes an exponent c s - c base that is as exact as c base, and a
/// difference of rounding is common to all weights of the row. Beyond 2^8 the largest weight would
/// not be 1 even to the precision of a row's sum, against which weights rounded to f16 are off
/// then, and c base may overflow: there the base is subtracted from the scores, which is exact
/// where a weight is not 0 (docs/rationale/large-scores.md).
class ExponentBase : TileBuilder {
public:
  /// `base`: vector<M>, -inf in a row without a visible key (A6), whose weights are then 0.
  /// `factor`: c, f32.
  ExponentBase(OpBuilder &b, Location loc, Value base, Value factor);

  /// vector<M>, i1: where the shift is not 0. A row without a visible key is one of these.
  Value isShifted() const { return shifted; }
  /// vector<MxN> less the shifts.
  Value shift(Value scores) const;
  /// vector<M>: less c times the base where the shift is 0, and else 0.
  Value getNegated() const { return negated; }
  /// The same where no row that is judged here has a shift.
  Value getUnshifted() const { return unshifted; }
  /// vector<M>: what takes sums of weights against this base to sums against `next`.
  Value getRescaleThreshold(const ExponentBase &next) const;
  /// The base times c as a natural logarithm: vector<M>. `scale`: c ln 2.
  Value getLog(const Factor &scale) const;
  /// How far c times the base that was given is above what is subtracted.
  Value getRest() const;
  /// What rounding takes from `log`, which `getLog` gave.
  Value getLogError(Value log, const Factor &scale) const;

private:
  VectorType rows;
  Value factor;
  Value finite, shifted, shifts, unshifted, negated;
};

/// exp2(`factor` s + `negated`) of shifted scores s, vector<MxN>, and `negated` of their base.
Value buildWeights(OpBuilder &b, Location loc, Value shiftedScores, Value factor, Value negated);

/// What is left of a row when its keys are done.
struct FinishedRows {
  Value out;     ///< vector<MxDv>, f32; null where the state had none
  Value base;    ///< vector<M>: of the exponents
  Value sum;     ///< vector<M>: before any rounding, where it is wanted
  Value isEmpty; ///< vector<M>, i1: no key was seen, and no sink
  Value sink;    ///< vector<M>: the logit; null without one
  Value isSink;  ///< vector<M>, i1: `sum` is against the sink, not against the base
  Value above;   ///< vector<M>: how far the base is above the sink, as an exponent of 2
};

/// The online softmax (A5, A6) of tile programs with `schedule`: vector<MxN> scores, `dv` columns
/// of output (0: none), scores times `factor` are exponents of 2. What is made of the factor alone
/// is made here.
///
/// Where the schedule has sums by products the values have columns of ones behind them. The output
/// is divided by the sums that these give; others are taken where `wantsLse`, as the log-sum-exp
/// would show what rounding takes.
class OnlineSoftmax : TileBuilder {
public:
  OnlineSoftmax(OpBuilder &b, Location loc, ScheduleAttr schedule, int64_t dv, const Factor &factor,
                bool wantsLse);

  RowState begin() const;
  /// One step: `state` takes the scores of a tile but for their product with its values. Returns
  /// that product's left-hand side, vector<MxN>, to be added to `state.out`.
  ///
  /// With `factors`, `multiply` makes the same scores of these once more, in a full tile.
  Value step(RowState &state, Value scores, ValueRange factors = {},
             function_ref<Value(ValueRange)> multiply = nullptr) const;
  /// Divides by the sum. The f32 scalar that `loadSink` gives, if it gives one, joins the
  /// denominator as the logit of one more key would whose value is 0.
  FinishedRows finish(RowState state, function_ref<Value()> loadSink) const;
  /// vector<M>, f32, natural logarithm.
  Value logSumExp(const FinishedRows &rows) const;
  /// The same of rows without a sink, as the sum of two numbers, of which the first alone may be
  /// -inf: what is far from 0 would have no room for the logarithm of the sum.
  std::pair<Value, Value> logSumExpParts(const FinishedRows &rows) const;
  /// log2 sum of exp2(c (s - m)), m being the largest score: vector<M>, f32.
  Value logSumAgainstMax(const FinishedRows &rows) const;

private:
  Value stepInLane(RowState &state, Value scores) const;
  Value stepInLanes(RowState &state, Value scores, ValueRange factors,
                    function_ref<Value(ValueRange)> multiply) const;
  Value getProductSum(Value out) const;
  Value joinSink(FinishedRows &rows, MutableArrayRef<Value> sums, Value logit) const;

  ScheduleAttr schedule;
  int64_t m, n, dv, lanes;
  int64_t ones;     ///< columns of them behind the values
  bool sumsWeights; ///< whether weights are summed before they are rounded
  Factor c;
  FloatAttr threshold; ///< of a base that is let be, in exponents; null where none is
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H
