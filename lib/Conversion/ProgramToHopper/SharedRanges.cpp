//===- SharedRanges.cpp - tiles that the programs of a block read ---------===//

#include "Block.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the first tile and the end of an interval of one program.
TileRange SharedRangeBuilder::boundsOf(IRMapping &mapping, Value interval) {
  TileLoopOp loop = plan.loop;
  if (!interval) {
    Value begin = clone(loop.getBounds().front(), mapping);
    return {begin, clone(loop.getBounds().back(), mapping)};
  }
  SmallVector<Value> bounds(loop.getBounds());
  // Clones the outer bounds of all intervals first. Unused clones are erased later.
  constexpr unsigned size = TileLoopOp::kBoundsPerInterval;
  for (unsigned bound : {0u, size - 1, 1u, 2u})
    for (size_t i = bound; i < bounds.size(); i += size)
      bounds[i] = clone(bounds[i], mapping);
  SmallVector<Value> picked = pickInterval(b, loc, bounds, interval);
  return {picked.front(), picked.back()};
}

/// Extends the range of the first interval to at least one tile if releasing a ring's tiles signals
/// that the buffers of residents are free.
TileRange SharedRangeBuilder::withStep(TileRange range, Value interval) {
  if (!plan.waitsForEmptyRings())
    return range;
  Value least = index(1);
  if (interval)
    least = toIndex(arith::ExtUIOp::create(b, loc, b.getI32Type(),
                                           compare(arith::CmpIPredicate::eq, interval, index(0))));
  return {range.begin, max(range.end, add(range.begin, least))};
}

/// Returns the smallest range that contains the tiles that any of the block's programs reads.
TileRange SharedRangeBuilder::hullOf(MutableArrayRef<IRMapping> programs, Value interval) {
  ProgramOp program = plan.program;
  GridBuilder grid(b, plan, block);
  TileRange sharedRange;
  for (IRMapping &mapping : programs) {
    TileRange own = boundsOf(mapping, interval);
    // An empty interval has arbitrary bounds. So does the interval of a program that does not
    // exist.
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
  // Empty if all intervals are empty.
  sharedRange.begin = min(sharedRange.begin, sharedRange.end);
  return withStep(sharedRange, interval);
}

void SharedRangeBuilder::store(const TileRange &sharedRange, Value slot, Value interval) {
  memref::StoreOp::create(b, loc, toI32(sharedRange.begin), block.sharedRanges,
                          ValueRange{slot, interval, index(0)});
  memref::StoreOp::create(b, loc, toI32(sharedRange.end), block.sharedRanges,
                          ValueRange{slot, interval, index(1)});
}

/// Writes the shared ranges of a group's programs to shared memory. One thread computes them, so no
/// other thread needs registers for them.
void SharedRangeBuilder::publish(MutableArrayRef<IRMapping> programs, Value slot) {
  if (plan.sharesIntervals)
    return;
  if (plan.intervals == 1)
    return store(hullOf(programs, /*interval=*/{}), slot, index(0));
  auto loop = scf::ForOp::create(b, loc, index(0), index(plan.intervals), index(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  // Values that are cloned in the loop may only be used in the loop.
  SmallVector<IRMapping> inner(programs.begin(), programs.end());
  store(hullOf(inner, loop.getInductionVar()), slot, loop.getInductionVar());
}

/// Returns a shared range, read by one thread or, if `byWarp`, warp-uniform.
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
