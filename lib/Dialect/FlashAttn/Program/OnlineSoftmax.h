//===- OnlineSoftmax.h - the online softmax over tiles ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The state that a row carries from one key tile to the next. Exponentials are exp2(c s - c base),
/// where s are the scores before the factor c.
struct RowState {
  Value max; ///< vector<M>: the base of the exponents, -inf before the first visible key
  /// Sum of the exponentials: vector<M>, or vector<MxL> partial sums by lane. Null if only the sum
  /// of the rounded probabilities is needed.
  Value sum;
  /// vector<MxDv>: sum of the exponentials times v and the columns of ones after v. Null without v.
  Value out;
  /// Within a step, with two-level sums (F3): the factor that `out` is not multiplied by yet, or
  /// null.
  Value rescale = {};

  SmallVector<Value> values() const {
    SmallVector<Value> all = {max};
    for (Value v : {sum, out})
      if (v)
        all.push_back(v);
    return all;
  }
  /// Returns the state with `v` in place of `values()`.
  RowState with(ValueRange v) const {
    return {v[0], sum ? v[1] : Value(), out ? v.back() : Value()};
  }
};

/// The base that is subtracted from the exponents of each row. The unnormalized probability of a
/// score s is exp2(c (s - shift) + negated), where c base = c shift - negated. Either shift or
/// negated is 0.
///
/// With a shift of 0, a single FMA computes the exponent c s - c base with the precision of c base.
/// The rounding error is common to all probabilities of the row. If |c base| exceeds 2^8, the
/// largest probability would not be 1 within the precision of the row sum, probabilities that are
/// rounded to f16 would be inconsistent with that sum, and c base may overflow. The base is then
/// subtracted from the scores, which is exact if the probability is not 0
/// (docs/rationale/large-scores.md).
class ExponentBase : TileBuilder {
public:
  /// `base` is a vector<M>, -inf in a row without a visible key (A6), whose probabilities are then
  /// 0. `factor` is c, an f32.
  ExponentBase(OpBuilder &b, Location loc, Value base, Value factor);

  /// Returns the rows whose shift is not 0, vector<Mxi1>. These include rows without a visible key.
  Value isShifted() const { return shifted; }
  /// Returns `scores`, vector<MxN>, minus the shifts.
  Value shift(Value scores) const;
  /// Returns -c base for rows whose shift is 0, and 0 for the others: vector<M>.
  Value getNegated() const { return negated; }
  /// Returns -c base for all rows, which is the same if no row has a shift.
  Value getUnshifted() const { return unshifted; }
  /// Returns the factor that rescales sums from this base to `next`: vector<M>.
  Value getRescaleThreshold(const ExponentBase &next) const;
  /// Returns the base times c as a natural logarithm, vector<M>. `scale` is c ln 2.
  Value getLog(const Factor &scale) const;
  /// Returns c times the given base minus the value that is actually subtracted.
  Value getRest() const;
  /// Returns the exact value of `getLog` minus its rounded result `log`.
  Value getLogError(Value log, const Factor &scale) const;

private:
  VectorType rows;
  Value factor;
  Value finite, shifted, shifts, unshifted, negated;
};

/// Returns the unnormalized probabilities exp2(`factor` s + `negated`), vector<MxN>, of shifted
/// scores s. `negated` is that of their base.
Value buildWeights(OpBuilder &b, Location loc, Value shiftedScores, Value factor, Value negated);

/// The results of rows after their last key.
struct FinishedRows {
  Value out;     ///< vector<MxDv>, f32; null if the state has none
  Value base;    ///< vector<M>: base of the exponents
  Value sum;     ///< vector<M>: sum, of unrounded probabilities if available
  Value isEmpty; ///< vector<Mxi1>: the row has no key and no sink
  Value sink;    ///< vector<M>: sink logit; null without a sink
  Value isSink;  ///< vector<Mxi1>: `sum` is relative to the sink, not to the base
  Value above;   ///< vector<M>: the base minus the sink, as an exponent of 2
};

/// The online softmax (A5, A6) of tile programs with `schedule`, for vector<MxN> scores and `dv`
/// columns of output (0: none). Scores times `factor` are exponents of 2. The constructor builds
/// the values that depend on the factor alone.
///
/// If the schedule computes row sums by products, columns of ones follow the values, and the output
/// is divided by the sums of these columns. With `wantsLse`, unrounded probabilities are summed,
/// too, because the log-sum-exp would show the rounding errors.
class OnlineSoftmax : TileBuilder {
public:
  OnlineSoftmax(OpBuilder &b, Location loc, ScheduleAttr schedule, int64_t dv, const Factor &factor,
                bool wantsLse);

  RowState begin() const;
  /// Updates `state` with the scores of a key tile, except for the product with its values. Returns
  /// the left-hand side of this product, vector<MxN>, which the caller passes to `addProduct`.
  ///
  /// With `factors`, `multiply` recomputes the same scores from them, for a full tile.
  Value step(RowState &state, Value scores, ValueRange factors = {},
             function_ref<Value(ValueRange)> multiply = nullptr) const;
  /// Adds the product of `weights` from `step` and the tile's values, vector<NxDv>, to `state.out`.
  void addProduct(RowState &state, Value weights, Value values) const;
  /// Divides by the row sum. If `loadSink` returns an f32 scalar, it enters the denominator like
  /// the logit of one more key whose value is 0.
  FinishedRows finish(RowState state, function_ref<Value()> loadSink) const;
  /// Returns the natural log-sum-exp of each row: vector<M>, f32.
  Value logSumExp(const FinishedRows &rows) const;
  /// Returns the log-sum-exp of rows without a sink as the sum of two numbers, only the first of
  /// which may be -inf. A single f32 far from 0 could not represent the logarithm of the row sum.
  std::pair<Value, Value> logSumExpParts(const FinishedRows &rows) const;
  /// Returns log2 of the sum of exp2(c (s - m)), where m is the row maximum: vector<M>, f32.
  Value logSumAgainstMax(const FinishedRows &rows) const;

private:
  Value stepInLane(RowState &state, Value scores) const;
  Value stepInLanes(RowState &state, Value scores, ValueRange factors,
                    function_ref<Value(ValueRange)> multiply) const;
  Value getProductSum(Value out) const;
  Value joinSink(FinishedRows &rows, MutableArrayRef<Value> sums, Value logit) const;

  ScheduleAttr schedule;
  int64_t m, n, dv, lanes;
  int64_t ones;     ///< number of columns of ones after the values
  bool sumsWeights; ///< whether unrounded probabilities are summed
  Factor c;
  FloatAttr threshold;   ///< exponent above which the base is updated; null: always updated
  FloatAttr log2Largest; ///< exponent of the greatest probability of a row so far; null: 0
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H
