//===- AttentionMatch.cpp - attention among tensor ops ---------------------===//
//
// From the second product backwards: probabilities are e^s over its sum along the keys, wherever
// it is divided, and s one product of queries and keys below a few elementwise ops.
//
//===----------------------------------------------------------------------===//

#include "AttentionMatcher.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Of what a score or a probability is made at most, in parts that are used once each.
static constexpr unsigned mostParts = 128;

static bool isExponential(Element *x) { return x->is("math.exp") || x->is("math.exp2"); }

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

/// Whether `user` only moves or rounds `source`, or divides it.
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
  // With sums to divide by this is where softmax ends.
  Operation *last = linalgOp.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!last || last->getBlock() != linalgOp.getBlock())
    return linalgOp.getNumDpsInputs() == 1;
  return isa<arith::ExtFOp, arith::TruncFOp>(last) ||
         (isa<arith::DivFOp, arith::MulFOp>(last) && linalgOp.getNumDpsInputs() == 2);
}

/// What a reduction along the keys reduces, at the key of the match; null where that is not known.
Element *AttentionMatcher::reduceOverKeys(Element *reduction) {
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(reduction))
    loops.push_back(size == 1 ? getAffineConstantExpr(0, op->getContext()) : match.key);
  return exprs.getReduced(reduction, loops);
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

/// The last value that is the product moved, rounded or divided by one sum, and nothing else.
void AttentionMatcher::findResult() {
  SmallVector<Value> chain = {op->getResult(0)};
  bool isDivided = false;
  while (chain.back().hasOneUse() && chain.size() < 8) {
    Operation *user = *chain.back().user_begin();
    if (user->getBlock() != op->getBlock() || !isView(user, chain.back()))
      break;
    if (auto generic = dyn_cast<linalg::LinalgOp>(user);
        generic && generic.getNumDpsInputs() == 2) {
      // A division belongs to it where it is by a sum of exponentials.
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

/// The factors of `x`, taken apart as far as it multiplies, divides or exponentiates.
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

/// The factors of a product's body, whose loads are not taken apart.
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

void AttentionMatcher::collectTerms(Element *x, double factor, SmallVectorImpl<Term> &terms) {
  if (terms.size() >= mostParts) {
    terms.push_back({x, factor});
    return;
  }
  Element *n = exprs.resolve(x);
  if (n->isFloatCast())
    return collectTerms(n->operands[0], factor, terms);
  if (n->is("arith.negf"))
    return collectTerms(n->operands[0], -factor, terms);
  if (n->is("arith.addf") || n->is("arith.subf")) {
    collectTerms(n->operands[0], factor, terms);
    return collectTerms(n->operands[1], n->is("arith.subf") ? -factor : factor, terms);
  }
  bool divides = n->is("arith.divf");
  if (divides || n->is("arith.mulf"))
    for (unsigned i : {1, 0}) {
      auto constant = divides && i == 0 ? std::nullopt : exprs.getConstant(n->operands[i]);
      if (constant && std::isfinite(*constant) && *constant != 0)
        return collectTerms(n->operands[1 - i], divides ? factor / *constant : factor * *constant,
                            terms);
    }
  terms.push_back({x, factor});
}

/// What `exp` raises e to; powers of 2 are some of e.
void AttentionMatcher::collectExponent(Element *exp, SmallVectorImpl<Term> &terms) {
  collectTerms(exp->operands[0], exp->is("math.exp2") ? llvm::numbers::ln2 : 1, terms);
}

/// Equal but for roundings.
static bool areEqual(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

bool AttentionMatcher::areEqual(const Term &a, const Term &b) {
  return ::areEqual(a.factor, b.factor) && exprs.areEqual(a.element, b.element);
}

/// What the natural logarithm of its operand is to the logarithm `x`; 0 where it is none.
static double getLogarithmFactor(Element *x) {
  return x->is("math.log") ? 1 : x->is("math.log2") ? llvm::numbers::ln2 : 0;
}

/// Whether `x` is made of a product of two tensors that differs by key.
bool AttentionMatcher::hasScores(Element *x) {
  SmallVector<Element *> work = {x};
  llvm::SmallPtrSet<Element *, 16> seen;
  while (!work.empty()) {
    Element *n = exprs.resolve(work.pop_back_val());
    if (!seen.insert(n).second || seen.size() > mostParts)
      continue;
    if (n->kind == Element::Kind::Reduce && n->name == "arith.addf" &&
        exprs.dependsOn(n, match.key) && exprs.dependsOn(n, match.indices))
      return true;
    for (Element *operand : n->operands)
      if (isa<FloatType>(operand->type))
        work.push_back(operand);
  }
  return false;
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
  return std::nullopt;
}

bool AttentionMatcher::matchProbabilities(Product &product) {
  Element *exp = product.exps[0];
  SmallVector<Term> terms, shifts;
  collectExponent(exp, terms);
  // The maximum, and what else the scores of a row are shifted by, cancel out.
  for (const Term &term : terms)
    (exprs.dependsOn(term.element, match.key) ? scoreTerms : shifts).push_back(term);
  // Without a product of queries and keys this is something else altogether.
  if (llvm::none_of(scoreTerms, [&](auto &term) { return hasScores(term.element); }))
    return false;
  if (std::abs(product.constant - 1) > 1e-6 || !product.others.empty()) {
    Element *other = product.others.empty() ? exp : product.others[0];
    return fail(other, "expected probabilities to be used as they are");
  }
  if (product.divisors.size() > 1)
    return fail(product.divisors[1], "expected one sum to divide by");
  if (product.divisors.empty()) {
    if (!matchLogSum(shifts, exp))
      return fail(exp, "expected exponentials that are divided by their sum");
  } else if (!matchDivisor(product, exp)) {
    return fail(product.divisors[0], "expected the sum of the same exponentials along the keys");
  }
  for (const Term &shift : shifts)
    exprs.touch(shift.element);
  if (!parseTerms(scoreTerms) || !applySteps())
    return false;
  for (auto [guard, hides] : product.guards) {
    exprs.touch(guard);
    if (!matchGuard(guard, hides))
      return fail(guard, "expected probabilities of 0 only where a row or a pair is hidden");
  }
  return true;
}

/// Whether `divisor` is the sum of `exp` along the keys, perhaps with a sink behind them.
bool AttentionMatcher::matchDivisor(Product &product, Element *exp) {
  Element *divisor = product.divisors[0];
  SmallVector<AffineExpr> loops;
  SmallVector<int64_t> sizes = exprs.getReducedSizes(divisor);
  llvm::SmallSetVector<unsigned, 8> variables;
  exprs.collectVariables(match.key, variables);
  int64_t keys = getExtent(exprs, variables.getArrayRef());
  unsigned along = 0;
  bool hasSink = false;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    loops.push_back(getAffineConstantExpr(0, op->getContext()));
    if (size == 1)
      continue;
    bool isSink = !ShapedType::isDynamic(keys) && size == keys + 1;
    if (loops[along] == match.key || (size != keys && !isSink))
      return false;
    hasSink = isSink;
    along = i;
    loops[i] = match.key;
  }
  Element *summand = exprs.getReduced(divisor, loops);
  summand = summand ? exprs.resolve(summand) : nullptr;
  while (summand && (summand->isFloatCast() || summand->is("arith.select"))) {
    // What is hidden may be left out of the sum, if it is hidden in the scores.
    if (summand->is("arith.select") && exprs.getConstant(summand->operands[2]) != 0.0)
      break;
    if (summand->is("arith.select"))
      product.guards.emplace_back(summand->operands[0], false);
    summand = exprs.resolve(summand->operands[summand->is("arith.select") ? 1 : 0]);
  }
  if (!summand || !exprs.areEqual(summand, exp))
    return false;
  match.sum = divisor;
  if (!hasSink)
    return true;
  loops[along] = getAffineConstantExpr(keys, op->getContext());
  Element *last = exprs.getReduced(divisor, loops);
  last = last ? exprs.resolve(last) : nullptr;
  while (last && last->isFloatCast())
    last = exprs.resolve(last->operands[0]);
  if (!last || !isExponential(last))
    return false;
  // The sink is shifted by what the scores are.
  SmallVector<Term> terms, all;
  collectExponent(last, terms);
  collectExponent(exp, all);
  for (const Term &term : terms) {
    auto matching = llvm::find_if(all, [&](const Term &other) {
      return !exprs.dependsOn(other.element, match.key) && areEqual(other, term);
    });
    if (matching != all.end()) {
      all.erase(matching);
      continue;
    }
    if (match.sink || !::areEqual(term.factor, 1))
      return false;
    match.sink = term.element;
    exprs.touch(term.element);
  }
  return match.sink && llvm::all_of(all, [&](const Term &term) {
           return exprs.dependsOn(term.element, match.key);
         });
}

/// Whether `exp` is e^(s - log(sum(e^(s - m))) - m).
bool AttentionMatcher::matchLogSum(ArrayRef<Term> shifts, Element *exp) {
  for (const Term &shift : shifts) {
    Element *log = exprs.resolve(shift.element);
    if (!::areEqual(shift.factor, -getLogarithmFactor(log)))
      continue;
    Element *sum = exprs.resolve(log->operands[0]);
    while (sum->isFloatCast())
      sum = exprs.resolve(sum->operands[0]);
    if (sum->kind != Element::Kind::Reduce || sum->name != "arith.addf")
      continue;
    // What else the scores are shifted by is what the summands are shifted by.
    SmallVector<Term> terms, others;
    collectExponent(exp, terms);
    llvm::erase_if(terms, [&](const Term &term) { return term.element == shift.element; });
    Element *summand = reduceOverKeys(sum);
    summand = summand ? exprs.resolve(summand) : nullptr;
    if (!summand || !isExponential(summand))
      continue;
    collectExponent(summand, others);
    bool same =
        terms.size() == others.size() && llvm::all_of(terms, [&](const Term &term) {
          return llvm::any_of(others, [&](const Term &other) { return areEqual(term, other); });
        });
    if (same)
      return true;
  }
  return false;
}

/// Whether a guard hides only rows that see no key, or pairs that the scores hide anyway.
bool AttentionMatcher::matchGuard(Element *guard, bool hides) {
  Element *n = exprs.resolve(guard);
  auto isHidden = [&](Element *compare) {
    // -inf == x, where x is a score, a maximum of scores, or a mask that is added to them.
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
  // jax.nn.softmax(where=): 0 where the pair is hidden.
  return llvm::any_of(match.conditions, [&](Condition &condition) {
    return condition.shows != hides && exprs.areEqual(condition.value, guard);
  });
}

/// The op that reads what the scores lead to and is neither part of the match nor unused.
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

/// Whether `value` is `log(sum(exp(s - m))) + m`, at indices that then are in terms of the
/// result's.
bool AttentionMatcher::isLogSumExp(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.getElementType().isF32())
    return false;
  SmallVector<AffineExpr> indices;
  for (int64_t size : type.getShape())
    indices.push_back(exprs.makeVariable(size));
  SmallVector<Term> terms, shifts;
  collectTerms(exprs.makeLoad(value, indices), 1, terms);
  Element *sum = nullptr;
  for (const Term &term : terms) {
    Element *log = exprs.resolve(term.element);
    if (!sum && ::areEqual(term.factor, getLogarithmFactor(log)))
      sum = exprs.resolve(log->operands[0]);
    else
      shifts.push_back({term.element, -term.factor});
  }
  if (!sum || sum->kind != Element::Kind::Reduce || !match.sum || match.sink ||
      sum->indices.size() != match.sum->indices.size())
    return false;
  for (auto [mine, its] : llvm::zip_equal(sum->indices, match.sum->indices))
    if (!exprs.replaceVariable(mine, its))
      return false;
  Element *summand = reduceOverKeys(sum);
  summand = summand ? exprs.resolve(summand) : nullptr;
  if (!summand || !isExponential(summand))
    return false;
  // The scores, and no more than what stands beside the logarithm.
  SmallVector<Term> all;
  collectExponent(summand, all);
  if (all.size() != shifts.size() + scoreTerms.size())
    return false;
  for (const Term &term : llvm::concat<Term>(shifts, scoreTerms))
    if (llvm::none_of(all, [&](const Term &other) { return areEqual(other, term); }))
      return false;
  exprs.touch(exprs.makeLoad(value, indices));
  exprs.touch(sum);
  for (const Term &term : all)
    exprs.touch(term.element);
  match.lse = value;
  for (AffineExpr index : indices)
    match.lseIndices.push_back(exprs.simplify(index));
  return true;
}

bool AttentionMatcher::findLogSumExp(Operation *user, AttentionMatch &found) {
  for (unsigned step = 0; step < 6 && user->getNumResults() == 1; ++step) {
    if (isLogSumExp(user->getResult(0))) {
      found.lse = match.lse;
      found.lseIndices = match.lseIndices;
      return true;
    }
    if (!user->hasOneUse())
      break;
    user = *user->user_begin();
  }
  return false;
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
  miss = {user, "expected scores and probabilities that nothing else reads",
          ("a use by '" + user->getName().getStringRef() + "'").str()};
  return std::nullopt;
}
