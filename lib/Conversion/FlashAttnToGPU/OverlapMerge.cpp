//===- OverlapMerge.cpp - flashattn-overlap-merge --------------------------===//

#include "TileLayout.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_OVERLAPMERGE
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// The wait in front of the first op of `launch` that may touch memory: what only counts blocks and
/// threads need not wait.
static void waitForParts(gpu::LaunchOp launch) {
  for (Operation &op : launch.getBody().front())
    if (!isMemoryEffectFree(&op)) {
      OpBuilder builder(&op);
      hopper::WaitPrerequisiteGridsOp::create(builder, launch.getLoc());
      return;
    }
}

/// At the very beginning: the dependents are started when every block has run the instruction, so
/// that they take no room from a block that has yet to start, and wait for this grid's end anyway.
static void launchDependents(gpu::LaunchOp launch) {
  auto builder = OpBuilder::atBlockBegin(&launch.getBody().front());
  NVVM::GriddepcontrolOp::create(builder, launch.getLoc(),
                                 NVVM::GridDepActionKind::launch_dependents);
}

namespace {
struct OverlapMergePass : flashattn::impl::OverlapMergeBase<OverlapMergePass> {
  void runOnOperation() override {
    getOperation()->walk([](gpu::LaunchOp launch) {
      bool hasParts = launch.walk([](OnThreadsOp program) {
                              return program.getScheduleAttr().getSplits() > 1
                                         ? WalkResult::interrupt()
                                         : WalkResult::advance();
                            }).wasInterrupted();
      if (hasParts)
        launchDependents(launch);
      if (launch->removeAttr(kMergesPartsAttrName))
        waitForParts(launch);
    });
  }
};
} // namespace
