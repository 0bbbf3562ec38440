//===- Product.h - the product of two tiles ----------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_TRANSFORMS_PRODUCT_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_TRANSFORMS_PRODUCT_H

#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn {

/// acc[m,n] + lhs[m,k] rhs[k,n] or, `transposedRhs`, acc[m,n] + lhs[m,k] rhs[n,k]^T.
inline Value buildProduct(OpBuilder &b, Location loc, Value lhs, Value rhs, Value acc,
                          bool transposedRhs = false) {
  AffineExpr i, j, k;
  bindDims(b.getContext(), i, j, k);
  SmallVector<AffineExpr> rhsMap = {k, j};
  if (transposedRhs)
    std::swap(rhsMap[0], rhsMap[1]);
  using Maps = ArrayRef<ArrayRef<AffineExpr>>;
  return vector::ContractionOp::create(
      b, loc, lhs, rhs, acc, Maps{{i, k}, rhsMap, {i, j}},
      ArrayRef<vector::IteratorType>{vector::IteratorType::parallel, vector::IteratorType::parallel,
                                     vector::IteratorType::reduction});
}

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_TRANSFORMS_PRODUCT_H
