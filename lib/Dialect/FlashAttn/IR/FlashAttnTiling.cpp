//===- FlashAttnTiling.cpp - tiling of batch, head and query dimensions ----===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::flashattn;

static OpFoldResult getDim(OpBuilder &b, Location loc, Value shaped, int64_t dim) {
  if (isa<RankedTensorType>(shaped.getType()))
    return tensor::getMixedSize(b, loc, shaped, dim);
  return memref::getMixedSize(b, loc, shaped, dim);
}

/// The part of `source` at `offsets` of `sizes`, unit strides.
static Operation *makeSlice(OpBuilder &b, Location loc, Value source,
                            ArrayRef<OpFoldResult> offsets, ArrayRef<OpFoldResult> sizes) {
  SmallVector<OpFoldResult> strides(offsets.size(), b.getIndexAttr(1));
  if (isa<RankedTensorType>(source.getType()))
    return tensor::ExtractSliceOp::create(b, loc, source, offsets, sizes, strides);
  return memref::SubViewOp::create(b, loc, source, offsets, sizes, strides);
}

/// The loops are batch, query head and query; keys are reduced inside the op.
SmallVector<utils::IteratorType> AttentionOp::getLoopIteratorTypes() {
  return SmallVector<utils::IteratorType>(3, utils::IteratorType::parallel);
}

SmallVector<Range> AttentionOp::getIterationDomain(OpBuilder &b) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<Range> domain;
  for (unsigned dim : {0u, getHeadDim(), getSeqDim()})
    domain.push_back({zero, getDim(b, getLoc(), getQ(), dim), one});
  return domain;
}

/// Offsets (or sizes) of a rank-4 operand from those of batch, head, sequence and column.
static SmallVector<OpFoldResult> inLayout(AttentionOp op, OpFoldResult batch, OpFoldResult head,
                                          OpFoldResult seq, OpFoldResult column) {
  SmallVector<OpFoldResult> values = {batch, head, seq, column};
  if (op.getLayout() == Layout::BSHD)
    std::swap(values[1], values[2]);
  return values;
}

FailureOr<TilingResult> AttentionOp::getTiledImplementation(OpBuilder &b,
                                                            ArrayRef<OpFoldResult> offsets,
                                                            ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  OpFoldResult zero = b.getIndexAttr(0);
  OpFoldResult hq = getDim(b, loc, getQ(), getHeadDim()),
               hkv = getDim(b, loc, getK(), getHeadDim());
  OpFoldResult nq = getDim(b, loc, getQ(), getSeqDim()), nk = getDim(b, loc, getK(), getSeqDim());

  // A slice of the queries changes nq; a mask that reads that symbol would change its meaning.
  bool wholeQueries = isConstantIntValue(offsets[2], 0) && isEqualConstantIntOrValue(sizes[2], nq);
  if (!wholeQueries)
    for (IntegerSet set : getVisibleSets())
      for (AffineExpr constraint : set.getConstraints())
        if (constraint.isFunctionOfSymbol(0)) {
          emitOpError() << "expected a mask without the symbol nq to tile the queries but got '"
                        << getMaskAttr() << "'";
          return failure();
        }

  // A3: with kv_len the position of query 0 is each batch's own, so that no one offset can
  // stand for it.
  bool ownPositions = getKvLen() && !getOffset() && getAlign() == Align::BottomRight;
  if (ownPositions && !wholeQueries && (getMask() || hasScoreMod())) {
    emitOpError() << "expected an offset or align top_left to tile the queries beside kv_len but "
                     "got align bottom_right";
    return failure();
  }

  // A4: a tile of heads reads whole key/value heads: it is one head, or whole groups.
  OpFoldResult kvOffset = offsets[1], kvSize = sizes[1];
  std::optional<int64_t> hqValue = getConstantIntValue(hq), hkvValue = getConstantIntValue(hkv);
  bool oneToOne = hqValue && hkvValue && *hqValue == *hkvValue;
  if (!oneToOne) {
    AffineExpr d0 = b.getAffineDimExpr(0), s0 = b.getAffineSymbolExpr(0),
               s1 = b.getAffineSymbolExpr(1);
    auto apply = [&](AffineExpr e, ArrayRef<OpFoldResult> operands) {
      return affine::makeComposedFoldedAffineApply(b, loc, AffineMap::get(1, 2, e), operands);
    };
    AffineExpr group = s0.floorDiv(s1);
    std::optional<int64_t> size = getConstantIntValue(sizes[1]);
    if (isConstantIntValue(offsets[1], 0) && isEqualConstantIntOrValue(sizes[1], hq)) {
      kvSize = hkv;
    } else if (size && *size == 1) {
      kvOffset = apply(d0.floorDiv(group), {offsets[1], hq, hkv});
    } else if (size && hqValue && hkvValue && *hkvValue != 0 &&
               *size % (*hqValue / *hkvValue) == 0) {
      kvOffset = apply(d0.floorDiv(group), {offsets[1], hq, hkv});
      kvSize = b.getIndexAttr(*size / (*hqValue / *hkvValue));
    } else {
      InFlightDiagnostic error = emitOpError() << "expected a head tile of 1 or a multiple of the "
                                                  "group size, ";
      if (hqValue && hkvValue && *hkvValue != 0)
        error << *hqValue / *hkvValue << ", but got ";
      else
        error << "which is not static, but got ";
      if (size)
        error << *size;
      else
        error << "a dynamic size";
      return error;
    }
  }

  auto whole = [&](Value v, unsigned dim) { return getDim(b, loc, v, dim); };
  Operation *q =
      makeSlice(b, loc, getQ(), inLayout(*this, offsets[0], offsets[1], offsets[2], zero),
                inLayout(*this, sizes[0], sizes[1], sizes[2], whole(getQ(), 3)));
  auto kvSlice = [&](Value kv) {
    return makeSlice(b, loc, kv, inLayout(*this, offsets[0], kvOffset, zero, zero),
                     inLayout(*this, sizes[0], kvSize, nk, whole(kv, 3)));
  };
  Operation *k = kvSlice(getK()), *v = kvSlice(getV());
  Operation *o =
      makeSlice(b, loc, getOInit(), inLayout(*this, offsets[0], offsets[1], offsets[2], zero),
                inLayout(*this, sizes[0], sizes[1], sizes[2], whole(getOInit(), 3)));
  Operation *lse = nullptr;
  if (getLseInit())
    lse = makeSlice(b, loc, getLseInit(), offsets, sizes);

  // What is broadcast along a dimension of the scores is for every tile of it.
  SmallVector<Operation *> slices = {q, k, v};
  auto scoresSlice = [&](Value tensor) -> Value {
    if (!tensor)
      return nullptr;
    SmallVector<OpFoldResult> starts = {offsets[0], offsets[1], offsets[2], zero},
                              lengths = {sizes[0], sizes[1], sizes[2], nk};
    for (unsigned i = 0; i < 4; ++i)
      if (isBroadcastDim(tensor, i))
        starts[i] = zero, lengths[i] = b.getIndexAttr(1);
    slices.push_back(makeSlice(b, loc, tensor, starts, lengths));
    return slices.back()->getResult(0);
  };
  Value bias = scoresSlice(getBias()), keep = scoresSlice(getKeep());
  auto rowSlice = [&](Value tensor, unsigned loop) -> Value {
    if (!tensor)
      return nullptr;
    slices.push_back(makeSlice(b, loc, tensor, offsets[loop], sizes[loop]));
    return slices.back()->getResult(0);
  };
  Value kvLen = rowSlice(getKvLen(), 0), sinkLogits = rowSlice(getSinkLogits(), 1);
  slices.push_back(o);
  if (lse)
    slices.push_back(lse);

  // A3: the first query of the tile stands at the op's own offset plus the tile's.
  Value position;
  if (ownPositions) {
    // All queries of a batch, or nothing that asks for positions.
  } else if (Value own = getOffset()) {
    AffineExpr s0 = b.getAffineSymbolExpr(0), s1 = b.getAffineSymbolExpr(1);
    position = getValueOrCreateConstantIndexOp(
        b, loc,
        affine::makeComposedFoldedAffineApply(b, loc, s0 + s1, {OpFoldResult(own), offsets[2]}));
  } else {
    AffineExpr s0 = b.getAffineSymbolExpr(0), s1 = b.getAffineSymbolExpr(1),
               s2 = b.getAffineSymbolExpr(2);
    OpFoldResult sum = offsets[2];
    if (getAlign() == Align::BottomRight)
      sum = affine::makeComposedFoldedAffineApply(b, loc, s0 + s1 - s2, {offsets[2], nk, nq});
    position = getValueOrCreateConstantIndexOp(b, loc, sum);
  }

  SmallVector<NamedAttribute> attributes;
  for (NamedAttribute attribute : getOperation()->getAttrs())
    if (attribute.getName() != getOperandSegmentSizesAttrName())
      attributes.push_back(attribute);
  auto tiled = AttentionOp::create(b, loc, q->getResult(0), k->getResult(0), v->getResult(0), bias,
                                   keep, sinkLogits, kvLen, position, o->getResult(0),
                                   lse ? lse->getResult(0) : Value(), attributes, hasScoreMod());
  if (hasScoreMod()) {
    // The score modification goes by the batches and heads of the whole op.
    SmallVector<Value> first;
    for (unsigned loop : {0u, 1u})
      first.push_back(getValueOrCreateConstantIndexOp(b, loc, offsets[loop]));
    OpBuilder::InsertionGuard guard(b);
    IRMapping mapping;
    b.cloneRegionBefore(getScoreMod(), tiled.getScoreMod(), tiled.getScoreMod().end(), mapping);
    Block &body = tiled.getScoreMod().front();
    b.setInsertionPointToStart(&body);
    for (unsigned loop : {0u, 1u}) {
      if (isConstantIntValue(offsets[loop], 0))
        continue;
      BlockArgument own = body.getArgument(1 + loop);
      auto sum = arith::AddIOp::create(b, loc, own, first[loop]);
      own.replaceAllUsesExcept(sum, sum);
    }
  }
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), slices};
}

LogicalResult AttentionOp::getResultTilePosition(OpBuilder &b, unsigned resultNumber,
                                                 ArrayRef<OpFoldResult> offsets,
                                                 ArrayRef<OpFoldResult> sizes,
                                                 SmallVector<OpFoldResult> &resultOffsets,
                                                 SmallVector<OpFoldResult> &resultSizes) {
  if (resultNumber == 1) {
    resultOffsets.assign(offsets.begin(), offsets.end());
    resultSizes.assign(sizes.begin(), sizes.end());
    return success();
  }
  resultOffsets = inLayout(*this, offsets[0], offsets[1], offsets[2], b.getIndexAttr(0));
  resultSizes = inLayout(*this, sizes[0], sizes[1], sizes[2], getDim(b, getLoc(), getOInit(), 3));
  return success();
}
