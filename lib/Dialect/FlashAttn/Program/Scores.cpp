//===- Scores.cpp ---------------------------------------------------------===//

#include "Scores.h"
#include "ScoreMod.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

ScoreBuilder::ScoreBuilder(OpBuilder &b, AttentionOpInterface op, TileAxis columns,
                           RowPattern pattern, bool fullTilesKeep, bool isExact)
    : TileBuilder(b, op->getLoc()), op(op), rows(op.getScheduleAttr().getTileM()), columns(columns),
      queries(rows), keys(op.getScheduleAttr().getTileN()), pattern(pattern),
      fullTilesKeep(fullTilesKeep), isExact(isExact), visible(op.getVisibleSets()) {
  if (!op.getPerKey().empty()) {
    Value kvHeads = max(dim(op.getK(), op.getHeadDim()), index(1));
    headTiles = ceilDiv(div(dim(op.getQ(), op.getHeadDim()), kvHeads),
                        op.getScheduleAttr().getPack());
  }
  if (columns == TileAxis::Queries)
    std::swap(queries, keys);
}

/// A value for each row is a vector<Mx1>. A value for each column is loaded as a tile of equal
/// rows: threads hold columns only as parts of tiles.
Value ScoreBuilder::loadSymbol(Value memref, TileAxis of, const ScorePlace &at) const {
  bool isOfRows = of != columns, isOfQueries = of == TileAxis::Queries;
  auto isSame = [&](unsigned dim) { return AttentionOpInterface::isBroadcastDim(memref, dim); };
  const auto &packed = isOfQueries ? at.sequence.packedQueries : at.sequence.packedKeys;
  Value batch = packed || isSame(0) ? index(0) : at.sequence.batch, head = index(0);
  if (packed) {
    // A thread reads the last row in place of rows past the end, so that there must be one.
    Value last = sub(dim(memref, 2), index(1)), first = min(packed->first, last);
    memref = takeRows(b, loc, memref, /*rowDim=*/2, first, add(first, max(packed->count, index(1))));
  }
  if (!isSame(1))
    head = isOfQueries ? at.head : divide32(at.head, headTiles);
  Value indices[] = {batch, head, isOfQueries ? at.queryTile : at.keyTile};
  if (!isOfRows)
    return LoadTileOp::create(b, loc, getTileType(b.getI32Type()), memref, indices,
                              ArrayRef<int64_t>{-1, 2}, ArrayRef<bool>{true, false});
  int64_t count = isOfQueries ? queries : keys;
  Value rows = LoadTileOp::create(b, loc, VectorType::get({count}, b.getI32Type()), memref, indices,
                                  ArrayRef<int64_t>{2}, ArrayRef<bool>{false});
  return vector::ShapeCastOp::create(b, loc, VectorType::get({count, 1}, b.getI32Type()), rows);
}

/// Loads copies of the symbols per key as tiles of f32, in a step of the loop; they may be null.
SmallVector<Value> ScoreBuilder::loadCopies(const ScorePlace &at) const {
  SmallVector<Value> copies(op.getPerKey().size());
  if (keyRanges)
    for (auto [i, copy] : llvm::enumerate(copies))
      copy = keyRanges->loadCopy(i, at.sequence, divide32(at.head, headTiles), at.keyTile,
                                 getTileType(b.getF32Type()));
  return copies;
}

/// `copies` are those of `loadCopies`.
SmallVector<Value> ScoreBuilder::loadSymbols(const ScorePlace &at, ArrayRef<Value> copies) const {
  SmallVector<Value> symbols = {at.sequence.queries, at.sequence.keys};
  llvm::append_range(symbols, at.sequence.symbols);
  for (Value memref : op.getPerQuery())
    symbols.push_back(loadSymbol(memref, TileAxis::Queries, at));
  for (auto [memref, copy] : llvm::zip_equal(op.getPerKey(), copies))
    symbols.push_back(
        copy ? arith::BitcastOp::create(b, loc, getTileType(b.getI32Type()), copy).getResult()
             : loadSymbol(memref, TileAxis::Keys, at));
  return symbols;
}

VectorType ScoreBuilder::getTileType(Type element) const {
  return columns == TileAxis::Keys ? VectorType::get({queries, keys}, element)
                                   : VectorType::get({keys, queries}, element);
}

Factor ScoreBuilder::getScale() const {
  if (Value scale = op.getScaleValue())
    return {1, scale};
  return {op.getScaleOrDefault()};
}

/// The scale, or the cap after a softcap, can be folded into the exponent if nothing is added after
/// it.
Factor ScoreBuilder::getFactor() const {
  if (op.getBias() || op.hasScoreMod())
    return {M_LOG2E};
  if (std::optional<APFloat> softcap = op.getSoftcap())
    return {softcap->convertToFloat() * M_LOG2E};
  return getScale() * M_LOG2E;
}

Value ScoreBuilder::multiply(Value q, Value k, Value from) const {
  if (columns == TileAxis::Queries)
    std::swap(q, k);
  if (!from)
    from = splat(getTileType(b.getF32Type()), 0);
  return product(q, k, from, /*transposedRhs=*/true);
}

/// Loads the tile of `bias` or `attn_mask`, with 0 past the ends.
Value ScoreBuilder::load(Value memref, const ScorePlace &at) const {
  SmallVector<Value> indices = {at.sequence.batch, at.head, at.queryTile, at.keyTile};
  SmallVector<int64_t> dims = {2, 3};
  SmallVector<bool> inBounds = {false, false};
  for (unsigned i = 0; i < 4; ++i) {
    if (!AttentionOpInterface::isBroadcastDim(memref, i))
      continue;
    indices[i] = index(0);
    if (i >= 2) {
      dims[i - 2] = -1;
      inBounds[i - 2] = true;
    }
  }
  if (columns == TileAxis::Queries) {
    std::swap(dims[0], dims[1]);
    std::swap(inBounds[0], inBounds[1]);
  }
  VectorType type = getTileType(cast<MemRefType>(memref.getType()).getElementType());
  return LoadTileOp::create(b, loc, type, memref, indices, dims, inBounds);
}

Value ScoreBuilder::shape(Value scores, const ScorePlace &at, ScoreDerivative *derivative) const {
  VectorType type = getTileType(b.getF32Type());
  if (derivative)
    *derivative = {Value(), getScale()};
  // A factor is deferred to the next operation that can include it; the last one is in `getFactor`.
  Factor factor = getScale();
  if (std::optional<APFloat> softcap = op.getSoftcap()) {
    double cap = softcap->convertToFloat();
    scores = arith::MulFOp::create(b, loc, scores, splat(type, factor / cap));
    // The approximate tanh has 11 bits, more than bf16 keeps of P or of an output.
    auto flags = op.getElementType().isBF16() && !isExact ? arith::FastMathFlags::afn
                                                          : arith::FastMathFlags::none;
    scores = math::TanhOp::create(b, loc, scores, flags);
    factor = {cap};
    // d/dx c tanh(x / c) = 1 - tanh^2.
    if (derivative)
      derivative->slope = math::FmaOp::create(b, loc, arith::NegFOp::create(b, loc, scores), scores,
                                              splat(type, 1));
  }
  if (op.hasScoreMod()) {
    scores = arith::MulFOp::create(b, loc, scores, splat(type, factor));
    scores = applyScoreMod(b, op, scores, {at.sequence.batch, at.head, at.position, at.key},
                           columns, derivative ? &derivative->slope : nullptr);
    factor = {};
  }
  if (Value bias = op.getBias()) {
    bias = load(bias, at);
    if (bias.getType() != type)
      bias = arith::ExtFOp::create(b, loc, type, bias);
    scores = factor.isOne()
                 ? arith::AddFOp::create(b, loc, scores, bias).getResult()
                 : math::FmaOp::create(b, loc, scores, splat(type, factor), bias).getResult();
  }
  return arith::SelectOp::create(b, loc, findVisible(at), scores, minusInf(type));
}

/// Returns the indices of `count` columns from 0 on: vector<1x`count`xi32>.
Value ScoreBuilder::step(int64_t count) const {
  Value number = vector::StepOp::create(b, loc, VectorType::get({count}, b.getIndexType()));
  number = arith::IndexCastOp::create(b, loc, VectorType::get({count}, b.getI32Type()), number);
  return vector::ShapeCastOp::create(b, loc, VectorType::get({1, count}, b.getI32Type()), number);
}

/// A7: returns the columns whose queries exist. Results of rows without a query are not written.
Value ScoreBuilder::findQueries(const ScorePlace &at) const {
  Value left = arith::IndexCastOp::create(b, loc, b.getI32Type(),
                                          sub(at.sequence.queries, mul(at.queryTile, queries)));
  VectorType tile = getTileType(b.getI32Type());
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, broadcast(tile, left),
                               vector::BroadcastOp::create(b, loc, tile, step(queries)));
}

/// Returns the pairs that the mask shows. Compacted keys have another offset after each cut.
Value ScoreBuilder::findInMask(const ScorePlace &at, ArrayRef<Value> copies) const {
  TileAxis numbers = op.getScheduleAttr().getMapping().keepsRowLimits() ? columns : TileAxis::Keys;
  SmallVector<Value> symbols = loadSymbols(at, copies);
  auto build = [&](ArrayRef<IntegerSet> sets, Value key) {
    return buildVisibleTile(b, loc, sets, at.position, key, symbols, queries, keys, pattern,
                            columns, numbers);
  };
  SmallVector<RowSegment> segments;
  if (at.keyRows)
    segments = at.keyRows.getDefiningOp<RowMapOpInterface>().getSegments();
  if (segments.empty())
    return build(visible, at.key);
  // All keys of a piece are on the same side of a cut, so its first column decides.
  Value first = step(keys);
  first = arith::AndIOp::create(
      b, loc, first,
      broadcast(cast<VectorType>(first.getType()), i32(-CompactRowsOp::kGranularity)));
  Value key = at.key, shown;
  for (const RowSegment &segment : segments) {
    key = add(key, segment.skip);
    Value mine = build(selectSetsFrom(visible, segment.lowerBound), key);
    if (!shown) {
      shown = mine;
      continue;
    }
    // The comparison of tile indices shows LLVM that only the first tiles contain a cut.
    Value isPast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, at.keyTile,
                                         ceilDiv(segment.start, keys));
    Value left = arith::IndexCastOp::create(b, loc, b.getI32Type(),
                                            select(isPast, index(0), sub(segment.start, at.key)));
    Value isBehind = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, first,
                                           broadcast(cast<VectorType>(first.getType()), left));
    isBehind = vector::BroadcastOp::create(b, loc, getTileType(b.getI1Type()), isBehind);
    shown = select(isBehind, mine, shown);
  }
  return shown;
}

/// M7: a pair is visible if the mask and `attn_mask` both show it.
Value ScoreBuilder::findVisible(const ScorePlace &at) const {
  SmallVector<Value> copies = loadCopies(at);
  auto shown = TileMaskOp::create(b, loc, getTileType(b.getI1Type()));
  Value all = shown;
  {
    OpBuilder::InsertionGuard guard(b);
    b.createBlock(&shown.getRegion());
    Value visiblePairs = findInMask(at, copies);
    // A score_mod may return any value for queries that do not exist. In place of those of a packed
    // sequence, a tensor map reads the next sequence.
    bool mayBeNaN = op.hasScoreMod() || op.hasPackedSequences() || op.getQLen();
    if (columns == TileAxis::Queries && mayBeNaN)
      visiblePairs = arith::AndIOp::create(b, loc, visiblePairs, findQueries(at));
    if (op.getAttnMask() && fullTilesKeep)
      visiblePairs = arith::AndIOp::create(b, loc, visiblePairs, load(op.getAttnMask(), at));
    TileYieldOp::create(b, loc, visiblePairs);
  }
  if (op.getAttnMask() && !fullTilesKeep)
    all = arith::AndIOp::create(b, loc, all, load(op.getAttnMask(), at));
  return all;
}
