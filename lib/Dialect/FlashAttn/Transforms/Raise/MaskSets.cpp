//===- MaskSets.cpp - conditions as unions of integer sets ----------------===//
//
// Comparisons of indices, constant matrices that are bands, and logical combinations of both, also
// if computed with numbers, become integer sets in disjunctive normal form.
//
//===----------------------------------------------------------------------===//

#include "ElementEvaluator.h"
#include "MaskRaiser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

std::optional<Union> MaskRaiser::intersect(std::optional<Union> a, std::optional<Union> b) {
  if (!a || !b || a->size() * b->size() > kMaxVisibleSets)
    return std::nullopt;
  Union sets;
  for (Conjunction &x : *a)
    for (Conjunction &y : *b) {
      sets.push_back(x);
      llvm::append_range(sets.back(), y);
    }
  return sets;
}

std::optional<Union> MaskRaiser::unite(std::optional<Union> a, std::optional<Union> b) {
  if (!a || !b || a->size() + b->size() > kMaxVisibleSets)
    return std::nullopt;
  llvm::append_range(*a, *b);
  return a;
}

/// Returns the set of pairs for which `a` and `b` compare in this way.
std::optional<Union> MaskRaiser::compare(arith::CmpIPredicate predicate, AffineExpr a,
                                         AffineExpr b) {
  using P = arith::CmpIPredicate;
  if (predicate >= P::ult) {
    auto lowA = exprs.getRange(a).first, lowB = exprs.getRange(b).first;
    if (!lowA || !lowB || *lowA < 0 || *lowB < 0)
      return std::nullopt;
    predicate = P(int64_t(predicate) - int64_t(P::ult) + int64_t(P::slt));
  }
  auto atLeast = [&](AffineExpr expr) { return Conjunction{{exprs.simplify(expr)}}; };
  switch (predicate) {
  case P::eq:
    return Union{{{exprs.simplify(a - b), true}}};
  case P::ne:
    return Union{atLeast(a - b - 1), atLeast(b - a - 1)};
  case P::slt:
    return Union{atLeast(b - a - 1)};
  case P::sle:
    return Union{atLeast(b - a)};
  case P::sgt:
    return Union{atLeast(a - b - 1)};
  case P::sge:
    return Union{atLeast(a - b)};
  default:
    return std::nullopt;
  }
}

/// Returns the result of comparing an index with an integer out of its range, or nullopt.
static std::optional<bool> compareWithFar(Element *x) {
  auto compare = dyn_cast_or_null<arith::CmpIOp>(x->op);
  if (!compare || compare.getPredicate() >= arith::CmpIPredicate::ult)
    return std::nullopt;
  llvm::APInt sides[2] = {llvm::APInt(64, 0), llvm::APInt(64, 0)};
  bool hasIndex = false, hasFar = false;
  for (auto [side, operand] : llvm::zip_equal(sides, x->operands)) {
    auto far = dyn_cast_or_null<IntegerAttr>(operand->constant);
    hasIndex |= operand->kind == Element::Kind::Index;
    hasFar |= bool(far);
    if (far && far.getValue().getBitWidth() > 64)
      return std::nullopt;
    if (far)
      side = far.getValue().sext(64);
  }
  if (!hasIndex || !hasFar)
    return std::nullopt;
  return arith::applyCmpPredicate(compare.getPredicate(), sides[0], sides[1]);
}

/// Returns the set of pairs for which `holds` is true for the value of `x`, a constant matrix or a
/// function of booleans.
std::optional<Union> MaskRaiser::getWhere(Element *x, llvm::function_ref<bool(double)> holds) {
  if (x->kind == Element::Kind::Load)
    return fitMatrix(x, holds);
  std::optional<ValueTable> table = tabulate(exprs, x);
  if (!table)
    return std::nullopt;
  // Covers the choices for which it holds by conjunctions of as few leaves as possible.
  unsigned all = table->values.size() - 1;
  auto holdsAt = [&](unsigned choice) { return holds(table->values[choice]); };
  SmallVector<bool> covered(all + 1);
  std::optional<Union> sets = Union{};
  for (unsigned choice = 0; choice <= all; ++choice) {
    if (covered[choice] || !holdsAt(choice))
      continue;
    unsigned asked = all;
    auto matches = [&](unsigned other) { return ((other ^ choice) & asked) == 0; };
    for (unsigned bit = 1; bit <= all; bit <<= 1) {
      asked &= ~bit;
      for (unsigned other = 0; other <= all; ++other)
        if (matches(other) && !holdsAt(other))
          asked |= bit;
    }
    for (unsigned other = 0; other <= all; ++other)
      covered[other] = covered[other] || matches(other);
    std::optional<Union> both = Union{{}};
    for (auto [i, leaf] : llvm::enumerate(table->leaves)) {
      bool isSecond = choice >> i & 1;
      double value = leaf.values[isSecond];
      if (asked >> i & 1)
        both = intersect(both, leaf.element->type.isInteger(1)
                                   ? getSet(leaf.element, isSecond)
                                   : fitMatrix(leaf.element, [=](double x) { return x == value; }));
    }
    sets = unite(sets, both);
  }
  return sets;
}

/// Returns the set of pairs for which `x` is true (a float: 0) or, without `shows`, false.
std::optional<Union> MaskRaiser::getSet(Element *x, bool shows) {
  if (++parts > mostParts)
    return std::nullopt;
  Element *unfolded = exprs.resolve(x);
  x = exprs.force(x);
  if (auto constant = dyn_cast_or_null<IntegerAttr>(x->constant))
    return constant.getValue().isZero() == shows ? Union{} : Union{{}};
  if (isa<FloatType>(x->type))
    return getWhere(x, [&](double value) { return (value == 0) == shows; });
  if (readsData && x->is("arith.cmpi")) {
    std::optional<Union> sets = compareData(unfolded, shows);
    if (sets && (sets->size() == 1 || !isFlag(unfolded)))
      return sets;
  }
  if (readsData && isFlag(unfolded))
    return compareFlag(unfolded, shows);
  auto isShown = [&](double value) { return (value != 0) == shows; };
  if (x->kind != Element::Kind::Op)
    return x->kind == Element::Kind::Load ? fitMatrix(x, isShown) : std::nullopt;
  ArrayRef<Element *> operands = unfolded->operands;
  auto both = [&](bool a, bool b) {
    return intersect(getSet(operands[0], a), getSet(operands[1], b));
  };
  if (x->name == "arith.andi" || x->name == "arith.ori") {
    bool meets = (x->name == "arith.andi") == shows;
    return meets ? both(shows, shows)
                 : unite(getSet(operands[0], shows), getSet(operands[1], shows));
  }
  if (x->name == "arith.xori")
    return unite(both(true, !shows), both(false, shows));
  if (x->name == "arith.select")
    return unite(intersect(getSet(operands[0], true), getSet(operands[1], shows)),
                 intersect(getSet(operands[0], false), getSet(operands[2], shows)));
  bool onIndices =
      llvm::all_of(x->operands, [](Element *y) { return y->kind == Element::Kind::Index; });
  if (onIndices && !readsData && x->name == "arith.cmpi") {
    auto predicate = cast<arith::CmpIOp>(x->op).getPredicate();
    return compare(shows ? predicate : arith::invertPredicate(predicate),
                   exprs.simplify(x->operands[0]->indices[0]),
                   exprs.simplify(x->operands[1]->indices[0]));
  }
  if (std::optional<bool> holds = compareWithFar(x))
    return *holds == shows ? Union{{}} : Union{};
  // Otherwise `x` may be a boolean that is computed with numbers.
  return getWhere(x, isShown);
}

/// Returns the set of a constant matrix that is a band, a prefix and a band, or sinks and a band.
std::optional<Union> MaskRaiser::fitMatrix(Element *x, llvm::function_ref<bool(double)> holds) {
  ElementsAttr values;
  if (x->kind != Element::Kind::Load || !matchPattern(x->value, m_Constant(&values)) || !query ||
      !key || ShapedType::isDynamic(queries) || ShapedType::isDynamic(keys) ||
      queries * keys > (1 << 24))
    return std::nullopt;
  SmallVector<int64_t> strides = computeStrides(values.getShapedType().getShape());
  AffineExpr position = getAffineConstantExpr(0, context);
  for (auto [index, stride] : llvm::zip_equal(x->indices, strides))
    position = position + index * stride;
  std::optional<Plane> plane = getPlane(exprs.simplify(position));
  std::vector<char> shown;
  for (Number value : readNumbers(values))
    shown.push_back(holds(toDouble(value, x->type)));
  if (!plane || shown.empty())
    return std::nullopt;
  auto at = [&](int64_t q, int64_t k) {
    return bool(shown[plane->query * q + plane->key * k + plane->constant]);
  };
  auto fits = [&](const Union &sets) {
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t k = 0; k < keys; ++k)
        if (at(q, k) != llvm::any_of(sets, [&](auto &set) { return isVisible(set, q, k); }))
          return false;
    return true;
  };
  // From the last row: the run of keys at its end, and the run at its beginning.
  int64_t last = queries - 1, end = keys, begin = 0;
  while (end > 0 && !at(last, end - 1))
    --end;
  int64_t right = end - 1 - last, left = end;
  while (left > 0 && at(last, left - 1))
    --left;
  while (begin < keys && at(last, begin))
    ++begin;
  int64_t prefix = 0;
  while (prefix < keys && at(0, prefix))
    ++prefix;
  Constraint toRight{query - key + right}, toLeft{key - query + (last - left)},
      sinks{getAffineConstantExpr(begin - 1, context) - key},
      inPrefix{getAffineConstantExpr(prefix - 1, context) - key};
  for (const Union &sets :
       {Union{{}}, Union{}, Union{{toRight}}, Union{{toRight, toLeft}}, Union{{toLeft}},
        Union{{toRight}, {inPrefix}}, Union{{toRight, toLeft}, {toRight, sinks}}})
    if (fits(sets))
      return sets;
  return std::nullopt;
}

AffineExpr MaskRaiser::substitute(AffineExpr expr, int64_t q, int64_t k) {
  llvm::DenseMap<AffineExpr, AffineExpr> values;
  if (query)
    values[query] = getAffineConstantExpr(q, context);
  if (key)
    values[key] = getAffineConstantExpr(k, context);
  return expr.replace(values);
}

std::optional<Plane> MaskRaiser::getPlane(AffineExpr expr) {
  auto at = [&](int64_t q, int64_t k) -> std::optional<int64_t> {
    auto constant = dyn_cast<AffineConstantExpr>(substitute(expr, q, k));
    return constant ? std::optional(constant.getValue()) : std::nullopt;
  };
  bool isLinear = true;
  expr.walk([&](AffineExpr part) {
    isLinear &= llvm::is_contained(
        {AffineExprKind::Add, AffineExprKind::Mul, AffineExprKind::Constant, AffineExprKind::DimId},
        part.getKind());
  });
  auto origin = at(0, 0), inQuery = at(1, 0), inKey = at(0, 1);
  if (!isLinear || !origin || !inQuery || !inKey)
    return std::nullopt;
  return Plane{*inQuery - *origin, *inKey - *origin, *origin};
}

bool MaskRaiser::isVisible(const Conjunction &set, int64_t q, int64_t k) {
  return llvm::all_of(set, [&](const Constraint &constraint) {
    AffineExpr expr = constraint.expr;
    if (auto plane = getPlane(expr)) {
      int64_t value = plane->query * q + plane->key * k + plane->constant;
      return constraint.isEq ? value == 0 : value >= 0;
    }
    auto constant = dyn_cast<AffineConstantExpr>(substitute(expr, q, k));
    return constant && (constraint.isEq ? constant.getValue() == 0 : constant.getValue() >= 0);
  });
}
