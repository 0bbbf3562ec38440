//===- LargeRows.cpp - sums of weights that a log-sum-exp lacks ------------===//
//
// An f32 that is far from 0 has no room for the logarithm of a row's sum, and weights that are
// taken against it do not add up to 1. For such rows the sum is found again.
//
//===----------------------------------------------------------------------===//

#include "OnlineSoftmax.h"
#include "ScoreGradients.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Builds the programs of one op.
class LargeRowBuilder : TileBuilder {
public:
  LargeRowBuilder(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                  const QuerySums &sums, const CountedRows &countedQueries)
      : TileBuilder(b, op.getLoc()), op(op), operands(operands), sums(sums),
        countedQueries(countedQueries), sizes(operands.getSizes()), schedule(op.getScheduleAttr()),
        rows(schedule.getTileM()), all(operands.getAllKeys()),
        scores(b, op, TileAxis::Keys, RowPattern(),
               /*fullTilesKeep=*/false) {}

  void build();

private:
  FinishedRows buildSums(const OnlineSoftmax &softmax, ScorePlace at, const KeyRange &keys,
                         Value kvHead) const;
  void buildTile(ScorePlace at) const;

  mutable AttentionBackwardOp op; ///< a handle, whose accessors are not const
  const Operands &operands;
  const QuerySums &sums;
  const CountedRows &countedQueries;
  const Sizes &sizes;
  ScheduleAttr schedule;
  int64_t rows; ///< of a tile
  KeyRange all;
  ScoreBuilder scores;
};

} // namespace

/// The sums of the weights of a tile's rows over all keys that they see.
FinishedRows LargeRowBuilder::buildSums(const OnlineSoftmax &softmax, ScorePlace at,
                                        const KeyRange &keys, Value kvHead) const {
  int64_t columns = schedule.getTileN();
  SmallVector<TileInterval> intervals =
      operands.findKeys(keys, mul(at.queryTile, rows), rows, columns);
  RowState state = softmax.begin();
  if (!intervals.empty()) {
    Value q = operands.loadRows(op.getQ(), at.batch, at.head, at.queryTile, rows);
    SmallVector<Value> bounds;
    for (const TileInterval &interval : intervals)
      bounds.append({interval.begin, interval.fullBegin, interval.fullEnd, interval.end});
    auto loop = TileLoopOp::create(b, loc, bounds, /*list=*/Value(), ValueRange(), /*when=*/Value(),
                                   state.values());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    RowState inner = state.with(SmallVector<Value>(loop.getState().begin(), loop.getState().end()));
    at.keyTile = loop.getTile();
    at.key = mul(at.keyTile, columns);
    Value k = operands.loadRows(op.getK(), at.batch, kvHead, at.keyTile, columns,
                                {Value(), op.getKvLen() ? keys.keys : Value()});
    softmax.step(inner, scores.shape(scores.multiply(q, k), at));
    TileYieldOp::create(b, loc, inner.values());
    state = state.with(loop.getResults());
  }
  return softmax.finish(state, [&]() -> Value {
    return op.getSinkLogits() ? memref::LoadOp::create(b, loc, op.getSinkLogits(), at.head)
                              : Value();
  });
}

/// The bases and exponents of a tile's rows.
void LargeRowBuilder::buildTile(ScorePlace at) const {
  KeyRange keys = operands.getKeys(all, at.batch);
  at.position = add(mul(at.queryTile, rows), keys.offset);
  at.queries = sizes.queries;
  at.keys = keys.keys;
  OnlineSoftmax softmax(b, loc, schedule, /*dv=*/0, scores.getFactor(), /*wantsLse=*/true);
  FinishedRows found = buildSums(softmax, at, keys, divide32(at.head, sizes.group));

  VectorType type = f32Vector({rows});
  Value counts = isCounted(*this, countedQueries.get(keys), mul(at.queryTile, rows), rows);
  Value given = sums.loadLse(op, at, type, counts);
  // Some units in the last place; what is further off is of other keys too.
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

/// A program has so many tiles that asking for rows takes no time, where there are none.
void LargeRowBuilder::build() {
  constexpr int64_t kProgramRows = 1024;
  int64_t tilesOfProgram = llvm::divideCeil(kProgramRows, rows);
  Value tiles = ceilDiv(sizes.queries, rows);
  auto program = ProgramOp::create(
      b, loc, ValueRange{sizes.batches, sizes.heads, ceilDiv(tiles, tilesOfProgram)},
      ArrayRef<ProgramAxis>{ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile},
      schedule);
  program.setFollows(true);
  program.setLeads(true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(program.getBody());
  ScorePlace at;
  at.batch = program.getNumbers()[0];
  at.head = program.getNumbers()[1];
  Value first = mul(program.getNumbers()[2], tilesOfProgram);
  auto loop =
      scf::ForOp::create(b, loc, first, min(add(first, index(tilesOfProgram)), tiles), index(1));
  b.setInsertionPointToStart(loop.getBody());
  at.queryTile = loop.getInductionVar();
  auto guarded = scf::IfOp::create(b, loc, sums.hasBases(at.batch, at.head, at.queryTile, rows),
                                   /*withElseRegion=*/false);
  b.setInsertionPointToStart(guarded.thenBlock());
  buildTile(at);
}

ScheduleAttr mlir::flashattn::getScheduleBeside(AttentionBackwardOp op) {
  ScheduleFields fields = op.getScheduleAttr().withoutRoles().getFields();
  fields.stages = 1;
  fields.tileQ = 0;
  fields.apart.reset();
  if (fields.lanes > 1) {
    // Wider ones read less for each pair, and leave room for two programs where roles run.
    int64_t widest =
        std::max(op.getD(), op.getDv()) <= (op.getScheduleAttr().getRoles() ? 128 : 64) ? 64 : 32;
    fields.tileM = std::gcd<int64_t>(fields.tileM, 64);
    fields.tileN = std::gcd<int64_t>(fields.tileN, widest);
    fields.warps = fields.tileM / 16;
  }
  return ScheduleAttr::get(op.getContext(), fields);
}

void mlir::flashattn::buildLargeRows(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                                     const QuerySums &sums, const CountedRows &countedQueries) {
  if (!sums.mayHaveBases())
    return;
  ScheduleAttr own = op.getScheduleAttr();
  op.setScheduleAttr(getScheduleBeside(op));
  LargeRowBuilder(b, op, operands, sums, countedQueries).build();
  op.setScheduleAttr(own);
}
