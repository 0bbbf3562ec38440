//===- Merge.h - merge of attention over parts of the keys ------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The partial result of a row after some keys, all f32. The base, `max + rest`, is not far below
/// the largest exponent. Relative to it are the sum of the weights, `sum_j e^(s_j-max-rest)`, and
/// the weighted values of the current columns, a scalar or a vector.
struct PartialRow {
  Value max;
  Value rest; ///< null if the op has no `lse_rests`
  Value sum;  ///< null if it is 1: the base is a log-sum-exp, and `out` an output
  Value out;

  SmallVector<Value> values() const {
    SmallVector<Value> all;
    for (Value v : {max, rest, sum, out})
      if (v)
        all.push_back(v);
    return all;
  }
  /// Same with `v` in place of `values()`, for a row with a sum.
  PartialRow with(ValueRange v) const {
    return {v[0], rest ? v[1] : Value(), v.drop_back().back(), v.back()};
  }
};

/// Implements rules A5 and A6 for a `flashattn.combine` on memrefs, one row at a time. A row is
/// given by its batch, head and query. With several `columns`, values are vectors; with one, they
/// are scalars.
class RowMerger : public TileBuilder {
public:
  RowMerger(OpBuilder &b, CombineOp op) : TileBuilder(b, op.getLoc()), op(op) {}

  /// Returns the neutral element: a row without parts.
  PartialRow mergeNothing(int64_t columns);
  /// Returns the sink logit of the row's head, which contributes like a part whose output is 0.
  PartialRow mergeSink(ArrayRef<Value> row, int64_t columns);
  /// A5: merges `merged` and `others`. `merged` has a sum.
  PartialRow merge(PartialRow merged, ArrayRef<PartialRow> others);
  /// Merges part `first` of the row, and every `stride`-th part after it, into `merged`, for
  /// `columns` columns from `column` on. `partsAtOnce` parts are loaded at once.
  PartialRow mergeParts(PartialRow merged, ArrayRef<Value> row, Value column, int64_t columns,
                        Value first, int64_t stride, int64_t partsAtOnce);
  /// Writes the row's output to the columns of `merged` from `column` on and, if `writesLse` holds
  /// (null: always), its log-sum-exp.
  void finish(PartialRow merged, ArrayRef<Value> row, Value column, Value writesLse);

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
