//===- Adder.cpp - the warps that add what consumers stage -----------------===//
//
// Warps of the producer's group that bring no tiles add what the consumers have of each step to
// global memory. Where programs add in turns a step's tile takes longer than the step: it waits for
// its turn, for the copy that adds, and for the fence behind which the turn is passed on. So each
// of the warps has every so many steps one.
//
//===----------------------------------------------------------------------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

static constexpr int64_t kWarps = WarpgroupBlockPlan::kSpareWarps;

/// Adds what is staged of this warp's step behind `before` others of its own, i32, at the place
/// that `mapping` gives.
void AdderBuilder::addStep(IRMapping &mapping, Value before) {
  AddTileOp added = plan.added.front();
  SmallVector<Value> place;
  for (Value index : added.getIndices())
    place.push_back(clone(index, mapping));
  // Tiles are counted along the sums' rows, of which the order has an element each.
  Value &row = place[place.size() - 2];
  row = mul(row, cast<VectorType>(added.getTile().getType()).getDimSize(0));
  ValueRange turnPlace = ValueRange(place).drop_back();
  Value turn, seen;
  if (plan.takesTurns) {
    turn = toI32(clone(added.getTurn(), mapping));
    // On its way while the tile is.
    seen = hopper::ReadTurnOp::create(b, loc, b.getI32Type(), added.getOrder(), turnPlace);
  }
  Value step = add(mul(before, i32(kWarps)), warp);
  Value barrier = add(toIndex(warp), index(plan.memory.staged));
  hopper::BarrierWaitOp::create(b, loc, block.barriers, barrier, parityOf(before, /*places=*/1));
  if (plan.takesTurns)
    hopper::AwaitTurnOp::create(b, loc, added.getOrder(), turnPlace, turn, seen);
  hopper::AddStagedOp::create(b, loc, stagingAt(step), added.getTarget(), place, /*warp=*/Value());
  hopper::WaitStoresOp::create(b, loc, /*consumer=*/IntegerAttr());
  hopper::WarpArriveOp::create(b, loc, block.barriers, stagingFree(step));
  if (plan.takesTurns)
    hopper::PassTurnOp::create(b, loc, added.getOrder(), turnPlace, turn);
}

/// Adds this warp's tiles of one interval; the steps up to its end, i32.
Value AdderBuilder::addInterval(IRMapping mapping, Value interval, Value step) {
  TileLoopOp program = plan.loop;
  TileRange range = HullBuilder(b, plan, block).boundsOf(mapping, interval);
  Value begin = toI32(range.begin), last = toI32(range.end), end = last;
  // What consumers pass by they do not stage.
  if (program.getWhen())
    end = select(clone(program.getWhen(), mapping), last, begin);
  SmallVector<Value> place;
  for (Value outer : program.getListIndices())
    place.push_back(clone(outer, mapping));
  // This warp's first step from `step` on, and how many it had before: counted on from there and
  // not from the tile's number, or the loops' optimisation keeps more registers than these warps
  // have.
  auto turnOf = [&](Value v) { return arith::RemUIOp::create(b, loc, v, i32(kWarps)).getResult(); };
  Value ahead = turnOf(sub(add(warp, i32(kWarps)), turnOf(step)));
  Value before = arith::DivUIOp::create(b, loc, add(step, ahead), i32(kWarps));
  auto loop = scf::ForOp::create(b, loc, add(begin, ahead), end, i32(kWarps), before);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value number = toIndex(loop.getInductionVar());
  place.push_back(number);
  if (program.getList())
    number = toIndex(memref::LoadOp::create(b, loc, program.getList(), place));
  mapping.map(program.getTile(), number);
  addStep(mapping, loop.getRegionIterArg(0));
  scf::YieldOp::create(b, loc, add(loop.getRegionIterArg(0), i32(1)));
  b.setInsertionPointAfter(loop);
  return add(step, sub(last, begin));
}

/// Adds the tiles of one program, `step`, i32, being that of the first one; the steps up to its
/// end.
Value AdderBuilder::addProgram(const Group &group, Value step) {
  IRMapping mapping = GridBuilder(b, plan, block).numbersOf(group, index(0));
  TileLoopOp program = plan.loop;
  if (!plan.hasPasses())
    return addInterval(mapping, /*interval=*/{}, step);
  Value passes = index(plan.intervals);
  if (Value rounds = program.getRounds())
    passes = mul(clone(rounds, mapping), passes);
  // In 32 bits: these warps have as few registers as the one that brings tiles.
  auto loop = scf::ForOp::create(b, loc, i32(0), toI32(passes), i32(1), step);
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
    addProgram(block.group, i32(0));
    return;
  }
  GridBuilder grid(b, plan, block);
  grid.forEachGroup(/*consumer=*/index(0), [&](Value round, Value step) {
    Value slot = placeOf(round, plan.getSlots());
    Group group = grid.read(slot, /*byWarp=*/true);
    // Consumers may be done with the program before these warps have looked at what is said of it.
    hopper::WarpArriveOp::create(
        b, loc, block.barriers, add(heldNumber(slot, index(0)), index(*plan.memory.residentEmpty)));
    return toIndex(addProgram(group, toI32(step)));
  });
}
