//===- SharedRanges.cpp - tiles that programs of a block read together ----===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// The first tile and the end of an interval of one program.
TileRange SharedRangeBuilder::boundsOf(IRMapping &mapping, Value interval) {
  TileLoopOp loop = plan.loop;
  if (!interval) {
    Value begin = clone(loop.getBounds().front(), mapping);
    return {begin, clone(loop.getBounds().back(), mapping)};
  }
  SmallVector<Value> bounds(loop.getBounds());
  // First what is asked for, of all intervals; what is not goes away again.
  constexpr unsigned size = TileLoopOp::kBoundsPerInterval;
  for (unsigned bound : {0u, size - 1, 1u, 2u})
    for (size_t i = bound; i < bounds.size(); i += size)
      bounds[i] = clone(bounds[i], mapping);
  SmallVector<Value> picked = pickInterval(b, loc, bounds, interval);
  return {picked.front(), picked.back()};
}

/// `range`, of an interval, with a tile at least in the first one where it is by a step's tiles
/// that the places of residents are told to be free.
TileRange SharedRangeBuilder::withStep(TileRange range, Value interval) {
  if (!plan.drainsRings())
    return range;
  Value least = index(1);
  if (interval)
    least = toIndex(arith::ExtUIOp::create(b, loc, b.getI32Type(),
                                           compare(arith::CmpIPredicate::eq, interval, index(0))));
  return {range.begin, max(range.end, add(range.begin, least))};
}

/// The tiles that any of the block's programs reads.
TileRange SharedRangeBuilder::hullOf(MutableArrayRef<IRMapping> programs, Value interval) {
  ProgramOp program = plan.program;
  GridBuilder grid(b, plan, block);
  TileRange sharedRange;
  for (IRMapping &mapping : programs) {
    TileRange own = boundsOf(mapping, interval);
    // An empty interval may lie anywhere, as that of no program does.
    Value any = less(own.begin, own.end);
    if (&mapping != &programs.front())
      any = arith::AndIOp::create(b, loc, any,
                                  grid.isProgram(mapping.lookup(program.getNumbers()[2])));
    Value begin = select(any, own.begin, index(std::numeric_limits<int32_t>::max()));
    Value end = select(any, own.end, index(0));
    sharedRange = sharedRange.begin
                      ? TileRange{min(sharedRange.begin, begin), max(sharedRange.end, end)}
                      : TileRange{begin, end};
  }
  if (plan.firstTile)
    sharedRange.begin = index(*plan.firstTile);
  // Empty where every interval is.
  sharedRange.begin = min(sharedRange.begin, sharedRange.end);
  return withStep(sharedRange, interval);
}

void SharedRangeBuilder::store(const TileRange &sharedRange, Value slot, Value interval) {
  memref::StoreOp::create(b, loc, toI32(sharedRange.begin), block.sharedRanges,
                          ValueRange{slot, interval, index(0)});
  memref::StoreOp::create(b, loc, toI32(sharedRange.end), block.sharedRanges,
                          ValueRange{slot, interval, index(1)});
}

/// Writes the shared ranges of a group's programs to shared memory: computed once, they cost the
/// block one thread's time and no other's registers.
void SharedRangeBuilder::publish(MutableArrayRef<IRMapping> programs, Value slot) {
  if (plan.sharesIntervals)
    return;
  if (plan.intervals == 1)
    return store(hullOf(programs, /*interval=*/{}), slot, index(0));
  auto loop = scf::ForOp::create(b, loc, index(0), index(plan.intervals), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // Copies made in the loop are of use there alone.
  SmallVector<IRMapping> inner(programs.begin(), programs.end());
  store(hullOf(inner, loop.getInductionVar()), slot, loop.getInductionVar());
}

/// A shared range, for one thread or `byWarp`.
TileRange SharedRangeBuilder::read(Value slot, Value interval, bool byWarp) {
  Value number = interval ? interval : index(0);
  auto bound = [&](int64_t which) {
    Value value = toIndex(
        memref::LoadOp::create(b, loc, block.sharedRanges, ValueRange{slot, number, index(which)}));
    return byWarp ? fromLane0(value) : value;
  };
  Value begin = plan.firstTile ? index(*plan.firstTile) : bound(0);
  return {begin, bound(1)};
}
