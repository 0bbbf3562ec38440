//===- Merge.cpp ----------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/Merge.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Returns `element` for one column, and a vector of it for several.
static Type getColumnsType(int64_t columns, Type element) {
  return columns == 1 ? element : VectorType::get({columns}, element);
}

/// Broadcasts `v` to `type` if that is a vector.
static Value spread(OpBuilder &b, Location loc, Value v, Type type) {
  return isa<VectorType>(type) ? vector::BroadcastOp::create(b, loc, type, v).getResult() : v;
}

Value RowMerger::scale(Value x, Value by) {
  return b.createOrFold<arith::MulFOp>(loc, x, spread(b, loc, by, x.getType()));
}

Value RowMerger::isNone(Value v) {
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, v, number(-INFINITY));
}

Value RowMerger::exponential(const PartialRow &x, const PartialRow &of) {
  Value difference = arith::SubFOp::create(b, loc, x.max, of.max);
  if (x.rest)
    difference =
        arith::AddFOp::create(b, loc, difference, arith::SubFOp::create(b, loc, x.rest, of.rest));
  return math::Exp2Op::create(b, loc, scale(difference, number(M_LOG2E)));
}

Value RowMerger::load(Value memref, ValueRange at, int64_t columns) {
  if (columns == 1)
    return memref::LoadOp::create(b, loc, memref, at);
  // LLVM does not know the alignment of splits (flashattn-tile) and of `flashattn.aligned_rows`.
  constexpr uint64_t kAlignment = 16;
  llvm::MaybeAlign alignment;
  if (columns * sizeof(float) == kAlignment && hasAlignedRows(memref))
    alignment = llvm::Align(kAlignment);
  return vector::LoadOp::create(b, loc, VectorType::get({columns}, b.getF32Type()), memref, at,
                                /*nontemporal=*/false, alignment);
}

PartialRow RowMerger::mergeNothing(int64_t columns) {
  return {number(-INFINITY), op.getLseRests() ? number(0) : Value(), number(0),
          spread(b, loc, number(0), getColumnsType(columns, b.getF32Type()))};
}

PartialRow RowMerger::mergeSink(ArrayRef<Value> row, int64_t columns) {
  PartialRow merged = mergeNothing(columns);
  if (Value sinks = op.getSinkLogits()) {
    merged.max = memref::LoadOp::create(b, loc, sinks, row[1]);
    merged.sum = arith::SelectOp::create(b, loc, isNone(merged.max), number(0), number(1));
  }
  return merged;
}

PartialRow RowMerger::merge(PartialRow merged, ArrayRef<PartialRow> others) {
  PartialRow result = merged;
  for (const PartialRow &other : others)
    result.max = arith::MaxNumFOp::create(b, loc, result.max, other.max);
  if (result.rest) {
    // The largest rest of the rows with this maximum: rests decide if several rows have the same
    // maximum.
    auto beside = [&](const PartialRow &row) -> Value {
      Value isLargest =
          arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, row.max, result.max);
      return arith::SelectOp::create(b, loc, isLargest, row.rest, number(-INFINITY));
    };
    result.rest = beside(merged);
    for (const PartialRow &other : others)
      result.rest = arith::MaxNumFOp::create(b, loc, result.rest, beside(other));
  }
  // A6: -inf - -inf would be NaN.
  PartialRow base = result;
  base.max = arith::SelectOp::create(b, loc, isNone(result.max), number(0), result.max);
  Value rescale = exponential(merged, base);
  Value sum = scale(merged.sum, rescale), out = scale(merged.out, rescale);
  for (const PartialRow &other : others) {
    Value weight = exponential(other, base);
    sum = other.sum ? math::FmaOp::create(b, loc, other.sum, weight, sum).getResult()
                    : arith::AddFOp::create(b, loc, sum, weight).getResult();
    out = math::FmaOp::create(b, loc, other.out, spread(b, loc, weight, out.getType()), out);
  }
  result.sum = sum;
  result.out = out;
  return result;
}

PartialRow RowMerger::mergeParts(PartialRow merged, ArrayRef<Value> row, Value column,
                                 int64_t columns, Value first, int64_t stride,
                                 int64_t partsAtOnce) {
  Value parts = dim(op.getOParts(), 0), last = arith::SubIOp::create(b, loc, parts, index(1));
  auto loop =
      scf::ForOp::create(b, loc, first, parts, index(stride * partsAtOnce), merged.values());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<PartialRow> read;
  for (int64_t i = 0; i < partsAtOnce; ++i) {
    Value part = loop.getInductionVar(), exists;
    if (i != 0) {
      part = add(part, index(i * stride));
      exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, part, last);
      part = arith::MinUIOp::create(b, loc, part, last);
    }
    SmallVector<Value> at = {part, row[0], row[1], row[2]};
    Value log = memref::LoadOp::create(b, loc, op.getLseParts(), at), rest;
    if (op.getLseRests())
      rest = memref::LoadOp::create(b, loc, op.getLseRests(), at);
    if (exists)
      log = arith::SelectOp::create(b, loc, exists, log, number(-INFINITY));
    at.push_back(column);
    Value out = load(op.getOParts(), at, columns);
    // A6: the output of a split without a visible key may contain any value.
    Value none = isNone(log), nothing = spread(b, loc, number(0), out.getType());
    out = arith::SelectOp::create(b, loc, none, nothing, out);
    if (rest)
      rest = arith::SelectOp::create(b, loc, none, number(0), rest);
    read.push_back({log, rest, /*sum=*/Value(), out});
  }
  scf::YieldOp::create(b, loc, merge(merged.with(loop.getRegionIterArgs()), read).values());
  return merged.with(loop.getResults());
}

RowMerger::Rows RowMerger::getRows(Value batch) {
  Value starts = op.getCuSeqlensQ(), most = dim(op.getOParts(), 3);
  if (!starts)
    return {Value(), most};
  // S2: other starts are clamped.
  Value size = dim(op.getOInit(), op.getSeqDim());
  auto load = [&](Value at) {
    return min(max(toIndex(memref::LoadOp::create(b, loc, starts, at)), index(0)), size);
  };
  Value first = load(batch), count = max(sub(load(add(batch, index(1))), first), index(0));
  Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, count, most);
  if (std::optional<int64_t> least = op.getMinSeqlenQ())
    fits = arith::AndIOp::create(
        b, loc, fits,
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, count, index(*least)));
  return {first, select(fits, count, index(0))};
}

void RowMerger::finish(PartialRow merged, ArrayRef<Value> row, const Rows &rows, Value column,
                       Value writesLse) {
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, merged.sum, number(0));
  Value inverse = arith::DivFOp::create(b, loc, number(1), merged.sum);
  inverse = arith::SelectOp::create(b, loc, empty, number(0), inverse);
  Value out = scale(merged.out, inverse);
  auto columns = dyn_cast<VectorType>(out.getType());
  Type element = op.getOInit().getType().getElementType();
  if (!element.isF32())
    out = arith::TruncFOp::create(b, loc, columns ? columns.clone(element) : element, out);
  SmallVector<Value> to(row);
  if (rows.first) {
    to[0] = index(0);
    to[2] = add(rows.first, row[2]);
  }
  SmallVector<Value> at = {to[0], to[1], to[2], column};
  if (op.getLayout() == Layout::BSHD)
    std::swap(at[1], at[2]);
  if (columns)
    vector::StoreOp::create(b, loc, out, op.getOInit(), at);
  else
    memref::StoreOp::create(b, loc, out, op.getOInit(), at);
  if (!op.getLseInit())
    return;
  OpBuilder::InsertionGuard guard(b);
  if (writesLse) {
    auto guarded = scf::IfOp::create(b, loc, writesLse, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  }
  // lse = max + (rest + ln 2 log2 sum)
  Value log = math::Log2Op::create(b, loc, merged.sum), lse;
  if (merged.rest) {
    Value small = math::FmaOp::create(b, loc, log, number(M_LN2), merged.rest);
    lse = arith::AddFOp::create(b, loc, small, merged.max);
  } else {
    lse = math::FmaOp::create(b, loc, log, number(M_LN2), merged.max);
  }
  lse = arith::SelectOp::create(b, loc, empty, number(-INFINITY), lse);
  memref::StoreOp::create(b, loc, lse, op.getLseInit(), to);
}
