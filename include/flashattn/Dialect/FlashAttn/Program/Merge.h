//===- Merge.h - attention from that over parts of the keys ------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// What is known of a row after some keys, all f32: a base, `max + rest`, that is not far below the
/// largest exponent, and against it the sum of the weights, `sum_j e^(s_j-max-rest)`, and of the
/// weighted values at the columns at hand, a number or a vector.
struct PartialRow {
  Value max;
  Value rest; ///< null where the op has no `lse_rests`
  Value sum;  ///< null where it is 1: the base is a log-sum-exp, and `out` an output
  Value out;

  SmallVector<Value> values() const {
    SmallVector<Value> all;
    for (Value v : {max, rest, sum, out})
      if (v)
        all.push_back(v);
    return all;
  }
  /// The same with `v` in place of `values()`, of a row with a sum.
  PartialRow with(ValueRange v) const {
    return {v[0], rest ? v[1] : Value(), v.drop_back().back(), v.back()};
  }
};

/// Rules A5 and A6 for a `flashattn.combine` on memrefs, a row at a time. A row is given by its
/// batch, head and query; `columns` of them are a vector, or one of them a number.
class RowMerger : public TileBuilder {
public:
  RowMerger(OpBuilder &b, CombineOp op) : TileBuilder(b, op.getLoc()), op(op) {}

  /// No part of a row.
  PartialRow mergeNothing(int64_t columns);
  /// The sink of the row's head, which joins as a part would whose output is 0.
  PartialRow mergeSink(ArrayRef<Value> row, int64_t columns);
  /// A5: what `merged` and `others` have seen. `merged` has a sum.
  PartialRow merge(PartialRow merged, ArrayRef<PartialRow> others);
  /// Joins part `first` of the row and every `stride`-th after it, at `columns` columns from
  /// `column` on. `partsAtOnce` are read side by side.
  PartialRow mergeParts(PartialRow merged, ArrayRef<Value> row, Value column, int64_t columns,
                        Value first, int64_t stride, int64_t partsAtOnce);
  /// Writes the row's output at the columns of `merged` from `column` on and, where `writesLse`
  /// (null: always), its log-sum-exp.
  void finish(PartialRow merged, ArrayRef<Value> row, Value column, Value writesLse);

protected:
  /// `columns` elements of an f32 memref.
  Value load(Value memref, ValueRange at, int64_t columns);

  CombineOp op;

private:
  Value number(double v) const { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(v)); }
  Value scale(Value x, Value by);
  Value isNone(Value v);
  /// e^(base of `x` - base of `of`)
  Value exponential(const PartialRow &x, const PartialRow &of);
};

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_MERGE_H
