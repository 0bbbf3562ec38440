//===- MathToNVVM.cpp - flashattn-math-to-nvvm -----------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTMATHTONVVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// `MathOp` on f32 or a vector of it to `intrinsic` on each element.
template <typename MathOp> struct ToIntrinsic : OpRewritePattern<MathOp> {
  ToIntrinsic(MLIRContext *ctx, StringRef intrinsic)
      : OpRewritePattern<MathOp>(ctx), intrinsic(intrinsic) {}

  LogicalResult matchAndRewrite(MathOp op, PatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    Type f32 = rewriter.getF32Type();
    auto apply = [&](Value v) -> Value {
      return LLVM::CallIntrinsicOp::create(rewriter, loc, f32, rewriter.getStringAttr(intrinsic),
                                           ValueRange{v})
          .getResult(0);
    };
    if (op.getType() == f32) {
      rewriter.replaceOp(op, apply(op.getOperand()));
      return success();
    }
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || !type.getElementType().isF32())
      return failure();
    auto elements = vector::ToElementsOp::create(rewriter, loc, op.getOperand());
    SmallVector<Value> results = llvm::map_to_vector(elements.getResults(), apply);
    rewriter.replaceOpWithNewOp<vector::FromElementsOp>(op, type, results);
    return success();
  }

  StringRef intrinsic;
};

struct ConvertMathToNVVMPass : flashattn::impl::ConvertMathToNVVMBase<ConvertMathToNVVMPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<ToIntrinsic<math::Exp2Op>>(&getContext(), "llvm.nvvm.ex2.approx.ftz.f");
    patterns.add<ToIntrinsic<math::Log2Op>>(&getContext(), "llvm.nvvm.lg2.approx.ftz.f");
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
