//===- MapToGPU.cpp - flashattn-map-to-gpu ---------------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_MAPTOGPU
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// forall (b, h, t) to a launch of B*H*T blocks in one dimension: only x reaches past
/// 65,535 blocks.
static LogicalResult mapToGPU(RewriterBase &b, scf::ForallOp forall) {
  Location loc = forall.getLoc();
  if (forall.getRank() != 3 || !forall.isNormalized() || forall.getNumResults() != 0)
    return forall.emitOpError() << "expected a tile program over (batch, head, query tile) that "
                                   "counts from 0 by 1";
  ScheduleAttr schedule = getSchedule(forall);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
  b.setInsertionPoint(forall);
  SmallVector<Value> sizes = forall.getUpperBound(b);
  Value one = index(1);
  Value blocks = b.createOrFold<arith::MulIOp>(
      loc, b.createOrFold<arith::MulIOp>(loc, sizes[0], sizes[1]), sizes[2]);
  // A grid of no blocks is an error to the driver.
  Value any = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ugt, blocks, index(0));
  auto guard = scf::IfOp::create(b, loc, any, /*withElseRegion=*/false);
  b.setInsertionPointToStart(guard.thenBlock());
  auto launch =
      gpu::LaunchOp::create(b, loc, blocks, one, one, index(32 * schedule.getWarps()), one, one);
  launch->setAttr(kScheduleAttrName, schedule);

  b.setInsertionPointToStart(&launch.getBody().front());
  // 32-bit division: block numbers are below 2^31, and 64-bit division is a call's worth of code.
  Type i32 = b.getI32Type();
  auto toI32 = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, i32, v); };
  auto toIndex = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); };
  Value block = toI32(launch.getBlockIds().x), heads = toI32(sizes[1]), tiles = toI32(sizes[2]);
  Value tile = arith::RemUIOp::create(b, loc, block, tiles);
  Value rest = arith::DivUIOp::create(b, loc, block, tiles);
  // The last tile first: under a causal mask it has the most keys.
  tile = arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, tiles, tile),
                               arith::ConstantIntOp::create(b, loc, 1, 32));
  Value head = arith::RemUIOp::create(b, loc, rest, heads);
  Value batch = arith::DivUIOp::create(b, loc, rest, heads);
  SmallVector<Value> ids = {toIndex(batch), toIndex(head), toIndex(tile)};
  Operation *terminator = gpu::TerminatorOp::create(b, loc);
  b.eraseOp(forall.getBody()->getTerminator());
  b.inlineBlockBefore(forall.getBody(), terminator, ids);
  b.eraseOp(forall);
  return success();
}

/// As many parts as run at once: memory serves them alike, and they end together. And at least a few
/// tiles of keys to each, or merging them takes longer than it saves.
static void countSplits(RewriterBase &b, CountSplitsOp op) {
  constexpr int64_t kMinTiles = 8;
  Location loc = op.getLoc();
  b.setInsertionPoint(op);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
  auto divide = [&](Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); };
  auto min = [&](Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); };
  auto max = [&](Value x, Value y) { return b.createOrFold<arith::MaxUIOp>(loc, x, y); };
  RolesAttr roles = op.getSchedule().getRoles();
  // Without roles nothing says how many run at once: small blocks two or more.
  int64_t blocks = roles ? roles.getBlocks() : 2;
  Value places = b.createOrFold<arith::MulIOp>(loc, hopper::MultiprocessorCountOp::create(b, loc),
                                               index(blocks));
  Value wanted = divide(places, max(op.getPrograms(), index(1)));
  Value most = min(divide(op.getKeyTiles(), index(kMinTiles)), index(op.getSchedule().getSplits()));
  b.replaceOp(op, max(min(wanted, most), index(1)));
}

namespace {
struct MapToGPUPass : flashattn::impl::MapToGPUBase<MapToGPUPass> {
  void runOnOperation() override {
    SmallVector<scf::ForallOp> programs;
    getOperation()->walk([&](scf::ForallOp forall) {
      if (getSchedule(forall))
        programs.push_back(forall);
    });
    IRRewriter rewriter(&getContext());
    getOperation()->walk([&](CountSplitsOp op) { countSplits(rewriter, op); });
    for (scf::ForallOp program : programs)
      if (failed(mapToGPU(rewriter, program)))
        return signalPassFailure();
  }
};
} // namespace
