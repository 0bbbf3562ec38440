//===- AttentionScores.cpp - scale, cap, bias and mask of scores ----------===//

#include "AttentionMatcher.h"
#include "ElementEvaluator.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Scores up to this value are hidden: summands no longer have a visible effect.
static constexpr double lowScore = -1e4;

/// Returns a run-time factor that is the same for all scores; null if `x` is not one.
Element *AttentionMatcher::findUniform(Element *x) {
  Element *found = exprs.force(x);
  bool isOne = allParts(found, [](Element *part) {
    return part->kind != Element::Kind::Reduce && llvm::all_of(part->indices, [](AffineExpr index) {
             return index.isSymbolicOrConstant();
           });
  });
  return isOne && isa<FloatType>(found->type) && !found->type.isF64() ? found : nullptr;
}

bool AttentionMatcher::parseTerms(ArrayRef<Term> terms) {
  const Term *core = nullptr;
  for (const Term &term : terms) {
    if (!hasScores(term.element)) {
      steps.push_back({ScoreStep::Bias, term.factor, term.element});
      continue;
    }
    if (core)
      return fail(exprs.resolve(term.element),
                  "expected one product of queries and keys in the scores");
    core = &term;
  }
  if (!core)
    return false;
  if (core->factor != 1)
    steps.push_back({ScoreStep::Mul, core->factor});
  return parseScore(core->element);
}

bool AttentionMatcher::parseScore(Element *x) {
  Element *n = exprs.resolve(x);
  if (n->kind == Element::Kind::Reduce)
    return matchScores(n);
  if (n->isFloatCast())
    return parseScore(n->operands[0]);
  if (n->is("arith.addf") || n->is("arith.subf") || n->is("arith.negf")) {
    SmallVector<Term> terms;
    collectTerms(n, 1, terms);
    return parseTerms(terms);
  }
  if (n->is("math.tanh")) {
    steps.push_back({ScoreStep::Tanh});
    return parseScore(n->operands[0]);
  }
  if (n->is("arith.select"))
    return parseSelect(n);
  if (!n->is("arith.mulf") && !n->is("arith.divf"))
    return fail(n, "expected only a scale, softcap, mask or bias of the scores");
  bool isDivision = n->name == "arith.divf";
  for (unsigned i : {1, 0}) {
    if (isDivision && i == 0)
      break;
    Element *factor = n->operands[i];
    if (auto constant = exprs.getConstant(factor)) {
      steps.push_back({ScoreStep::Mul, isDivision ? 1 / *constant : *constant});
      return parseScore(n->operands[1 - i]);
    }
    if (Element *value = findUniform(factor)) {
      steps.push_back({ScoreStep::MulValue, 1, value, isDivision});
      return parseScore(n->operands[1 - i]);
    }
  }
  for (unsigned i : {1, 0}) {
    if ((isDivision && i == 0) || hasScores(n->operands[i]) || !hasScores(n->operands[1 - i]))
      continue;
    steps.push_back({ScoreStep::MulOperand, 1, n->operands[i], isDivision, 0, n});
    return parseScore(n->operands[1 - i]);
  }
  return fail(n, "expected one product of queries and keys in the scores");
}

bool AttentionMatcher::parseSelect(Element *select) {
  for (unsigned i : {1, 2}) {
    auto low = exprs.getConstant(select->operands[i]);
    if (!low || !hasScores(select->operands[3 - i]))
      continue;
    if (*low > lowScore)
      return fail(select, "expected hidden scores of " + Twine(int64_t(lowScore)) + " or less");
    if (hasScores(select->operands[0]))
      return fail(select->operands[0], "expected a mask that does not depend on the scores");
    steps.push_back({ScoreStep::Mask, 1, select->operands[0], i == 2, *low});
    return parseScore(select->operands[3 - i]);
  }
  return fail(select, "expected all hidden scores to be the same low number");
}

/// Returns the values that `x` takes, from constants and booleans; empty if they are not known.
static SmallVector<double> listValues(TensorExprs &exprs, Element *x) {
  Attribute matrix;
  if (x->kind != Element::Kind::Load || !matchPattern(x->value, m_Constant(&matrix))) {
    std::optional<ValueTable> table = tabulate(exprs, x);
    return table ? table->values : SmallVector<double>();
  }
  return llvm::map_to_vector(readNumbers(matrix),
                             [&](Number number) { return toDouble(number, x->type); });
}

/// Returns the highest low number if `values` times `factor` are all 0 or low, and both occur.
static std::optional<double> findLow(ArrayRef<double> values, double factor) {
  double highest = -std::numeric_limits<double>::infinity();
  bool hasZero = false, hasLow = false;
  for (double value : values) {
    double low = value * factor;
    hasZero |= value == 0;
    hasLow |= low <= lowScore;
    // A NaN is neither 0 nor low.
    if (value != 0 && !(low <= lowScore))
      return std::nullopt;
    if (value != 0)
      highest = std::max(highest, low);
  }
  return hasZero && hasLow ? std::optional(highest) : std::nullopt;
}

/// Adds a bias. A bias whose values are 0 or a low number becomes a mask.
bool AttentionMatcher::parseBias(Element *x, double factor) {
  if (exprs.getConstant(x) == 0.0)
    return true;
  Element *n = exprs.resolve(x);
  if (n->is("arith.addf"))
    for (unsigned i : {0, 1})
      if (exprs.getConstant(n->operands[i]) == 0.0)
        return parseBias(n->operands[1 - i], factor);
  auto addMask = [&](Element *value, bool shows, double low) {
    match.conditions.push_back({value, shows, !std::isinf(low), Term{x, factor}});
    if (!std::isinf(low))
      highestLow = std::max(highestLow, low);
    return true;
  };
  if (n->is("arith.select")) {
    auto a = exprs.getConstant(n->operands[1]), b = exprs.getConstant(n->operands[2]);
    double low = a && b ? (*a + *b) * factor : 0;
    if (low <= lowScore && (*a == 0 || *b == 0))
      return addMask(n->operands[0], *a == 0, low);
  }
  SmallVector<double> values = listValues(exprs, n);
  if (std::optional<double> low = findLow(values, factor))
    return addMask(n, false, *low);
  // Summands must not make hidden scores visible again.
  if (std::isfinite(highestLow))
    for (double value : values)
      if (value * factor > -highestLow / 2)
        return fail(n, "expected summands after the mask to keep hidden scores low");
  match.biases.push_back({x, factor});
  return true;
}

/// Multiplies all summands of the scores so far, except the product. Masks do not change.
bool AttentionMatcher::applyFactor(double factor) {
  if (!match.conditions.empty()) {
    highestLow *= factor;
    if (factor <= 0 || highestLow > lowScore)
      return fail(op, "expected a factor after the mask to keep hidden scores low",
                  llvm::formatv("{0}", factor).str());
  }
  for (Term &bias : match.biases)
    bias.factor *= factor;
  for (Condition &condition : match.conditions)
    if (condition.bias)
      condition.bias->factor *= factor;
  return true;
}

/// Applies the steps from the product outwards: scale, cap, bias and mask.
bool AttentionMatcher::applySteps() {
  double inside = match.scale, outside = 1;
  bool hasCap = false;
  for (ScoreStep &step : llvm::reverse(steps)) {
    switch (step.kind) {
    case ScoreStep::Mul:
      if (!applyFactor(step.factor))
        return false;
      (hasCap ? outside : inside) *= step.factor;
      break;
    case ScoreStep::MulValue:
      if (!match.conditions.empty() || !match.biases.empty())
        return fail(op, "expected run-time factors before the bias and the mask",
                    "a factor after the bias or the mask");
      match.factors.push_back({step.element, step.flag, hasCap});
      break;
    case ScoreStep::MulOperand:
      if (hasCap || !match.conditions.empty() || !match.biases.empty())
        return fail(
            step.product,
            "expected factors of queries or keys before the softcap, the bias and the mask");
      exprs.touch(step.element);
      match.operandFactors.push_back(
          {step.element, step.flag, exprs.dependsOn(step.element, match.key), step.product});
      break;
    case ScoreStep::Tanh:
      if (hasCap || !match.biases.empty() || !match.conditions.empty())
        return fail(op, "expected one softcap, before the bias and the mask", "math.tanh");
      hasCap = true;
      break;
    case ScoreStep::Bias:
      if (!parseBias(step.element, step.factor))
        return false;
      break;
    case ScoreStep::Mask:
      match.conditions.push_back({step.element, step.flag, !std::isinf(step.low), std::nullopt});
      if (!std::isinf(step.low))
        highestLow = std::max(highestLow, step.low);
      break;
    }
  }
  // With exp2, scores contain log2(e), which the ln 2 of the exponent cancels up to rounding.
  auto round = [](Term &bias) {
    if (std::abs(std::abs(bias.factor) - 1) <= 1e-6)
      bias.factor = bias.factor < 0 ? -1 : 1;
  };
  llvm::for_each(match.biases, round);
  for (Condition &condition : match.conditions)
    if (condition.bias)
      round(*condition.bias);
  match.scale = inside * outside;
  if (hasCap)
    match.softcap = outside;
  auto isUsable = [](double x) { return x >= 1e-18 && x <= 1e18; };
  if (!isUsable(match.scale) || (hasCap && !isUsable(outside)))
    return fail(op, "expected a scale and a softcap from 1e-18 to 1e18",
                llvm::formatv("{0}", match.scale).str());
  return true;
}

/// Returns the operand of a product behind views, extensions and, with `takesFactors`, factors that
/// are the same for all scores, which become factors of the match.
Element *AttentionMatcher::peel(Element *load, bool takesFactors) {
  Element *found = load;
  double scale = 1;
  SmallVector<RunTimeFactor> factors;
  for (Element *next = load; next;) {
    if (next->kind == Element::Kind::Load) {
      // Stop before a reshape that does not divide evenly, unless a reshape behind it undoes it.
      if (exprs.isLinear(next)) {
        found = next;
        match.scale *= scale;
        match.factors.append(factors);
        scale = 1;
        factors.clear();
      }
      next = exprs.expand(next);
      continue;
    }
    if (next->is("arith.extf")) {
      next = next->operands[0];
      continue;
    }
    bool divides = next->is("arith.divf");
    if (!takesFactors || (!divides && !next->is("arith.mulf")))
      break;
    Element *rest = nullptr;
    for (unsigned i : {1, 0}) {
      if (rest || (divides && i == 0))
        continue;
      if (auto constant = exprs.getConstant(next->operands[i]))
        scale *= divides ? 1 / *constant : *constant;
      else if (Element *value = findUniform(next->operands[i]))
        factors.push_back({value, divides, /*isBehindCap=*/false});
      else
        continue;
      rest = next->operands[1 - i];
    }
    next = rest;
  }
  return found->kind == Element::Kind::Load ? found : nullptr;
}

bool AttentionMatcher::matchScores(Element *reduction) {
  match.scores = reduction->op;
  SmallVector<AffineExpr> loops;
  for (int64_t size : exprs.getReducedSizes(reduction)) {
    loops.push_back(exprs.makeVariable(size));
    if (size != 1 && match.inner)
      return fail(reduction, "expected a product of queries and keys along one dimension");
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
    else if (Element *value = findUniform(factor))
      match.factors.push_back({value, /*divides=*/false, /*isBehindCap=*/false});
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
    return fail(reduction, "expected exactly one operand of the product to depend on the key");
  match.q = peel(operands[firstIsKeys ? 1 : 0], /*takesFactors=*/true);
  match.k = peel(operands[firstIsKeys ? 0 : 1], /*takesFactors=*/true);
  return match.q && match.k;
}
