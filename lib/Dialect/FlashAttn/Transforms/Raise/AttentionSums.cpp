//===- AttentionSums.cpp - sums of exponentials along the keys ------------===//
//
// Matches the divisor of the probabilities and its logarithm.
//
//===----------------------------------------------------------------------===//

#include "AttentionMatcher.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the sum of exponentials whose natural logarithm `term` is, up to the sign; null if
/// `term` is not such a logarithm.
Element *AttentionMatcher::findSumOfLogarithm(const Term &term) {
  Element *log = exprs.resolve(term.element);
  double factor = log->is("math.log") ? 1 : log->is("math.log2") ? llvm::numbers::ln2 : 0;
  if (factor == 0 || !flashattn::areEqual(std::abs(term.factor), factor))
    return nullptr;
  Element *sum = exprs.resolve(log->operands[0]);
  while (sum->isFloatCast() || sum->is("math.absf"))
    sum = exprs.resolve(sum->operands[0]);
  return sum->kind == Element::Kind::Reduce && sum->name == "arith.addf" ? sum : nullptr;
}

/// Whether the divisor is the sum of `exp` along the keys, possibly with a sink after the last key.
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
    // The sum may omit hidden pairs if the scores hide them too.
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
  // The sink is shifted by the same values as the scores.
  SmallVector<Term> terms, all;
  collectExponent(last, terms);
  collectExponent(exp, all);
  for (const Term &term : terms) {
    auto matching = llvm::find_if(
        all, [&](const Term &other) { return isShift(other.element) && areEqual(other, term); });
    if (matching != all.end()) {
      all.erase(matching);
      continue;
    }
    if (match.sink || !flashattn::areEqual(term.factor, 1))
      return false;
    match.sink = term.element;
    exprs.touch(term.element);
  }
  return match.sink && llvm::none_of(all, [&](const Term &term) { return isShift(term.element); });
}

/// Whether `exp` is e^(s - log(sum(e^(s - m))) - m).
bool AttentionMatcher::matchLogSum(ArrayRef<Term> shifts, Element *exp) {
  for (const Term &shift : shifts) {
    Element *sum = shift.factor < 0 ? findSumOfLogarithm(shift) : nullptr;
    if (!sum)
      continue;
    // All other shifts of the scores must be the shifts of the summands.
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

/// Whether `value` is `log(sum(exp(s - m))) + m`. If so, expresses its indices in terms of the
/// result's indices.
bool AttentionMatcher::isLogSumExp(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.getElementType().isF32())
    return false;
  SmallVector<AffineExpr> indices;
  for (int64_t size : type.getShape())
    indices.push_back(exprs.makeVariable(size));
  SmallVector<Term> terms, shifts;
  collectTerms(exprs.makeLoad(value, indices), 1, terms, /*takesAll=*/true);
  Element *sum = nullptr;
  for (const Term &term : terms) {
    Element *summed = !sum && term.factor > 0 ? findSumOfLogarithm(term) : nullptr;
    if (summed)
      sum = summed;
    else
      shifts.push_back({term.element, -term.factor});
  }
  if (!sum || !match.sum || match.sink || sum->indices.size() != match.sum->indices.size())
    return false;
  for (auto [mine, its] : llvm::zip_equal(sum->indices, match.sum->indices))
    if (!exprs.replaceVariable(mine, its))
      return false;
  Element *summand = reduceOverKeys(sum);
  summand = summand ? exprs.resolve(summand) : nullptr;
  if (!summand || !isExponential(summand))
    return false;
  // The exponent must be the scores and the shifts that are added to the logarithm, and no more.
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
