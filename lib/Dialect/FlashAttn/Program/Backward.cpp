//===- Backward.cpp - flashattn-tile: the backward pass as tile programs --===//
//
// Builds the programs over key tiles for dk and dv, and over query tiles for dq, and the order of
// their operations. ScoreGradients defines the gradients of scores.
//
//===----------------------------------------------------------------------===//

#include "Backward.h"
#include "BiasGradients.h"
#include "CompactKeys.h"
#include "ScoreMod.h"
#include "SplitKeys.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

Value BackwardBuilder::finish(Value sum, const Factor &factor) const {
  auto type = cast<VectorType>(sum.getType());
  if (!factor.isOne())
    sum = arith::MulFOp::create(b, loc, sum, splat(type, factor));
  if (FloatType element = op.getElementType(); !element.isF32())
    sum = arith::TruncFOp::create(b, loc, type.clone(element), sum);
  return sum;
}

void BackwardBuilder::store(Value rows, const Factor &factor, Value memref, TileAxis axis,
                            const Sequence &sequence, Value head, Value tile) const {
  operands.storeRows(finish(rows, factor), memref, axis, sequence, head, tile);
}

/// B7: returns `rows` with zeros for existing keys that have no effect. Full tiles do not hide keys
/// past `kv_len`, and keys that no query sees are multiplied by rows past the last query.
Value BackwardBuilder::hideMissingKeys(Value rows, const Sequence &sequence, Value firstKey) const {
  auto type = cast<VectorType>(rows.getType());
  int64_t count = type.getDimSize(0);
  Value exists = isCounted(*this, countedKeys.get(sequence), firstKey, count);
  if (!exists)
    return rows;
  exists = vector::ShapeCastOp::create(b, loc, VectorType::get({count, 1}, b.getI1Type()), exists);
  exists = vector::BroadcastOp::create(b, loc, type.clone(b.getI1Type()), exists);
  return arith::SelectOp::create(b, loc, exists, rows, splat(type, 0));
}

/// Returns the key tiles that several programs share, if sums may be added in any order.
std::optional<KeyParts> BackwardBuilder::findParts() {
  bool canAdd =
      schedule.getMapping().addsByBulkCopy() && (schedule.addsQueries() || schedule.compactsKV());
  if (!canAdd || op.getAttnMask() || op.getDeterministic())
    return std::nullopt;
  ScheduleAttr own = schedule;
  useSchedule(own.forWideSteps());
  std::optional<KeyParts> found = KeyParts::get(b, op, operands, all);
  useSchedule(own);
  return found;
}

SmallVector<TileInterval>
BackwardBuilder::getTiles(const std::optional<TileLists> &lists, const Sequence &sequence,
                          SmallVector<Value> &place,
                          function_ref<SmallVector<TileInterval>()> find) const {
  if (!lists) {
    SmallVector<TileInterval> found = find();
    // Rare code has one loop for all tiles, without a separate loop for full tiles.
    for (TileInterval &interval : found)
      if (isRare)
        interval.fullBegin = interval.fullEnd = interval.end;
    return found;
  }
  place[2] = lists->programs.getNumber(operands, sequence, place[2]);
  return {lists->getInterval(b, loc, place)};
}

//===----------------------------------------------------------------------===//
// Programs over key tiles
//===----------------------------------------------------------------------===//

/// Adds the contribution of `inner`, a tile of dS, to the sum of dq at `at`.
void BackwardBuilder::addQueries(const QuerySums &sums, Value inner, Value k, ArrayRef<Value> at,
                                 Value keyTile) const {
  int64_t lag = schedule.getLag(), behind = lag;
  StageOp::create(b, loc, lag, behind);
  // The wait for dS also covers loads that were issued before it. The empty stage places the wait
  // before the loads of the deltas.
  if (lag && schedule.beginsWithDeltas())
    StageOp::create(b, loc, lag, ++behind);
  VectorType type = f32Vector({schedule.getTileN(), cast<VectorType>(k.getType()).getDimSize(1)});
  Value dq = productOfTransposed(inner, k, splat(type, 0));
  // Runs while the next step's products are in flight.
  if (lag)
    StageOp::create(b, loc, lag, behind + 1);
  AddTileOp::create(b, loc, dq, sums.getQueryGradients(), at, sums.getOrder(),
                    takesTurns() ? keyTile : Value(), schedule.countColumnParts(), getAdjacent());
}

/// Builds a step of the loop over the query tiles of each query head in turn.
void BackwardBuilder::buildKeyStep(TileLoopOp loop, const QuerySums &sums, KeySums wanted,
                                   const ScoreGradientBuilder &gradients, const KeyTile &of) {
  const Sequence &sequence = of.sequence;
  Value kvHead = of.kvHead, keyTile = of.tile, firstKey = of.firstKey;
  Value k = of.k, v = of.v;
  int64_t rows = schedule.getTileM(), columns = schedule.getTileN();
  Value tile = loop.getTile(), head = add(mul(kvHead, sizes.group), loop.getRound());
  ScorePlace at{sequence, head, tile, keyTile, add(mul(tile, columns), sequence.offset), firstKey};
  auto loadColumns = [&](QuerySums::Kind kind) {
    return sums.load(kind, at, f32Vector({rows, columns}), {-1, 2});
  };
  Value q =
      operands.loadRows(op.getQ(), TileAxis::Queries, sequence, head, tile, columns, of.queryRows);
  // Warpgroups load the exponents before the product; after it, the loads would queue behind its
  // operand reads.
  Value exponents;
  if (schedule.sharesProgram())
    exponents = loadColumns(QuerySums::Exponent);
  Value products = gradients.multiply(q, k);
  if (!exponents)
    exponents = loadColumns(QuerySums::Exponent);
  ScoreDerivative derivative;
  Value weights, dO, minusDeltas, dP, inner, dv;
  auto multiplyValues = [&] {
    dO = operands.loadRows(op.getDO(), TileAxis::Queries, sequence, head, tile, columns,
                           of.queryRows);
    if (schedule.beginsWithDeltas()) {
      // Loaded while the product of the previous step is in flight.
      minusDeltas = loadColumns(QuerySums::MinusDelta);
      StageOp::create(b, loc);
    }
    dP = wanted.dk ? gradients.multiplyValues(dO, v, minusDeltas) : Value();
  };
  auto loadDeltas = [&] { return minusDeltas ? Value() : loadColumns(QuerySums::Delta); };
  // Consumers that split the sums compute one product each, and the values derived from it, before
  // they accumulate.
  bool isSplit = schedule.splitsSums();
  if (isSplit)
    multiplyValues();
  StageOp::create(b, loc);
  Value exact = gradients.buildWeights(
      products, at, exponents, sums.hasBases(schedule, sequence, head, tile, columns),
      [&] { return loadColumns(QuerySums::Base); }, derivative);
  weights = gradients.toDotType(exact);
  if (isSplit) {
    // Only one tile is passed on, so it includes the slopes.
    Value factors = derivative.slope
                        ? gradients.toDotType(gradients.buildInner(exact, exact, derivative))
                        : weights;
    inner = gradients.buildOperand(factors, dP, loadDeltas(), /*derivative=*/{});
  }
  StageOp::create(b, loc);
  if (!isSplit)
    multiplyValues();
  SmallVector<Value> yielded;
  auto makeValues = [&] { return product(weights, dO, loop.getState().back()); };
  // Warps that share rows exchange P and dS, and synchronize once for both.
  bool syncsOnce = schedule.getColumnWarps() > 1 && wanted.dk;
  if (wanted.dv && !syncsOnce)
    dv = makeValues();
  if (wanted.dk) {
    if (!isSplit) {
      StageOp::create(b, loc);
      inner = gradients.buildOperand(weights, dP, loadDeltas(), derivative);
      StageOp::create(b, loc, /*lag=*/schedule.getLag());
    }
    if (syncsOnce)
      dv = makeValues();
    yielded.push_back(product(inner, q, loop.getState().front()));
    if (schedule.addsQueries()) {
      SmallVector<Value> indices = sums.indicesIn(sequence, head, tile, columns);
      indices.push_back(index(0));
      addQueries(sums, inner, k, indices, keyTile);
    }
  }
  if (dv)
    yielded.push_back(dv);
  TileYieldOp::create(b, loc, yielded);
  scale = derivative.factor;
}

/// Builds the programs that compute dk and dv of a key tile. Rows are keys, and the steps iterate
/// over the query tiles that see them, for one query head after the other (B2).
void BackwardBuilder::buildKeyPrograms(const QuerySums &sums, KeySums wanted) {
  ScoreGradientBuilder gradients(b, op, TileAxis::Queries, queryLists.has_value());
  int64_t rows = schedule.getTileM(), whole = rows * schedule.countProgramsPerBlock();
  Value keyTiles = operands.countTiles(TileAxis::Keys, rows, whole),
        programs = parts ? parts->countPrograms(keyTiles) : keyTiles;
  ProgramOp program =
      operands.createProgram(TileAxis::Keys, sizes.kvHeads, programs, rows, whole, schedule);
  program.setPdlSecondary(true);
  program.setPdlPrimary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value batch = program.getNumbers()[0], kvHead = program.getNumbers()[1],
        tile = program.getNumbers()[2];
  buildKeyTile(sums, wanted, gradients, batch, kvHead, tile, keyTiles, programs);
}

/// Builds the body of a program over key tiles, for its tile or its share of a tile.
void BackwardBuilder::buildKeyTile(const QuerySums &sums, KeySums wanted,
                                   const ScoreGradientBuilder &gradients, Value batch, Value kvHead,
                                   Value keyTile, Value keyTiles, Value programs) {
  int64_t rows = schedule.getTileM(), columns = schedule.getTileN();
  KeyParts::Share share{keyTile, {}, {}, {}, keyTile};
  if (parts)
    share = parts->locate(keyTile, keyTiles);
  keyTile = share.tile;
  Sequence sequence = operands.getSequence(all, batch, TileAxis::Keys);
  Value firstKey = mul(keyTile, rows);
  // B7: rows of keys that have no effect may contain any value, and dq is a sum over all of them.
  Value keyRows;
  if (schedule.addsQueries())
    keyRows = operands.buildRowMap(countedKeys.get(sequence));
  Value k = operands.loadRows(op.getK(), TileAxis::Keys, sequence, kvHead, keyTile, rows, keyRows);
  Value v;
  if (wanted.dk)
    v = operands.loadRows(op.getV(), TileAxis::Keys, sequence, kvHead, keyTile, rows);
  Value when;
  if (op.getKvLen() && !sequence.packedKeys)
    when = less(firstKey, sequence.keys);
  SmallVector<Value> place = {batch, kvHead, keyTile};
  SmallVector<TileInterval> intervals = getTiles(
      queryLists, sequence, place, [&] { return operands.findQueries(sequence, {kvHead, firstKey, rows}, columns); });
  if (schedule.addsQueries())
    gradients.requireKeys(intervals, firstKey, rows, sequence.keys, sizes.keys);
  if (parts)
    intervals = takeTiles(b, loc, intervals, share.first, share.steps);

  auto zeros = [&](int64_t columns) {
    return splat(f32Vector({rows, operands.padColumns(columns)}), 0);
  };
  SmallVector<Value> state;
  if (wanted.dk)
    state.push_back(zeros(op.getD()));
  if (wanted.dv)
    state.push_back(zeros(op.getDv()));
  if (!intervals.empty()) {
    Value queryRows = operands.buildRowMap(countedQueries.get(sequence));
    TileLoopOp loop =
        createTileLoop(b, loc, queryLists, intervals, place, when, state, /*rounds=*/sizes.group);
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    buildKeyStep(loop, sums, wanted, gradients,
                 {sequence, queryRows, kvHead, keyTile, firstKey, k, v});
    state.assign(loop.getResults().begin(), loop.getResults().end());
    if (schedule.addsQueries() && sums.getAddedCounter())
      keyPrograms = programs;
  }
  if (parts)
    parts->add(share, batch, kvHead, state.front(), state.back());
  auto storeSum = [&](Value sum, const Factor &factor, Value memref) {
    store(hideMissingKeys(sum, sequence, firstKey), factor, memref, TileAxis::Keys, sequence,
          kvHead, share.stored);
  };
  if (wanted.dk)
    storeSum(state.front(), scale, op.getDkInit());
  if (wanted.dv)
    storeSum(state.back(), {}, op.getDvInit());
  if (keyPrograms)
    SignalAddedOp::create(b, loc, sums.getAddedCounter(),
                          ValueRange{sums.getBatch(sequence), mul(kvHead, sizes.group), index(0)});
}

//===----------------------------------------------------------------------===//
// Programs over query tiles
//===----------------------------------------------------------------------===//

BackwardBuilder::QueryTiles BackwardBuilder::prepareQueries(const QuerySums &sums) {
  Operands own(b, op);
  own.shareRanges(operands);
  ScoreGradientBuilder gradients(b, op, TileAxis::Keys, keyLists.has_value(), own.getPattern());
  Destination to{op.getDqInit(), /*lse=*/Value(), op.getLayout(), op.getElementType()};
  own.packHeads(to);
  return {own, gradients, to, own.splitHeads(op.getDO(), op.getHeadDim()),
          own.countTiles(TileAxis::Queries, own.getPositions(), sums.getWholeTiles())};
}

/// Builds the programs that compute dq of a query tile from the key tiles that the mask shows. With
/// warp specialization, the product dS K runs one step late: after S of the next step or, with
/// `behindBoth`, after dP of the next step too, so that it overlaps the computation of dS. ptxas
/// does not allow the latter if a head is narrow (C7513).
void BackwardBuilder::buildQueryPrograms(const QuerySums &sums, bool behindBoth) {
  QueryTiles tiles = prepareQueries(sums);
  Value heads = schedule.getPack() > 1 ? mul(sizes.kvHeads, sizes.headTiles) : sizes.heads;
  ProgramOp program =
      operands.createProgram(TileAxis::Queries, heads, tiles.count, tiles.operands.getPositions(),
                             sums.getWholeTiles(), schedule);
  program.setPdlSecondary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value batch = program.getNumbers()[0], head = program.getNumbers()[1];
  buildQueryTile(sums, tiles, batch, head, div(head, sizes.headTiles), program.getNumbers()[2],
                 behindBoth);
}

void BackwardBuilder::buildQueryTile(const QuerySums &sums, const QueryTiles &of, Value batch,
                                     Value head, Value kvHead, Value queryTile, bool behindBoth) {
  const Operands &operands = of.operands;
  const ScoreGradientBuilder &gradients = of.gradients;
  int64_t rows = schedule.getTileM(), columns = schedule.getTileN();
  int64_t positions = operands.getPositions();
  Sequence sequence = operands.getSequence(all, batch, TileAxis::Queries);
  ProgramPoint point{sequence, head, kvHead, queryTile, sequence.batch};
  // Memory past kv_len exists and must not be read. A product sums over rows of K, so that rows of
  // keys that no query sees are read as 0. No product sums over rows of V.
  IndexRange existing{Value(), op.getKvLen() ? sequence.keys : Value()},
      seen = countedKeys.get(sequence);
  Value firstQuery = mul(queryTile, positions), position = add(firstQuery, sequence.offset);
  Value q = operands.loadQueries(point);
  Value dO = operands.loadQueryTile(of.gradientOfOutput, point);
  ScorePlace at{sequence, head, queryTile, Value(), position, Value()};
  SmallVector<Value> place = {batch, head, queryTile};
  SmallVector<TileInterval> intervals = getTiles(keyLists, sequence, place, [&] {
    return operands.findKeys(sequence, {head, firstQuery, positions}, schedule.getVisitedKeys());
  });
  CompactKeys compact;
  if (schedule.compactsKV() && !intervals.empty()) {
    compact = compactIntervals(b, loc, intervals, columns);
    intervals = {compact.interval};
  }
  Value dq = splat(f32Vector({rows, cast<VectorType>(q.getType()).getDimSize(1)}), 0);
  if (!intervals.empty()) {
    Value exponents = sums.loadRows(QuerySums::Exponent, operands, point),
          deltas = sums.loadRows(QuerySums::Delta, operands, point);
    Value hasBases = sums.hasBases(schedule, sequence, head, queryTile, rows);
    // A tile with rows of several heads uses bases without a check whether any head has bases.
    if (hasBases && schedule.getPack() > 1)
      hasBases = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
    at.keyRows = operands.buildRowMap(seen, compact.segments);
    Value valueRows = operands.buildRowMap(existing, compact.segments);
    TileLoopOp loop = createTileLoop(b, loc, keyLists, intervals, place, /*when=*/Value(), dq);
    OpBuilder::InsertionGuard inLoop(b);
    b.setInsertionPointToStart(loop.getBody());
    at.keyTile = loop.getTile();
    at.key = mul(at.keyTile, columns);
    Value k = operands.loadKeys(op.getK(), point, at.keyTile, at.keyRows);
    Value products = gradients.multiply(q, k);
    StageOp::create(b, loc);
    Value v = operands.loadKeys(op.getV(), point, at.keyTile, valueRows);
    Value dP = gradients.multiplyValues(dO, v);
    if (behindBoth)
      StageOp::create(b, loc);
    ScoreDerivative derivative;
    Value weights = gradients.buildWeights(
        products, at, exponents, hasBases,
        [&] { return sums.loadRows(QuerySums::Base, operands, point); }, derivative);
    if (schedule.compactsKV()) // saves registers for several blocks
      weights = gradients.toDotType(weights);
    Value inner = gradients.buildOperand(weights, dP, deltas, derivative);
    StageOp::create(b, loc, /*lag=*/schedule.getLag(), /*behind=*/behindBoth ? 1 : 0);
    TileYieldOp::create(b, loc, product(inner, k, loop.getState()[0]));
    scale = derivative.factor;
    dq = loop.getResult(0);
  }
  operands.storeOutput(operands.hideMissingQueries(finish(dq, scale), point, 0), of.to, point);
}

/// Returns the schedule of programs that only read sums, in tiles of `rows` rows.
ScheduleAttr BackwardBuilder::getSumSchedule(int64_t rows) const {
  ScheduleFields fields = schedule.withoutHopper().getFields();
  fields.tileM = rows;
  if (MmaSyncFields *mmaSync = fields.getMmaSync())
    mmaSync->warps = rows / 16;
  return ScheduleAttr::get(b.getContext(), fields);
}

/// Builds the programs that convert the sums of dq of a query tile.
void BackwardBuilder::buildSumPrograms(const QuerySums &sums) {
  int64_t rows = schedule.getTileN();
  int64_t whole = sums.getWholeTiles();
  ProgramOp program = operands.createProgram(TileAxis::Queries, sizes.heads,
                                             operands.countTiles(TileAxis::Queries, rows, whole),
                                             rows, whole, getSumSchedule(rows));
  program.setPdlSecondary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value batch = program.getNumbers()[0], head = program.getNumbers()[1],
        tile = program.getNumbers()[2];
  Sequence sequence = operands.getSequence(all, batch, TileAxis::Queries);
  if (keyPrograms)
    AwaitAddedOp::create(
        b, loc, sums.getAddedCounter(),
        ValueRange{sums.getBatch(sequence), mul(div(head, sizes.group), sizes.group), index(0)},
        keyPrograms);
  SmallVector<Value> indices = sums.indicesIn(sequence, head, tile, rows);
  indices.push_back(index(0));
  Value dq = LoadAddedOp::create(b, loc, f32Vector({rows, operands.padColumns(op.getD())}),
                                 sums.getQueryGradients(), indices, schedule.countColumnParts(),
                                 getAdjacent());
  if (getAdding() == QuerySums::Adding::FirstClears) {
    // If no program has added, the queries see no key, and the sums are uninitialized.
    Value state =
        memref::LoadOp::create(b, loc, sums.getOrder(), sums.indicesIn(sequence, head, tile, rows));
    Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, state,
                                      arith::ConstantIntOp::create(b, loc, 0, /*width=*/32));
    auto type = cast<VectorType>(dq.getType());
    dq = arith::SelectOp::create(b, loc, any, dq, splat(type, 0));
  }
  store(dq, scale, op.getDqInit(), TileAxis::Queries, sequence, head, tile);
}

/// Builds the programs that convert dk and dv of the key tiles that several programs share.
void BackwardBuilder::buildKeySumPrograms() {
  auto program = ProgramOp::create(
      b, loc, ValueRange{sizes.batches, sizes.kvHeads, parts->getCount()},
      ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::KeyTile},
      getSumSchedule(schedule.getTileM()));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  Value batch = program.getNumbers()[0], kvHead = program.getNumbers()[1],
        tile = program.getNumbers()[2];
  Sequence sequence = operands.getSequence(all, batch, TileAxis::Keys);
  Value firstKey = mul(tile, schedule.getTileM());
  auto storeSum = [&](int64_t which, const Factor &factor, Value memref) {
    Value sum = hideMissingKeys(parts->load(batch, kvHead, tile, which), sequence, firstKey);
    store(sum, factor, memref, TileAxis::Keys, sequence, kvHead, tile);
  };
  storeSum(0, scale, op.getDkInit());
  storeSum(1, {}, op.getDvInit());
}

void BackwardBuilder::useSchedule(ScheduleAttr of) {
  schedule = of;
  // Score builders read the tile sizes from the op.
  op.setScheduleAttr(of);
}

void BackwardBuilder::build() {
  ScheduleAttr own = schedule;
  bool isApart = schedule.separatesDkDv();
  // Programs for dk and for dv use the same lists.
  bool shareLists = isApart && TileLists::areUsed(op, TileAxis::Queries);
  ScheduleAttr wide = shareLists ? own : own.forWideSteps(), ofQueries = own.forQueryTiles();
  // Additional programs have other tiles, whose ranges are wider if these are not multiples.
  constexpr int64_t kLeastRows = 16;
  int64_t queries = std::gcd(std::gcd(wide.getTileN(), own.getTileN()), ofQueries.getTileM()),
          keys = std::gcd(own.getTileM(), ofQueries.getTileN());
  operands.makeRanges(all, std::max(queries, kLeastRows), std::max(keys, kLeastRows),
                      /*copiesKeys=*/false);
  int64_t rows = (isApart ? own : wide).getTileM();
  queryLists = listGradientTiles(b, op, operands, all, TileAxis::Queries, isApart ? own : wide,
                                 rows * wide.countProgramsPerBlock());
  if (!schedule.addsQueries())
    keyLists = listGradientTiles(b, op, operands, all, TileAxis::Keys, ofQueries,
                                 QuerySums::countWhole(own, operands));
  auto findFirst = [&](const Sequence &sequence, Value tile) {
    int64_t rows = schedule.getTileN();
    return operands.findKeys(sequence, {/*head=*/Value(), mul(tile, rows), rows},
                             schedule.getTileM())
        .front()
        .begin;
  };
  QuerySums sums(b, op, operands, getAdding(), /*negates=*/schedule.beginsWithDeltas(),
                 parts ? parts->getSums() : Value(), findFirst, countedQueries);
  bool isRepeated = !schedule.getMapping().hasRegistersForBases();
  if (!isRepeated)
    buildLargeRows(b, op, operands, sums, countedQueries);
  useSchedule(wide);
  buildKeyPrograms(sums, {/*dk=*/!isApart, /*dv=*/true});
  useSchedule(own);
  if (isApart)
    buildKeyPrograms(sums, {/*dk=*/true, /*dv=*/false});
  if (schedule.addsQueries()) {
    buildSumPrograms(sums);
  } else {
    useSchedule(own.forQueryTiles());
    buildQueryPrograms(sums, /*behindBoth=*/own.splitsSums());
  }
  if (parts) {
    useSchedule(wide);
    buildKeySumPrograms();
    parts->free();
  }
  if (isRepeated)
    recomputeLargeRows(sums, own);
  buildBiasGradient(b, op, operands, sums);
  buildSinkGradient(b, op, operands, sums);
  sums.free();
  operands.freeRanges();
  for (std::optional<TileLists> &lists : {std::ref(queryLists), std::ref(keyLists)})
    if (lists)
      lists->free(b, loc);
}

LogicalResult mlir::flashattn::tileAttentionBackward(RewriterBase &rewriter,
                                                     AttentionBackwardOp op) {
  if (!op.hasPureBufferSemantics())
    return op.emitOpError() << "expected memrefs; bufferize before tiling";
  if (!op.getSchedule())
    return op.emitOpError() << "expected a schedule; run flashattn-select-schedule before tiling";
  if (failed(verifyScoreModVectorizes(op)) || failed(verifyScoreModHasDerivative(op)))
    return failure();
  warnHiddenRows(op);
  ScheduleAttr schedule = op.getScheduleAttr();
  remarkInexactTiles(op, schedule.getVisitedKeys(), TileAxis::Keys);
  remarkInexactTiles(op, schedule.getTileN(), TileAxis::Queries);
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  BackwardBuilder(op, rewriter).build();
  rewriter.eraseOp(op);
  return success();
}
