//===- KeyParts.cpp -------------------------------------------------------===//

#include "KeyParts.h"
#include "ScoreGradients.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::flashattn;

/// A shared tile has more than this many times the steps of any other tile.
static constexpr int64_t kHeavier = 2;
/// At most one in this many tiles is shared; otherwise the others would be the exception.
static constexpr int64_t kLeastOthers = 4;
/// The maximum number of programs per shared tile. Each adds twice as many bytes as a program of a
/// whole tile writes.
static constexpr int64_t kMaxShares = 64;
/// The number of adjacent elements of a thread that bulk copies add together.
static constexpr int64_t kAdjacent = 4;

namespace {

/// Counts the steps of a program over a key tile: the query tiles of one head that see it.
class StepCounter : public TileBuilder {
public:
  StepCounter(OpBuilder &b, Location loc, const TileIntervalPlan &plan, int64_t rows)
      : TileBuilder(b, loc), plan(plan), rows(rows) {}

  Value count(Value tile, const Sequence &lengths) const {
    Value first = mul(tile, rows), steps = index(0);
    Value last = sub(min(add(first, index(rows)), lengths.keys), index(1));
    for (const TileInterval &interval :
         plan.emit(b, loc, first, last, lengths.offset, {lengths.queries, lengths.keys}))
      steps = add(steps, sub(interval.end, interval.begin));
    return steps;
  }

private:
  const TileIntervalPlan &plan;
  int64_t rows;
};

} // namespace

/// Returns how many of the first key tiles have far more steps than the others. A length that is
/// not static is assumed to be large.
static int64_t countHeavyTiles(Location loc, const TileIntervalPlan &plan, int64_t rows,
                               const Sequence &lengths, bool isTopLeft) {
  constexpr int64_t kLong = 1 << 16, kMost = 64, kSamples = 256;
  int64_t queries = getConstantIntValue(lengths.queries).value_or(kLong);
  int64_t keys = getConstantIntValue(lengths.keys).value_or(kLong);
  std::optional<int64_t> offset = getConstantIntValue(lengths.offset);
  // Folds from constants in scratch modules.
  auto count = [&](int64_t tile) {
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(loc);
    OpBuilder b = OpBuilder::atBlockEnd(scratch->getBody());
    StepCounter counter(b, loc, plan, rows);
    Sequence known{/*batch=*/Value(), counter.index(queries), counter.index(keys),
                   counter.index(offset.value_or(isTopLeft ? 0 : keys - queries))};
    return *getConstantIntValue(counter.count(counter.index(tile), known));
  };
  int64_t tiles = llvm::divideCeil(keys, rows), first = std::min(tiles / kLeastOthers, kMost);
  if (first == 0)
    return 0;
  // A sample of the other tiles is sufficient.
  int64_t others = 0, step = std::max<int64_t>(1, tiles / kSamples);
  for (int64_t tile = first; tile < tiles; tile += step)
    others = std::max(others, count(tile));
  SmallVector<int64_t> steps = llvm::map_to_vector(llvm::seq(first), count);
  while (!steps.empty() && *llvm::min_element(steps) <= kHeavier * others)
    others = std::max(others, steps.pop_back_val());
  return steps.size();
}

std::optional<KeyParts> KeyParts::get(OpBuilder &b, AttentionBackwardOp op,
                                      const Operands &operands, const Sequence &all) {
  ScheduleAttr schedule = op.getScheduleAttr();
  int64_t rows = schedule.getTileM(), columns = operands.padColumns(op.getD());
  TileIntervalPlan plan(op.getVisibleSets(), TileAxis::Queries, schedule.getTileN());
  // With one interval, adjacent tiles have similar numbers of steps. With kv_len, these depend on
  // the batch, and with symbols of the mask on their values.
  if (plan.size() < 2 || op.hasOwnSequences() || op.countSymbols() != 0 || columns != operands.padColumns(op.getDv()))
    return std::nullopt;
  Location loc = op.getLoc();
  TileBuilder build(b, loc);
  const Sizes &sizes = operands.getSizes();
  bool isTopLeft = op.getAlign() == Align::TopLeft;
  int64_t heavy = countHeavyTiles(loc, plan, rows, all, isTopLeft);
  if (heavy == 0)
    return std::nullopt;
  StepCounter counter(b, loc, plan, rows);
  Value most = counter.count(build.index(0), all);
  // Samples two of the other tiles: the first, and the tile at the position of the middle query.
  // With fewer queries than keys, few queries see the first of the other tiles.
  Value tiles = build.ceilDiv(sizes.keys, rows), one = build.index(1);
  Value middle = build.add(all.offset, build.div(sizes.queries, build.index(2)));
  middle = build.div(build.max(middle, build.index(0)), build.index(rows));
  middle = build.max(build.min(middle, build.sub(tiles, one)), build.index(heavy));
  Value others = build.max(counter.count(build.index(heavy), all), counter.count(middle, all));
  auto isBelow = [&](Value x, Value y) {
    return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
  };
  auto both = [&](Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); };
  Value pays = both(isBelow(build.mul(others, kHeavier), most),
                    isBelow(build.index(kLeastOthers * heavy - 1), tiles));
  // The workspace is limited: the sums and the states of the dq tiles must fit one f32 per query.
  Value states = build.ceilDiv(sizes.queries, schedule.getTileN());
  Value fits = isBelow(build.mul(sizes.kvHeads, 2 * heavy * rows * columns),
                       build.add(build.mul(sizes.heads, build.sub(sizes.queries, states)), one));
  Value shares = both(pays, fits);
  KeyParts result(b, loc);
  result.tile = build.f32Vector({rows, columns});
  // Parts have the size of the tiles that are added to dq, with which they share a staging buffer.
  result.columnParts = schedule.addsQueries() ? rows / schedule.getTileN() : 1;
  result.heavy = heavy;
  result.count = build.select(shares, build.index(heavy), build.index(0));
  if (isConstantIntValue(result.count, 0))
    return std::nullopt;
  // A share has as many steps as the longest of the other tiles, adjusted so that shares are equal.
  // The host divides, because each thread of a kernel would keep the quotients in registers.
  auto divideUp = [&](Value x, Value y) {
    return b.createOrFold<arith::CeilDivUIOp>(loc, x, build.max(y, one));
  };
  Value parts = build.min(divideUp(most, others), build.index(kMaxShares));
  result.steps = divideUp(most, parts);
  result.more = build.mul(result.count, build.sub(parts, one));
  result.bounded = build.sub(build.add(result.more, result.count), build.index(heavy));
  Value allRows = build.mul(build.mul(sizes.kvHeads, result.count), 2 * rows);
  result.sums = allocateF32(b, loc, {sizes.batches, allRows, build.index(columns)});
  return result;
}

void KeyParts::free() const { memref::DeallocOp::create(b, loc, sums); }

/// Shares are numbered round-robin over the shared tiles.
KeyParts::Share KeyParts::locate(Value number, Value tiles) const {
  // In 32 bits, because values that live to the end of the program take registers from its loop.
  Value behind = sub(toI32(number), toI32(more)), isPart = less(behind, toI32(count));
  Value other = toIndex(behind);
  Value part = heavy == 1 ? number : divide32(number, index(heavy));
  Value own = sub(number, mul(part, heavy));
  // The last share has all remaining steps, in case its tile has more steps than the first.
  Value last = index(std::numeric_limits<int32_t>::max());
  return {select(isPart, own, other), select(isPart, mul(part, steps), index(0)),
          select(less(number, bounded), steps, last), isPart, select(isPart, tiles, other)};
}

/// The sums of a head are adjacent: dk of all tiles, then dv of all tiles.
SmallVector<Value> KeyParts::getSumIndices(Value batch, Value kvHead, Value number,
                                           int64_t which) const {
  return {batch,
          TileBuilder::add(mul(kvHead, 2 * heavy), TileBuilder::add(number, index(which * heavy))),
          index(0)};
}

void KeyParts::add(const Share &share, Value batch, Value kvHead, Value dk, Value dv) const {
  auto guarded = scf::IfOp::create(b, loc, share.isPart, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(guarded.thenBlock());
  Value both[] = {dk, dv};
  for (auto [which, sum] : llvm::enumerate(both))
    AddTileOp::create(b, loc, sum, sums, getSumIndices(batch, kvHead, share.tile, which),
                      /*order=*/Value(), /*turn=*/Value(), columnParts, kAdjacent);
}

Value KeyParts::load(Value batch, Value kvHead, Value number, int64_t which) const {
  return LoadAddedOp::create(b, loc, tile, sums, getSumIndices(batch, kvHead, number, which),
                             columnParts, kAdjacent);
}
