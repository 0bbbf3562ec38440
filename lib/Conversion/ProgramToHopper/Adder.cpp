//===- Adder.cpp - the warps that add what consumers stage -----------------===//
//
// Warps of the producer's group that bring no tiles add what the consumers have of each step to
// global memory, and the first to come to a tile there makes it zeros, while its step's tile is
// still in the making. Where programs add in turns a step's tile takes longer than the step: it
// waits for its turn, for the copy that adds, and for the fence behind which the turn is passed on.
// So each of the warps has every so many steps one.
//
//===----------------------------------------------------------------------===//

#include "Block.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace mlir::flashattn;

static constexpr int64_t kWarps = WarpgroupBlockPlan::kSpareWarps;

/// More than there may be steps before a warp's next one.
static constexpr int64_t kAheads = 4;

/// `memref`, without gaps, as `count` rows of `columns`.
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

/// The place of a step's tile, as `mapping` gives it: one number, in 32 bits, for the sums and the
/// order. With several for each these warps would be short of registers.
AdderBuilder::Place AdderBuilder::findPlace(IRMapping &mapping) {
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

/// Makes zeros of the step's tile if nobody has; the state of it was last `seen`, i32. Behind it
/// they are there.
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
  // One of the threads asks.
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

/// Adds what is staged of this warp's step behind `before` others of its own, i32, at the place
/// that `mapping` gives.
void AdderBuilder::addStep(IRMapping &mapping, Value before) {
  AddTileOp added = plan.added.front();
  Place place = findPlace(mapping);
  Value turn, seen;
  if (plan.takesTurns)
    turn = toI32(clone(added.getTurn(), mapping));
  // On its way while the tile is.
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

/// Adds this warp's tiles of one interval. `progress` is how many steps it has had before, times 4,
/// and how many come before its next one: one number, i32, for all loops to carry; that behind the
/// interval.
Value AdderBuilder::addInterval(IRMapping mapping, Value interval, Value progress) {
  TileLoopOp program = plan.loop;
  TileRange range = SharedRangeBuilder(b, plan, block).boundsOf(mapping, interval);
  Value begin = toI32(range.begin), end = toI32(range.end);
  // What consumers pass by they do not stage.
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
  // By way of a shuffle, through which LLVM does not see: or its place in the sums would be another
  // value to count on, through all loops.
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

/// Adds this warp's tiles of one program and tells that they are there; `progress` as of an
/// interval.
Value AdderBuilder::addProgram(const Group &group, Value progress) {
  IRMapping mapping = GridBuilder(b, plan, block).numbersOf(group, index(0));
  // By way of shuffles, or LLVM would compute what is made of sizes before the loop over programs,
  // and keep that. An offset may be negative.
  SetVector<Value> above;
  getUsedValuesDefinedAbove(ProgramOp(plan.program).getRegion(), above);
  for (Value value : above)
    if (value.getType().isIndex() && !getConstantIntValue(value))
      mapping.map(value,
                  arith::IndexCastOp::create(b, loc, b.getIndexType(), toI32(fromLane0(value))));
  progress = addPasses(mapping, progress);
  SignalAddedOp told = plan.told;
  if (!told)
    return progress;
  // One number in 32 bits, a part of that of each step's tile: it takes no register through the
  // loops.
  Value place = i32(0), places = index(1);
  for (auto [i, each] : llvm::enumerate(told.getIndices())) {
    Value size = dim(told.getCounter(), i);
    place = add(mul(place, toI32(size)), toI32(clone(each, mapping)));
    places = mul(places, size);
  }
  hopper::SignalAddedOp::create(b, loc, flatten(told.getCounter(), places, {}), toIndex(place));
  return progress;
}

/// Adds this warp's tiles of the program whose numbers `mapping` has; `progress` as of an interval.
Value AdderBuilder::addPasses(IRMapping &mapping, Value progress) {
  TileLoopOp program = plan.loop;
  if (!plan.hasPasses())
    return addInterval(mapping, /*interval=*/{}, progress);
  Value passes = index(plan.intervals);
  if (Value rounds = program.getRounds())
    passes = mul(clone(rounds, mapping), passes);
  // In 32 bits: these warps have as few registers as the one that brings tiles.
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
  if (!plan.isPersistent()) {
    addProgram(block.group, warp);
    return;
  }
  GridBuilder grid(b, plan, block);
  grid.forEachGroup(/*consumer=*/index(0), warp, [&](Value round, Value progress) {
    Value slot = placeOf(round, plan.getSlots());
    Group group = grid.read(slot, /*byWarp=*/true);
    // Consumers may be done with the program before these warps have looked at what is said of it.
    hopper::WarpArriveOp::create(
        b, loc, block.barriers, add(heldNumber(slot, index(0)), index(*plan.memory.residentEmpty)));
    return toIndex(addProgram(group, toI32(progress)));
  });
}
