//===- FlashAttnTiling.cpp - tiling of batch, head and query dimensions ---===//

#include "flashattn/Dialect/FlashAttn/IR/AttentionParts.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include "mlir/Interfaces/ShapedOpInterfaces.h"

using namespace mlir;
using namespace mlir::flashattn;

static OpFoldResult getDim(OpBuilder &b, Location loc, Value shaped, int64_t dim) {
  if (isa<RankedTensorType>(shaped.getType()))
    return tensor::getMixedSize(b, loc, shaped, dim);
  return memref::getMixedSize(b, loc, shaped, dim);
}

/// Whether two sizes are known to be equal, which includes the results of two dim ops for the same
/// dimension.
static bool isSame(OpFoldResult a, OpFoldResult b) {
  if (isEqualConstantIntOrValue(a, b))
    return true;
  auto getDimOp = [](OpFoldResult size) {
    auto value = dyn_cast<Value>(size);
    return value ? value.getDefiningOp<ShapedDimOpInterface>() : ShapedDimOpInterface();
  };
  ShapedDimOpInterface x = getDimOp(a), y = getDimOp(b);
  return x && y && x.getShapedValue() == y.getShapedValue() &&
         isEqualConstantIntOrValue(x.getDimension(), y.getDimension());
}

/// Creates the slice of `source` at `offsets` with `sizes` and unit strides.
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

/// Returns the offsets (or sizes) of batch, head, sequence and column in the layout of the op.
static SmallVector<OpFoldResult> inLayout(AttentionOp op, OpFoldResult batch, OpFoldResult head,
                                          OpFoldResult seq, OpFoldResult column) {
  SmallVector<OpFoldResult> values = {batch, head, seq, column};
  if (op.getLayout() == Layout::BSHD)
    std::swap(values[1], values[2]);
  return values;
}

bool flashattn::readsSymbol(AttentionOpInterface op, MaskSymbol symbol) {
  return llvm::any_of(op.getVisibleSets(), [&](IntegerSet set) {
    return llvm::any_of(set.getConstraints(), [&](AffineExpr constraint) {
      return constraint.isFunctionOfSymbol(unsigned(symbol));
    });
  });
}

bool flashattn::needsOwnPositions(AttentionOpInterface op) {
  bool areOwn = op.getOffsets() ||
                (op.hasOwnLengths() && !op.getOffset() && op.getAlign() == Align::BottomRight);
  return areOwn && (op.getMask() || op.hasScoreMod());
}

/// Verifies that attention on a slice of the queries computes the same rows as the op.
static LogicalResult verifyQueriesAreTileable(AttentionOp op) {
  // A slice of the queries changes nq and thus the meaning of a mask that depends on nq.
  if (readsSymbol(op, MaskSymbol::NQ))
    return op.emitOpError() << "expected a mask without the symbol nq to tile the queries but got '"
                            << op.getMaskAttr() << "'";
  if (needsOwnPositions(op) && op.getOffsets())
    return op.emitOpError() << "expected one offset to tile the queries but got "
                            << op.getOffsets().getType();
  if (needsOwnPositions(op))
    return op.emitOpError()
           << "expected an offset or align top_left to tile the queries of batches "
              "with their own lengths but got align bottom_right";
  // S4: q_len counts queries of the whole op.
  if (op.getQLen())
    return op.emitOpError() << "expected no 'q_len' to tile the queries but got one";
  return success();
}

namespace {
/// The offset and size of a slice in one dimension.
struct Part {
  OpFoldResult offset, size;
};

/// The slices that a tile needs, by the letters of OperandRule::dims; nullopt: a whole dimension.
struct Parts {
  Part heads, kvHeads;
  std::optional<Part> batches, queries;

  std::optional<Part> operator()(char dim) const {
    switch (dim) {
    case 'B':
      return batches;
    case 'H':
      return heads;
    case 'G':
      return kvHeads;
    case 'N':
      return queries;
    }
    return std::nullopt;
  }
};

/// The op on one tile, and the slices of its operands.
struct TiledOp {
  Operation *op;
  SmallVector<Operation *> slices;
};
} // namespace

/// Returns the offsets and sizes of the slice of `role` that a tile needs.
static std::pair<SmallVector<OpFoldResult>, SmallVector<OpFoldResult>>
getPart(OpBuilder &b, Location loc, const OperandRole &role, const Parts &parts) {
  SmallVector<OpFoldResult> starts, lengths;
  for (auto [i, dim] : llvm::enumerate(role.dims)) {
    // Every tile needs a broadcast dimension as a whole.
    std::optional<Part> part = dim == '1' ? std::nullopt : parts(dim);
    if (!part)
      part = Part{b.getIndexAttr(0),
                  dim == '1' ? OpFoldResult(b.getIndexAttr(1)) : getDim(b, loc, role.value, i)};
    starts.push_back(part->offset);
    lengths.push_back(part->size);
  }
  return {starts, lengths};
}

/// S1: verifies that a tile of packed sequences has the rows of all of them, and cuts only heads.
static LogicalResult verifyWholeSequences(AttentionOpInterface op, bool isWhole) {
  if (isWhole || !op.hasPackedSequences())
    return success();
  return op.emitOpError() << "expected tiles of heads with packed sequences but got tiles of "
                             "batches or queries";
}

/// Clones `op` with slices of its operands.
static TiledOp cloneOnParts(OpBuilder &b, KernelOpInterface op, const Parts &parts) {
  Location loc = op->getLoc();
  TiledOp made;
  SmallVector<Value> operands;
  for (const OperandRole &role : op.getOperandRoles()) {
    if (!role.value)
      continue;
    if (role.rule->isScalar()) {
      operands.push_back(role.value);
      continue;
    }
    auto [starts, lengths] = getPart(b, loc, role, parts);
    made.slices.push_back(makeSlice(b, loc, role.value, starts, lengths));
    operands.push_back(made.slices.back()->getResult(0));
  }
  SmallVector<Type> resultTypes;
  if (op->getNumResults())
    for (Value init : ArrayRef(operands).take_back(op->getNumResults()))
      resultTypes.push_back(init.getType());
  made.op = mlir::clone(b, op.getOperation(), resultTypes, operands);
  return made;
}

/// A4: returns the key/value heads that a tile of query heads reads. The tile must be one head or
/// whole groups. `hq` and `hkv` are the numbers of all heads.
static FailureOr<Part> getKVHeads(OpBuilder &b, AttentionOp op, const Part &heads, OpFoldResult hq,
                                  OpFoldResult hkv) {
  std::optional<int64_t> hqValue = getConstantIntValue(hq), hkvValue = getConstantIntValue(hkv);
  if (hqValue && hkvValue && *hqValue == *hkvValue)
    return heads;
  if (isConstantIntValue(heads.offset, 0) && isSame(heads.size, hq))
    return Part{heads.offset, hkv};
  std::optional<int64_t> size = getConstantIntValue(heads.size), group;
  if (hqValue && hkvValue && *hkvValue != 0)
    group = *hqValue / *hkvValue;
  if (size && (*size == 1 || (group && *group != 0 && *size % *group == 0))) {
    AffineExpr d0 = b.getAffineDimExpr(0), s0 = b.getAffineSymbolExpr(0),
               s1 = b.getAffineSymbolExpr(1);
    OpFoldResult offset = affine::makeComposedFoldedAffineApply(
        b, op.getLoc(), AffineMap::get(1, 2, d0.floorDiv(s0.floorDiv(s1))),
        {heads.offset, hq, hkv});
    return Part{offset, *size == 1 ? heads.size : b.getIndexAttr(*size / *group)};
  }
  return op.emitOpError() << "expected a head tile of 1 or a multiple of the group size, "
                          << (group ? std::to_string(*group) : "which is not static")
                          << ", but got " << (size ? std::to_string(*size) : "a dynamic size");
}

/// A3: returns the position of the first query of a tile that begins at query `first`: the op's own
/// offset plus `first`.
static Value getPosition(OpBuilder &b, AttentionOp op, OpFoldResult first, OpFoldResult nq,
                         OpFoldResult nk) {
  Location loc = op.getLoc();
  AffineExpr s0 = b.getAffineSymbolExpr(0), s1 = b.getAffineSymbolExpr(1),
             s2 = b.getAffineSymbolExpr(2);
  OpFoldResult sum = first;
  if (Value own = op.getOffset())
    sum = affine::makeComposedFoldedAffineApply(b, loc, s0 + s1, {OpFoldResult(own), first});
  else if (op.getAlign() == Align::BottomRight)
    sum = affine::makeComposedFoldedAffineApply(b, loc, s0 + s1 - s2, {first, nk, nq});
  return getValueOrCreateConstantIndexOp(b, loc, sum);
}

void flashattn::shiftScoreMod(OpBuilder &b, AttentionOpInterface op, ArrayRef<OpFoldResult> first) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  SmallVector<Value> values = llvm::map_to_vector(first, [&](OpFoldResult value) {
    return getValueOrCreateConstantIndexOp(b, op->getLoc(), value);
  });
  Block &body = op.getScoreMod().front();
  b.setInsertionPointToStart(&body);
  for (auto [i, value] : llvm::enumerate(values)) {
    if (isConstantIntValue(first[i], 0))
      continue;
    BlockArgument own = body.getArgument(1 + i);
    auto sum = arith::AddIOp::create(b, op->getLoc(), own, value);
    own.replaceAllUsesExcept(sum, sum);
  }
}

FailureOr<TilingResult> AttentionOp::getTiledImplementation(OpBuilder &b,
                                                            ArrayRef<OpFoldResult> offsets,
                                                            ArrayRef<OpFoldResult> sizes) {
  Location loc = getLoc();
  OpFoldResult hq = getDim(b, loc, getQ(), getHeadDim()),
               hkv = getDim(b, loc, getK(), getHeadDim());
  OpFoldResult nq = getDim(b, loc, getQ(), getSeqDim()), nk = getDim(b, loc, getK(), getSeqDim());
  bool wholeQueries = isConstantIntValue(offsets[2], 0) && isSame(sizes[2], nq);
  // A3: with kv_len or own offsets, the position of query 0 differs between batches, so no single
  // offset can represent it. The tile then contains all queries of a batch, or nothing depends on
  // positions.
  bool ownPositions =
      getOffsets() || (hasOwnLengths() && !getOffset() && getAlign() == Align::BottomRight);
  bool wholeBatches =
      isConstantIntValue(offsets[0], 0) && isSame(sizes[0], getDim(b, loc, getQ(), 0));
  if (failed(verifyWholeSequences(*this, wholeQueries && wholeBatches)) ||
      (!wholeQueries && failed(verifyQueriesAreTileable(*this))))
    return failure();
  FailureOr<Part> kvHeads = getKVHeads(b, *this, {offsets[1], sizes[1]}, hq, hkv);
  if (failed(kvHeads))
    return failure();

  std::optional<Part> batches;
  if (!hasPackedSequences())
    batches = Part{offsets[0], sizes[0]};
  TiledOp made = cloneOnParts(b, *this,
                              {/*heads=*/{offsets[1], sizes[1]}, *kvHeads, batches,
                               /*queries=*/Part{offsets[2], sizes[2]}});
  auto tiled = cast<AttentionOp>(made.op);
  if (!ownPositions) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tiled);
    tiled.getOffsetMutable().assign(getPosition(b, *this, offsets[2], nq, nk));
  }
  if (hasScoreMod())
    shiftScoreMod(b, tiled, offsets.take_front(2));
  return TilingResult{{tiled}, SmallVector<Value>(tiled->getResults()), made.slices};
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

//===----------------------------------------------------------------------===//
// Backward pass
//===----------------------------------------------------------------------===//

/// The loops are batch and key/value head; queries and keys are reduced inside the op.
SmallVector<utils::IteratorType> AttentionBackwardOp::getLoopIteratorTypes() {
  return SmallVector<utils::IteratorType>(2, utils::IteratorType::parallel);
}

SmallVector<Range> AttentionBackwardOp::getIterationDomain(OpBuilder &b) {
  OpFoldResult zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<Range> domain;
  for (unsigned dim : {0u, getHeadDim()})
    domain.push_back({zero, getDim(b, getLoc(), getK(), dim), one});
  return domain;
}

/// Returns the slices that a tile of batches and key/value heads needs, including the query heads
/// of the groups (rule A4).
static Parts getParts(OpBuilder &b, AttentionBackwardOp op, ArrayRef<OpFoldResult> offsets,
                      ArrayRef<OpFoldResult> sizes) {
  Location loc = op.getLoc();
  OpFoldResult hq = getDim(b, loc, op.getQ(), op.getHeadDim()),
               hkv = getDim(b, loc, op.getK(), op.getHeadDim());
  Parts parts{/*heads=*/{offsets[1], hq}, /*kvHeads=*/{offsets[1], sizes[1]},
              /*batches=*/std::nullopt, /*queries=*/std::nullopt};
  if (!op.hasPackedSequences())
    parts.batches = Part{offsets[0], sizes[0]};
  if (isConstantIntValue(offsets[1], 0) && isSame(sizes[1], hkv))
    return parts;
  AffineExpr d0 = b.getAffineDimExpr(0), s0 = b.getAffineSymbolExpr(0),
             s1 = b.getAffineSymbolExpr(1);
  AffineMap toHeads = AffineMap::get(1, 2, d0 * s0.floorDiv(s1));
  auto getHeads = [&](OpFoldResult kvHeads) {
    return affine::makeComposedFoldedAffineApply(b, loc, toHeads, {kvHeads, hq, hkv});
  };
  parts.heads = {getHeads(offsets[1]), getHeads(sizes[1])};
  return parts;
}

FailureOr<TilingResult> AttentionBackwardOp::getTiledImplementation(OpBuilder &b,
                                                                    ArrayRef<OpFoldResult> offsets,
                                                                    ArrayRef<OpFoldResult> sizes) {
  SmallVector<Range> domain = getIterationDomain(b);
  bool wholeBatches = isConstantIntValue(offsets[0], 0) && isSame(sizes[0], domain[0].size);
  if (failed(verifyWholeSequences(*this, wholeBatches)))
    return failure();
  // B3, B5: a tile cannot compute a gradient that is a sum over tiles.
  for (auto [i, dims, name] : {std::tuple(0, "B", "batches"), std::tuple(1, "HG", "heads")}) {
    if (isConstantIntValue(offsets[i], 0) && isSame(sizes[i], domain[i].size))
      continue;
    for (const OperandRole &role : getOperandRoles())
      if (role.value && role.rule->is(OperandRule::Output) &&
          StringRef(role.dims).find_first_of(dims) == StringRef::npos)
        return emitOpError() << "expected no gradient that sums over " << name
                             << ", along which the op is tiled, but got '" << role.getName() << "'";
  }
  Parts parts = getParts(b, *this, offsets, sizes);
  TiledOp made = cloneOnParts(b, *this, parts);
  if (hasScoreMod())
    shiftScoreMod(b, cast<AttentionBackwardOp>(made.op), {offsets[0], parts.heads.offset});
  return TilingResult{{made.op}, SmallVector<Value>(made.op->getResults()), made.slices};
}

LogicalResult AttentionBackwardOp::getResultTilePosition(OpBuilder &b, unsigned resultNumber,
                                                         ArrayRef<OpFoldResult> offsets,
                                                         ArrayRef<OpFoldResult> sizes,
                                                         SmallVector<OpFoldResult> &resultOffsets,
                                                         SmallVector<OpFoldResult> &resultSizes) {
  SmallVector<OperandRole> outputs =
      llvm::filter_to_vector(getOperandRoles(), [](const OperandRole &role) {
        return role.value && role.rule->is(OperandRule::Output);
      });
  std::tie(resultOffsets, resultSizes) =
      getPart(b, getLoc(), outputs[resultNumber], getParts(b, *this, offsets, sizes));
  return success();
}
