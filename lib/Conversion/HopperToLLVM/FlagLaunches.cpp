//===- FlagLaunches.cpp - flashattn-flag-launches -------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Runtime/ABI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_FLAGLAUNCHES
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the launch flags that a kernel requires.
static int32_t getLaunchFlags(gpu::GPUFuncOp kernel) {
  bool waits =
      kernel.walk([](WaitPrerequisiteGridsOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return waits ? kLaunchProgrammatic : 0;
}

namespace {
struct FlagLaunchesPass : flashattn::impl::FlagLaunchesBase<FlagLaunchesPass> {
  void runOnOperation() override {
    SymbolTableCollection symbols;
    bool changed = false;
    WalkResult result = getOperation().walk([&](gpu::LaunchFuncOp launch) -> WalkResult {
      auto kernel = symbols.lookupNearestSymbolFrom<gpu::GPUFuncOp>(launch, launch.getKernelAttr());
      if (!kernel)
        return WalkResult::advance();
      int32_t flags = getLaunchFlags(kernel);
      if (!flags)
        return WalkResult::advance();
      OpBuilder builder(launch);
      Location loc = launch.getLoc();
      FailureOr<LLVM::LLVMFuncOp> function =
          LLVM::lookupOrCreateFn(builder, getOperation(), abi::kSetLaunchFlags,
                                 builder.getI32Type(), LLVM::LLVMVoidType::get(&getContext()));
      if (failed(function))
        return WalkResult::interrupt();
      Value value = LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(flags));
      LLVM::CallOp::create(builder, loc, *function, value);
      changed = true;
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    // Skips verification of unchanged modules, which takes time if they contain full kernels.
    if (!changed)
      markAllAnalysesPreserved();
  }
};
} // namespace
