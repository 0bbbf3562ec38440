//===- MaskRaiser.h - conversion of masks to sets ---------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H

#include "AttentionMatch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

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

/// An integer of a condition that reads tensors.
struct DataNumber {
  /// A sum of indices and of the numbers that `MaskRaiser` names by symbols.
  AffineExpr expr;
  /// Instead of `expr`: a number of 64 bits that depends on one axis and need not fit 32 bits.
  Element *wide = nullptr;
};

/// A condition that reads tensors, as sets. Pairs are visible if it is true or, without `shows`,
/// false.
struct DataCondition {
  Element *value;
  bool shows;
  Union sets;
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
  std::optional<Union> compare(arith::CmpIPredicate predicate, AffineExpr a, AffineExpr b);
  std::optional<Union> compareData(Element *x, bool shows);
  std::optional<Union> compareWide(Element *x, arith::CmpIPredicate predicate, DataNumber a,
                                   DataNumber b);
  std::optional<DataNumber> getNumber(Element *x);
  std::optional<DataNumber> readRows(Element *x);
  bool isFlag(Element *x);
  Union compareFlag(Element *x, bool shows);
  AffineExpr nameSymbol(Element *value);
  std::optional<RaisedMask::SymbolKind> findKind(Element *value);
  Element *expandAll(Element *x);
  std::optional<Union> getWhere(Element *x, llvm::function_ref<bool(double)> holds);
  std::optional<Union> fitMatrix(Element *x, llvm::function_ref<bool(double)> holds);
  std::optional<Union> intersect(std::optional<Union> a, std::optional<Union> b);
  std::optional<Union> unite(std::optional<Union> a, std::optional<Union> b);
  bool isOfPairs(const Constraint &constraint);
  bool takeSet(Element *x, bool shows);
  bool takeData(Element *x, bool shows);
  void addData();
  bool placeSymbols(const Union &sets);
  void take(Element *x, bool shows);
  void take(const Condition &condition);
  bool takeLengths(Element *x, bool shows);
  bool movePosition(Constraint &constraint);
  bool isVisible(const Conjunction &set, int64_t q, int64_t k);
  bool everyRowSees();
  bool everyRowSeesByNumbers();
  AffineExpr substitute(AffineExpr expr, int64_t q, int64_t k);
  std::optional<Plane> getPlane(AffineExpr expr);
  void dropTrivial(Union &sets);
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
  std::vector<DataCondition> dataConditions;
  /// Whether a condition that reads tensors is converted. Then symbol i is `symbols[i]`, an i32.
  bool readsData = false;
  SmallVector<Element *> symbols;
  /// The symbols of the sets for `symbols`, as far as they are used.
  llvm::DenseMap<AffineExpr, AffineExpr> placed;
  llvm::DenseMap<Element *, Element *> expanded;
  /// Conditions that do not depend on data, and whether pairs are visible if they are true.
  SmallVector<std::pair<Element *, bool>> fixed;
  bool isAllSets = true, hasData = false;
  RaisedMask result;
};

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_MASKRAISER_H
