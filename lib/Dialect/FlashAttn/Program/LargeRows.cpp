//===- LargeRows.cpp - rows with a large log-sum-exp ----------------------===//
//
// An f32 log-sum-exp far from 0 cannot represent the logarithm of the row sum, and P that is
// relative to it does not add up to 1. For such rows, the row sum is recomputed, and so are the
// results of programs that did not use it.
//
//===----------------------------------------------------------------------===//

#include "Backward.h"
#include "OnlineSoftmax.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Builds the programs that recompute the row sums of large rows.
class LargeRowBuilder : TileBuilder {
public:
  LargeRowBuilder(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                  const QuerySums &sums, const CountedRows &countedQueries)
      : TileBuilder(b, op.getLoc()), op(op), operands(operands), sums(sums),
        countedQueries(countedQueries), sizes(operands.getSizes()), schedule(op.getScheduleAttr()),
        rows(schedule.getTileM()), all(operands.getAll()),
        scores(b, op, TileAxis::Keys, RowPattern(),
               /*fullTilesKeep=*/false) {}

  void build();

private:
  FinishedRows buildSums(const OnlineSoftmax &softmax, ScorePlace at, Value kvHead) const;
  void buildTile(ScorePlace at) const;

  mutable AttentionBackwardOp op; ///< a handle, whose accessors are not const
  const Operands &operands;
  const QuerySums &sums;
  const CountedRows &countedQueries;
  const Sizes &sizes;
  ScheduleAttr schedule;
  int64_t rows; ///< of a tile
  Sequence all;
  ScoreBuilder scores;
};

} // namespace

/// Returns the row sums of a query tile over all keys that it sees.
FinishedRows LargeRowBuilder::buildSums(const OnlineSoftmax &softmax, ScorePlace at,
                                        Value kvHead) const {
  const Sequence &sequence = at.sequence;
  int64_t columns = schedule.getTileN();
  SmallVector<TileInterval> intervals =
      operands.findKeys(sequence, {at.head, mul(at.queryTile, rows), rows}, columns);
  RowState state = softmax.begin();
  if (!intervals.empty()) {
    Value q =
        operands.loadRows(op.getQ(), TileAxis::Queries, sequence, at.head, at.queryTile, rows);
    at.keyRows = operands.buildRowMap({Value(), op.getKvLen() ? sequence.keys : Value()});
    TileLoopOp loop = createTileLoop(b, loc, /*lists=*/std::nullopt, intervals, /*place=*/{},
                                     /*when=*/Value(), state.values());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    RowState inner = state.with(SmallVector<Value>(loop.getState().begin(), loop.getState().end()));
    at.keyTile = loop.getTile();
    at.key = mul(at.keyTile, columns);
    Value k = operands.loadRows(op.getK(), TileAxis::Keys, sequence, kvHead, at.keyTile, columns,
                                at.keyRows);
    softmax.step(inner, scores.shape(scores.multiply(q, k), at));
    TileYieldOp::create(b, loc, inner.values());
    state = state.with(loop.getResults());
  }
  return softmax.finish(state, [&]() -> Value {
    return op.getSinkLogits() ? memref::LoadOp::create(b, loc, op.getSinkLogits(), at.head)
                              : Value();
  });
}

/// Computes the bases and exponents of a tile's rows.
void LargeRowBuilder::buildTile(ScorePlace at) const {
  const Sequence &sequence = at.sequence;
  at.position = add(mul(at.queryTile, rows), sequence.offset);
  OnlineSoftmax softmax(b, loc, schedule, /*dv=*/0, scores.getFactor(), /*wantsLse=*/true);
  FinishedRows found = buildSums(softmax, at, divide32(at.head, sizes.group));

  VectorType type = f32Vector({rows});
  Value counts = isCounted(*this, countedQueries.get(sequence), mul(at.queryTile, rows), rows);
  Value given = sums.loadLse(op, at, type, counts);
  // A few units in the last place. A larger difference means that the log-sum-exp includes other
  // keys.
  constexpr double kRounding = 1.0 / (1 << 20);
  Value difference = arith::SubFOp::create(b, loc, softmax.logSumExp(found), given);
  Value most =
      arith::MulFOp::create(b, loc, math::AbsFOp::create(b, loc, given), splat(type, kRounding));
  Value agrees = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE,
                                       math::AbsFOp::create(b, loc, difference), most);
  Value isFound = arith::AndIOp::create(b, loc, sums.isLarge(given), agrees);
  Value exponent = sums.load(QuerySums::Exponent, at, type, {2});
  exponent = arith::SelectOp::create(b, loc, isFound, softmax.logSumAgainstMax(found), exponent);
  Value base = arith::SelectOp::create(b, loc, isFound, found.base, splat(type, 0));
  sums.store(QuerySums::Exponent, exponent, at);
  sums.store(QuerySums::Base, base, at);
}

void LargeRowBuilder::build() {
  int64_t checked = QuerySums::countCheckedRows(rows);
  ProgramOp program =
      operands.createProgram(TileAxis::Queries, sizes.heads,
                             operands.countTiles(TileAxis::Queries, checked), checked, schedule);
  program.setPdlSecondary(true);
  program.setPdlPrimary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ScorePlace at;
  at.sequence = operands.getSequence(all, program.getNumbers()[0], TileAxis::Queries);
  at.head = program.getNumbers()[1];
  Value number = program.getNumbers()[2];
  auto createIf = [&](Value condition) {
    auto guarded = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  };
  // Reads all flags at once; reading them in sequence would wait for each.
  createIf(sums.anyTileHasBases(schedule, at.sequence, at.head, number, rows));
  sums.noteLarge();
  sums.forCheckedTiles(number, ceilDiv(at.sequence.queries, rows), rows, [&](Value tile) {
    at.queryTile = tile;
    createIf(sums.hasBases(schedule, at.sequence, at.head, at.queryTile, rows));
    buildTile(at);
  });
}

ScheduleAttr mlir::flashattn::getScheduleBeside(AttentionBackwardOp op) {
  ScheduleFields fields = op.getScheduleAttr().withoutHopper().getFields();
  fields.stages = fields.pack = 1;
  fields.dqTileM = 0;
  fields.algorithm = BackwardAlgorithm::SeparateDq;
  if (MmaSyncFields *mmaSync = fields.getMmaSync()) {
    // Wider tiles read less for each pair.
    bool hasSpace = op.getScheduleAttr().getMapping().hasSpaceForWideTiles();
    int64_t widest = std::max(op.getD(), op.getDv()) <= (hasSpace ? 128 : 64) ? 64 : 32;
    fields.tileM = std::gcd<int64_t>(fields.tileM, 64);
    fields.tileN = std::gcd<int64_t>(fields.tileN, widest);
    mmaSync->warps = fields.tileM / 16;
  }
  return ScheduleAttr::get(op.getContext(), fields);
}

void mlir::flashattn::buildLargeRows(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                                     const QuerySums &sums, const CountedRows &countedQueries) {
  ScheduleAttr own = op.getScheduleAttr();
  op.setScheduleAttr(getScheduleBeside(op));
  LargeRowBuilder(b, op, operands, sums, countedQueries).build();
  op.setScheduleAttr(own);
}

//===----------------------------------------------------------------------===//
// Recomputed gradients
//===----------------------------------------------------------------------===//

/// Returns the schedule of programs that rarely run. Few columns per product keep their code short.
static ScheduleAttr getRareSchedule(AttentionBackwardOp op) {
  ScheduleFields fields = getScheduleBeside(op).getFields();
  fields.tileM = std::min<int64_t>(fields.tileM, 64);
  fields.tileN = std::min<int64_t>(fields.tileN, 16);
  fields.getMmaSync()->warps = fields.tileM / 16;
  fields.getMmaSync()->qInRegisters = false;
  return ScheduleAttr::get(op.getContext(), fields);
}

// A program checks several key tiles or query tiles, so that few programs are needed to find that
// there is nothing to do. `op` has the programs' schedule.
void BackwardBuilder::buildRecompute(const QuerySums &sums, bool ofKeys, bool ofQueries) {
  int64_t rows = schedule.getTileM();
  ScoreGradientBuilder keyGradients(b, op, TileAxis::Queries);
  QueryTiles queries = prepareQueries(sums);
  Value keyTiles = operands.countTiles(TileAxis::Keys, rows);
  auto countAll = [&](TileAxis axis, Value heads, Value tiles) {
    return mul(operands.getStarts(axis) ? heads : mul(sizes.batches, heads), tiles);
  };
  Value allKeys = countAll(TileAxis::Keys, sizes.kvHeads, keyTiles),
        allQueries = countAll(TileAxis::Queries, sizes.heads, queries.count);
  Value keyPrograms = sums.countChecking(allKeys, rows), count = ofKeys ? keyPrograms : index(0);
  if (ofQueries)
    count = add(count, sums.countChecking(allQueries, rows));
  auto program = ProgramOp::create(
      b, loc, ValueRange{index(1), index(1), count},
      ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::KeyTile}, schedule);
  program.setPdlSecondary(true);
  program.setPdlPrimary(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  // Tiles are numbered across heads and batches. Values that depend only on batch and head are then
  // computed for each tile, and occupy no registers.
  auto forTiles = [&](Value number, TileAxis axis, Value heads, Value tiles, Value all,
                      function_ref<void(Value batch, Value head, Value tile)> buildTile) {
    sums.forCheckedTiles(number, all, rows, [&](Value place) {
      Value row = divide32(place, tiles);
      if (Value starts = operands.getStarts(axis)) {
        int64_t whole = axis == TileAxis::Keys ? rows : sums.getWholeTiles();
        auto [segment, tile] = findSegment(b, loc, {starts, rows, whole / rows, /*leastRows=*/1},
                                           tiles, sub(place, mul(row, tiles)));
        return buildTile(segment, row, tile);
      }
      Value batch = divide32(row, heads);
      buildTile(batch, sub(row, mul(batch, heads)), sub(place, mul(row, tiles)));
    });
  };
  Value number = program.getNumbers()[2];
  auto buildKeys = [&](KeySums wanted) {
    forTiles(number, TileAxis::Keys, sizes.kvHeads, keyTiles, allKeys,
             [&](Value batch, Value kvHead, Value tile) {
               buildKeyTile(sums, wanted, keyGradients, batch, kvHead, tile, keyTiles, keyTiles);
             });
  };
  auto buildBoth = [&] {
    // The maximum number of columns of two accumulators of 64 rows in the registers of 128 threads.
    constexpr int64_t kMostColumns = 192;
    bool isApart = op.getD() + op.getDv() > kMostColumns;
    buildKeys({/*dk=*/!isApart, /*dv=*/true});
    if (isApart)
      buildKeys({/*dk=*/true, /*dv=*/false});
  };
  auto buildQueries = [&](Value number) {
    forTiles(number, TileAxis::Queries, sizes.heads, queries.count, allQueries,
             [&](Value batch, Value head, Value tile) {
               buildQueryTile(sums, queries, batch, head, divide32(head, sizes.group), tile,
                              /*behindBoth=*/false);
             });
  };
  sums.ifLarge([&] {
    if (!ofKeys)
      return buildQueries(number);
    if (!ofQueries)
      return buildBoth();
    auto isOfKeys = scf::IfOp::create(b, loc, less(number, keyPrograms), /*withElseRegion=*/true);
    OpBuilder::InsertionGuard inBranch(b);
    b.setInsertionPointToStart(isOfKeys.thenBlock());
    buildBoth();
    b.setInsertionPointToStart(isOfKeys.elseBlock());
    buildQueries(sub(number, keyPrograms));
  });
}

void BackwardBuilder::recomputeLargeRows(const QuerySums &sums, ScheduleAttr own) {
  useSchedule(own);
  buildLargeRows(b, op, operands, sums, countedQueries);
  useSchedule(getRareSchedule(op));
  BackwardBuilder again(op, b, /*isRare=*/true);
  again.operands.shareRanges(operands);
  // With wider rows, the two kinds of loops take too many registers for one kernel.
  constexpr int64_t kMostColumns = 192;
  bool isOne = std::max(op.getD(), op.getDv()) <= kMostColumns;
  again.buildRecompute(sums, /*ofKeys=*/true, /*ofQueries=*/isOne);
  if (!isOne)
    again.buildRecompute(sums, /*ofKeys=*/false, /*ofQueries=*/true);
  useSchedule(own);
}
