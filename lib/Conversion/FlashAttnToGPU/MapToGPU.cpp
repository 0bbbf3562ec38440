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
           << "expected a program whose schedule has warp specialization with warps that "
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
  bool backwards = program.getPdlPrimary() != program.getPdlSecondary() && !awaits;
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
  if (program.getPdlSecondary() && awaits) {
    // Who waits for this grid waits for those too.
    b.setInsertionPoint(onThreads.getBody()->getTerminator());
    WaitPrerequisiteGridsOp::create(b, loc);
  } else if (program.getPdlSecondary()) {
    addWaitForPrerequisites(*onThreads.getBody());
  }
  if (program.getPdlPrimary() || schedule.getSplits() > 1)
    addLaunchDependents(*onThreads.getBody());
  b.eraseOp(program);
  return success();
}

namespace {
/// How programs of few queries fill the machine: in how many parts of the keys
/// (docs/rationale/decode-parts.md), and in which blocks (docs/rationale/decode-prefetch.md).
class Occupancy : TileBuilder {
public:
  Occupancy(OpBuilder &b, Location loc, ScheduleAttr schedule, Value programs)
      : TileBuilder(b, loc), schedule(schedule), hopper(schedule.getHopper()),
        programs(max(programs, index(1))), multiprocessors(MultiprocessorCountOp::create(b, loc)) {}

  /// Parts of `min_split_tiles` at least, of `tiles` each: one for each multiprocessor, which asks
  /// for as many bytes at once as memory brings; merging costs less the fewer there are. Narrow
  /// blocks, and those without warp specialization, ask for less, and two share a multiprocessor.
  Value countParts(Value tiles) {
    constexpr int64_t kShared = 2;
    int64_t narrow = schedule.getSmallBlocksPerSM();
    Value parts = fillPlaces(tiles, hopper && !narrow ? 1 : kShared);
    if (narrow > kShared)
      parts = fillEvenly(tiles, parts, narrow);
    if (hopper)
      parts = leaveWhole(tiles, parts);
    return hopper && !narrow ? evenOut(tiles, parts) : parts;
  }

  /// Whether small blocks, all of which run at once, are done as soon as wide ones of `tiles`
  /// each: of more programs than multiprocessors, but of short ones only where a third of these
  /// have a second.
  Value areNarrowAsFast(Value tiles) {
    constexpr int64_t kLong = 16;
    Value fits =
        less(programs, add(mul(multiprocessors, schedule.getSmallBlocksPerSM()), index(1)));
    Value share = less(multiprocessors, programs);
    Value thirdShares = less(mul(multiprocessors, 4), mul(programs, 3));
    return both(fits, either(thirdShares, both(share, less(index(kLong - 1), tiles))));
  }

private:
  // Unsigned: then the least of none and any number is known to be none.
  Value min(Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<arith::MaxUIOp>(loc, x, y); }
  Value ceilDivide(Value x, Value y) { return b.createOrFold<arith::CeilDivUIOp>(loc, x, y); }
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(loc, x, y); }
  Value either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(loc, x, y); }

  /// As many parts as run at once where a multiprocessor has so many blocks. None that would be
  /// left without tiles, which merging would wait for all the same: each takes as many as the
  /// first.
  Value fillPlaces(Value tiles, int64_t blocks) {
    Value most = min(div(tiles, index(schedule.getMinSplitTiles())), index(schedule.getSplits()));
    Value parts = max(min(div(mul(multiprocessors, blocks), programs), most), index(1));
    return max(ceilDivide(tiles, max(ceilDivide(tiles, parts), index(1))), index(1));
  }

  /// `parts`, or as many as run at once with `blocks_per_sm` to a multiprocessor where these have
  /// fewer tiles in all, as no last part has far less than the others. To begin takes a block half
  /// a tile's time.
  Value fillEvenly(Value tiles, Value parts, int64_t blocks) {
    Value more = fillPlaces(tiles, blocks);
    auto countHalves = [&](Value of) {
      return mul(of, add(mul(ceilDivide(tiles, of), 2), index(1)));
    };
    return select(less(countHalves(more), countHalves(parts)), more, parts);
  }

  /// Merging takes as long as a few tiles: where it saves fewer there is one part. So where half of
  /// the multiprocessors have a program, which ask for nearly all that memory brings; and of long
  /// ones that would be cut in two where 5 of 12 have.
  Value leaveWhole(Value tiles, Value parts) {
    constexpr int64_t kShort = 16, kMostHave = 5, kOf = 12;
    int64_t mergeTiles = schedule.getSmallBlocksPerSM() ? 6 : 3;
    Value isLittle = less(sub(tiles, ceilDivide(tiles, parts)), index(mergeTiles));
    Value areMany = less(multiprocessors, mul(programs, 2));
    Value areTwo = both(less(parts, index(3)), less(index(kShort), tiles));
    areTwo = both(areTwo, less(mul(multiprocessors, kMostHave), mul(programs, kOf)));
    return select(either(isLittle, either(areMany, areTwo)), index(1), parts);
  }

  /// Of more programs than places some are alone at the end, when a multiprocessor cannot ask for
  /// all that memory brings. Long ones are cut where that saves a good part, so that the last are
  /// short.
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

  /// Time of `count` programs, where 1 is that in which the machine reads what one reads. Of its
  /// rate a multiprocessor alone has at most 3/2 of its share.
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
      rewriter.replaceOp(op, occupancy.countParts(op.getKeyTiles()));
    });
    getOperation()->walk([&](PrefersSmallBlocksOp op) {
      rewriter.setInsertionPoint(op);
      Occupancy occupancy(rewriter, op.getLoc(), op.getSchedule(), op.getPrograms());
      rewriter.replaceOp(op, occupancy.areNarrowAsFast(op.getKeyTiles()));
    });
    for (ProgramOp program : programs)
      if (failed(mapToGPU(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
