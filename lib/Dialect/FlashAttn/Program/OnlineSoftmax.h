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
  Value out; ///< vector<MxDv>: sum of the exponentials times v, and times ones behind it

  SmallVector<Value> values() const {
    return sum ? SmallVector<Value>{max, sum, out} : SmallVector<Value>{max, out};
  }
  static RowState from(ValueRange v) { return {v[0], v.size() > 2 ? v[1] : Value(), v.back()}; }
};

/// What is left of a row when its keys are done.
struct FinishedRows {
  Value out;     ///< vector<MxDv>, f32
  Value base;    ///< vector<M>: of the exponents; with a sink's logit times c
  Value sum;     ///< vector<M>: before any rounding, where it is wanted
  Value isEmpty; ///< vector<M>, i1: no key was seen, and no sink
  bool hasSink;
};

/// The online softmax (A5, A6) of tile programs with `schedule`: vector<MxN> scores, `dv` columns
/// of output, scores times `factor` are exponents of 2. What is made of the factor alone is made
/// here.
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
  Value step(RowState &state, Value scores, ValueRange factors,
             function_ref<Value(ValueRange)> multiply) const;
  /// Divides by the sum. The f32 scalar that `loadSink` gives, if it is there, joins the
  /// denominator as the logit of one more key would whose value is 0.
  FinishedRows finish(RowState state, function_ref<Value()> loadSink) const;
  /// vector<M>, f32, natural logarithm.
  Value logSumExp(const FinishedRows &rows) const;

private:
  Value stepAlways(RowState &state, Value scores) const;
  Value stepWhereMoved(RowState &state, Value scores, ValueRange factors,
                       function_ref<Value(ValueRange)> multiply) const;
  Value sumUp(Value exponentials, Value sum) const;
  Value getProductSum(Value out) const;
  Value joinSink(RowState &state, MutableArrayRef<Value> sums, Value logit) const;

  ScheduleAttr schedule;
  int64_t m, n, dv, lanes;
  int64_t ones;     ///< columns of them behind the values
  bool sumsWeights; ///< whether weights are summed before they are rounded
  Factor c;
  FloatAttr growth; ///< of a base that is let be, in exponents; null where none is
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_ONLINESOFTMAX_H
