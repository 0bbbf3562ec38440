//===- MapToGPU.cpp - flashattn-map-to-gpu ---------------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/KernelsToGPU/KernelsToGPU.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "flashattn/Target/ResourcePlans.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_MAPTOGPU
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Has `body`, a program's, wait for the sums that it reads, and no longer for the grids that make
/// them than its own end; whether it reads such.
static bool awaitSums(RewriterBase &b, Block &body) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<AwaitAddedOp> awaits(body.getOps<AwaitAddedOp>());
  for (AwaitAddedOp op : awaits) {
    TileBuilder build(b, op.getLoc());
    b.setInsertionPoint(op);
    // Each of the warps that add counts itself.
    Value count =
        build.mul(build.toI32(op.getPrograms()), build.i32(WarpgroupBlockPlan::kSpareWarps));
    b.replaceOpWithNewOp<hopper::AwaitAddedOp>(op, op.getCounter(), op.getIndices(), count);
  }
  return !awaits.empty();
}

/// A program of up to four sizes to a launch of as many blocks as they make in one dimension: only
/// x reaches past 65,535 blocks.
static LogicalResult mapToGPU(RewriterBase &b, ProgramOp program) {
  TileBuilder build(b, program.getLoc());
  Location loc = program.getLoc();
  ScheduleAttr schedule = program.getScheduleAttr();
  if (!schedule)
    return program.emitOpError() << "expected a schedule, which says how many warps run it";
  ValueRange sizes = program.getSizes();
  if (sizes.size() > 4)
    return program.emitOpError() << "expected a tile program of 1 to 4 sizes but got "
                                 << sizes.size();
  for (auto told : program.getBody()->getOps<SignalAddedOp>())
    return told.emitOpError()
           << "expected a program whose schedule has roles, among them warps that "
              "add, but got one without";
  b.setInsertionPoint(program);
  Value one = build.index(1);
  Value blocks = sizes[0];
  for (Value size : sizes.drop_front())
    blocks = build.mul(blocks, size);
  // A grid of no blocks is an error to the driver.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, build.index(0));
  auto guard = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guard.thenBlock());
  auto launch = gpu::LaunchOp::create(b, loc, blocks, one, one,
                                      build.index(32 * schedule.getWarps()), one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  auto onThreads = OnThreadsOp::create(b, loc, launch.getThreadIds().x, schedule);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPoint(onThreads.getBody()->getTerminator());
  // 32-bit division: block numbers are below 2^31, and 64-bit division is a call's worth of code.
  Value rest = build.toI32(launch.getBlockIds().x);
  // The first of several kernels and the last one go through batches and heads the other way round
  // than those between them, so that each begins with what the cache has from the one before.
  // One that waits for sums has the first of them first.
  bool awaits = awaitSums(b, *program.getBody());
  bool backwards = program.getLeads() != program.getFollows() && !awaits;
  SmallVector<Value> numbers(sizes.size());
  for (int64_t i = sizes.size() - 1; i >= 0; --i) {
    Value size = build.toI32(sizes[i]), number = rest;
    if (i > 0) {
      number = arith::RemUIOp::create(b, loc, rest, size);
      rest = arith::DivUIOp::create(b, loc, rest, size);
    }
    // The last tile of queries first: under a causal mask it has the most keys. And the first of
    // keys, which has the most queries.
    bool isTile = &numbers[i] == &numbers.back();
    if (isTile ? program.getAxis(i) != ProgramAxis::KeyTile : backwards)
      number =
          arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, size, number), build.i32(1));
    numbers[i] = number;
  }
  for (Value &number : numbers)
    number = build.toIndex(number);
  b.eraseOp(onThreads.getBody()->getTerminator());
  b.inlineBlockBefore(program.getBody(), onThreads.getBody(), onThreads.getBody()->end(), numbers);
  if (program.getFollows() && awaits) {
    // Who waits for this grid waits for those too.
    b.setInsertionPoint(onThreads.getBody()->getTerminator());
    WaitPrerequisiteGridsOp::create(b, loc);
  } else if (program.getFollows()) {
    addWaitForPrerequisites(*onThreads.getBody());
  }
  if (program.getLeads() || schedule.getSplits() > 1)
    addLaunchDependents(*onThreads.getBody());
  b.eraseOp(program);
  return success();
}

/// A part for each multiprocessor, of `min_part_tiles` at least: it asks for as many bytes at once
/// as memory brings, and merging costs less the fewer there are. Without roles a block asks for
/// less, and two share a multiprocessor. Where parts would be short, a tile takes longer to be
/// worked on than to come: then as many as run at once. And none that would be left without tiles,
/// which merging would wait for all the same.
static void countSplits(RewriterBase &b, CountSplitsOp op) {
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
  auto divide = [&](Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); };
  auto ceilDivide = [&](Value x, Value y) { return b.createOrFold<arith::CeilDivUIOp>(loc, x, y); };
  auto min = [&](Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); };
  auto max = [&](Value x, Value y) { return b.createOrFold<arith::MaxUIOp>(loc, x, y); };
  constexpr int64_t kBlocksWithoutRoles = 2;
  ScheduleAttr schedule = op.getSchedule();
  RolesAttr roles = schedule.getRoles();
  Value one = index(1), programs = max(op.getPrograms(), one), tiles = op.getKeyTiles();
  Value most = min(divide(tiles, index(schedule.getMinPartTiles())), index(schedule.getSplits()));
  Value multiprocessors = MultiprocessorCountOp::create(b, loc);
  auto countParts = [&](int64_t blocks) {
    Value places = b.createOrFold<arith::MulIOp>(loc, multiprocessors, index(blocks));
    return max(min(divide(places, programs), most), one);
  };
  Value parts = countParts(roles ? 1 : kBlocksWithoutRoles);
  if (roles && roles.getBlocks() > 1 && schedule.getShortPartTiles() > 0) {
    Value isShort =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, ceilDivide(tiles, parts),
                              index(schedule.getShortPartTiles()));
    // One part alone is not merged.
    Value isMerged = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, parts, one);
    parts = arith::SelectOp::create(b, loc, arith::AndIOp::create(b, loc, isShort, isMerged),
                                    countParts(roles.getBlocks()), parts);
  }
  // Each program takes as many as the first.
  parts = ceilDivide(tiles, max(ceilDivide(tiles, parts), one));
  b.replaceOp(op, max(parts, one));
}

namespace {
struct MapToGPUPass : flashattn::impl::MapToGPUBase<MapToGPUPass> {
  void runOnOperation() override {
    SmallVector<ProgramOp> programs;
    getOperation()->walk([&](ProgramOp program) { programs.push_back(program); });
    IRRewriter rewriter(&getContext());
    getOperation()->walk([&](CountSplitsOp op) { countSplits(rewriter, op); });
    for (ProgramOp program : programs)
      if (failed(mapToGPU(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
