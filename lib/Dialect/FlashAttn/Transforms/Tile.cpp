//===- Tile.cpp - flashattn-tile: attention as a program on tile values ----===//
//
// The one place where scores become output: scale, softcap, score modification, bias,
// mask, online softmax and P V, on vector<MxN> values that no machine owns yet. Every target lowers
// this program; none computes a softmax of its own.
//
//===----------------------------------------------------------------------===//

#include "Product.h"
#include "ScoreMod.h"
#include "SplitKeys.h"
#include "TileLists.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

namespace mlir::flashattn {
#define GEN_PASS_DEF_TILE
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// What a row carries from one key tile to the next. With s the scores before the
/// factor c = scale * log2(e), or what `getLastFactor` makes of the scale, and the
/// exponentials taken as exp2(c s - c base):
struct RowState {
  Value max; ///< vector<M>: largest s so far, -inf before the first visible key
  Value sum; ///< sum of the exponentials: vector<M>, or vector<MxL> partial sums
  Value out; ///< vector<MxDv>: sum of the exponentials times v

  SmallVector<Value> values() const { return {max, sum, out}; }
  static RowState from(ValueRange v) { return {v[0], v[1], v[2]}; }
};

/// Elements of a row.
int64_t getColumns(Value memref) { return cast<MemRefType>(memref.getType()).getShape().back(); }

/// The factor that scores still lack when they meet the mask, so that it can be folded into the
/// exponent: what the softcap or, without one, the scale leaves, if nothing is added after it.
double getLastFactor(AttentionOp op) {
  if (op.getBias() || op.hasScoreMod())
    return 1;
  if (std::optional<APFloat> softcap = op.getSoftcap())
    return softcap->convertToFloat();
  return op.getScaleOrDefault();
}

/// Builds the program of one attention op.
class ProgramBuilder {
public:
  ProgramBuilder(AttentionOp op, OpBuilder &b)
      : op(op), b(b), loc(op.getLoc()), schedule(op.getScheduleAttr()), m(schedule.getTileM()),
        n(schedule.getTileN()), d(padColumns(op.getD())), dv(padColumns(op.getDv())),
        lanes(schedule.getLanes()), c(getLastFactor(op) * M_LOG2E), pack(schedule.getPack()),
        positions(m / pack), f32(b.getF32Type()), visible(op.getVisibleSets()), o(op.getOInit()),
        lse(op.getLseInit()), outLayout(op.getLayout()), outType(op.getElementType()) {}

  scf::ForallOp build();

private:
  /// Columns of a tile with `columns` of a memref: products on tensor cores take 16 at a time. What
  /// a tile has more reads as 0 and is not written.
  int64_t padColumns(int64_t columns) const {
    return schedule.getLanes() > 1 ? llvm::alignTo(columns, 16) : columns;
  }

  // Small builders.
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
  Value dim(Value memref, unsigned i) {
    return b.createOrFold<memref::DimOp>(loc, memref, static_cast<int64_t>(i));
  }
  VectorType f32Vector(ArrayRef<int64_t> shape) { return VectorType::get(shape, f32); }
  Value splat(VectorType type, double value) {
    return arith::ConstantOp::create(
        b, loc,
        DenseElementsAttr::get(type, b.getFloatAttr(type.getElementType(), value).getValue()));
  }
  Value minusInf(VectorType type) {
    return arith::ConstantOp::create(
        b, loc,
        DenseElementsAttr::get(type, APFloat::getInf(APFloat::IEEEsingle(), /*Negative=*/true)));
  }
  /// vector<M> to vector<Mx`columns`>, every column the same.
  Value alongRow(Value row, int64_t columns) {
    Value column = vector::ShapeCastOp::create(b, loc, f32Vector({m, 1}), row);
    return vector::BroadcastOp::create(b, loc, f32Vector({m, columns}), column);
  }

  Value getOffset();
  Value loadNumKeys(Value all);
  void enterBatch();
  Value enterRows(int64_t rows);
  Value existingKeys(Value memref);
  Value toDotType(Value tile);
  Value loadTile(Value memref, Value head, Value row, int64_t rows, int64_t columns, bool inBounds);
  void storeTile(Value tile, Value memref);

  // Several heads in one tile.
  Value splitHeads(Value memref, int64_t headDim);
  struct PackedAccess;
  PackedAccess accessPacked(Value memref, Layout memory);
  Value loadPacked(Value memref);
  void storePacked(Value rows, Value memref, Layout memory);

  // Several parts of the keys.
  void makeParts(ArrayRef<Value> sizes, Value tiles);
  void buildWithoutParts();
  void combineParts();

  // Key tiles by lists.
  void makeLists(Value batches, Value heads, Value queryTiles);

  Value loadOfScores(Value memref, Value key, bool partial);
  Value computeScores(Value kTile, Value key, bool partial);
  RowState softmaxStep(RowState state, Value scores, Value vTile);
  Value addToRowSum(Value exponentials, Value sum);
  RowState keyLoop(RowState state, Value begin, Value end, bool partial);
  RowState interval(RowState state, const TileInterval &keys);
  RowState allIntervals(RowState state, ArrayRef<TileInterval> keys);
  void finish(RowState state);
  Value joinSink(RowState &state, Value &sum);

  AttentionOp op;
  OpBuilder &b;
  Location loc;
  ScheduleAttr schedule;
  int64_t m, n, d, dv, lanes;
  double c;                ///< takes scores to exponents of 2
  int64_t pack, positions; ///< heads in a tile's rows, and positions of each
  FloatType f32;
  SmallVector<IntegerSet> visible;

  // Values of the program being built.
  Value nq, nk, batch, head, kvHead, row, offset, position, qTile, zeroElement, kMemref, vMemref;
  Value kvHeads, group;
  // With several heads in a tile: the first of them in its group, and memrefs with split heads.
  Value headInGroup, splitQ, splitO, splitLse;
  // Where the output goes: the op's, or that of a part of the keys.
  Value o, lse, outBatch;
  Layout outLayout;
  FloatType outType;
  // With several parts of the keys: their number, this program's, and what they leave.
  Value parts, part, partsBuffer, oParts, lseParts;
  // With lists of key tiles: heads and query tiles of programs that share one, and this program's.
  std::optional<TileLists> lists;
  int64_t listHeads = 1, listQueryTiles = 1;
  SmallVector<Value> list;
};

} // namespace

/// Rows [row, row + rows) of one batch and head, `columns` wide, in the contractions'
/// operand type. Rows past the end read as 0 (A7).
Value ProgramBuilder::loadTile(Value memref, Value kvOrQHead, Value firstRow, int64_t rows,
                               int64_t columns, bool inBounds) {
  SmallVector<Value> indices = {batch, kvOrQHead, firstRow, index(0)};
  if (op.getLayout() == Layout::BSHD)
    std::swap(indices[1], indices[2]);
  auto d4 = [&](unsigned i) { return b.getAffineDimExpr(i); };
  AffineMap map = AffineMap::get(4, 0, {d4(op.getSeqDim()), d4(3)}, b.getContext());
  Value tile = vector::TransferReadOp::create(
      b, loc, VectorType::get({rows, columns}, op.getElementType()), memref, indices, zeroElement,
      map, ArrayRef<bool>{inBounds, columns == getColumns(memref)});
  return toDotType(tile);
}

Value ProgramBuilder::toDotType(Value tile) {
  if (schedule.getDotType() == op.getElementType())
    return tile;
  Type type = cast<VectorType>(tile.getType()).clone(schedule.getDotType());
  return arith::ExtFOp::create(b, loc, type, tile);
}

void ProgramBuilder::storeTile(Value tile, Value memref) {
  SmallVector<Value> indices = {outBatch, head, row, index(0)};
  unsigned rowDim = 2;
  if (outLayout == Layout::BSHD) {
    std::swap(indices[1], indices[2]);
    rowDim = 1;
  }
  AffineMap map =
      AffineMap::get(4, 0, {b.getAffineDimExpr(rowDim), b.getAffineDimExpr(3)}, b.getContext());
  vector::TransferWriteOp::create(b, loc, tile, memref, indices, map,
                                  ArrayRef<bool>{false, dv == getColumns(memref)});
}

/// `memref` with dimension `headDim` as two, key/value heads and the heads of a group: what lies
/// past a group is out of bounds then, so that any number of heads may be packed.
Value ProgramBuilder::splitHeads(Value memref, int64_t headDim) {
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> shape(type.getShape());
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, loc, memref);
  SmallVector<OpFoldResult> split = getAsOpFoldResult(ValueRange{kvHeads, group});
  SmallVector<int64_t> splitShape = llvm::map_to_vector(split, [](OpFoldResult size) {
    return getConstantIntValue(size).value_or(ShapedType::kDynamic);
  });
  // A static size is split to static ones only.
  if (!type.isDynamicDim(headDim) && llvm::any_of(splitShape, ShapedType::isDynamic)) {
    shape[headDim] = ShapedType::kDynamic;
    type = MemRefType::get(shape, type.getElementType(), type.getLayout(), type.getMemorySpace());
    memref = memref::CastOp::create(b, loc, type, memref);
  }
  shape.erase(shape.begin() + headDim);
  sizes.erase(sizes.begin() + headDim);
  shape.insert(shape.begin() + headDim, splitShape.begin(), splitShape.end());
  sizes.insert(sizes.begin() + headDim, split.begin(), split.end());
  SmallVector<ReassociationIndices> reassociation;
  int64_t next = 0;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    reassociation.push_back({next++});
    if (i == headDim)
      reassociation.back().push_back(next++);
  }
  return memref::ExpandShapeOp::create(b, loc, shape, memref, reassociation, sizes);
}

/// How the rows of a tile lie in a memref with split heads.
struct ProgramBuilder::PackedAccess {
  VectorType type; ///< vector<heads x positions (x columns)>, or positions first, as in memory
  SmallVector<Value> indices;
  AffineMap map;
  SmallVector<bool> inBounds;
};

/// `memory` is the order of its dimensions; that of a log-sum-exp is always [B, H, N].
ProgramBuilder::PackedAccess ProgramBuilder::accessPacked(Value memref, Layout memory) {
  auto type = cast<MemRefType>(memref.getType());
  bool isLse = type.getRank() == 4;
  PackedAccess access;
  SmallVector<int64_t> shape = {pack, positions};
  SmallVector<unsigned> dims = {2, 3};
  access.indices = {batch, kvHead, headInGroup, row};
  if (memory == Layout::BSHD && !isLse) {
    dims = {3, 1};
    access.indices = {batch, row, kvHead, headInGroup};
  }
  if (op.getLayout() == Layout::BSHD) {
    std::swap(shape[0], shape[1]);
    std::swap(dims[0], dims[1]);
  }
  access.inBounds = {false, false};
  if (!isLse) {
    shape.push_back(padColumns(getColumns(memref)));
    dims.push_back(4);
    access.indices.push_back(index(0));
    access.inBounds.push_back(shape.back() == getColumns(memref));
  }
  access.type = VectorType::get(shape, type.getElementType());
  access.map = AffineMap::getMultiDimMapWithTargets(type.getRank(), dims, b.getContext());
  return access;
}

Value ProgramBuilder::loadPacked(Value memref) {
  PackedAccess access = accessPacked(memref, op.getLayout());
  Value tile = vector::TransferReadOp::create(b, loc, access.type, memref, access.indices,
                                              zeroElement, access.map, access.inBounds);
  return toDotType(vector::ShapeCastOp::create(
      b, loc, VectorType::get({m, access.type.getShape().back()}, access.type.getElementType()),
      tile));
}

/// `rows` is vector<M> or vector<MxDv>.
void ProgramBuilder::storePacked(Value rows, Value memref, Layout memory) {
  PackedAccess access = accessPacked(memref, memory);
  access.indices.front() = outBatch;
  Value tile = vector::ShapeCastOp::create(b, loc, access.type, rows);
  vector::TransferWriteOp::create(b, loc, tile, memref, access.indices, access.map,
                                  access.inBounds);
}

/// A3: the position of query 0, of the keys that exist.
Value ProgramBuilder::getOffset() {
  if (Value given = op.getOffset())
    return given;
  return op.getAlign() == Align::TopLeft ? index(0) : b.createOrFold<arith::SubIOp>(loc, nk, nq);
}

/// A7: the keys that exist in this program's batch, kv_len of them within [0, all].
Value ProgramBuilder::loadNumKeys(Value all) {
  Value length = memref::LoadOp::create(b, loc, op.getKvLen(), batch);
  length = arith::IndexCastOp::create(b, loc, b.getIndexType(), length);
  length = arith::MaxSIOp::create(b, loc, length, index(0));
  return arith::MinSIOp::create(b, loc, length, all);
}

/// The keys and positions of this program's batch.
void ProgramBuilder::enterBatch() {
  if (!op.getKvLen())
    return;
  nk = loadNumKeys(nk);
  offset = getOffset();
}

/// The position of the first of `rows` queries from `row` on; returns that of the last one.
Value ProgramBuilder::enterRows(int64_t rows) {
  position = b.createOrFold<arith::AddIOp>(loc, row, offset);
  Value end = arith::MinSIOp::create(b, loc, arith::AddIOp::create(b, loc, row, index(rows)), nq);
  return b.createOrFold<arith::SubIOp>(loc, b.createOrFold<arith::AddIOp>(loc, end, offset),
                                       index(1));
}

/// `k` or `v` without what lies past kv_len, so that reading it pads from there.
Value ProgramBuilder::existingKeys(Value memref) {
  if (!op.getKvLen())
    return memref;
  SmallVector<OpFoldResult> zeros(4, b.getIndexAttr(0)), ones(4, b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = memref::getMixedSizes(b, loc, memref);
  sizes[op.getSeqDim()] = nk;
  return memref::SubViewOp::create(b, loc, memref, zeros, sizes, ones);
}

/// The tile of `bias` or `keep` from key `key` on: vector<MxN>, 0 past the ends.
Value ProgramBuilder::loadOfScores(Value memref, Value key, bool partial) {
  SmallVector<Value> indices = {batch, head, row, key};
  SmallVector<AffineExpr> map = {b.getAffineDimExpr(2), b.getAffineDimExpr(3)};
  SmallVector<bool> inBounds = {false, !partial};
  for (unsigned i = 0; i < 4; ++i) {
    if (!AttentionOp::isBroadcastDim(memref, i))
      continue;
    indices[i] = index(0);
    if (i >= 2) {
      map[i - 2] = b.getAffineConstantExpr(0);
      inBounds[i - 2] = true;
    }
  }
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(element));
  return vector::TransferReadOp::create(b, loc, VectorType::get({m, n}, element), memref, indices,
                                        zero, AffineMap::get(4, 0, map, b.getContext()),
                                        ArrayRef<bool>(inBounds));
}

/// Rules A1 and A2 up to the mask: vector<MxN> scores before the factor c, -inf where
/// the pair is hidden. Whatever else shapes a score belongs here.
Value ProgramBuilder::computeScores(Value kTile, Value key, bool partial) {
  VectorType type = f32Vector({m, n});
  Value scores = buildProduct(b, loc, qTile, kTile, splat(type, 0), /*transposedRhs=*/true);
  // Multiplications wait for the next step that can take them along; the last one's are c.
  double factor = op.getScaleOrDefault();
  if (std::optional<APFloat> softcap = op.getSoftcap()) {
    double cap = softcap->convertToFloat();
    scores = arith::MulFOp::create(b, loc, scores, splat(type, factor / cap));
    // 11 bits of it are more than bf16 keeps of a weight or an output.
    auto flags =
        op.getElementType().isBF16() ? arith::FastMathFlags::afn : arith::FastMathFlags::none;
    scores = math::TanhOp::create(b, loc, scores, flags);
    factor = cap;
  }
  if (op.hasScoreMod()) {
    scores = arith::MulFOp::create(b, loc, scores, splat(type, factor));
    scores = applyScoreMod(b, op, scores, batch, head, position, key);
    factor = 1;
  }
  if (Value bias = op.getBias()) {
    bias = loadOfScores(bias, key, partial);
    if (cast<VectorType>(bias.getType()).getElementType() != f32)
      bias = arith::ExtFOp::create(b, loc, type, bias);
    scores = factor == 1
                 ? arith::AddFOp::create(b, loc, scores, bias).getResult()
                 : math::FmaOp::create(b, loc, scores, splat(type, factor), bias).getResult();
  }
  // M7: a pair is visible where the mask and `keep` both show it.
  Value shown;
  if (partial) {
    RowPattern rows;
    if (op.getLayout() == Layout::BSHD)
      rows.repeat = pack;
    else
      rows.span = positions;
    shown = buildVisibleTile(b, loc, visible, position, key, nq, nk, m, n, rows);
  }
  // What is full in a list is so in `keep` too.
  if (Value keep = op.getKeep(); keep && (partial || !lists)) {
    keep = loadOfScores(keep, key, partial);
    shown = shown ? arith::AndIOp::create(b, loc, shown, keep).getResult() : keep;
  }
  return shown ? arith::SelectOp::create(b, loc, shown, scores, minusInf(type)).getResult()
               : scores;
}

/// Adds the exponentials of a tile to the row sum. With `lanes` > 1 columns
/// (g, lane, c) of the tile go to partial sum `lane`, so that threads that share a row
/// add what they hold and meet only once, at the end.
Value ProgramBuilder::addToRowSum(Value exponentials, Value sum) {
  if (lanes == 1)
    return vector::MultiDimReductionOp::create(
        b, loc, exponentials, sum, ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  constexpr int64_t pair = 2; // adjacent columns that one lane holds
  Value grouped = vector::ShapeCastOp::create(
      b, loc, f32Vector({m, n / (lanes * pair), lanes, pair}), exponentials);
  return vector::MultiDimReductionOp::create(
      b, loc, grouped, sum, ArrayRef<bool>{false, true, false, true}, vector::CombiningKind::ADD);
}

/// One step of the online softmax (A5): new max, rescaled sum and output.
RowState ProgramBuilder::softmaxStep(RowState state, Value scores, Value vTile) {
  VectorType rowType = f32Vector({m});
  Value max = vector::MultiDimReductionOp::create(
      b, loc, scores, state.max, ArrayRef<bool>{false, true}, vector::CombiningKind::MAXNUMF);
  // A6: a row that has seen no key yet has max = -inf; exponents are then taken against 0,
  // since -inf - -inf is NaN.
  Value unseen = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, max, minusInf(rowType));
  Value base = arith::SelectOp::create(b, loc, unseen, splat(rowType, 0), max);
  Value cRow = splat(rowType, c);
  Value rescale = math::Exp2Op::create(
      b, loc, arith::MulFOp::create(b, loc, arith::SubFOp::create(b, loc, state.max, base), cRow));
  // exp2(c s - c base), one FMA and one exp2 an element.
  Value negBase = arith::MulFOp::create(b, loc, base, splat(rowType, -c));
  Value exponent =
      math::FmaOp::create(b, loc, scores, splat(f32Vector({m, n}), c), alongRow(negBase, n));
  Value p = math::Exp2Op::create(b, loc, exponent);
  Value sumScale = lanes == 1 ? rescale : alongRow(rescale, lanes);
  Value sum = addToRowSum(p, arith::MulFOp::create(b, loc, state.sum, sumScale));
  Value out = arith::MulFOp::create(b, loc, state.out, alongRow(rescale, dv));
  if (schedule.getDotType() != f32)
    p = arith::TruncFOp::create(b, loc, VectorType::get({m, n}, schedule.getDotType()), p);
  out = buildProduct(b, loc, p, vTile, out);
  return {max, sum, out};
}

/// The loop over key tiles [begin, end); nothing where it is statically empty.
RowState ProgramBuilder::keyLoop(RowState state, Value begin, Value end, bool partial) {
  std::optional<int64_t> lower = getConstantIntValue(begin), upper = getConstantIntValue(end);
  if (begin == end || (lower && upper && *lower >= *upper))
    return state;
  auto loop = scf::ForOp::create(b, loc, begin, end, index(1), state.values());
  if (partial)
    loop->setAttr(kPartialAttrName, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  RowState inner = RowState::from(loop.getRegionIterArgs());
  Value tile = loop.getInductionVar();
  if (lists)
    tile = lists->getTile(b, loc, list, tile);
  Value key = arith::MulIOp::create(b, loc, tile, index(n));
  Value kTile = loadTile(kMemref, kvHead, key, n, d, /*inBounds=*/!partial);
  Value scores = computeScores(kTile, key, partial);
  Value vTile = loadTile(vMemref, kvHead, key, n, dv, /*inBounds=*/!partial);
  scf::YieldOp::create(b, loc, softmaxStep(inner, scores, vTile).values());
  return RowState::from(loop.getResults());
}

/// M3: partial, full, partial. The loops share their bounds, so that a pass may
/// prefetch the next tile from one into the next.
RowState ProgramBuilder::interval(RowState state, const TileInterval &keys) {
  state = keyLoop(state, keys.begin, keys.fullBegin, /*partial=*/true);
  state = keyLoop(state, keys.fullBegin, keys.fullEnd, /*partial=*/false);
  return keyLoop(state, keys.fullEnd, keys.end, /*partial=*/true);
}

/// One interval after the other. Several share one copy of the loops, in an outer loop
/// that picks their bounds by number, so that code does not grow with the mask.
RowState ProgramBuilder::allIntervals(RowState state, ArrayRef<TileInterval> keys) {
  if (keys.empty())
    return state;
  if (keys.size() == 1)
    return interval(state, keys.front());
  auto loop = scf::ForOp::create(b, loc, index(0), index(keys.size()), index(1), state.values());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  TileInterval picked = keys.back();
  for (int64_t i = keys.size() - 2; i >= 0; --i) {
    Value here =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, loop.getInductionVar(), index(i));
    auto pick = [&](Value mine, Value other) {
      return b.createOrFold<arith::SelectOp>(loc, here, mine, other);
    };
    picked = {pick(keys[i].begin, picked.begin), pick(keys[i].fullBegin, picked.fullBegin),
              pick(keys[i].fullEnd, picked.fullEnd), pick(keys[i].end, picked.end)};
  }
  RowState inner = interval(RowState::from(loop.getRegionIterArgs()), picked);
  scf::YieldOp::create(b, loc, inner.values());
  return RowState::from(loop.getResults());
}

/// A5: the sink's logit joins the denominator as one more key would whose value is 0. Updates the
/// row's sum; returns the factor of its output, vector<M>, and leaves in `state.max` the base of
/// the exponents, times c.
Value ProgramBuilder::joinSink(RowState &state, Value &sum) {
  VectorType rowType = f32Vector({m});
  Value logit = memref::LoadOp::create(b, loc, op.getSinkLogits(), head);
  Value log2e = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(M_LOG2E));
  logit = arith::MulFOp::create(b, loc, logit, log2e);
  Value sink = vector::BroadcastOp::create(b, loc, rowType, logit);
  Value max = arith::MulFOp::create(b, loc, state.max, splat(rowType, c));
  Value both = arith::MaxNumFOp::create(b, loc, max, sink);
  // A6: neither keys nor a sink; -inf - -inf would be NaN.
  Value none = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, both, minusInf(rowType));
  Value base = arith::SelectOp::create(b, loc, none, splat(rowType, 0), both);
  auto exponential = [&](Value x) -> Value {
    return math::Exp2Op::create(b, loc, arith::SubFOp::create(b, loc, x, base));
  };
  Value rescale = exponential(max);
  sum =
      arith::AddFOp::create(b, loc, arith::MulFOp::create(b, loc, sum, rescale), exponential(sink));
  state.max = base;
  return rescale;
}

/// A5, A6: divides by the sum and writes o and lse.
void ProgramBuilder::finish(RowState state) {
  VectorType rowType = f32Vector({m});
  Value sum = state.sum;
  if (lanes > 1)
    sum = vector::MultiDimReductionOp::create(
        b, loc, sum, splat(rowType, 0), ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  Value sinkRescale;
  // Of several parts of the keys none has the sink.
  if (op.getSinkLogits() && !parts)
    sinkRescale = joinSink(state, sum);
  Value zero = splat(rowType, 0);
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, sum, zero);
  Value inverse = arith::DivFOp::create(b, loc, splat(rowType, 1), sum);
  inverse = arith::SelectOp::create(b, loc, empty, zero, inverse);
  if (sinkRescale)
    inverse = arith::MulFOp::create(b, loc, inverse, sinkRescale);
  Value out = arith::MulFOp::create(b, loc, state.out, alongRow(inverse, dv));
  if (outType != f32)
    out = arith::TruncFOp::create(b, loc, VectorType::get({m, dv}, outType), out);
  if (pack > 1)
    storePacked(out, splitO, outLayout);
  else
    storeTile(out, o);
  if (lse) {
    // lse = ln 2 (c max + log2 sum)
    Value log = math::Log2Op::create(b, loc, sum);
    Value value = sinkRescale
                      ? arith::AddFOp::create(b, loc, state.max, log).getResult()
                      : math::FmaOp::create(b, loc, state.max, splat(rowType, c), log).getResult();
    value = arith::MulFOp::create(b, loc, value, splat(rowType, M_LN2));
    value = arith::SelectOp::create(b, loc, empty, minusInf(rowType), value);
    if (pack > 1)
      return storePacked(value, splitLse, Layout::BHSD);
    AffineMap map = AffineMap::get(3, 0, {b.getAffineDimExpr(2)}, b.getContext());
    vector::TransferWriteOp::create(b, loc, value, lse, ValueRange{outBatch, head, row}, map,
                                    ArrayRef<bool>{false});
  }
}

/// Where all keys are one part nothing need be merged: the op's own program, and what follows is
/// for more.
void ProgramBuilder::buildWithoutParts() {
  // A kernel of lists would cost more than a merge; and of packed heads only a merge has the sinks.
  if (op.getKeep() || (op.getSinkLogits() && pack > 1))
    return;
  Value isOne = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, parts, index(1));
  auto branch = scf::IfOp::create(b, loc, isOne, /*withElseRegion=*/true);
  b.setInsertionPointToStart(branch.thenBlock());
  auto whole = cast<AttentionOp>(b.clone(*op));
  whole.setScheduleAttr(ScheduleAttr::get(b.getContext(), m, n, schedule.getWarps(),
                                          schedule.getStages(), lanes, schedule.getDotType(), pack,
                                          /*splits=*/1, schedule.getRoles()));
  ProgramBuilder(whole, b).build();
  whole.erase();
  b.setInsertionPointToStart(branch.elseBlock());
}

/// Decides how many parts the keys are cut into and makes room for their outputs. `sizes` are
/// batches, query heads and queries; `tiles` is the number of programs without parts.
void ProgramBuilder::makeParts(ArrayRef<Value> sizes, Value tiles) {
  Value keyTiles = b.createOrFold<arith::CeilDivUIOp>(loc, nk, index(n));
  parts = CountSplitsOp::create(b, loc, tiles, keyTiles, schedule);
  buildWithoutParts();
  // One allocation for both: on a GPU each costs the host as much as a launch.
  constexpr int64_t kFloatBytes = 4;
  Value rows = parts;
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  SmallVector<Value> dynamicSizes = {parts};
  for (Value size : sizes) {
    rows = b.createOrFold<arith::MulIOp>(loc, rows, size);
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      dynamicSizes.push_back(size);
  }
  auto bytesOf = [&](int64_t columns) {
    return b.createOrFold<arith::MulIOp>(loc, rows, index(columns * kFloatBytes));
  };
  auto bytesType = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  partsBuffer = memref::AllocOp::create(b, loc, bytesType, ValueRange{bytesOf(op.getDv() + 1)});
  lseParts = memref::ViewOp::create(b, loc, MemRefType::get(shape, f32), partsBuffer,
                                    bytesOf(op.getDv()), dynamicSizes);
  shape.push_back(op.getDv());
  oParts = memref::ViewOp::create(b, loc, MemRefType::get(shape, f32), partsBuffer, index(0),
                                  dynamicSizes);
  // To the programs a part is one more batch.
  o = memref::CollapseShapeOp::create(b, loc, oParts,
                                      ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}, {4}});
  lse = memref::CollapseShapeOp::create(b, loc, lseParts,
                                        ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}});
  outLayout = Layout::BHSD;
  outType = f32;
}

/// Merges what the programs of all parts have left, behind them.
void ProgramBuilder::combineParts() {
  CombineOp::create(b, loc, TypeRange(), oParts, lseParts, op.getSinkLogits(), op.getOInit(),
                    op.getLseInit(), op.getLayoutAttr());
  memref::DeallocOp::create(b, loc, partsBuffer);
}

/// Lists the key tiles that `keep` shows, of those in the mask's intervals, for all programs that
/// a block runs at once: they share their tiles. A `keep` or mask that is the same for several
/// programs has one list for them.
void ProgramBuilder::makeLists(Value batches, Value heads, Value queryTiles) {
  if (RolesAttr roles = schedule.getRoles())
    (roles.getAlong() == ProgramAxis::Head ? listHeads : listQueryTiles) = roles.getConsumers();
  auto isSame = [&](unsigned dim) { return AttentionOp::isBroadcastDim(op.getKeep(), dim); };
  auto count = [&](Value all, int64_t together) {
    return b.createOrFold<arith::CeilDivUIOp>(loc, all, index(together));
  };
  Value sizes[] = {isSame(0) && !op.getKvLen() ? index(1) : batches,
                   isSame(1) ? index(1) : count(heads, listHeads),
                   isSame(2) && !op.getMask() ? index(1) : count(queryTiles, listQueryTiles)};
  int64_t rows = listQueryTiles * positions;
  Value allKeys = nk;
  lists.emplace();
  lists->build(b, loc, op.getKeep(), sizes, nk, {listHeads, rows, n}, [&](ValueRange place) {
    batch = place[0];
    enterBatch();
    row = arith::MulIOp::create(b, loc, place[2], index(rows));
    Value last = enterRows(rows);
    return buildKeyIntervals(b, loc, visible, position, last, nq, nk, n);
  });
  nk = allKeys;
}

scf::ForallOp ProgramBuilder::build() {
  nq = dim(op.getQ(), op.getSeqDim());
  nk = dim(op.getK(), op.getSeqDim());
  Value batches = dim(op.getQ(), 0), heads = dim(op.getQ(), op.getHeadDim());
  kvHeads = dim(op.getK(), op.getHeadDim());
  Value tiles = b.createOrFold<arith::CeilDivUIOp>(loc, nq, index(positions));
  // A4. No key/value head at all only comes with no query head: nothing runs then.
  group = b.createOrFold<arith::DivUIOp>(loc, heads,
                                         b.createOrFold<arith::MaxUIOp>(loc, kvHeads, index(1)));
  if (!op.getKvLen())
    offset = getOffset();
  zeroElement = arith::ConstantOp::create(b, loc, b.getFloatAttr(op.getElementType(), 0));
  Value headTiles = group; // of one key/value head
  SmallVector<Value> rowSizes = {batches, heads, nq};
  if (pack > 1) {
    headTiles = b.createOrFold<arith::CeilDivUIOp>(loc, group, index(pack));
    heads = b.createOrFold<arith::MulIOp>(loc, kvHeads, headTiles);
  }
  if (schedule.getSplits() > 1) {
    Value programs = b.createOrFold<arith::MulIOp>(
        loc, b.createOrFold<arith::MulIOp>(loc, batches, heads), tiles);
    makeParts(rowSizes, programs);
    tiles = b.createOrFold<arith::MulIOp>(loc, tiles, parts);
  } else if (op.getKeep()) {
    // Parts are for few queries, where one more kernel costs more than it saves.
    makeLists(batches, heads, tiles);
  }
  if (pack > 1) {
    splitQ = splitHeads(op.getQ(), op.getHeadDim());
    splitO = splitHeads(o, outLayout == Layout::BHSD ? 1 : 2);
    if (lse)
      splitLse = splitHeads(lse, /*headDim=*/1);
  }

  SmallVector<Attribute> axes;
  for (ProgramAxis axis : {ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile})
    axes.push_back(ProgramAxisAttr::get(b.getContext(), axis));
  auto forall = scf::ForallOp::create(b, loc, getAsOpFoldResult({batches, heads, tiles}),
                                      /*outputs=*/ValueRange(), b.getArrayAttr(axes));
  forall->setAttr(kScheduleAttrName, schedule);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(forall.getBody());
  batch = outBatch = forall.getInductionVars()[0];
  head = forall.getInductionVars()[1];
  Value tile = forall.getInductionVars()[2];
  if (parts) {
    Value number = tile;
    tile = divide32(b, loc, number, parts);
    part = arith::SubIOp::create(b, loc, number, arith::MulIOp::create(b, loc, tile, parts));
    outBatch = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, part, batches), batch);
  }
  kvHead = b.createOrFold<arith::DivUIOp>(loc, head, headTiles);
  if (pack > 1)
    headInGroup = arith::MulIOp::create(
        b, loc,
        arith::SubIOp::create(b, loc, head, arith::MulIOp::create(b, loc, kvHead, headTiles)),
        index(pack));
  enterBatch();
  kMemref = existingKeys(op.getK());
  vMemref = existingKeys(op.getV());
  row = arith::MulIOp::create(b, loc, tile, index(positions));
  Value last = enterRows(positions);
  qTile = pack > 1 ? loadPacked(splitQ) : loadTile(op.getQ(), head, row, m, d, /*inBounds=*/false);

  SmallVector<TileInterval> keys;
  if (lists) {
    auto number = [&](Value v, int64_t together) {
      return together == 1 ? v : divide32(b, loc, v, index(together));
    };
    list = {batch, number(head, listHeads), number(tile, listQueryTiles)};
    keys = {lists->getInterval(b, loc, list)};
  } else {
    keys = buildKeyIntervals(b, loc, visible, position, last, nq, nk, n);
  }
  if (parts)
    keys = takeShare(b, loc, keys, part, parts);
  VectorType sumType = lanes == 1 ? f32Vector({m}) : f32Vector({m, lanes});
  RowState state{minusInf(f32Vector({m})), splat(sumType, 0), splat(f32Vector({m, dv}), 0)};
  finish(allIntervals(state, keys));
  b.setInsertionPointAfter(forall);
  if (parts)
    combineParts();
  if (lists)
    lists->free(b, loc);
  return forall;
}

FailureOr<scf::ForallOp> mlir::flashattn::tileAttention(RewriterBase &rewriter, AttentionOp op) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before tiling";
  if (!op.getSchedule())
    return op.emitOpError() << "expected a schedule; run flashattn-select-schedule before tiling";
  if (failed(verifyScoreModVectorizes(op)))
    return failure();
  warnHiddenRows(op);
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  scf::ForallOp program = ProgramBuilder(op, rewriter).build();
  rewriter.eraseOp(op);
  return program;
}

SmallVector<scf::ForallOp> mlir::flashattn::findSpecializedPrograms(Operation *root) {
  SmallVector<scf::ForallOp> programs;
  root->walk([&](scf::ForallOp program) {
    auto schedule = program->getAttrOfType<ScheduleAttr>(kScheduleAttrName);
    if (schedule && schedule.getRoles())
      programs.push_back(program);
  });
  return programs;
}

namespace {
struct TilePass : flashattn::impl::TileBase<TilePass> {
  void runOnOperation() override {
    SmallVector<AttentionOp> ops;
    getOperation()->walk([&](AttentionOp op) { ops.push_back(op); });
    IRRewriter rewriter(&getContext());
    for (AttentionOp op : ops)
      if (failed(tileAttention(rewriter, op)))
        return signalPassFailure();
  }
};
} // namespace
