//===- MaskShape.cpp - how many keys a mask shows -------------------------===//

#include "flashattn/Analysis/MaskShape.h"
#include "MaskBounds.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/Simplex.h"

using namespace mlir;
using namespace mlir::flashattn;
using presburger::BoundType;
using presburger::IntegerPolyhedron;
using presburger::IntegerRelation;
using presburger::Simplex;
using presburger::VarKind;

/// Returns the largest value of dims . x among the rational points of `set`, if there is one.
static presburger::MaybeOptimum<presburger::Fraction> getLargest(const IntegerRelation &set,
                                                                 ArrayRef<int64_t> dims) {
  Simplex simplex(set);
  SmallVector<llvm::DynamicAPInt> row(set.getNumCols(), llvm::DynamicAPInt(0));
  for (auto [i, value] : llvm::enumerate(dims))
    row[i] = llvm::DynamicAPInt(value);
  return simplex.computeOptimum(Simplex::Direction::Up, row);
}

/// Whether dims . x has a largest value in `set`, or `set` is empty.
static bool isBounded(const IntegerRelation &set, ArrayRef<int64_t> dims) {
  return !getLargest(set, dims).isUnbounded();
}

/// Returns the maximum number of keys of a query, below 2^31, or nullopt if only the lengths bound
/// it.
static std::optional<int64_t> getWidth(const IntegerPolyhedron &pairs) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // All (p, k, k') such that p sees both k and k'.
  IntegerPolyhedron both = pairs, other = pairs;
  both.insertVar(VarKind::SetDim, 2);
  other.insertVar(VarKind::SetDim, 1);
  auto distance = getLargest(both.intersect(other), {0, 1, -1});
  if (distance.isUnbounded())
    return std::nullopt;
  if (distance.isEmpty())
    return 0;
  llvm::DynamicAPInt keys = presburger::floor(*distance) + 1;
  return keys > kMost ? kMost : int64_t(keys);
}

/// Returns `set` without the constraints that depend on symbols after nq and nk, whose values are
/// known only at run time and may differ between two keys of a query.
static IntegerSet dropSymbols(IntegerSet set) {
  SmallVector<AffineExpr> kept;
  SmallVector<bool> eqFlags;
  for (auto [expr, isEquality] : llvm::zip(set.getConstraints(), set.getEqFlags())) {
    bool depends = false;
    for (unsigned i = 2, e = set.getNumSymbols(); i < e; ++i)
      depends |= expr.isFunctionOfSymbol(i);
    if (depends)
      continue;
    kept.push_back(expr);
    eqFlags.push_back(isEquality);
  }
  if (kept.empty())
    return IntegerSet::get(2, 2, getAffineConstantExpr(0, set.getContext()), {true});
  return IntegerSet::get(2, 2, kept, eqFlags);
}

MaskClass flashattn::classifyMask(ArrayRef<IntegerSet> visible) {
  bool banded = true, limited = true;
  int64_t width = 0;
  bounds::Budget budget;
  for (IntegerSet set : visible) {
    IntegerPolyhedron pairs = FlatLinearValueConstraints(dropSymbols(set));
    // Covers at most three optimizations, one of which has twice as many constraints.
    if (!budget.take(4 * pairs.getNumConstraints(), 2 * pairs.getNumCols()))
      return {MaskShape::Full, {}};
    SmallVector<int64_t> key(pairs.getNumCols(), 0);
    key[1] = 1;
    pairs.addInequality(key); // 0 <= k
    std::optional<int64_t> band = getWidth(pairs);
    banded &= band.has_value();
    width += band.value_or(0);
    limited &= band || isBounded(pairs, {-1, 1}) || isBounded(pairs, {1, -1});
  }
  if (banded)
    return {MaskShape::Banded, std::min<int64_t>(width, std::numeric_limits<int32_t>::max())};
  return {limited ? MaskShape::Triangular : MaskShape::Full, {}};
}

int64_t flashattn::countPairDivisions(AffineExpr constraint) {
  int64_t count = 0;
  constraint.walk([&](AffineExpr expr) {
    bool divides = expr.getKind() == AffineExprKind::Mod ||
                   expr.getKind() == AffineExprKind::FloorDiv ||
                   expr.getKind() == AffineExprKind::CeilDiv;
    count += divides && expr.isFunctionOfDim(0) && expr.isFunctionOfDim(1);
  });
  return count;
}

int64_t flashattn::countPairDivisions(ArrayRef<IntegerSet> visible) {
  int64_t count = 0;
  for (IntegerSet set : visible)
    for (AffineExpr constraint : set.getConstraints())
      count += countPairDivisions(constraint);
  return count;
}

bool flashattn::hidesEveryPair(ArrayRef<IntegerSet> visible, int64_t nq, int64_t nk) {
  bounds::Budget budget;
  return llvm::all_of(visible, [&](IntegerSet set) {
    FlatLinearValueConstraints pairs(set);
    pairs.addBound(BoundType::LB, /*pos=*/1, 0);
    SmallVector<int64_t> belowEnd(pairs.getNumCols(), 0); // k < nk
    belowEnd[1] = -1;
    belowEnd[3] = 1;
    belowEnd.back() = -1;
    pairs.addInequality(belowEnd);
    for (auto [i, length] : {std::pair(2, nq), std::pair(3, nk)})
      if (ShapedType::isDynamic(length))
        pairs.addBound(BoundType::LB, i, 0);
      else
        pairs.addBound(BoundType::EQ, i, length);
    return bounds::isKnownEmpty(pairs, budget);
  });
}
