//===- MaskShape.cpp - how much of the keys a mask leaves ------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/Simplex.h"

using namespace mlir;
using namespace mlir::flashattn;
using presburger::IntegerPolyhedron;
using presburger::IntegerRelation;
using presburger::Simplex;
using presburger::VarKind;

/// Whether coefficients . x has a largest value among the rational points of `set`; so it
/// has for none at all.
static bool isBounded(const IntegerRelation &set, ArrayRef<int64_t> dims) {
  Simplex simplex(set);
  SmallVector<llvm::DynamicAPInt> row(set.getNumCols(), llvm::DynamicAPInt(0));
  for (auto [i, value] : llvm::enumerate(dims))
    row[i] = llvm::DynamicAPInt(value);
  return !simplex.computeOptimum(Simplex::Direction::Up, row).isUnbounded();
}

MaskShape flashattn::classifyMask(ArrayRef<IntegerSet> visible) {
  bool banded = true, limited = true;
  for (IntegerSet set : visible) {
    IntegerPolyhedron pairs = FlatLinearValueConstraints(set);
    SmallVector<int64_t> key(pairs.getNumCols(), 0);
    key[1] = 1;
    pairs.addInequality(key); // 0 <= k
    // (p, k, k') of which p sees both k and k'.
    IntegerPolyhedron both = pairs, other = pairs;
    both.insertVar(VarKind::SetDim, 2);
    other.insertVar(VarKind::SetDim, 1);
    bool band = isBounded(both.intersect(other), {0, 1, -1});
    banded &= band;
    limited &= band || isBounded(pairs, {-1, 1}) || isBounded(pairs, {1, -1});
  }
  return banded ? MaskShape::Banded : limited ? MaskShape::Triangular : MaskShape::Full;
}
