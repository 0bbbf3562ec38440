//===- FoldExtracts.cpp - folding of extracted elements -------------------===//

#include "TensorExpr.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the element that `op` extracts if it is computed from constants, and null otherwise.
static TypedAttr evaluate(tensor::ExtractOp op) {
  TensorExprs exprs(op.getContext());
  SmallVector<AffineExpr> indices;
  for (OpFoldResult index : getAsOpFoldResult(op.getIndices())) {
    std::optional<int64_t> known = getConstantIntValue(index);
    if (!known)
      return {};
    indices.push_back(getAffineConstantExpr(*known, op.getContext()));
  }
  Element *element = exprs.force(exprs.makeLoad(op.getTensor(), indices));
  Type type = op.getType();
  if (element->kind == Element::Kind::Const)
    return dyn_cast<TypedAttr>(element->constant);
  if (element->kind != Element::Kind::Index || !type.isIntOrIndex())
    return {};
  auto number = dyn_cast<AffineConstantExpr>(exprs.simplify(element->indices[0]));
  return number ? IntegerAttr::get(type, number.getValue()) : TypedAttr();
}

LogicalResult mlir::flashattn::foldExtracts(RewriterBase &rewriter, func::FuncOp function) {
  bool folded = false;
  function.walk([&](tensor::ExtractOp op) {
    TypedAttr value = evaluate(op);
    if (!value || value.getType() != op.getType())
      return;
    rewriter.setInsertionPoint(op);
    rewriter.replaceOpWithNewOp<arith::ConstantOp>(op, value);
    folded = true;
  });
  if (!folded)
    return success();
  // Removes assertions that now hold, and ops that are now dead.
  RewritePatternSet patterns(function.getContext());
  cf::AssertOp::getCanonicalizationPatterns(patterns, function.getContext());
  return applyPatternsGreedily(function, std::move(patterns));
}
