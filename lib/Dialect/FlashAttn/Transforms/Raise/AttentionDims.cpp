//===- AttentionDims.cpp - batches, heads, queries and keys ---------------===//
//
// Classifies the variables of a match by the operands that depend on them.
//
//===----------------------------------------------------------------------===//

#include "AttentionMatcher.h"

using namespace mlir;
using namespace mlir::flashattn;

int64_t mlir::flashattn::getExtent(TensorExprs &exprs, ArrayRef<unsigned> digits) {
  int64_t extent = 1;
  for (unsigned digit : digits) {
    if (ShapedType::isDynamic(exprs.getExtent(digit)))
      return ShapedType::kDynamic;
    extent *= exprs.getExtent(digit);
  }
  return extent;
}

/// Returns variables with their dimensions, in the order of dimensions, larger strides first.
static SmallVector<std::pair<unsigned, unsigned>> listDigits(TensorExprs &exprs,
                                                             ArrayRef<AffineExpr> indices) {
  SmallVector<std::pair<unsigned, unsigned>> digits;
  for (auto [dim, index] : llvm::enumerate(indices)) {
    SmallVector<std::pair<int64_t, unsigned>> strides;
    AffineExpr sum = exprs.simplify(index);
    sum.walk([&](AffineExpr part) {
      auto variable = dyn_cast<AffineDimExpr>(part);
      if (!variable)
        return;
      int64_t stride = 1;
      sum.walk([&](AffineExpr outer) {
        auto product = dyn_cast<AffineBinaryOpExpr>(outer);
        if (product && product.getKind() == AffineExprKind::Mul && product.getLHS() == variable)
          if (auto factor = dyn_cast<AffineConstantExpr>(product.getRHS()))
            stride = factor.getValue();
      });
      strides.emplace_back(-stride, variable.getPosition());
    });
    llvm::sort(strides);
    for (auto [stride, variable] : strides)
      digits.emplace_back(variable, dim);
  }
  return digits;
}

bool AttentionMatcher::findDimensions() {
  llvm::SmallSetVector<unsigned, 8> q, k, v, o, keys, inner;
  auto collect = [&](ArrayRef<AffineExpr> indices, auto &variables) {
    for (AffineExpr index : indices)
      exprs.collectVariables(index, variables);
  };
  collect(match.q->indices, q);
  collect(match.k->indices, k);
  collect(match.v->indices, v);
  collect(match.indices, o);
  collect(match.key, keys);
  collect(match.inner, inner);
  Dimensions &dims = match.dims;
  SmallVector<unsigned> shared, own;
  for (auto [variable, dim] : listDigits(exprs, match.q->indices))
    if (!inner.contains(variable))
      (k.contains(variable) || v.contains(variable) ? shared : own).push_back(variable);
  for (auto [variable, dim] : listDigits(exprs, match.v->indices))
    if (!q.contains(variable) && !keys.contains(variable))
      dims.value.push_back(variable);
  for (auto [variable, dim] : listDigits(exprs, match.k->indices)) {
    if (inner.contains(variable))
      dims.inner.push_back(variable);
    else if (keys.contains(variable))
      dims.key.push_back(variable);
    else if (!q.contains(variable))
      return fail(match.k, "expected keys with the batches and heads of the queries");
  }
  for (unsigned variable : dims.key)
    if (!v.contains(variable) || q.contains(variable))
      return fail(match.v, "expected values with the same key dimension as the scores");
  for (unsigned variable : inner)
    if (!q.contains(variable) || !k.contains(variable))
      return fail(match.q, "expected queries and keys of the same head dimension");
  if (o.size() != shared.size() + own.size() + dims.value.size())
    return fail(match.output,
                "expected a result that depends only on the query and the value column",
                match.output->getName().getStringRef());
  return splitHeads(shared, own);
}

/// Separates batches from heads, and queries from the heads of one group.
bool AttentionMatcher::splitHeads(ArrayRef<unsigned> shared, ArrayRef<unsigned> own) {
  Dimensions &dims = match.dims;
  llvm::SmallSetVector<unsigned, 8> used, read;
  for (Condition &condition : match.conditions)
    allParts(exprs.force(condition.value), [&](Element *part) {
      for (AffineExpr index : part->indices)
        exprs.collectVariables(index, part->kind == Element::Kind::Index ? used : read);
      return true;
    });
  int64_t keys = getExtent(exprs, dims.key);
  auto rank = [&](unsigned variable) {
    return used.contains(variable)
               ? 4
               : 2 * (exprs.getExtent(variable) == keys) + read.contains(variable);
  };
  std::optional<unsigned> query;
  for (unsigned variable : own)
    if (!query || rank(variable) >= rank(*query))
      query = variable;
  if (query)
    dims.query.push_back(*query);
  auto dimsOf = [&](Element *element) {
    llvm::DenseMap<unsigned, unsigned> map;
    for (auto [variable, dim] : listDigits(exprs, element->indices))
      map[variable] = dim;
    return map;
  };
  llvm::DenseMap<unsigned, unsigned> inQ = dimsOf(match.q), inK = dimsOf(match.k);
  for (unsigned variable : own)
    if (variable != query)
      dims.group.push_back(variable);
  for (unsigned group : dims.group)
    for (unsigned variable : shared)
      if (inQ[group] == inQ[variable] &&
          llvm::find_if(listDigits(exprs, match.q->indices), [&](auto &digit) {
            return digit.first == group || digit.first == variable;
          })->first == group)
        return fail(match.q, "expected the query heads that share a key/value head to be adjacent");
  // The first dimension that queries and keys share is the batch, unless they share only one.
  for (auto &map : {inQ, inK}) {
    llvm::SmallSetVector<unsigned, 4> places;
    for (unsigned variable : llvm::concat<const unsigned>(shared, dims.group))
      if (map.count(variable))
        places.insert(map.lookup(variable));
    if (places.size() < 2 || shared.empty() || !map.count(shared[0]))
      continue;
    unsigned first = map.lookup(shared[0]);
    for (unsigned variable : shared)
      (map.count(variable) && map.lookup(variable) == first ? dims.batch : dims.head)
          .push_back(variable);
    return true;
  }
  dims.head.assign(shared.begin(), shared.end());
  return true;
}
