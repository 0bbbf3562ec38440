//===- AttentionMatch.cpp - attention among tensor ops --------------------===//
//
// Matches backwards from the second product. Probabilities are e^s divided by its sum along the
// keys, at any point. The scores s are one product of queries and keys and a few elementwise ops.
//
//===----------------------------------------------------------------------===//

#include "AttentionMatcher.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Maximum number of parts of a score or a probability, counting shared parts several times.
static constexpr unsigned mostParts = 128;

bool AttentionMatcher::fail(Operation *at, const Twine &expected, const Twine &found) {
  if (!miss.op)
    miss = {at, expected.str(), found.str()};
  return false;
}

bool AttentionMatcher::fail(Element *at, const Twine &expected) {
  Operation *where = at->op;
  if (!where && at->value)
    where = at->value.getDefiningOp();
  StringRef found = at->kind == Element::Kind::Op ? at->name
                    : where                       ? where->getName().getStringRef()
                                                  : StringRef("an argument");
  return fail(where ? where : op.getOperation(), expected, found);
}

/// Whether `user` only moves or rounds `source`, or multiplies or divides it by another tensor.
bool AttentionMatcher::isView(Operation *user, Value source) {
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(user))
    return true;
  auto linalgOp = dyn_cast<linalg::LinalgOp>(user);
  if (!linalgOp || linalgOp.getNumReductionLoops() != 0 || linalgOp->getNumResults() != 1 ||
      linalgOp.hasIndexSemantics())
    return false;
  AffineMap map = linalgOp.getMatchingIndexingMap(linalgOp.getDpsInitOperand(0));
  if (!map.isPermutation())
    return false;
  for (OpOperand *input : linalgOp.getDpsInputOperands())
    if (input->get() == source && !linalgOp.getMatchingIndexingMap(input).isPermutation())
      return false;
  // A division by row sums ends the softmax.
  Operation *last = linalgOp.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!last || last->getBlock() != linalgOp.getBlock())
    return linalgOp.getNumDpsInputs() == 1;
  return isa<arith::ExtFOp, arith::TruncFOp>(last) ||
         (isa<arith::DivFOp, arith::MulFOp>(last) && linalgOp.getNumDpsInputs() == 2);
}

/// Returns the element that `reduction` reduces, at the key of the match.
Element *AttentionMatcher::reduceAtKey(Element *reduction) {
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(reduction))
    loops.push_back(size == 1 ? getAffineConstantExpr(0, op->getContext()) : match.key);
  return exprs.getReduced(reduction, loops);
}

/// The same for a reduction along all keys; null for any other reduction.
Element *AttentionMatcher::reduceOverKeys(Element *reduction) {
  llvm::SmallSetVector<unsigned, 8> variables;
  exprs.collectVariables(match.key, variables);
  int64_t keys = getExtent(exprs, variables.getArrayRef());
  SmallVector<int64_t> sizes = exprs.getReducedSizes(reduction);
  llvm::erase(sizes, 1);
  bool isOverKeys = keys == 1 ? sizes.empty() : sizes == ArrayRef(keys);
  return isOverKeys ? reduceAtKey(reduction) : nullptr;
}

bool AttentionMatcher::sumsExponentials(Element *sum) {
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(sum))
    loops.push_back(exprs.makeVariable(size));
  Element *summand = exprs.getReduced(sum, loops);
  Product product;
  if (summand)
    flatten(summand, false, product);
  return product.exps.size() == 1;
}

/// Finds the last value that is the product only moved, rounded or divided by one sum.
void AttentionMatcher::findResult() {
  SmallVector<Value> chain = {op->getResult(0)};
  bool isDivided = false;
  while (chain.back().hasOneUse() && chain.size() < 8) {
    Operation *user = *chain.back().user_begin();
    if (user->getBlock() != op->getBlock() || !isView(user, chain.back()))
      break;
    if (auto generic = dyn_cast<linalg::LinalgOp>(user);
        generic && generic.getNumDpsInputs() == 2) {
      // A division belongs to the result only if the divisor is a sum of exponentials.
      SmallVector<AffineExpr> indices;
      for (int64_t size : cast<RankedTensorType>(user->getResult(0).getType()).getShape())
        indices.push_back(exprs.makeVariable(size));
      Product product;
      flatten(exprs.makeLoad(user->getResult(0), indices), false, product);
      if (isDivided || product.divisors.size() != 1 || !product.others.empty() ||
          !sumsExponentials(product.divisors[0]))
        break;
      isDivided = true;
    }
    chain.push_back(user->getResult(0));
  }
  match.result = chain.back();
}

/// Collects the factors of `x`, through multiplications, divisions, casts and guards.
void AttentionMatcher::flatten(Element *x, bool inverted, Product &product) {
  if (auto constant = exprs.getConstant(x)) {
    product.constant *= inverted ? 1 / *constant : *constant;
    return;
  }
  Element *n = exprs.resolve(x);
  if (product.exps.size() + product.divisors.size() + product.others.size() +
          product.guards.size() >=
      mostParts) {
    product.others.push_back(x);
    return;
  }
  if (n->isFloatCast())
    return flatten(n->operands[0], inverted, product);
  if (n->is("arith.mulf") || n->is("arith.divf")) {
    flatten(n->operands[0], inverted, product);
    return flatten(n->operands[1], inverted != (n->name == "arith.divf"), product);
  }
  if (isExponential(n) && !inverted) {
    product.exps.push_back(n);
    return;
  }
  if (n->is("arith.select") && !inverted)
    for (unsigned i : {1, 2})
      if (exprs.getConstant(n->operands[i]) == 0.0) {
        product.guards.emplace_back(n->operands[0], i == 1);
        return flatten(n->operands[3 - i], inverted, product);
      }
  if (n->kind == Element::Kind::Reduce && n->name == "arith.addf") {
    if (n->op == op)
      product.contraction = n;
    else
      (inverted ? product.divisors : product.others).push_back(n);
    return;
  }
  product.others.push_back(x);
}

/// Collects the factors in the body of a product. Does not expand loads.
void AttentionMatcher::collectFactors(Element *x, SmallVectorImpl<Element *> &factors,
                                      Product &product) {
  if (factors.size() >= mostParts) {
    factors.push_back(x);
    return;
  }
  if (x->isFloatCast())
    return collectFactors(x->operands[0], factors, product);
  if (x->is("arith.mulf")) {
    collectFactors(x->operands[0], factors, product);
    return collectFactors(x->operands[1], factors, product);
  }
  if (x->is("arith.divf")) {
    collectFactors(x->operands[0], factors, product);
    return flatten(x->operands[1], true, product);
  }
  factors.push_back(x);
}

void AttentionMatcher::collectTerms(Element *x, double factor, SmallVectorImpl<Term> &terms,
                                    bool takesAll) {
  if (terms.size() >= mostParts) {
    terms.push_back({x, factor});
    return;
  }
  Element *n = exprs.resolve(x);
  if (n->is("arith.negf"))
    return collectTerms(n->operands[0], -factor, terms, takesAll);
  // Terms without scores are kept whole, so that they are summed and rounded as written.
  bool takesApart = takesAll || isMadeOfScores(n);
  if (takesApart && n->isFloatCast())
    return collectTerms(n->operands[0], factor, terms, takesAll);
  if (takesApart && (n->is("arith.addf") || n->is("arith.subf"))) {
    collectTerms(n->operands[0], factor, terms, takesAll);
    return collectTerms(n->operands[1], n->is("arith.subf") ? -factor : factor, terms, takesAll);
  }
  bool divides = n->is("arith.divf");
  if ((takesApart || n->type.isF32()) && (divides || n->is("arith.mulf")))
    for (unsigned i : {1, 0}) {
      auto constant = divides && i == 0 ? std::nullopt : exprs.getConstant(n->operands[i]);
      if (constant && std::isfinite(*constant) && *constant != 0)
        return collectTerms(n->operands[1 - i], divides ? factor / *constant : factor * *constant,
                            terms, takesAll);
    }
  terms.push_back({x, factor});
}

/// Collects the terms of the exponent of `exp`, to base e also for powers of 2.
void AttentionMatcher::collectExponent(Element *exp, SmallVectorImpl<Term> &terms) {
  collectTerms(exp->operands[0], exp->is("math.exp2") ? llvm::numbers::ln2 : 1, terms);
}

bool AttentionMatcher::areEqual(const Term &a, const Term &b) {
  return flashattn::areEqual(a.factor, b.factor) && exprs.areEqual(a.element, b.element);
}

/// Whether `x` contains a contraction that depends on the key and on the result's indices, also in
/// the elements that `inside` returns for its parts. Searches breadth-first.
bool AttentionMatcher::hasPart(Element *x,
                               llvm::function_ref<SmallVector<Element *>(Element *)> inside) {
  SmallVector<Element *> work = {x};
  llvm::SmallPtrSet<Element *, 16> seen;
  for (unsigned i = 0; i < work.size() && i < mostParts; ++i) {
    Element *n = exprs.resolve(work[i]);
    if (!seen.insert(n).second)
      continue;
    if (n->kind == Element::Kind::Reduce && n->name == "arith.addf" &&
        exprs.dependsOn(n, match.key) && exprs.dependsOn(n, match.indices))
      return true;
    llvm::append_range(work, inside(n));
    for (Element *operand : n->operands)
      if (isa<FloatType>(operand->type))
        work.push_back(operand);
  }
  return false;
}

/// Whether `x` contains the scores, or values by which scores are shifted: their maximum, or the
/// sum of their exponentials.
bool AttentionMatcher::isMadeOfScores(Element *x) {
  return hasPart(x, [&](Element *n) -> SmallVector<Element *> {
    bool isMaximum = n->name == "arith.maximumf" || n->name == "arith.maxnumf";
    if (n->kind != Element::Kind::Reduce || exprs.dependsOn(n, match.key) ||
        !(isMaximum || (n->name == "arith.addf" && sumsExponentials(n))))
      return {};
    Element *inside = reduceAtKey(n);
    return inside ? SmallVector<Element *>{inside} : SmallVector<Element *>();
  });
}

/// Returns false. If `x` contains a reshape with run-time sizes, applied to a contraction or to
/// exponentials, reports the reshape as the reason for the failed match.
bool AttentionMatcher::failAtReshape(Element *x) {
  SmallVector<Element *> work = {x};
  tensor::ReshapeOp opaque;
  for (unsigned i = 0; i < work.size() && i < mostParts; ++i) {
    Element *n = exprs.resolve(work[i]);
    if (opaque &&
        (isExponential(n) || (n->kind == Element::Kind::Reduce && n->name == "arith.addf")))
      return fail(opaque, "expected a reshape to static sizes", "one to dynamic sizes");
    auto reshape = n->kind == Element::Kind::Load ? n->value.getDefiningOp<tensor::ReshapeOp>()
                                                  : tensor::ReshapeOp();
    if (reshape && !opaque && isa<RankedTensorType>(reshape.getSource().getType())) {
      // From here on, only the source of the reshape matters.
      opaque = reshape;
      SmallVector<AffineExpr> indices;
      for (int64_t size : cast<RankedTensorType>(reshape.getSource().getType()).getShape())
        indices.push_back(exprs.makeVariable(size));
      work.truncate(i + 1);
      work.push_back(exprs.makeLoad(reshape.getSource(), indices));
    }
    llvm::append_range(work, n->operands);
  }
  return false;
}

/// Whether `x` is a shift of a row's scores, which cancels out.
bool AttentionMatcher::isShift(Element *x) {
  return !exprs.dependsOn(x, match.key) && isMadeOfScores(x);
}

/// Whether `x` contains a contraction that depends on the key.
bool AttentionMatcher::hasScores(Element *x) {
  return hasPart(x, [](Element *) { return SmallVector<Element *>(); });
}

std::optional<AttentionMatch> AttentionMatcher::run() {
  findResult();
  for (int64_t size : cast<RankedTensorType>(match.result.getType()).getShape())
    match.indices.push_back(exprs.makeVariable(size));
  Product outer;
  flatten(exprs.makeLoad(match.result, match.indices), false, outer);
  if (!outer.contraction || !outer.others.empty() || !outer.exps.empty())
    return std::nullopt;
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(outer.contraction)) {
    AffineExpr loop = exprs.makeVariable(size);
    loops.push_back(loop);
    if (match.key && size != 1)
      return std::nullopt;
    if (!match.key || size != 1)
      match.key = loop;
  }
  Element *body = exprs.getReduced(outer.contraction, loops);
  if (!body)
    return std::nullopt;
  SmallVector<Element *> factors;
  Product product = outer;
  collectFactors(body, factors, product);
  for (unsigned i = 0; i < factors.size(); ++i) {
    Product probabilities = product;
    flatten(factors[i], false, probabilities);
    if (probabilities.exps.size() != 1)
      continue;
    Element *values = nullptr;
    bool isOne = true;
    for (unsigned j = 0; j < factors.size(); ++j) {
      if (j == i)
        continue;
      if (exprs.dependsOn(factors[j], match.key) && factors[j]->kind == Element::Kind::Load) {
        isOne &= !values;
        values = factors[j];
      } else {
        flatten(factors[j], false, probabilities);
      }
    }
    if (!values || !isOne)
      continue;
    match.output = op;
    match.v = values;
    if (!matchProbabilities(probabilities))
      return std::nullopt;
    match.v = peel(match.v, /*takesFactors=*/false);
    if (!match.v || !findDimensions())
      return std::nullopt;
    return match;
  }
  for (Element *factor : factors)
    failAtReshape(factor);
  return std::nullopt;
}

bool AttentionMatcher::matchProbabilities(Product &product) {
  Element *exp = product.exps[0];
  SmallVector<Term> terms, shifts;
  collectExponent(exp, terms);
  for (const Term &term : terms)
    (isShift(term.element) ? shifts : scoreTerms).push_back(term);
  // Without a product of queries and keys, this is not an attention.
  if (llvm::none_of(scoreTerms, [&](auto &term) { return hasScores(term.element); }))
    return failAtReshape(exp);
  if (std::abs(product.constant - 1) > 1e-6 || !product.others.empty()) {
    Element *other = product.others.empty() ? exp : product.others[0];
    return fail(other,
                "expected no factor between the softmax and the matrix product with the values");
  }
  if (product.divisors.size() > 1)
    return fail(product.divisors[1], "expected one division, by the sum of the exponentials,");
  if (product.divisors.empty()) {
    if (!matchLogSum(shifts, exp))
      return fail(exp, "expected exponentials divided by their sum");
  } else if (!matchDivisor(product, exp)) {
    return fail(product.divisors[0],
                "expected a division by the sum of the same exponentials along the keys");
  }
  for (const Term &shift : shifts)
    exprs.touch(shift.element);
  if (!parseTerms(scoreTerms) || !applySteps())
    return false;
  for (auto [guard, hides] : product.guards) {
    exprs.touch(guard);
    if (!matchGuard(guard, hides))
      return fail(guard, "expected zero probabilities only for hidden rows and pairs");
  }
  return true;
}

/// Whether a guard hides only rows that see no key, or pairs that the scores hide anyway.
bool AttentionMatcher::matchGuard(Element *guard, bool hides) {
  Element *n = exprs.resolve(guard);
  auto isHidden = [&](Element *compare) {
    // Matches -inf == x for a score x, a maximum of scores, or a mask that is added to scores.
    if (!compare->is("arith.cmpf"))
      return false;
    auto predicate = cast<arith::CmpFOp>(compare->op).getPredicate();
    if (predicate != arith::CmpFPredicate::OEQ && predicate != arith::CmpFPredicate::UEQ)
      return false;
    for (unsigned i : {0, 1}) {
      auto constant = exprs.getConstant(compare->operands[i]);
      if (!constant || !(std::isinf(*constant) && *constant < 0))
        continue;
      Element *x = exprs.resolve(compare->operands[1 - i]);
      while (x->isFloatCast())
        x = exprs.resolve(x->operands[0]);
      bool isMax = x->kind == Element::Kind::Reduce &&
                   (x->name == "arith.maximumf" || x->name == "arith.maxnumf");
      Element *inside = x;
      if (isMax) {
        inside = reduceOverKeys(x);
      } else if (!exprs.dependsOn(x, match.key)) {
        return false;
      }
      if (!inside)
        return false;
      SmallVector<Term> terms;
      collectTerms(inside, 1, terms);
      return llvm::all_of(terms, [&](const Term &term) {
        return exprs.getConstant(term.element) == 0.0 ||
               llvm::any_of(scoreTerms, [&](const Term &other) {
                 return other.factor * term.factor > 0 &&
                        exprs.areEqual(other.element, term.element);
               });
      });
    }
    return false;
  };
  if (n->kind == Element::Kind::Reduce && n->name == "arith.andi" && hides) {
    Element *inside = reduceOverKeys(n);
    return inside && isHidden(exprs.resolve(inside));
  }
  if (hides && isHidden(n))
    return true;
  // jax.nn.softmax(where=) sets the probabilities of hidden pairs to 0.
  auto guarded = llvm::find_if(match.conditions, [&](Condition &condition) {
    return condition.shows != hides && exprs.areEqual(condition.value, guard);
  });
  if (guarded == match.conditions.end())
    return false;
  guarded->isGuarded = true;
  return true;
}

/// Returns a live op outside of the match that reads a value derived from the scores, or null.
static Operation *findOtherUser(const AttentionMatch &match, TensorExprs &exprs) {
  SmallVector<Operation *> work = {match.scores};
  llvm::SmallPtrSet<Operation *, 32> seen;
  if (match.lse)
    seen.insert(match.lse.getDefiningOp());
  seen.insert(match.result.getDefiningOp());
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    for (Operation *user : op->getUsers()) {
      bool isKnown = exprs.getVisited().contains(user) || isa<tensor::DimOp>(user) ||
                     isOpTriviallyDead(user) || (match.lse && user == match.lse.getDefiningOp());
      if (!isKnown)
        return user;
      if (!isa<tensor::DimOp>(user))
        work.push_back(user);
    }
  }
  return nullptr;
}

std::optional<AttentionMatch> mlir::flashattn::matchAttention(TensorExprs &exprs,
                                                              linalg::LinalgOp op, NearMiss &miss) {
  AttentionMatcher matcher(exprs, op, miss);
  std::optional<AttentionMatch> match = matcher.run();
  Operation *user = match ? findOtherUser(*match, exprs) : nullptr;
  if (user && matcher.findLogSumExp(user, *match))
    user = findOtherUser(*match, exprs);
  if (!user)
    return match;
  miss = {user, "expected no other op to read the scores or the probabilities",
          ("a use by '" + user->getName().getStringRef() + "'").str()};
  return std::nullopt;
}
