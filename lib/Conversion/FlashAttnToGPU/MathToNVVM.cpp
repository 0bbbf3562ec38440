//===- MathToNVVM.cpp - flashattn-math-to-nvvm -----------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTMATHTONVVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// `intrinsic` on f32, or on each element of a vector of it.
Value mapElements(PatternRewriter &rewriter, Location loc, Value v, StringRef intrinsic) {
  auto apply = [&](Value element) -> Value {
    return LLVM::CallIntrinsicOp::create(rewriter, loc, rewriter.getF32Type(),
                                         rewriter.getStringAttr(intrinsic), ValueRange{element})
        .getResult(0);
  };
  if (!isa<VectorType>(v.getType()))
    return apply(v);
  auto elements = vector::ToElementsOp::create(rewriter, loc, v);
  SmallVector<Value> results = llvm::map_to_vector(elements.getResults(), apply);
  return vector::FromElementsOp::create(rewriter, loc, v.getType(), results);
}

template <typename MathOp> struct ToIntrinsic : OpRewritePattern<MathOp> {
  ToIntrinsic(MLIRContext *ctx, StringRef intrinsic)
      : OpRewritePattern<MathOp>(ctx), intrinsic(intrinsic) {}

  LogicalResult matchAndRewrite(MathOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return failure();
    rewriter.replaceOp(op, mapElements(rewriter, op.getLoc(), op.getOperand(), intrinsic));
    return success();
  }

  StringRef intrinsic;
};

/// 1 / x by `rcp.approx.ftz`, which is off by at most one unit in the last place; the full
/// division is a call.
struct ReciprocalToIntrinsic : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32() || !matchPattern(op.getLhs(), m_OneFloat()))
      return failure();
    rewriter.replaceOp(op, mapElements(rewriter, op.getLoc(), op.getRhs(),
                                       "llvm.nvvm.rcp.approx.ftz.f"));
    return success();
  }
};

struct ConvertMathToNVVMPass : flashattn::impl::ConvertMathToNVVMBase<ConvertMathToNVVMPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ToIntrinsic<math::Exp2Op>>(&getContext(), "llvm.nvvm.ex2.approx.ftz.f");
    patterns.add<ToIntrinsic<math::Log2Op>>(&getContext(), "llvm.nvvm.lg2.approx.ftz.f");
    patterns.add<ReciprocalToIntrinsic>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
