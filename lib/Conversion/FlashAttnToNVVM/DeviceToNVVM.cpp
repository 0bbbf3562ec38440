//===- DeviceToNVVM.cpp - convert-flashattn-device-to-nvvm ----------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNDEVICETONVVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

static NVVM::VoteSyncKind getSyncKind(VoteKind kind) {
  switch (kind) {
  case VoteKind::Any:
    return NVVM::VoteSyncKind::any;
  case VoteKind::All:
    return NVVM::VoteSyncKind::all;
  case VoteKind::Ballot:
    return NVVM::VoteSyncKind::ballot;
  }
  llvm_unreachable("unknown kind of vote");
}

static void lower(VoteOp op) {
  OpBuilder b(op);
  Value everyone = LLVM::ConstantOp::create(b, op.getLoc(), b.getI32IntegerAttr(-1));
  Value answer = NVVM::VoteSyncOp::create(b, op.getLoc(), op.getAnswer().getType(), everyone,
                                          op.getCondition(), getSyncKind(op.getKind()));
  op.replaceAllUsesWith(answer);
  op.erase();
}

static void lower(LaunchDependentsOp op) {
  OpBuilder b(op);
  NVVM::GriddepcontrolOp::create(b, op.getLoc(), NVVM::GridDepActionKind::launch_dependents);
  op.erase();
}

/// Inline PTX instead of `nvvm.griddepcontrol`, which LLVM does not treat as a memory access.
static void lower(WaitPrerequisiteGridsOp op) {
  OpBuilder b(op);
  NVVM::InlinePtxOp::create(b, op.getLoc(), TypeRange(), ValueRange(), ValueRange(),
                            "griddepcontrol.wait;", Value());
  op.erase();
}

namespace {
struct ConvertFlashAttnDeviceToNVVMPass
    : flashattn::impl::ConvertFlashAttnDeviceToNVVMBase<ConvertFlashAttnDeviceToNVVMPass> {
  void runOnOperation() override {
    bool changed = false;
    getOperation()->walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op).Case<VoteOp, LaunchDependentsOp, WaitPrerequisiteGridsOp>(
          [&](auto op) {
            lower(op);
            changed = true;
          });
    });
    // Skips verification of unchanged modules, which takes time if they contain full kernels.
    if (!changed)
      markAllAnalysesPreserved();
  }
};
} // namespace
