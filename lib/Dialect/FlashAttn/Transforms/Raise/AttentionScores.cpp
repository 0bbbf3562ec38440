//===- AttentionScores.cpp - scale, cap, bias and mask of scores -----------===//

#include "AttentionMatcher.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Below this a score is hidden: what is added to it can no longer be seen.
static constexpr double lowScore = -1e4;

bool AttentionMatcher::parseTerms(ArrayRef<std::pair<Element *, bool>> terms) {
  Element *core = nullptr;
  for (auto [term, negated] : terms) {
    if (!hasScores(term)) {
      steps.push_back({ScoreStep::Bias, 1, term, negated});
      continue;
    }
    if (core)
      return fail(exprs.resolve(term), "expected one product of queries and keys in the scores");
    core = term;
    if (negated)
      steps.push_back({ScoreStep::Mul, -1});
  }
  return core && parseScore(core);
}

bool AttentionMatcher::parseScore(Element *x) {
  Element *n = exprs.resolve(x);
  if (n->kind == Element::Kind::Reduce)
    return matchScores(n);
  if (n->isFloatCast())
    return parseScore(n->operands[0]);
  if (n->is("arith.addf") || n->is("arith.subf") || n->is("arith.negf")) {
    SmallVector<std::pair<Element *, bool>> terms;
    collectTerms(n, false, terms);
    return parseTerms(terms);
  }
  if (n->is("math.tanh")) {
    steps.push_back({ScoreStep::Tanh});
    return parseScore(n->operands[0]);
  }
  if (n->is("arith.select"))
    return parseSelect(n);
  if (!n->is("arith.mulf") && !n->is("arith.divf"))
    return fail(n, "expected scores that are scaled, capped, masked or have a bias");
  bool isDivision = n->name == "arith.divf";
  for (unsigned i : {1, 0}) {
    if (isDivision && i == 0)
      break;
    Element *factor = n->operands[i];
    if (auto constant = exprs.getConstant(factor)) {
      steps.push_back({ScoreStep::Mul, isDivision ? 1 / *constant : *constant});
      return parseScore(n->operands[1 - i]);
    }
    Element *leaf = exprs.resolve(factor);
    bool isUniform = leaf->kind == Element::Kind::Scalar ||
                     (leaf->kind == Element::Kind::Load &&
                      llvm::all_of(leaf->shape, [](int64_t size) { return size == 1; }));
    if (isUniform && !isDivision) {
      steps.push_back({ScoreStep::MulValue, 1, leaf});
      return parseScore(n->operands[1 - i]);
    }
  }
  return fail(n, "expected one factor for all scores");
}

bool AttentionMatcher::parseSelect(Element *select) {
  for (unsigned i : {1, 2}) {
    auto low = exprs.getConstant(select->operands[i]);
    if (!low || !hasScores(select->operands[3 - i]))
      continue;
    if (*low > lowScore)
      return fail(select, "expected hidden scores of " + Twine(int64_t(lowScore)) + " or less");
    steps.push_back({ScoreStep::Mask, 1, select->operands[0], i == 2, !std::isinf(*low)});
    return parseScore(select->operands[3 - i]);
  }
  return fail(select, "expected hidden scores to be one low number");
}

/// A bias that is 0 or a low number is a mask.
void AttentionMatcher::parseBias(Element *x, bool negated) {
  if (exprs.getConstant(x) == 0.0)
    return;
  Element *n = exprs.resolve(x);
  if (n->is("arith.addf"))
    for (unsigned i : {0, 1})
      if (exprs.getConstant(n->operands[i]) == 0.0)
        return parseBias(n->operands[1 - i], negated);
  if (n->is("arith.select") && !negated) {
    auto a = exprs.getConstant(n->operands[1]), b = exprs.getConstant(n->operands[2]);
    if (a && b && ((*a == 0 && *b <= lowScore) || (*b == 0 && *a <= lowScore))) {
      match.conditions.push_back({n->operands[0], *a == 0, !std::isinf(*a + *b)});
      return;
    }
  }
  DenseFPElementsAttr matrix;
  if (n->kind == Element::Kind::Load && !negated && matchPattern(n->value, m_Constant(&matrix))) {
    bool isMask = true, isFinite = false;
    for (const APFloat &value : matrix.getValues<APFloat>()) {
      isMask &= value.isZero() || value.convertToDouble() <= lowScore;
      isFinite |= !value.isZero() && value.isFinite();
    }
    if (isMask) {
      match.conditions.push_back({n, false, isFinite});
      return;
    }
  }
  match.biases.emplace_back(x, negated);
}

/// From the product outwards: scale, cap, bias and mask.
bool AttentionMatcher::applySteps() {
  double inside = match.scale, outside = 1;
  bool hasCap = false, isLate = false, isMasked = false;
  for (ScoreStep &step : llvm::reverse(steps)) {
    switch (step.kind) {
    case ScoreStep::Mul:
      if (isLate || (isMasked && step.factor < 0))
        return fail(op, "expected scores to be scaled before the bias", "a factor behind it");
      (hasCap ? outside : inside) *= step.factor;
      break;
    case ScoreStep::MulValue:
      if (isLate || hasCap || match.scaleValue)
        return fail(op, "expected one factor of the scores before all else", "another one");
      match.scaleValue = step.element;
      break;
    case ScoreStep::Tanh:
      if (isLate || hasCap || isMasked || match.scaleValue)
        return fail(op, "expected one cap of the scores before bias and mask", "math.tanh");
      hasCap = true;
      break;
    case ScoreStep::Bias:
      parseBias(step.element, step.flag);
      isLate |= !match.biases.empty();
      break;
    case ScoreStep::Mask:
      isMasked = true;
      match.conditions.push_back({step.element, step.flag, step.isFinite});
      break;
    }
  }
  match.scale = inside * outside;
  if (hasCap)
    match.softcap = outside;
  auto isUsable = [](double x) { return x >= 1e-18 && x <= 1e18; };
  if (!isUsable(match.scale) || (hasCap && !isUsable(outside)))
    return fail(op, "expected a scale and a cap from 1e-18 to 1e18",
                llvm::formatv("{0}", match.scale).str());
  return true;
}

/// The operand of a product behind views, extensions and factors that are the same for all.
Element *AttentionMatcher::peel(Element *load) {
  Element *found = load;
  double scale = 1;
  for (Element *next = load; next;) {
    if (next->kind == Element::Kind::Load) {
      found = next;
      match.scale *= scale;
      scale = 1;
      next = exprs.expand(next);
      continue;
    }
    if (next->is("arith.extf")) {
      next = next->operands[0];
      continue;
    }
    if (!next->is("arith.mulf") && !next->is("arith.divf"))
      break;
    bool isDivision = next->name == "arith.divf";
    auto second = exprs.getConstant(next->operands[1]);
    auto first = isDivision ? std::nullopt : exprs.getConstant(next->operands[0]);
    if (!second && !first)
      break;
    scale *= second ? (isDivision ? 1 / *second : *second) : *first;
    next = next->operands[second ? 0 : 1];
  }
  return found->kind == Element::Kind::Load ? found : nullptr;
}

bool AttentionMatcher::matchScores(Element *reduction) {
  match.scores = reduction->op;
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(reduction)) {
    loops.push_back(exprs.makeVariable(size));
    if (size != 1 && match.inner)
      return fail(reduction, "expected queries and keys to be multiplied along one dimension");
    if (size != 1 || !match.inner)
      match.inner = loops.back();
  }
  Element *body = exprs.getReduced(reduction, loops);
  SmallVector<Element *> factors;
  Product product;
  if (body)
    collectFactors(body, factors, product);
  double constant = product.constant;
  SmallVector<Element *> operands;
  for (Element *factor : factors) {
    if (auto number = exprs.getConstant(factor))
      constant *= *number;
    else
      operands.push_back(factor);
  }
  if (operands.size() != 2 || operands[0]->kind != Element::Kind::Load ||
      operands[1]->kind != Element::Kind::Load || !product.divisors.empty() ||
      !product.others.empty() || !product.exps.empty() || !product.guards.empty())
    return fail(reduction, "expected the product of queries and keys");
  match.scale *= constant;
  bool firstIsKeys = exprs.dependsOn(operands[0], match.key),
       secondIsKeys = exprs.dependsOn(operands[1], match.key);
  if (firstIsKeys == secondIsKeys)
    return fail(reduction, "expected keys in one operand of the product");
  match.q = peel(operands[firstIsKeys ? 1 : 0]);
  match.k = peel(operands[firstIsKeys ? 0 : 1]);
  return match.q && match.k;
}
