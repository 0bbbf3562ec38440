//===- BiasGradients.cpp --------------------------------------------------===//
//
// Sums the gradients of scores (ScoreGradients) over the dimensions in which a bias is broadcast,
// and computes the gradients of sink logits from the values per query.
//
//===----------------------------------------------------------------------===//

#include "BiasGradients.h"
#include "TileLists.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

//===----------------------------------------------------------------------===//
// Sums of rows
//===----------------------------------------------------------------------===//

namespace {

/// Builds sums of a tile's rows, and sums of the partial results of programs.
class RowSumBuilder : protected TileBuilder {
public:
  RowSumBuilder(OpBuilder &b, AttentionBackwardOp op) : TileBuilder(b, op.getLoc()) {
    // Many small programs, because there is little work and each program iterates in order.
    ScheduleFields fields = op.getScheduleAttr().withoutHopper().getFields();
    fields.stages = 1;
    fields.tileN = std::max(fields.tileM, fields.tileN);
    if (MmaSyncFields *mmaSync = fields.getMmaSync()) {
      fields.tileN = std::gcd<int64_t>(fields.tileM, 64);
      fields.tileM = 16;
      mmaSync->warps = 1;
    }
    small = ScheduleAttr::get(b.getContext(), fields);
  }

protected:
  /// Returns `sum` plus the sum of each row of `tile`.
  Value addRows(Value tile, Value sum) const {
    return vector::MultiDimReductionOp::create(b, loc, tile, sum, ArrayRef<bool>{false, true},
                                               vector::CombiningKind::ADD);
  }
  /// Writes f32 `values` in the memref's type.
  void store(Value values, Value memref, ValueRange indices, ArrayRef<int64_t> dims) const;
  /// Writes the sums of memref<BxHxCxf32> `source` along its last dimension to `target`, [B, H, 1,
  /// 1], or, summed over the batches too, to [H].
  void sumHeads(Value source, Value target) const;

  ScheduleAttr small; ///< schedule of programs whose rows are heads
};

} // namespace

void RowSumBuilder::store(Value values, Value memref, ValueRange indices,
                          ArrayRef<int64_t> dims) const {
  auto type = cast<VectorType>(values.getType());
  Type element = cast<MemRefType>(memref.getType()).getElementType();
  if (element != type.getElementType())
    values = arith::TruncFOp::create(b, loc, type.clone(element), values);
  StoreTileOp::create(b, loc, values, memref, indices, dims, SmallVector<bool>(dims.size(), false));
}

void RowSumBuilder::sumHeads(Value source, Value target) const {
  bool ofAllBatches = cast<MemRefType>(target.getType()).getRank() == 1;
  int64_t rows = small.getTileM(), columns = small.getTileN();
  SmallVector<Value> programs = {ceilDiv(dim(source, 1), rows)};
  SmallVector<ProgramAxis> axes = {ProgramAxis::Head};
  if (!ofAllBatches) {
    programs.insert(programs.begin(), dim(source, 0));
    axes.insert(axes.begin(), ProgramAxis::Batch);
  }
  Value batches = ofAllBatches ? dim(source, 0) : Value();
  Value zero = index(0), tiles = ceilDiv(dim(source, 2), columns);
  auto program = ProgramOp::create(b, loc, programs, axes, small);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  auto loop = TileLoopOp::create(b, loc, ValueRange{zero, zero, zero, tiles}, /*list=*/Value(),
                                 ValueRange(), /*when=*/Value(), splat(f32Vector({rows}), 0),
                                 /*rounds=*/batches);
  Value heads = program.getNumbers().back();
  Value batch = ofAllBatches ? loop.getRound() : Value(program.getNumbers().front());
  {
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    Value tile = LoadTileOp::create(b, loc, f32Vector({rows, columns}), source,
                                    ValueRange{batch, heads, loop.getTile()},
                                    ArrayRef<int64_t>{1, 2}, ArrayRef<bool>{false, false});
    TileYieldOp::create(b, loc, addRows(tile, loop.getState().front()));
  }
  if (ofAllBatches)
    store(loop.getResult(0), target, heads, {0});
  else
    store(loop.getResult(0), target, {batch, heads, zero, zero}, {1});
}

//===----------------------------------------------------------------------===//
// A bias
//===----------------------------------------------------------------------===//

namespace {

class BiasGradientBuilder : RowSumBuilder {
public:
  /// `repeats`: builds programs that recompute the results of other programs for large rows.
  BiasGradientBuilder(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                      const QuerySums &sums, bool repeats = false);

  void build();
  /// Whether its programs use the bases of large rows.
  bool usesBases() const { return schedule.getMapping().hasRegistersForBases(); }

private:
  bool isSame(unsigned dim) const {
    return AttentionOpInterface::isBroadcastDim(op.getDBiasInit(), dim);
  }
  ProgramOp createProgram(ArrayRef<Value> tiles, ArrayRef<ProgramAxis> axes) const;
  void buildElements() const;
  void buildElementTile(const ScoreGradientBuilder &gradients, ProgramOp program,
                        Value keyTile) const;
  void buildKeys() const;
  void buildQueries(Value target) const;

  ScorePlace enterRound(ProgramOp program, Value round, const Sequence &shared) const;
  Value buildScores(const ScoreGradientBuilder &gradients, const ScorePlace &at,
                    TileAxis columns) const;
  SmallVector<TileInterval> findKeyTiles(Value queryTile, const Sequence &sequence) const;
  TileLoopOp sumTiles(ArrayRef<TileInterval> intervals, Value when) const;
  Value quotient(Value x, Value y) const;

  mutable AttentionBackwardOp op; ///< a handle, whose accessors are not const
  const Operands &operands;
  const QuerySums &sums;
  const Sizes &sizes;
  const bool repeats;
  ScheduleAttr schedule;
  int64_t rows, columns; ///< of a tile
  Sequence all;
  CountedRows countedKeys;
  bool sumsBatches, sumsHeads;
  /// Whether all pairs of batch and head that a program sums have the same keys at the same
  /// positions.
  bool sharesKeys;
  Value rounds; ///< number of pairs of batch and head that a program sums; null if one
};

} // namespace

BiasGradientBuilder::BiasGradientBuilder(OpBuilder &b, AttentionBackwardOp op,
                                         const Operands &operands, const QuerySums &sums,
                                         bool repeats)
    : RowSumBuilder(b, op), op(op), operands(operands), sums(sums), sizes(operands.getSizes()),
      repeats(repeats), all(operands.getAll()), countedKeys(operands, TileAxis::Keys, all) {
  bool ofElements = !isSame(2) && !isSame(3);
  if (ofElements && !repeats)
    schedule = op.getScheduleAttr().forBiasElements(op.getD(), op.getDv());
  if (!schedule)
    schedule = getScheduleBeside(op);
  op.setScheduleAttr(schedule); // read by the score builders
  rows = schedule.getTileM();
  columns = schedule.getTileN();
  sumsBatches = isSame(0) && !isConstantIntValue(sizes.batches, 1);
  sumsHeads = isSame(1) && !isConstantIntValue(sizes.heads, 1);
  SmallVector<Value> varying(op.getPerQuery());
  llvm::append_range(varying, op.getPerKey());
  bool areBatchesSame = !op.hasOwnSequences() && llvm::all_of(varying, [&](Value symbol) {
    return op.isBroadcastDim(symbol, 0);
  });
  sharesKeys = areBatchesSame || !sumsBatches;
  if (sumsBatches || sumsHeads)
    rounds = mul(sumsBatches ? sizes.batches : index(1), sumsHeads ? sizes.heads : index(1));
}

/// Creates programs for each batch and head of the bias, and for `tiles` along `axes`.
ProgramOp BiasGradientBuilder::createProgram(ArrayRef<Value> tiles,
                                             ArrayRef<ProgramAxis> axes) const {
  SmallVector<Value> programs = {sumsBatches ? index(1) : sizes.batches,
                                 sumsHeads ? index(1) : sizes.heads};
  SmallVector<ProgramAxis> allAxes = {ProgramAxis::Batch, ProgramAxis::Head};
  llvm::append_range(programs, tiles);
  llvm::append_range(allAxes, axes);
  return ProgramOp::create(b, loc, programs, allAxes, schedule);
}

/// Returns x / y, unsigned; in 32 bits if the divisor is known only at run time.
Value BiasGradientBuilder::quotient(Value x, Value y) const {
  return getConstantIntValue(y) ? div(x, y) : divide32(x, y);
}

/// Returns the batch and head of a program in round `round`, which is null if there is only one.
/// `shared` has the lengths with `sharesKeys`.
ScorePlace BiasGradientBuilder::enterRound(ProgramOp program, Value round,
                                           const Sequence &shared) const {
  ScorePlace at;
  at.sequence = shared;
  at.sequence.batch = program.getNumbers()[0];
  at.head = program.getNumbers()[1];
  if (sumsBatches && sumsHeads) {
    at.sequence.batch = quotient(round, sizes.heads);
    at.head = sub(round, mul(at.sequence.batch, sizes.heads));
  } else if (sumsBatches) {
    at.sequence.batch = round;
  } else if (sumsHeads) {
    at.head = round;
  } else if (round) {
    at.sequence.batch = round;
  }
  if (!sharesKeys)
    at.sequence = operands.getSequence(all, at.sequence.batch, TileAxis::Queries);
  return at;
}

/// Returns the gradients of the final scores of a tile in f32, inside a loop over tiles.
Value BiasGradientBuilder::buildScores(const ScoreGradientBuilder &gradients, const ScorePlace &at,
                                       TileAxis axis) const {
  int64_t queries = rows, keys = columns;
  if (axis == TileAxis::Queries)
    std::swap(queries, keys);
  Value kvHead = quotient(at.head, sizes.group);
  auto load = [&](QuerySums::Kind kind) {
    return axis == TileAxis::Keys ? sums.load(kind, at, f32Vector({rows}), {2})
                                  : sums.load(kind, at, f32Vector({rows, columns}), {-1, 2});
  };
  // Loaded before the products; after these, the loads would queue behind the operand reads.
  Value exponents = load(QuerySums::Exponent), deltas = load(QuerySums::Delta);
  Value q =
      operands.loadRows(op.getQ(), TileAxis::Queries, at.sequence, at.head, at.queryTile, queries);
  Value k = operands.loadRows(op.getK(), TileAxis::Keys, at.sequence, kvHead, at.keyTile, keys);
  Value products = gradients.multiply(q, k);
  Value dO =
      operands.loadRows(op.getDO(), TileAxis::Queries, at.sequence, at.head, at.queryTile, queries);
  Value v = operands.loadRows(op.getV(), TileAxis::Keys, at.sequence, kvHead, at.keyTile, keys);
  Value dP = gradients.multiplyValues(dO, v);
  ScoreDerivative derivative;
  Value weights = gradients.buildWeights(
      products, at, exponents, sums.hasBases(schedule, at.sequence, at.head, at.queryTile, queries),
      [&] { return load(QuerySums::Base); }, derivative);
  return gradients.buildFinal(weights, dP, deltas);
}

/// Returns tiles [0, count), none of which is known to be full.
static SmallVector<TileInterval> allTiles(Value zero, Value count) {
  return {{zero, zero, zero, count}};
}

/// Returns the key tiles that queries of `queryTile` see, or all key tiles without `sharesKeys`.
/// `keys` is valid only with `sharesKeys`.
SmallVector<TileInterval> BiasGradientBuilder::findKeyTiles(Value queryTile,
                                                            const Sequence &sequence) const {
  if (!sharesKeys)
    return allTiles(index(0), ceilDiv(sizes.keys, columns));
  return operands.findKeys(sequence, {/*head=*/Value(), mul(queryTile, rows), rows}, columns);
}

/// Creates a loop with an empty body, whose state is the sum of each row of a tile.
TileLoopOp BiasGradientBuilder::sumTiles(ArrayRef<TileInterval> intervals, Value when) const {
  return createTileLoop(b, loc, /*lists=*/std::nullopt, intervals, /*place=*/{}, when,
                        splat(f32Vector({rows}), 0), rounds);
}

/// Bias with queries and keys: one program for each pair of a query tile and a key tile.
void BiasGradientBuilder::buildElements() const {
  ScoreGradientBuilder gradients(b, op, TileAxis::Keys);
  Value tiles = ceilDiv(sizes.keys, columns);
  Value programs = repeats ? sums.countChecking(tiles, columns) : tiles;
  ProgramOp program = createProgram({ceilDiv(sizes.queries, rows), programs},
                                    {ProgramAxis::QueryTile, ProgramAxis::KeyTile});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value number = program.getNumbers()[3];
  auto build = [&](Value keyTile) { buildElementTile(gradients, program, keyTile); };
  if (repeats)
    sums.ifLarge([&] { sums.forCheckedTiles(number, tiles, columns, build); });
  else
    build(number);
}

void BiasGradientBuilder::buildElementTile(const ScoreGradientBuilder &gradients, ProgramOp program,
                                           Value keyTile) const {
  SmallVector<Value> numbers(program.getNumbers());
  numbers[3] = keyTile;
  Value queryTile = numbers[2];
  Sequence sequence =
      sharesKeys ? operands.getSequence(all, numbers[0], TileAxis::Queries) : Sequence();
  auto isWithin = [&](Value begin, Value end) {
    Value reached = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, keyTile, begin);
    return b.createOrFold<arith::AndIOp>(loc, reached, less(keyTile, end));
  };
  // A tile that the mask hides has no summand.
  Value shown = arith::ConstantOp::create(b, loc, b.getBoolAttr(false)), full = shown;
  for (const TileInterval &interval : findKeyTiles(queryTile, sequence)) {
    shown = b.createOrFold<arith::OrIOp>(loc, shown, isWithin(interval.begin, interval.end));
    full = b.createOrFold<arith::OrIOp>(loc, full, isWithin(interval.fullBegin, interval.fullEnd));
  }
  // The steps of the loop are the summands: pairs of batch and head, or the only batch.
  Value begin = rounds ? index(0) : Value(numbers[0]);
  Value end = select(shown, rounds ? rounds : add(begin, index(1)), begin);
  auto loop = TileLoopOp::create(b, loc, ValueRange{begin, select(full, begin, end), end, end},
                                 /*list=*/Value(), ValueRange(), /*when=*/Value(),
                                 splat(f32Vector({rows, columns}), 0));
  {
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    ScorePlace at = enterRound(program, loop.getTile(), sequence);
    at.queryTile = queryTile;
    at.keyTile = keyTile;
    at.position = add(mul(queryTile, rows), at.sequence.offset);
    at.key = mul(keyTile, columns);
    Value scores = buildScores(gradients, at, TileAxis::Keys);
    TileYieldOp::create(b, loc,
                        arith::AddFOp::create(b, loc, loop.getState().front(), scores).getResult());
  }
  store(loop.getResult(0), op.getDBiasInit(), numbers, {2, 3});
}

/// Bias broadcast along queries: rows are keys, whose sums iterate over the query tiles that see
/// them.
void BiasGradientBuilder::buildKeys() const {
  ScoreGradientBuilder gradients(b, op, TileAxis::Queries);
  ProgramOp program = createProgram(ceilDiv(sizes.keys, rows), ProgramAxis::KeyTile);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ValueRange numbers = program.getNumbers();
  Value keyTile = numbers[2], firstKey = mul(keyTile, rows), when;
  Sequence sequence;
  SmallVector<TileInterval> intervals;
  if (sharesKeys) {
    sequence = operands.getSequence(all, numbers[0], TileAxis::Queries);
    if (op.getKvLen())
      when = less(firstKey, sequence.keys);
    intervals = operands.findQueries(sequence, {/*head=*/Value(), firstKey, rows}, columns);
    gradients.requireKeys(intervals, firstKey, rows, sequence.keys, sizes.keys);
  } else {
    intervals = allTiles(index(0), ceilDiv(sizes.queries, columns));
  }
  Value sum = splat(f32Vector({rows}), 0);
  if (!intervals.empty()) {
    TileLoopOp loop = sumTiles(intervals, when);
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    ScorePlace at = enterRound(program, loop.getRound(), sequence);
    at.queryTile = loop.getTile();
    at.keyTile = keyTile;
    at.position = add(mul(at.queryTile, columns), at.sequence.offset);
    at.key = firstKey;
    Value scores = buildScores(gradients, at, TileAxis::Queries), state = loop.getState().front();
    // B7: rows of keys that have no effect may contain any value, also beside rows past the last
    // query.
    if (Value counts = isCounted(*this, countedKeys.get(at.sequence), firstKey, rows)) {
      Value zeros = splat(f32Vector({rows}), 0);
      Value step = arith::SelectOp::create(b, loc, counts, addRows(scores, zeros), zeros);
      TileYieldOp::create(b, loc, arith::AddFOp::create(b, loc, state, step).getResult());
    } else {
      TileYieldOp::create(b, loc, addRows(scores, state));
    }
    sum = loop.getResult(0);
  }
  store(sum, op.getDBiasInit(), {numbers[0], numbers[1], index(0), keyTile}, {3});
}

/// Bias broadcast along keys: stores the sum of each query to `target`, which is [B, H, Nq] or has
/// the shape of the bias.
void BiasGradientBuilder::buildQueries(Value target) const {
  // Without a sink or d_lse, these sums are 0 except for the rounding of operands. The error of an
  // approximate tanh would exceed that of the products.
  ScoreGradientBuilder gradients(b, op, TileAxis::Keys, /*fullTilesKeep=*/false, /*pattern=*/{},
                                 /*isExact=*/true);
  ProgramOp program = createProgram(ceilDiv(sizes.queries, rows), ProgramAxis::QueryTile);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ValueRange numbers = program.getNumbers();
  Value queryTile = numbers[2];
  Sequence sequence =
      sharesKeys ? operands.getSequence(all, numbers[0], TileAxis::Queries) : Sequence();
  SmallVector<TileInterval> intervals = findKeyTiles(queryTile, sequence);
  Value sum = splat(f32Vector({rows}), 0);
  if (!intervals.empty()) {
    TileLoopOp loop = sumTiles(intervals, /*when=*/Value());
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    ScorePlace at = enterRound(program, loop.getRound(), sequence);
    at.queryTile = queryTile;
    at.keyTile = loop.getTile();
    at.position = add(mul(queryTile, rows), at.sequence.offset);
    at.key = mul(at.keyTile, columns);
    Value scores = buildScores(gradients, at, TileAxis::Keys);
    TileYieldOp::create(b, loc, addRows(scores, loop.getState().front()));
    sum = loop.getResult(0);
  }
  SmallVector<Value> indices(numbers);
  if (cast<MemRefType>(target.getType()).getRank() == 4)
    indices.push_back(index(0));
  store(sum, target, indices, {2});
}

void BiasGradientBuilder::build() {
  if (!isSame(2))
    return isSame(3) ? buildQueries(op.getDBiasInit()) : buildElements();
  if (!isSame(3))
    return buildKeys();
  // Bias broadcast along queries and keys: the sums of all queries are summed.
  Value queries = allocateF32(
      b, loc,
      {sumsBatches ? index(1) : sizes.batches, sumsHeads ? index(1) : sizes.heads, sizes.queries});
  buildQueries(queries);
  sumHeads(queries, op.getDBiasInit());
  memref::DeallocOp::create(b, loc, queries);
}

void mlir::flashattn::buildBiasGradient(OpBuilder &b, AttentionBackwardOp op,
                                        const Operands &operands, const QuerySums &sums) {
  if (!op.getDBiasInit())
    return;
  ScheduleAttr own = op.getScheduleAttr();
  BiasGradientBuilder builder(b, op, operands, sums);
  builder.build();
  if (builder.usesBases())
    return;
  op.setScheduleAttr(own);
  BiasGradientBuilder(b, op, operands, sums, /*repeats=*/true).build();
}

//===----------------------------------------------------------------------===//
// Sinks
//===----------------------------------------------------------------------===//

namespace {

class SinkGradientBuilder : RowSumBuilder {
public:
  using RowSumBuilder::RowSumBuilder;
  void build(AttentionBackwardOp op, const Sizes &sizes, const QuerySums &sums) const;
};

} // namespace

/// B3: rows are heads and columns are queries, in whole tiles of QuerySums. Each program stores the
/// sums of its rows, which are summed afterwards: heads alone are too few programs for a GPU.
void SinkGradientBuilder::build(AttentionBackwardOp op, const Sizes &sizes,
                                const QuerySums &sums) const {
  int64_t rows = small.getTileM(), columns = small.getTileN();
  // The rows of packed sequences are one row of whole tiles.
  bool isPacked = op.getCuSeqlensQ() != nullptr;
  Value tiles = ceilDiv(isPacked ? sums.getRows() : sizes.queries, columns);
  Value partial = allocateF32(b, loc, {sums.getBatches(), sizes.heads, tiles});
  auto program = ProgramOp::create(
      b, loc, ValueRange{sums.getBatches(), ceilDiv(sizes.heads, rows), tiles},
      ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile}, small);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(program.getBody());
    ValueRange numbers = program.getNumbers();
    VectorType rowType = f32Vector({rows}), type = f32Vector({rows, columns});
    Value sink = LoadTileOp::create(b, loc, rowType, op.getSinkLogits(), numbers[1],
                                    ArrayRef<int64_t>{0}, ArrayRef<bool>{false});
    ScorePlace at;
    at.sequence.batch = numbers[0];
    at.head = numbers[1];
    at.queryTile = numbers[2];
    auto load = [&](QuerySums::Kind kind) { return sums.load(kind, at, type, {1, 2}); };
    Value exponents = load(QuerySums::Exponent);
    // exp2((sink - base scale) log2 e - exponent)
    Factor scale =
        ScoreBuilder(b, op, TileAxis::Keys, RowPattern(), /*fullTilesKeep=*/false).getFactor() *
        M_LN2;
    Value above = math::FmaOp::create(b, loc, load(QuerySums::Base), splat(type, -scale),
                                      alongRow(sink, columns));
    Value weights = math::FmaOp::create(b, loc, above, splat(type, M_LOG2E),
                                        arith::NegFOp::create(b, loc, exponents));
    weights = math::Exp2Op::create(b, loc, weights);
    Value gradients = arith::MulFOp::create(b, loc, weights, load(QuerySums::MinusDelta));
    store(addRows(gradients, splat(rowType, 0)), partial, numbers, {1});
  }
  sumHeads(partial, op.getDSinkLogitsInit());
  memref::DeallocOp::create(b, loc, partial);
}

void mlir::flashattn::buildSinkGradient(OpBuilder &b, AttentionBackwardOp op,
                                        const Operands &operands, const QuerySums &sums) {
  if (op.getDSinkLogitsInit())
    SinkGradientBuilder(b, op).build(op, operands.getSizes(), sums);
}
