//===- Adder.cpp - spare warps that add staged tiles ----------------------===//
//
// Warps of the producer warpgroup that load no tiles add each step's staged tile to the sums in
// global memory. The first warp to reach a tile of the sums sets it to zero, while the step's tile
// is still being computed. If programs add in a fixed order, adding a tile takes longer than a
// step: the warp waits for its turn, for the reducing copy, and for the fence before it passes the
// turn on. So the warps handle steps round-robin.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

static constexpr int64_t kWarps = WarpgroupBlockPlan::kSpareWarps;

/// Exclusive upper bound of the number of steps until a warp's next step.
static constexpr int64_t kAheads = 4;

/// Returns `memref`, which is contiguous, as `count` rows of shape `columns`.
Value AdderBuilder::flatten(Value memref, Value count, ArrayRef<int64_t> columns) {
  SmallVector<int64_t> shape = {ShapedType::kDynamic};
  SmallVector<OpFoldResult> sizes = {count}, strides = {b.getIndexAttr(1)};
  for (int64_t each : columns) {
    shape.push_back(each);
    sizes.push_back(b.getIndexAttr(each));
    strides.insert(strides.begin(), b.getIndexAttr(each));
  }
  auto type = MemRefType::get(shape, getElementTypeOrSelf(memref));
  return memref::ReinterpretCastOp::create(b, loc, type, memref, b.getIndexAttr(0), sizes, strides);
}

/// Returns the position of a step's tile under `mapping`. One 32-bit index serves both the sums and
/// the order. Separate indices would exceed the registers of these warps.
AdderBuilder::Place AdderBuilder::findPosition(IRMapping &mapping) {
  AddTileOp added = plan.added.front();
  SmallVector<Value> indices;
  for (Value index : added.getIndices())
    indices.push_back(clone(index, mapping));
  int64_t rows = cast<VectorType>(added.getTile().getType()).getDimSize(0);
  Value tile = toI32(indices.front()), tiles = dim(added.getTarget(), 0);
  for (unsigned i = 1, last = indices.size() - 2; i <= last; ++i) {
    Value size = dim(added.getTarget(), i);
    if (i == last)
      size = div(size, index(rows));
    tile = add(mul(tile, toI32(size)), toI32(indices[i]));
    tiles = mul(tiles, size);
  }
  auto target = cast<MemRefType>(added.getTarget().getType());
  Place place{flatten(added.getTarget(), mul(tiles, rows), target.getShape().back()), Value(),
              toIndex(mul(tile, i32(rows))), indices.back(), toIndex(tile)};
  if (Value order = added.getOrder())
    place.order = flatten(order, tiles, {});
  return place;
}

/// Sets the step's tile to zero unless another warp has. `seen`, i32, is the last known state of
/// the tile. Afterwards the zeros are visible to this warp.
void AdderBuilder::clearIfFirst(const Place &place, Value seen) {
  constexpr int64_t kCleared = 2;
  auto isTrue = [&](Value flag) -> Value {
    Value number = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), flag);
    return compare(arith::CmpIPredicate::ne, fromLane0(number), index(0));
  };
  OpBuilder::InsertionGuard guard(b);
  auto enter = [&](Value condition) {
    auto guarded = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
    b.setInsertionPointToStart(guarded.thenBlock());
  };
  enter(isTrue(compare(arith::CmpIPredicate::ne, seen, i32(kCleared))));
  // One thread of the warp queries the state.
  Value lane = arith::AndIOp::create(b, loc, block.thread, index(kWarpThreads - 1));
  auto asks =
      scf::IfOp::create(b, loc, b.getI1Type(), compare(arith::CmpIPredicate::eq, lane, index(0)),
                        /*withElseRegion=*/true);
  b.setInsertionPointToStart(asks.thenBlock());
  Value isFirst = hopper::TakeFirstOp::create(b, loc, b.getI1Type(), place.order, place.tile, seen);
  scf::YieldOp::create(b, loc, isFirst);
  b.setInsertionPointToStart(asks.elseBlock());
  Value no = arith::ConstantIntOp::create(b, loc, 0, /*width=*/1);
  scf::YieldOp::create(b, loc, no);
  b.setInsertionPointAfter(asks);
  enter(isTrue(asks.getResult(0)));
  AddTileOp added = plan.added.front();
  int64_t elements = cast<VectorType>(added.getTile().getType()).getNumElements();
  hopper::ClearOp::create(b, loc, place.sums, ValueRange{place.row, place.column}, elements);
  hopper::PassTurnOp::create(b, loc, place.order, place.tile, i32(kCleared - 1));
}

/// Adds the staged tile of this warp's step number `before`, i32, at the position under `mapping`.
void AdderBuilder::addStep(IRMapping &mapping, Value before) {
  AddTileOp added = plan.added.front();
  Place place = findPosition(mapping);
  Value turn, seen;
  if (plan.takesTurns)
    turn = toI32(clone(added.getTurn(), mapping));
  // The load of the state is in flight while the tile is computed.
  if (place.order)
    seen = hopper::ReadTurnOp::create(b, loc, b.getI32Type(), place.order, place.tile);
  if (plan.firstClears)
    clearIfFirst(place, seen);
  Value step = add(mul(before, i32(kWarps)), warp);
  Value barrier = add(toIndex(warp), index(plan.memory.staged));
  hopper::BarrierWaitOp::create(b, loc, block.barriers, barrier, parityOf(before, /*places=*/1));
  if (plan.takesTurns)
    hopper::AwaitTurnOp::create(b, loc, place.order, place.tile, turn, seen);
  hopper::AddStagedOp::create(b, loc, stagingAt(step), place.sums,
                              ValueRange{place.row, place.column}, /*warp=*/Value());
  hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
  hopper::WarpArriveOp::create(b, loc, block.barriers, stagingFree(step));
  if (plan.takesTurns)
    hopper::PassTurnOp::create(b, loc, place.order, place.tile, turn);
}

/// Adds this warp's tiles of one interval. `progress`, i32, is 4 times the number of steps that
/// this warp has handled plus the number of steps until its next one, packed into one register for
/// all loops. Returns the progress after the interval.
Value AdderBuilder::addInterval(IRMapping mapping, Value interval, Value progress) {
  TileLoopOp program = plan.loop;
  TileRange range = SharedRangeBuilder(b, plan, block).boundsOf(mapping, interval);
  Value begin = toI32(range.begin), end = toI32(range.end);
  // Consumers stage nothing in steps that they skip.
  if (program.getWhen())
    end = select(clone(program.getWhen(), mapping), end, begin);
  SmallVector<Value> place;
  for (Value outer : program.getListIndices())
    place.push_back(clone(outer, mapping));
  static_assert(kWarps < kAheads);
  Value before = arith::DivUIOp::create(b, loc, progress, i32(kAheads));
  Value ahead = arith::RemUIOp::create(b, loc, progress, i32(kAheads));
  Value first = add(begin, ahead);
  auto loop = scf::ForOp::create(b, loc, first, end, i32(kWarps), ValueRange{before, first});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // LLVM cannot analyze a shuffle. Otherwise it would strength-reduce the position in the sums to
  // another induction variable, carried through all loops.
  Value number = fromLane0(toIndex(loop.getInductionVar()));
  place.push_back(number);
  if (program.getList())
    number = toIndex(memref::LoadOp::create(b, loc, program.getList(), place));
  mapping.map(program.getTile(), number);
  addStep(mapping, loop.getRegionIterArg(0));
  scf::YieldOp::create(
      b, loc,
      ValueRange{add(loop.getRegionIterArg(0), i32(1)), add(loop.getInductionVar(), i32(kWarps))});
  b.setInsertionPointAfter(loop);
  return add(mul(loop.getResult(0), i32(kAheads)), sub(loop.getResult(1), end));
}

/// Adds this warp's tiles of one program, then signals it. `progress` as in `addInterval`.
Value AdderBuilder::addProgram(const Group &group, Value progress) {
  IRMapping mapping = GridBuilder(b, plan, block).numbersOf(group, index(0));
  // Shuffles keep LLVM from hoisting values that depend on sizes out of the loop over programs,
  // which would take registers. An offset may be negative.
  SetVector<Value> above;
  getUsedValuesDefinedAbove(ProgramOp(plan.program).getRegion(), above);
  for (Value value : above)
    if (value.getType().isIndex() && !getConstantIntValue(value))
      mapping.map(value,
                  arith::IndexCastOp::create(b, loc, b.getIndexType(), toI32(fromLane0(value))));
  progress = addPasses(mapping, progress);
  SignalAddedOp signal = plan.signal;
  if (!signal)
    return progress;
  // One 32-bit index, a prefix of each step's tile index: it takes no register through the loops.
  Value place = i32(0), places = index(1);
  for (auto [i, each] : llvm::enumerate(signal.getIndices())) {
    Value size = dim(signal.getCounter(), i);
    place = add(mul(place, toI32(size)), toI32(clone(each, mapping)));
    places = mul(places, size);
  }
  hopper::SignalAddedOp::create(b, loc, flatten(signal.getCounter(), places, {}), toIndex(place));
  return progress;
}

/// Adds this warp's tiles of the program with indices `mapping`. `progress` as in `addInterval`.
Value AdderBuilder::addPasses(IRMapping &mapping, Value progress) {
  TileLoopOp program = plan.loop;
  if (!plan.hasPasses())
    return addInterval(mapping, /*interval=*/{}, progress);
  Value passes = index(plan.intervals);
  if (Value rounds = program.getRounds())
    passes = mul(clone(rounds, mapping), passes);
  // 32-bit, because these warps have as few registers as the producer warp.
  auto loop = scf::ForOp::create(b, loc, i32(0), toI32(passes), i32(1), progress);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  TilePass pass = enterPass(b, loc, program, toIndex(loop.getInductionVar()));
  if (pass.round)
    mapping.map(program.getRound(), pass.round);
  Value interval = plan.intervals > 1 ? pass.interval : Value();
  scf::YieldOp::create(b, loc, addInterval(mapping, interval, loop.getRegionIterArg(0)));
  return loop.getResult(0);
}

void AdderBuilder::build() {
  warp = toI32(fromLane0(sub(div(block.thread, index(kWarpThreads)), index(1))));
  GridBuilder grid(b, plan, block);
  if (!plan.isPersistent()) {
    addProgram(grid.onlyGroup(/*byWarp=*/true), warp);
    return;
  }
  grid.forEachGroup(/*byWarp=*/true, /*consumer=*/index(0), warp, [&](Value round, Value progress) {
    Value slot = slotOf(round, plan.getSlots());
    Group group = grid.read(slot, /*byWarp=*/true);
    // Consumers may finish the program before these warps have read the group's numbers.
    hopper::WarpArriveOp::create(
        b, loc, block.barriers, add(heldNumber(slot, index(0)), index(*plan.memory.residentEmpty)));
    return toIndex(addProgram(group, toI32(progress)));
  });
}
