//===- ScoreGradients.cpp -------------------------------------------------===//

#include "ScoreGradients.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

static Value allocate(OpBuilder &b, Location loc, ArrayRef<Value> sizes, Type element) {
  SmallVector<int64_t> shape;
  SmallVector<Value> dynamicSizes;
  for (Value size : sizes) {
    shape.push_back(getConstantIntValue(size).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      dynamicSizes.push_back(size);
  }
  return memref::AllocOp::create(b, loc, MemRefType::get(shape, element), dynamicSizes);
}

Value mlir::flashattn::allocateF32(OpBuilder &b, Location loc, ArrayRef<Value> sizes) {
  return allocate(b, loc, sizes, b.getF32Type());
}

Value mlir::flashattn::isCounted(const TileBuilder &build, const IndexRange &counted,
                                 Value firstRow, int64_t rows) {
  OpBuilder &b = build.b;
  Value result;
  if (counted.end)
    result = build.isBelow(build.sub(counted.end, firstRow), rows);
  if (!counted.begin)
    return result;
  auto type = VectorType::get({rows}, b.getI1Type());
  Value yes = arith::ConstantOp::create(b, build.loc, DenseElementsAttr::get(type, true));
  Value before = build.isBelow(build.sub(counted.begin, firstRow), rows);
  Value begun = arith::XOrIOp::create(b, build.loc, before, yes);
  return result ? arith::AndIOp::create(b, build.loc, begun, result).getResult() : begun;
}

int64_t QuerySums::countWhole(ScheduleAttr schedule, const Operands &operands) {
  ScheduleAttr ofQueries = schedule.forQueryTiles();
  int64_t whole = 1;
  for (int64_t rows : {schedule.getTileM(), schedule.getTileN(), schedule.forWideSteps().getTileN(),
                       ofQueries.getTileM()})
    whole = std::lcm(whole, rows);
  // Programs of a block belong to one segment.
  if (operands.getStarts(TileAxis::Queries))
    whole = std::lcm(whole, ofQueries.getTileM() * ofQueries.countProgramsPerBlock());
  return whole;
}

QuerySums::QuerySums(OpBuilder &b, AttentionBackwardOp op, const Operands &operands, Adding adding,
                     bool negates, Value zeroed, FindFirst findFirst,
                     const CountedRows &countedQueries)
    : TileBuilder(b, op.getLoc()), operands(operands), schedule(op.getScheduleAttr()),
      batches(operands.getSizes().batches), adding(adding), negates(negates),
      isF32(op.getElementType().isF32()) {
  const Sizes &sizes = operands.getSizes();
  whole = countWhole(schedule, operands);
  if (operands.getStarts(TileAxis::Queries))
    batches = index(1);
  rows = mul(operands.countTiles(TileAxis::Queries, whole), whole);
  buffer = allocateF32(b, loc, {mul(batches, 4), sizes.heads, rows});
  if (!schedule.getMapping().hasRegistersForBases())
    large = allocate(b, loc, index(1), b.getI32Type());
  split = operands.splitHeads(buffer, /*headDim=*/1);
  if (adding != Adding::None)
    gradients =
        allocateF32(b, loc, {batches, sizes.heads, rows, index(operands.padColumns(op.getD()))});
  if (adding == Adding::FirstClears || adding == Adding::InTurns) {
    Type count = b.getI32Type();
    Value tiles = div(rows, index(schedule.getTileN()));
    order = allocate(b, loc, {batches, sizes.heads, tiles}, count);
    // A head's element has the linear index of the head's first tile in `order` or, if the number
    // of tiles is dynamic, of the head: the adding warps hold this index, and lack a register for
    // another.
    int64_t known = getConstantIntValue(tiles).value_or(0);
    addedCounter =
        allocate(b, loc, {batches, sizes.heads, index(std::max<int64_t>(known, 1))}, count);
  }
  buildProgram(op, zeroed, findFirst, countedQueries);
}

void QuerySums::free() const {
  memref::DeallocOp::create(b, loc, buffer);
  for (Value memref : {gradients, order, addedCounter, large})
    if (memref)
      memref::DeallocOp::create(b, loc, memref);
}

/// B1: computes delta = sum_d d_o o - d_lse, and the exponent of 2 that P is relative to.
void QuerySums::buildProgram(AttentionBackwardOp op, Value zeroed, FindFirst findFirst,
                             const CountedRows &countedQueries) {
  int64_t count = schedule.getTileM();
  ProgramOp program =
      operands.createProgram(TileAxis::Queries, operands.getSizes().heads, div(rows, index(count)),
                             count, whole, schedule.withoutHopper());
  program.setPdlPrimary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ScorePlace at;
  at.sequence = operands.getSequence(operands.getAll(), program.getNumbers()[0], TileAxis::Queries);
  at.head = program.getNumbers()[1];
  at.queryTile = program.getNumbers()[2];
  const Sequence &sequence = at.sequence;
  if (order || large) {
    auto first = scf::IfOp::create(
        b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at.queryTile, index(0)),
        /*withElseRegion=*/false);
    OpBuilder::InsertionGuard inFirst(b);
    b.setInsertionPointToStart(first.thenBlock());
    // Programs of all heads write the same zero.
    if (large)
      storeCount(0, large, index(0));
    if (order)
      storeCount(0, addedCounter, {getBatch(sequence), at.head, index(0)});
  }
  VectorType rowType = f32Vector({count});
  auto loadTile = [&](Value memref) {
    Value tile =
        operands.loadRows(memref, TileAxis::Queries, sequence, at.head, at.queryTile, count);
    auto type = cast<VectorType>(tile.getType());
    if (type.getElementType().isF32())
      return tile;
    return arith::ExtFOp::create(b, loc, type.clone(b.getF32Type()), tile).getResult();
  };
  Value dO = loadTile(op.getDO()), o = loadTile(op.getO());
  // While the loads of the tiles are in flight.
  if (adding == Adding::ToZeros || adding == Adding::InTurns) {
    SmallVector<Value> indices = indicesIn(sequence, at.head, at.queryTile, count);
    indices.push_back(index(0));
    storeZeros(gradients, indices);
  }
  Value products = arith::MulFOp::create(b, loc, dO, o);
  Value delta = vector::MultiDimReductionOp::create(
      b, loc, products, splat(rowType, 0), ArrayRef<bool>{false, true}, vector::CombiningKind::ADD);
  // B7: for a query that sees no key, values that are not finite are replaced by those of A6.
  // Finite values enter B3, because they may come from more keys than these.
  IndexRange counted = countedQueries.get(sequence);
  // Without keys, no query sees one. Programs that visit keys do not need this.
  if (op.hasOwnLengths())
    counted.end = select(less(index(0), sequence.keys),
                         counted.end ? counted.end : sequence.queries, index(0));
  Value counts = isCounted(*this, counted, mul(at.queryTile, count), count);
  delta = takeNumbers(delta, counts, splat(rowType, 0));
  if (op.getDLse())
    delta = arith::SubFOp::create(b, loc, delta, loadRow(op.getDLse(), at, rowType));
  Value lse = loadLse(op, at, rowType, counts);
  // A6: a row that sees no key has only scores of -inf, whose exponents are relative to 0.
  Value empty = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, lse, minusInf(rowType));
  Value exponent = arith::MulFOp::create(b, loc, lse, splat(rowType, M_LOG2E));
  exponent = arith::SelectOp::create(b, loc, empty, splat(rowType, 0), exponent);
  // B7: its d_lse has no effect either.
  delta = arith::SelectOp::create(b, loc, empty, splat(rowType, 0), delta);
  Value exists = isBelow(sub(sequence.queries, mul(at.queryTile, count)), count);
  Value inf = arith::NegFOp::create(b, loc, minusInf(rowType));
  exponent = arith::SelectOp::create(b, loc, exists, exponent, inf);
  delta = arith::SelectOp::create(b, loc, exists, delta, splat(rowType, 0));
  if (negates)
    delta = arith::NegFOp::create(b, loc, delta);
  for (auto [kind, value] : {std::pair(Exponent, exponent), {Delta, delta}})
    store(kind, value, at);
  store(Base, splat(rowType, 0), at);
  storeFlag(at, arith::AndIOp::create(b, loc, exists, isLarge(lse)));
  if (order)
    storeOrder(at, findFirst);
  if (!zeroed)
    return;
  // Each of the first programs of a batch clears one tile of `zeroed`.
  Value number = add(mul(at.head, program.getSizes()[2]), at.queryTile);
  Value tiles = div(dim(zeroed, 1), index(count));
  auto guarded = scf::IfOp::create(b, loc, less(number, tiles), /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  storeZeros(zeroed, {sequence.batch, number, index(0)});
}

Value QuerySums::loadRow(Value memref, const ScorePlace &at, VectorType type) const {
  auto [rows, batch] = operands.takeRows(memref, TileAxis::Queries, at.sequence, /*exist=*/true);
  return LoadTileOp::create(b, loc, type, rows, ValueRange{batch, at.head, at.queryTile},
                            ArrayRef<int64_t>{2}, ArrayRef<bool>{false});
}

Value QuerySums::loadLse(AttentionBackwardOp op, const ScorePlace &at, VectorType type,
                         Value counts) const {
  Value lse = loadRow(op.getLse(), at, type);
  if (!counts)
    return lse;
  Value unseeing = minusInf(type);
  if (Value sinks = op.getSinkLogits())
    unseeing = broadcast(type, memref::LoadOp::create(b, loc, sinks, at.head));
  return takeNumbers(lse, counts, unseeing);
}

/// Returns `given`, with `otherwise` in place of values that are not finite in rows that are not in
/// `counts` (null: all are).
Value QuerySums::takeNumbers(Value given, Value counts, Value otherwise) const {
  if (!counts)
    return given;
  Value inf = splat(cast<VectorType>(given.getType()), INFINITY);
  Value isNumber = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT,
                                         math::AbsFOp::create(b, loc, given), inf);
  return arith::SelectOp::create(b, loc, arith::OrIOp::create(b, loc, counts, isNumber), given,
                                 otherwise);
}

void QuerySums::store(Kind kind, Value rows, const ScorePlace &at) const {
  int64_t count = cast<VectorType>(rows.getType()).getDimSize(0);
  StoreTileOp::create(b, loc, rows, buffer, indicesOf(kind, at, count), ArrayRef<int64_t>{2},
                      ArrayRef<bool>{true});
}

Value QuerySums::isLarge(Value lse) const {
  // Half a unit in the last place of 32 is the precision that f32 gradients can spare; that of 1024
  // is 2^-14, which 16-bit gradients can spare.
  const double largest = isF32 ? 32 : 1024;
  auto type = cast<VectorType>(lse.getType());
  Value size = math::AbsFOp::create(b, loc, lse),
        inf = arith::NegFOp::create(b, loc, minusInf(type));
  Value far = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, size, splat(type, largest));
  Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, size, inf);
  return arith::AndIOp::create(b, loc, far, finite);
}

/// Stores whether any row is `large`. Threads may hold different rows, so all of them write 0
/// before the first writes 1.
void QuerySums::storeFlag(const ScorePlace &at, Value large) const {
  auto store = [&](double flag) {
    Value value = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(flag));
    SmallVector<Value> indices = indicesIn(at.sequence, at.head, at.queryTile, schedule.getTileM());
    indices[0] = flagIndex(indices[0]);
    memref::StoreOp::create(b, loc, value, buffer, indices);
  };
  store(0);
  if (schedule.getMapping().isOnGPU())
    gpu::BarrierOp::create(b, loc);
  auto any = scf::IfOp::create(b, loc, AnyRowOp::create(b, loc, large), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(any.thenBlock());
  store(1);
}

void QuerySums::storeCount(int64_t count, Value memref, ValueRange indices) const {
  memref::StoreOp::create(b, loc, arith::ConstantIntOp::create(b, loc, count, /*width=*/32), memref,
                          indices);
}

void QuerySums::noteLarge() const {
  if (large)
    storeCount(1, large, index(0));
}

/// Returns the number of tiles of `rows` rows that one checking program covers.
static int64_t countCheckedTiles(int64_t rows) {
  constexpr int64_t kRows = 1024;
  return llvm::divideCeil(kRows, rows);
}

int64_t QuerySums::countCheckedRows(int64_t rows) { return countCheckedTiles(rows) * rows; }

Value QuerySums::countChecking(Value tiles, int64_t rows) const {
  return ceilDiv(tiles, countCheckedTiles(rows));
}

Value QuerySums::anyTileHasBases(ScheduleAttr of, const Sequence &sequence, Value head,
                                 Value number, int64_t rows) const {
  return hasBases(of, sequence, head, number, countCheckedRows(rows));
}

void QuerySums::forCheckedTiles(Value number, Value tiles, int64_t rows,
                                function_ref<void(Value tile)> build) const {
  int64_t count = countCheckedTiles(rows);
  Value first = mul(number, count);
  auto loop = scf::ForOp::create(b, loc, first, min(add(first, index(count)), tiles), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  build(loop.getInductionVar());
}

void QuerySums::ifLarge(function_ref<void()> build) const {
  Value noted = memref::LoadOp::create(b, loc, large, index(0)),
        none = arith::ConstantIntOp::create(b, loc, 0, /*width=*/32),
        any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, noted, none);
  auto guarded = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  build();
}

Value QuerySums::hasBases(ScheduleAttr of, const Sequence &sequence, Value head, Value tile,
                          int64_t count) const {
  if (!of.getMapping().hasRegistersForBases())
    return {};
  int64_t rows = schedule.getTileM();
  SmallVector<Value> indices = indicesIn(sequence, head, div(mul(tile, count), index(rows)), rows);
  Value first = indices[2], found;
  int64_t tiles = count % rows == 0 ? count / rows : rows % count == 0 ? 1 : (count - 1) / rows + 2;
  Value last = sub(div(this->rows, index(rows)), index(1));
  // A tile past the end of a segment may be past the last one.
  if (sequence.packedQueries)
    first = min(first, last);
  for (int64_t i = 0; i < tiles; ++i) {
    Value number = i == 0 ? first : min(add(first, index(i)), last);
    Value flag =
        memref::LoadOp::create(b, loc, buffer, ValueRange{flagIndex(indices[0]), head, number});
    Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
    flag = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, flag, zero);
    found = found ? arith::OrIOp::create(b, loc, found, flag).getResult() : flag;
  }
  return found;
}

/// Stores a tile of zeros; `indices` are those of `flashattn.store_tile`.
void QuerySums::storeZeros(Value memref, ArrayRef<Value> indices) const {
  auto type = cast<MemRefType>(memref.getType());
  int64_t last = type.getRank() - 1;
  VectorType tile = f32Vector({schedule.getTileM(), type.getDimSize(last)});
  StoreTileOp::create(b, loc, splat(tile, 0), memref, indices, ArrayRef<int64_t>{last - 1, last},
                      ArrayRef<bool>{true, true});
}

/// Stores the initial `order` of each tile of `tile_n` queries: the first turn, or 0 if programs do
/// not take turns.
void QuerySums::storeOrder(const ScorePlace &at, FindFirst findFirst) const {
  int64_t tiles = schedule.getTileM() / schedule.getTileN();
  for (int64_t i = 0; i < tiles; ++i) {
    Value tile = add(mul(at.queryTile, tiles), index(i));
    Value first = adding == Adding::InTurns ? findFirst(at.sequence, tile) : index(0);
    first = b.createOrFold<arith::IndexCastOp>(loc, b.getI32Type(), first);
    memref::StoreOp::create(b, loc, first, order,
                            indicesIn(at.sequence, at.head, tile, schedule.getTileN()));
  }
}

SmallVector<Value> QuerySums::indicesIn(const Sequence &sequence, Value head, Value tile,
                                        int64_t count) const {
  if (const std::optional<Sequence::Packed> &packed = sequence.packedQueries) {
    Value begin = add(div(packed->first, index(whole)), packed->segment);
    tile = add(mul(begin, whole / count), tile);
  }
  return {getBatch(sequence), head, tile};
}

SmallVector<Value> QuerySums::indicesOf(Kind kind, const ScorePlace &at, int64_t count) const {
  SmallVector<Value> indices = indicesIn(at.sequence, at.head, at.queryTile, count);
  indices[0] = batchOf(kind, indices[0]);
  return indices;
}

Value QuerySums::load(Kind kind, const ScorePlace &at, VectorType type,
                      ArrayRef<int64_t> dims) const {
  constexpr int64_t kHeads = 1;
  SmallVector<bool> inBounds;
  int64_t count = 1;
  for (auto [dim, size] : llvm::zip_equal(dims, type.getShape())) {
    inBounds.push_back(dim < 0 || (dim != kHeads && whole % size == 0));
    if (dim > kHeads)
      count = size;
  }
  return toKind(
      kind, LoadTileOp::create(b, loc, type, buffer, indicesOf(kind, at, count), dims, inBounds));
}

Value QuerySums::loadRows(Kind kind, const Operands &operands, const ProgramPoint &at) const {
  ProgramPoint in = at;
  SmallVector<Value> indices = indicesIn(at.sequence, at.head, at.tile, operands.getPositions());
  in.tile = indices[2];
  return toKind(kind, operands.loadQueryRows(
                          operands.packsHeads() ? split : buffer, batchOf(kind, indices[0]), in,
                          /*inBounds=*/!schedule.getMapping().mayRunWithoutTile()));
}

Value QuerySums::toKind(Kind kind, Value kept) const {
  bool isAsKept = kind == Exponent || kind == Base || (kind == MinusDelta) == negates;
  return isAsKept ? kept : arith::NegFOp::create(b, loc, kept).getResult();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// Broadcasts values per row to a tile; a tile is returned as it is.
Value ScoreGradientBuilder::spread(Value sums, VectorType tile) const {
  return sums.getType() == tile ? sums : alongRow(sums, tile.getDimSize(1));
}

Value ScoreGradientBuilder::buildWeights(Value products, const ScorePlace &at, Value exponents,
                                         Value hasBases, function_ref<Value()> loadBases,
                                         ScoreDerivative &derivative) const {
  auto type = cast<VectorType>(products.getType());
  Value shaped = scores.shape(products, at, &derivative);
  // Scores far from 0 may be computed here in a different order than those that determined the
  // base. The difference must not increase P above 1.
  auto buildBased = [&] {
    Value bases = spread(loadBases(), type), zero = splat(type, 0);
    Value x = arith::SubFOp::create(b, loc, shaped, bases);
    Value minus = arith::NegFOp::create(b, loc, exponents);
    x = math::FmaOp::create(b, loc, x, splat(type, factor), spread(minus, type));
    Value hasNone = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, bases, zero);
    Value most = arith::SelectOp::create(b, loc, hasNone, splat(type, INFINITY), zero);
    return arith::MinimumFOp::create(b, loc, x, most).getResult();
  };
  if (hasBases && !branches)
    return math::Exp2Op::create(b, loc, buildBased());
  // P = exp2(c s - lse log2 e), one FMA and one exp2 per element.
  auto buildPlain = [&](Value x, Value exponents) -> Value {
    Value exponent = arith::NegFOp::create(b, loc, exponents);
    exponent = math::FmaOp::create(b, loc, x, splat(type, factor), spread(exponent, type));
    return math::Exp2Op::create(b, loc, exponent);
  };
  if (!hasBases)
    return buildPlain(shaped, exponents);
  // With bases, the final exponents are divided by the factor and take the place of scores; no
  // exponent is then subtracted from them.
  auto based = scf::IfOp::create(
      b, loc, hasBases,
      [&](OpBuilder &, Location) {
        Value one = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(1));
        Value inverse = b.createOrFold<arith::DivFOp>(loc, one, scalar(factor));
        Value x = arith::MulFOp::create(b, loc, buildBased(), broadcast(type, inverse));
        Value none = splat(cast<VectorType>(exponents.getType()), 0);
        scf::YieldOp::create(b, loc, ValueRange{x, none});
      },
      [&](OpBuilder &, Location) {
        scf::YieldOp::create(b, loc, ValueRange{shaped, exponents});
      });
  return buildPlain(based.getResult(0), based.getResult(1));
}

/// B7: sets the gradient of a hidden pair, whose P is 0, to 0, whatever P was multiplied by: NaN,
/// for example, for a key that does not exist. Full tiles have no such key.
Value ScoreGradientBuilder::hide(Value gradient, Value weights, bool inFullTiles) const {
  auto type = cast<VectorType>(gradient.getType());
  auto isShown = [&]() -> Value {
    Value zero = splat(cast<VectorType>(weights.getType()), 0);
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, weights, zero);
  };
  Value shown;
  if (inFullTiles) {
    shown = isShown();
  } else {
    auto mask = TileMaskOp::create(b, loc, type.clone(b.getI1Type()));
    OpBuilder::InsertionGuard guard(b);
    b.createBlock(&mask.getRegion());
    TileYieldOp::create(b, loc, isShown());
    shown = mask;
  }
  return arith::SelectOp::create(b, loc, shown, gradient, splat(type, 0));
}

Value ScoreGradientBuilder::multiplyValues(Value dO, Value v, Value minusDeltas) const {
  Value from;
  if (minusDeltas)
    from = spread(minusDeltas, scores.getTileType(b.getF32Type()));
  return scores.multiply(dO, v, from);
}

Value ScoreGradientBuilder::multiplyWeights(Value weights, Value dP, Value deltas) const {
  auto type = cast<VectorType>(dP.getType());
  Value factors = weights;
  if (weights.getType() != type)
    factors = arith::ExtFOp::create(b, loc, type, weights);
  if (deltas)
    dP = arith::SubFOp::create(b, loc, dP, spread(deltas, type));
  return arith::MulFOp::create(b, loc, factors, dP);
}

Value ScoreGradientBuilder::buildFinal(Value weights, Value dP, Value deltas) const {
  return hide(multiplyWeights(weights, dP, deltas), weights, /*inFullTiles=*/false);
}

Value ScoreGradientBuilder::buildOperand(Value weights, Value dP, Value deltas,
                                         const ScoreDerivative &derivative) const {
  if (derivative.slope || !hidesTwoAtOnce ||
      weights.getType() != cast<VectorType>(dP.getType()).clone(dotType))
    return toDotType(buildInner(weights, buildFinal(weights, dP, deltas), derivative));
  return hide(toDotType(multiplyWeights(weights, dP, deltas)), weights, /*inFullTiles=*/false);
}

Value ScoreGradientBuilder::buildInner(Value weights, Value final,
                                       const ScoreDerivative &derivative) const {
  if (!derivative.slope)
    return final;
  // The slope of a hidden score may be any value, too.
  return hide(arith::MulFOp::create(b, loc, final, derivative.slope), weights, fullTilesHide);
}

void ScoreGradientBuilder::requireKeys(MutableArrayRef<TileInterval> intervals, Value firstKey,
                                       int64_t rows, Value keys, Value all) const {
  std::optional<int64_t> count = getConstantIntValue(all);
  if (keys == all && count && *count % rows == 0)
    return;
  Value exist =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, add(firstKey, index(rows)), keys);
  for (TileInterval &interval : intervals)
    if (interval.fullBegin != interval.fullEnd)
      interval.fullEnd =
          arith::SelectOp::create(b, loc, exist, interval.fullEnd, interval.fullBegin);
}

Value ScoreGradientBuilder::toDotType(Value tile) const {
  auto type = cast<VectorType>(tile.getType());
  if (type.getElementType() == dotType)
    return tile;
  return arith::TruncFOp::create(b, loc, type.clone(dotType), tile);
}
