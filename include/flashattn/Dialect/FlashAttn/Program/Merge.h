//===- Merge.h - merge of the partial results of split-KV -------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The partial result of a row over some of the keys, all f32. The base `max + rest` is close to
/// the largest score. The row sum `sum_j e^(s_j-max-rest)` and the unnormalized output of the
/// current columns are relative to the base.
struct PartialRow {
  Value max;
  Value rest; ///< rounding error of `max`; null if the op has no `lse_rests`
  Value sum;  ///< row sum; null stands for 1: the base is a log-sum-exp, and `out` is normalized
  Value out;  ///< a scalar, or a vector of several columns

  SmallVector<Value> values() const {
    SmallVector<Value> all;
    for (Value v : {max, rest, sum, out})
      if (v)
        all.push_back(v);
    return all;
  }
  /// Returns the row with the values `v` instead of `values()`. The row must have a sum.
  PartialRow with(ValueRange v) const {
    return {v[0], rest ? v[1] : Value(), v.drop_back().back(), v.back()};
  }
};

/// Implements rules A5 and A6 for a `flashattn.combine` on memrefs, one row at a time. `row` is the
/// (batch, head, query) index of a row. Outputs are vectors if `columns` is greater than 1, and
/// scalars otherwise.
class RowMerger : public TileBuilder {
public:
  RowMerger(OpBuilder &b, CombineOp op) : TileBuilder(b, op.getLoc()), op(op) {}

  /// Returns the neutral element of `merge`: a row without keys.
  PartialRow mergeNothing(int64_t columns);
  /// Returns the sink logit of the row's head as a partial result, whose output is 0; the neutral
  /// element if there are no sink logits.
  PartialRow mergeSink(ArrayRef<Value> row, int64_t columns);
  /// A5: merges `merged`, which must have a sum, and `others`.
  PartialRow merge(PartialRow merged, ArrayRef<PartialRow> others);
  /// Merges split `first` of the row, and every `stride`-th split after `first`, into `merged`, for
  /// `columns` columns from `column` on. Loads of `partsAtOnce` splits are in flight together.
  PartialRow mergeParts(PartialRow merged, ArrayRef<Value> row, Value column, int64_t columns,
                        Value first, int64_t stride, int64_t partsAtOnce);
  /// The rows of a batch in the outputs: `count` rows from `first` on.
  struct Rows {
    Value first, count;
  };
  /// Returns the rows of `batch`. With packed sequences, these are the rows of the sequence, or none
  /// if the parts do not have as many.
  Rows getRows(Value batch);
  /// Normalizes and stores the row's output, from `column` on, and stores its log-sum-exp if
  /// `writesLse` is true (null: always).
  /// `rows` are the rows of the row's batch.
  void finish(PartialRow merged, ArrayRef<Value> row, const Rows &rows, Value column,
              Value writesLse);

protected:
  /// Loads `columns` elements of an f32 memref.
  Value load(Value memref, ValueRange at, int64_t columns);

  CombineOp op;

private:
  Value number(double v) const { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(v)); }
  Value scale(Value x, Value by);
  Value isNone(Value v);
  /// Returns e^(base of `x` - base of `of`).
  Value exponential(const PartialRow &x, const PartialRow &of);
};

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H
