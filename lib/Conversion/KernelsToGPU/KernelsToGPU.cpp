//===- KernelsToGPU.cpp - convert-flashattn-kernels-to-gpu ----------------===//

#include "Kernels.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/Kernels.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNKERNELSTOGPU
#define GEN_PASS_DEF_DROPDEPENDENTLAUNCH
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// As early as possible: dependents start only after every block has executed the instruction, so
/// they take no resources from a block that has not started. They wait for this grid's end anyway.
void flashattn::addLaunchDependents(Block &program) {
  auto builder = OpBuilder::atBlockBegin(&program);
  if (auto waits = program.getOps<WaitPrerequisiteGridsOp>(); !waits.empty())
    builder.setInsertionPointAfter(*waits.begin());
  LaunchDependentsOp::create(builder, program.getParentOp()->getLoc());
}

void flashattn::addWaitForPrerequisites(Block &program) {
  for (Operation &op : program)
    if (!isMemoryEffectFree(&op)) {
      OpBuilder builder(&op);
      WaitPrerequisiteGridsOp::create(builder, program.getParentOp()->getLoc());
      return;
    }
}

namespace {
struct ConvertFlashAttnKernelsToGPUPass
    : flashattn::impl::ConvertFlashAttnKernelsToGPUBase<ConvertFlashAttnKernelsToGPUPass> {
  void runOnOperation() override {
    if (failed(lowerKernels(getOperation(), buildCombineKernel, buildListKernel, buildRangeKernel)))
      signalPassFailure();
  }
};

struct DropDependentLaunchPass : flashattn::impl::DropDependentLaunchBase<DropDependentLaunchPass> {
  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (isa<LaunchDependentsOp, WaitPrerequisiteGridsOp, NVVM::GriddepcontrolOp>(op))
        op->erase();
    });
  }
};
} // namespace
