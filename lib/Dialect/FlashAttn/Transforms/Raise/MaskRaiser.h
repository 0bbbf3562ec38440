//===- MaskRaiser.h - conversion of masks to sets ---------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H

#include "AttentionMatch.h"

namespace mlir::flashattn {

/// `expr >= 0`, or `expr == 0` if `isEq`.
struct Constraint {
  AffineExpr expr;
  bool isEq = false;
};
using Conjunction = SmallVector<Constraint, 4>;
/// A union of conjunctions.
using Union = SmallVector<Conjunction, 4>;

/// The coefficients of a constraint `query * p + key * k + constant`.
struct Plane {
  int64_t query, key, constant;
};

/// Converts the conditions of a match to a mask.
class MaskRaiser {
  static constexpr unsigned mostParts = 1000;

public:
  MaskRaiser(TensorExprs &exprs, const AttentionMatch &match)
      : exprs(exprs), match(match), context(match.output->getContext()),
        queries(getExtent(exprs, match.dims.query)), keys(getExtent(exprs, match.dims.key)) {
    if (match.dims.query.size() == 1)
      query = getAffineDimExpr(match.dims.query[0], context);
    if (match.dims.key.size() == 1)
      key = getAffineDimExpr(match.dims.key[0], context);
  }

  /// Returns nullopt if scores that are hidden by a finite number may hide whole rows. With
  /// `asBiases`, such numbers remain biases if they are added to the scores.
  std::optional<RaisedMask> run(bool asBiases);

private:
  std::optional<Union> getSet(Element *x, bool shows);
  std::optional<Union> compare(Element *x, bool shows);
  std::optional<Union> getWhere(Element *x, llvm::function_ref<bool(double)> holds);
  std::optional<Union> fitMatrix(Element *x, llvm::function_ref<bool(double)> holds);
  std::optional<Union> intersect(std::optional<Union> a, std::optional<Union> b);
  std::optional<Union> unite(std::optional<Union> a, std::optional<Union> b);
  bool takeSet(Element *x, bool shows);
  void take(Element *x, bool shows);
  void take(const Condition &condition);
  bool takeLengths(Element *x, bool shows);
  bool movePosition(Constraint &constraint);
  bool isVisible(const Conjunction &set, int64_t q, int64_t k);
  bool everyRowSees();
  bool everyRowSeesByNumbers();
  AffineExpr substitute(AffineExpr expr, int64_t q, int64_t k);
  std::optional<Plane> getPlane(AffineExpr expr);
  void dropTrivial();
  Align align();
  Attribute name(const Conjunction &set);
  Attribute nameAll();

  TensorExprs &exprs;
  const AttentionMatch &match;
  MLIRContext *context;
  int64_t queries, keys, shift = 0;
  AffineExpr query, key, unmoved;
  bool isMoved = false;
  /// Number of visited parts of conditions; a part that is used twice counts twice.
  unsigned parts = 0;
  Union visible = {{}};
  /// Conditions that do not depend on data, and whether pairs are visible if they are true.
  SmallVector<std::pair<Element *, bool>> fixed;
  bool isAllSets = true, hasData = false;
  RaisedMask result;
};

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H
