//===- KeyParts.cpp --------------------------------------------------------===//

#include "KeyParts.h"
#include "ScoreGradients.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::flashattn;

/// What several programs share is this many times as much as any other program has, at least.
static constexpr int64_t kHeavier = 2;
/// At most this part of all tiles is shared, or the others would be the exception.
static constexpr int64_t kLeastOthers = 4;
/// Each part adds twice as many bytes as a whole program writes.
static constexpr int64_t kMostParts = 64;
/// Elements of a thread that copies add together.
static constexpr int64_t kAdjacent = 4;

namespace {

/// Queries and keys of an attention, and where query 0 is.
struct Lengths {
  Value queries, keys, offset;
};

/// Counts the steps of a program over a tile of keys: tiles of queries that see it, of one head.
class StepCounter : public TileBuilder {
public:
  StepCounter(OpBuilder &b, Location loc, const TileIntervalPlan &plan, int64_t rows)
      : TileBuilder(b, loc), plan(plan), rows(rows) {}

  Value count(Value tile, const Lengths &lengths) const {
    Value first = mul(tile, rows), steps = index(0);
    Value last = sub(min(add(first, index(rows)), lengths.keys), index(1));
    for (const TileInterval &interval :
         plan.emit(b, loc, first, last, lengths.offset, lengths.queries, lengths.keys))
      steps = add(steps, sub(interval.end, interval.begin));
    return steps;
  }

private:
  const TileIntervalPlan &plan;
  int64_t rows;
};

} // namespace

/// How many of the first tiles of keys have far more steps than the others. A length that is not
/// known counts as a long one.
static int64_t countHeavyTiles(Location loc, const TileIntervalPlan &plan, int64_t rows,
                               const Lengths &lengths, bool isTopLeft) {
  constexpr int64_t kLong = 1 << 16, kMost = 64, kSamples = 256;
  int64_t queries = getConstantIntValue(lengths.queries).value_or(kLong);
  int64_t keys = getConstantIntValue(lengths.keys).value_or(kLong);
  std::optional<int64_t> offset = getConstantIntValue(lengths.offset);
  // Folded from constants, in modules of their own.
  auto count = [&](int64_t tile) {
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(loc);
    OpBuilder b = OpBuilder::atBlockEnd(scratch->getBody());
    StepCounter counter(b, loc, plan, rows);
    Lengths known{counter.index(queries), counter.index(keys),
                  counter.index(offset.value_or(isTopLeft ? 0 : keys - queries))};
    return *getConstantIntValue(counter.count(counter.index(tile), known));
  };
  int64_t tiles = llvm::divideCeil(keys, rows), first = std::min(tiles / kLeastOthers, kMost);
  if (first == 0)
    return 0;
  // Of the others a sample will do.
  int64_t others = 0, step = std::max<int64_t>(1, tiles / kSamples);
  for (int64_t tile = first; tile < tiles; tile += step)
    others = std::max(others, count(tile));
  SmallVector<int64_t> steps = llvm::map_to_vector(llvm::seq(first), count);
  while (!steps.empty() && *llvm::min_element(steps) <= kHeavier * others)
    others = std::max(others, steps.pop_back_val());
  return steps.size();
}

std::optional<KeyParts> KeyParts::get(OpBuilder &b, AttentionBackwardOp op,
                                      const Operands &operands, const KeyRange &all) {
  ScheduleAttr schedule = op.getScheduleAttr();
  int64_t rows = schedule.getTileM(), columns = operands.padColumns(op.getD());
  TileIntervalPlan plan(op.getVisibleSets(), TileAxis::Queries, schedule.getTileN());
  // Tiles that one set shows differ little from those next to them; with kv_len each batch has its
  // own.
  if (plan.size() < 2 || op.getKvLen() || columns != operands.padColumns(op.getDv()))
    return std::nullopt;
  Location loc = op.getLoc();
  TileBuilder build(b, loc);
  const Sizes &sizes = operands.getSizes();
  bool isTopLeft = op.getAlign() == Align::TopLeft;
  Lengths lengths{sizes.queries, sizes.keys, all.offset};
  int64_t heavy = countHeavyTiles(loc, plan, rows, lengths, isTopLeft);
  if (heavy == 0)
    return std::nullopt;
  StepCounter counter(b, loc, plan, rows);
  Value most = counter.count(build.index(0), lengths);
  // Of the others the first one, and that at the middle query's own place: with fewer queries than
  // keys these see little of the first keys.
  Value tiles = build.ceilDiv(sizes.keys, rows), one = build.index(1);
  Value middle = build.add(lengths.offset, build.div(sizes.queries, build.index(2)));
  middle = build.div(build.max(middle, build.index(0)), build.index(rows));
  middle = build.max(build.min(middle, build.sub(tiles, one)), build.index(heavy));
  Value others =
      build.max(counter.count(build.index(heavy), lengths), counter.count(middle, lengths));
  auto isBelow = [&](Value x, Value y) {
    return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y);
  };
  auto both = [&](Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); };
  Value pays = both(isBelow(build.mul(others, kHeavier), most),
                    isBelow(build.index(kLeastOthers * heavy - 1), tiles));
  // The sums, and the states of dq's, take no more than one f32 of each query.
  Value states = build.ceilDiv(sizes.queries, schedule.getTileN());
  Value fits = isBelow(build.mul(sizes.kvHeads, 2 * heavy * rows * columns),
                       build.add(build.mul(sizes.heads, build.sub(sizes.queries, states)), one));
  Value shares = both(pays, fits);
  KeyParts result(b, loc);
  result.tile = build.f32Vector({rows, columns});
  // As many as there are of the smaller tiles of dq's shares, with which they share a place.
  result.columnParts = schedule.addsQueries() ? rows / schedule.getTileN() : 1;
  result.heavy = heavy;
  result.count = build.select(shares, build.index(heavy), build.index(0));
  if (isConstantIntValue(result.count, 0))
    return std::nullopt;
  // As many as the longest of the others, rounded to equal parts: divided here, as a kernel's
  // programs hold numbers that divisions make in registers of each thread.
  auto divideUp = [&](Value x, Value y) {
    return b.createOrFold<arith::CeilDivUIOp>(loc, x, build.max(y, one));
  };
  Value parts = build.min(divideUp(most, others), build.index(kMostParts));
  result.steps = divideUp(most, parts);
  result.more = build.mul(result.count, build.sub(parts, one));
  result.bounded = build.sub(build.add(result.more, result.count), build.index(heavy));
  Value allRows = build.mul(build.mul(sizes.kvHeads, result.count), 2 * rows);
  result.sums = allocateF32(b, loc, {sizes.batches, allRows, build.index(columns)});
  return result;
}

void KeyParts::free() const { memref::DeallocOp::create(b, loc, sums); }

/// Tiles take turns in the parts' numbers.
KeyParts::Share KeyParts::locate(Value number, Value tiles) const {
  // In 32 bits, as what lasts to the program's end takes registers from its loop.
  Value behind = sub(toI32(number), toI32(more)), isPart = less(behind, toI32(count));
  Value other = toIndex(behind);
  Value part = heavy == 1 ? number : divide32(number, index(heavy));
  Value own = sub(number, mul(part, heavy));
  // The last one has all that are left, should its tile have more than the first one.
  Value last = index(std::numeric_limits<int32_t>::max());
  return {select(isPart, own, other), select(isPart, mul(part, steps), index(0)),
          select(less(number, bounded), steps, last), isPart, select(isPart, tiles, other)};
}

/// All sums of dk and dv of a head follow each other.
SmallVector<Value> KeyParts::placeOf(Value batch, Value kvHead, Value number, int64_t which) const {
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
    AddTileOp::create(b, loc, sum, sums, placeOf(batch, kvHead, share.tile, which),
                      /*order=*/Value(), /*turn=*/Value(), columnParts, kAdjacent);
}

Value KeyParts::load(Value batch, Value kvHead, Value number, int64_t which) const {
  return LoadAddedOp::create(b, loc, tile, sums, placeOf(batch, kvHead, number, which), columnParts,
                             kAdjacent);
}
