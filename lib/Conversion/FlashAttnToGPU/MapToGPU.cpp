//===- MapToGPU.cpp - flashattn-map-to-gpu --------------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/KernelsToGPU/KernelsToGPU.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/Spaces.h"
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

/// Lowers the waits for sums in the body of a program. Returns whether there are any. If so, the
/// program waits for the previous grid only at its own end.
static bool awaitSums(RewriterBase &b, Block &body) {
  OpBuilder::InsertionGuard guard(b);
  SmallVector<AwaitAddedOp> awaits(body.getOps<AwaitAddedOp>());
  for (AwaitAddedOp op : awaits) {
    TileBuilder build(b, op.getLoc());
    b.setInsertionPoint(op);
    // Each spare warp of a program counts itself.
    Value count =
        build.mul(build.toI32(op.getPrograms()), build.i32(WarpgroupBlockPlan::kSpareWarps));
    b.replaceOpWithNewOp<hopper::AwaitAddedOp>(op, op.getCounter(), op.getIndices(), count);
  }
  return !awaits.empty();
}

/// Maps a program with up to four sizes to a 1-D launch: only x supports more than 65,535 blocks.
static LogicalResult mapToGPU(RewriterBase &b, ProgramOp program) {
  TileBuilder build(b, program.getLoc());
  Location loc = program.getLoc();
  ScheduleAttr schedule = program.getScheduleAttr();
  if (!schedule)
    return program.emitOpError() << "expected a schedule with the number of warps but got none";
  ValueRange sizes = program.getSizes();
  if (sizes.size() > 4)
    return program.emitOpError() << "expected a tile program of 1 to 4 sizes but got "
                                 << sizes.size();
  for (auto signal : program.getBody()->getOps<SignalAddedOp>())
    return signal.emitOpError() << "expected a schedule with warp specialization and "
                                   "dq_reduce_stages but got one without them";
  b.setInsertionPoint(program);
  SpaceOpInterface space = program.getSpaceOp();
  Value one = build.index(1), blocks = countPoints(b, space);
  // The driver rejects a grid of 0 blocks.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, build.index(0));
  auto guard = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guard.thenBlock());
  auto launch = gpu::LaunchOp::create(b, loc, blocks, one, one,
                                      build.index(32 * schedule.getWarps()), one, one);
  b.setInsertionPointToStart(&launch.getBody().front());
  auto onThreads = OnThreadsOp::create(b, loc, launch.getThreadIds().x, schedule);
  gpu::TerminatorOp::create(b, loc);
  b.setInsertionPoint(onThreads.getBody()->getTerminator());
  // 32-bit division: block indices are below 2^31, and a 64-bit division is as long as a call.
  Value number = build.toI32(launch.getBlockIds().x);
  // The first and the last of several kernels traverse batches and heads in the opposite order of
  // the kernels between them, so that each begins with data that the previous kernel left in the
  // cache. A program that waits for sums begins with the sums that are complete first.
  bool awaits = awaitSums(b, *program.getBody());
  bool backwards = program.getPdlPrimary() != program.getPdlSecondary() && !awaits;
  SmallVector<Value> numbers =
      emitItem(b, space, number, backwards ? PointOrder::Descending : PointOrder::Ascending);
  b.eraseOp(onThreads.getBody()->getTerminator());
  b.inlineBlockBefore(program.getBody(), onThreads.getBody(), onThreads.getBody()->end(), numbers);
  if (program.getPdlSecondary() && awaits) {
    // A grid that waits for this grid must also wait for the previous grids.
    b.setInsertionPoint(onThreads.getBody()->getTerminator());
    WaitPrerequisiteGridsOp::create(b, loc);
  } else if (program.getPdlSecondary()) {
    addWaitForPrerequisites(*onThreads.getBody());
  }
  if (program.getPdlPrimary() || schedule.getSplits() > 1)
    addLaunchDependents(*onThreads.getBody());
  eraseProgram(b, program);
  return success();
}

namespace {
/// Chooses how decode programs fill the machine: the number of splits
/// (docs/rationale/decode-parts.md) and the size of blocks (docs/rationale/decode-prefetch.md).
class Occupancy : TileBuilder {
public:
  Occupancy(OpBuilder &b, Location loc, ScheduleAttr schedule, Value programs)
      : TileBuilder(b, loc), schedule(schedule), hopper(schedule.getHopper()),
        programs(max(programs, index(1))), multiprocessors(MultiprocessorCountOp::create(b, loc)) {}

  /// Returns the number of splits of `tiles` key tiles, each of at least `min_split_tiles`. One
  /// split per multiprocessor saturates memory bandwidth, and fewer splits are cheaper to merge.
  /// Small blocks, and blocks without warp specialization, request fewer bytes, so two share an SM.
  Value chooseSplits(Value tiles) {
    constexpr int64_t kShared = 2;
    int64_t narrow = schedule.getSmallBlocksPerSM();
    Value parts = fillMachine(tiles, hopper && !narrow ? 1 : kShared);
    if (narrow > kShared)
      parts = fillEvenly(tiles, parts, narrow);
    if (hopper)
      parts = avoidSplits(tiles, parts);
    return hopper && !narrow ? evenOut(tiles, parts) : parts;
  }

  /// Whether small blocks, all of which run at once, finish as soon as full-size blocks of `tiles`
  /// tiles each. This requires more programs than multiprocessors. For short programs, it requires
  /// that a third of the multiprocessors have a second program.
  Value areSmallBlocksAsFast(Value tiles) {
    constexpr int64_t kLong = 16;
    Value fits =
        less(programs, add(mul(multiprocessors, schedule.getSmallBlocksPerSM()), index(1)));
    Value share = less(multiprocessors, programs);
    Value thirdShares = less(mul(multiprocessors, 4), mul(programs, 3));
    return both(fits, either(thirdShares, both(share, less(index(kLong - 1), tiles))));
  }

private:
  // Unsigned, so that a minimum with 0 folds to 0.
  Value min(Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<arith::MaxUIOp>(loc, x, y); }
  Value ceilDivide(Value x, Value y) { return b.createOrFold<arith::CeilDivUIOp>(loc, x, y); }
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
  Value either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(loc, x, y); }

  /// Returns as many splits as run at once with `blocks` blocks per multiprocessor. All splits
  /// except the last have the same number of tiles. None is empty, because merging would wait for
  /// it.
  Value fillMachine(Value tiles, int64_t blocks) {
    Value most = min(div(tiles, index(schedule.getMinSplitTiles())), index(schedule.getSplits()));
    Value parts = max(min(div(mul(multiprocessors, blocks), programs), most), index(1));
    return max(ceilDivide(tiles, max(ceilDivide(tiles, parts), index(1))), index(1));
  }

  /// Returns `parts`, or the number of splits that run at once with `blocks` blocks per
  /// multiprocessor if that takes less time in total. Starting a block costs half a tile's time.
  Value fillEvenly(Value tiles, Value parts, int64_t blocks) {
    Value more = fillMachine(tiles, blocks);
    auto countHalves = [&](Value of) {
      return mul(of, add(mul(ceilDivide(tiles, of), 2), index(1)));
    };
    return select(less(countHalves(more), countHalves(parts)), more, parts);
  }

  /// Returns 1 if splitting does not pay. A merge takes as long as a few tiles, and must save more.
  /// Programs on half of the multiprocessors already use nearly all of the memory bandwidth. For
  /// long programs that would be split in two, programs on 5 of 12 multiprocessors suffice.
  Value avoidSplits(Value tiles, Value parts) {
    constexpr int64_t kShort = 16, kMostHave = 5, kOf = 12;
    int64_t mergeTiles = schedule.getSmallBlocksPerSM() ? 6 : 3;
    Value isLittle = less(sub(tiles, ceilDivide(tiles, parts)), index(mergeTiles));
    Value areMany = less(multiprocessors, mul(programs, 2));
    Value areTwo = both(less(parts, index(3)), less(index(kShort), tiles));
    areTwo = both(areTwo, less(mul(multiprocessors, kMostHave), mul(programs, kOf)));
    return select(either(isLittle, either(areMany, areTwo)), index(1), parts);
  }

  /// If there are more programs than blocks that run at once, some programs run alone at the end
  /// and cannot use all of the memory bandwidth. Splits long programs if that saves enough time, so
  /// that the last ones are short.
  Value evenOut(Value tiles, Value parts) {
    constexpr int64_t kParts = 4, kLong = 64, kGoodPart = 6;
    if (schedule.getSplits() < kParts)
      return parts;
    Value places = mul(multiprocessors, hopper.getBlocksPerSM());
    Value whole = mul(estimate(programs), kParts), cut = estimate(mul(programs, kParts));
    int64_t least = std::max(kLong, kParts * schedule.getMinSplitTiles());
    Value pays = both(less(index(least - 1), tiles), less(places, programs));
    pays = both(pays, less(whole, mul(sub(whole, cut), kGoodPart)));
    return select(pays, index(kParts), parts);
  }

  /// Returns the time of `count` programs. The unit is the time in which the machine reads the data
  /// of one program. One multiprocessor alone reads at most 3/2 of its share of the bandwidth.
  Value estimate(Value count) {
    Value places = mul(multiprocessors, hopper.getBlocksPerSM());
    Value rounds = mul(div(count, places), places), last = sub(count, rounds);
    Value alone = mul(ceilDivide(last, multiprocessors), multiprocessors);
    return add(rounds, max(last, div(mul(alone, 2), index(3))));
  }

  ScheduleAttr schedule;
  HopperAttr hopper;
  Value programs, multiprocessors;
};
} // namespace

namespace {
struct MapToGPUPass : flashattn::impl::MapToGPUBase<MapToGPUPass> {
  void runOnOperation() override {
    SmallVector<ProgramOp> programs;
    getOperation()->walk([&](ProgramOp program) { programs.push_back(program); });
    IRRewriter rewriter(&getContext());
    getOperation()->walk([&](CountSplitsOp op) {
      rewriter.setInsertionPoint(op);
      Occupancy occupancy(rewriter, op.getLoc(), op.getSchedule(), op.getPrograms());
      rewriter.replaceOp(op, occupancy.chooseSplits(op.getKeyTiles()));
    });
    getOperation()->walk([&](PrefersSmallBlocksOp op) {
      rewriter.setInsertionPoint(op);
      Occupancy occupancy(rewriter, op.getLoc(), op.getSchedule(), op.getPrograms());
      rewriter.replaceOp(op, occupancy.areSmallBlocksAsFast(op.getKeyTiles()));
    });
    for (ProgramOp program : programs)
      if (failed(mapToGPU(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
