//===- TilePrograms.cpp - passes on tile programs -------------------------===//
//
// Pass drivers for the transformations in Program.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_EXPANDLOOPS
#define GEN_PASS_DEF_EXPANDRESCALE
#define GEN_PASS_DEF_TILE
#define GEN_PASS_DEF_TILEPROJECT
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Calls `rewrite` for every OpT below `root` until a call fails. Finds all ops before the first
/// call.
template <typename OpT>
static LogicalResult rewriteAll(Operation *root,
                                function_ref<LogicalResult(RewriterBase &, OpT)> rewrite) {
  SmallVector<OpT> ops;
  root->walk([&](OpT op) { ops.push_back(op); });
  IRRewriter rewriter(root->getContext());
  for (OpT op : ops)
    if (failed(rewrite(rewriter, op)))
      return failure();
  return success();
}

namespace {
struct TilePass : flashattn::impl::TileBase<TilePass> {
  void runOnOperation() override {
    if (failed(rewriteAll<AttentionOp>(
            getOperation(),
            [](RewriterBase &b, AttentionOp op) { return LogicalResult(tileAttention(b, op)); })) ||
        failed(rewriteAll<AttentionBackwardOp>(getOperation(), tileAttentionBackward)))
      signalPassFailure();
  }
};

struct TileProjectPass : flashattn::impl::TileProjectBase<TileProjectPass> {
  void runOnOperation() override {
    if (failed(rewriteAll<ProjectOp>(getOperation(), [](RewriterBase &b, ProjectOp op) {
          return LogicalResult(tileProject(b, op));
        })))
      signalPassFailure();
  }
};

struct ExpandLoopsPass : flashattn::impl::ExpandLoopsBase<ExpandLoopsPass> {
  void runOnOperation() override {
    if (failed(rewriteAll<TileLoopOp>(getOperation(), expandTileLoop)))
      signalPassFailure();
  }
};

struct ExpandRescalePass : flashattn::impl::ExpandRescaleBase<ExpandRescalePass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    getOperation()->walk([&](SoftmaxStepOp op) { expandSoftmaxSteps(rewriter, op); });
  }
};
} // namespace
