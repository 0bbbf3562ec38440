//===- AttentionMatcher.h - matching of attention ---------------*- C++ -*-===//

#ifndef LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCHER_H
#define LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCHER_H

#include "AttentionMatch.h"
#include <cmath>

namespace mlir::flashattn {

inline bool isExponential(Element *x) { return x->is("math.exp") || x->is("math.exp2"); }

/// Whether two numbers are equal except for rounding.
inline bool areEqual(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

/// The factors and divisors of a product.
struct Product {
  SmallVector<Element *> exps, divisors, others;
  /// Conditions, and whether the product is 0 if they are true.
  SmallVector<std::pair<Element *, bool>> guards;
  Element *contraction = nullptr;
  double constant = 1;
};

/// An elementwise step between the product of queries and keys and the final score.
struct ScoreStep {
  enum Kind { Mul, MulValue, MulOperand, Tanh, Bias, Mask } kind;
  double factor = 1;
  Element *element = nullptr;
  /// For a value, whether it divides; for a mask, whether pairs are visible if it is true.
  bool flag = false;
  /// The value of hidden scores after a mask.
  double low = 0;
  /// The multiplication or division by a factor of queries or keys.
  Element *product = nullptr;
};

/// Finds the attention whose second product is `op`, by matching backwards from `op`.
class AttentionMatcher {
public:
  AttentionMatcher(TensorExprs &exprs, linalg::LinalgOp op, NearMiss &miss)
      : exprs(exprs), op(op), miss(miss) {}

  std::optional<AttentionMatch> run();
  /// After `run`: finds the log-sum-exp in `user` or its chain of single uses, and sets
  /// `found.lse`.
  bool findLogSumExp(Operation *user, AttentionMatch &found);

private:
  bool fail(Operation *at, const Twine &expected, const Twine &found);
  bool fail(Element *at, const Twine &expected);
  void findResult();
  Element *reduceAtKey(Element *reduction);
  Element *reduceOverKeys(Element *reduction);
  bool sumsExponentials(Element *sum);
  bool isView(Operation *user, Value source);
  void flatten(Element *x, bool inverted, Product &product);
  void collectFactors(Element *x, SmallVectorImpl<Element *> &factors, Product &product);
  void collectTerms(Element *x, double factor, SmallVectorImpl<Term> &terms, bool takesAll = false);
  void collectExponent(Element *exp, SmallVectorImpl<Term> &terms);
  bool areEqual(const Term &a, const Term &b);
  bool hasPart(Element *x, llvm::function_ref<SmallVector<Element *>(Element *)> inside);
  bool hasScores(Element *x);
  bool isMadeOfScores(Element *x);
  bool failAtReshape(Element *x);
  bool isShift(Element *x);
  bool matchProbabilities(Product &product);
  bool matchDivisor(Product &product, Element *exp);
  Element *findSumOfLogarithm(const Term &term);
  bool matchLogSum(ArrayRef<Term> shifts, Element *exp);
  bool isLogSumExp(Value value);
  bool matchGuard(Element *guard, bool hides);
  bool parseTerms(ArrayRef<Term> terms);
  bool parseScore(Element *x);
  bool parseSelect(Element *select);
  bool parseBias(Element *x, double factor);
  bool applyFactor(double factor);
  bool applySteps();
  Element *findUniform(Element *x);
  bool matchScores(Element *reduction);
  Element *peel(Element *load, bool takesFactors);
  bool findDimensions();
  bool splitHeads(ArrayRef<unsigned> shared, ArrayRef<unsigned> own);

  TensorExprs &exprs;
  linalg::LinalgOp op;
  NearMiss &miss;
  AttentionMatch match;
  SmallVector<ScoreStep> steps;
  SmallVector<Term> scoreTerms;
  /// The highest finite value of hidden scores so far.
  double highestLow = -std::numeric_limits<double>::infinity();
};

} // namespace mlir::flashattn

#endif // LIB_DIALECT_FLASHATTN_TRANSFORMS_RAISE_ATTENTIONMATCHER_H
