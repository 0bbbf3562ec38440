//===- RaiseMask.cpp - masks that are computed from positions --------------===//
//
// What is compared of indices, and matrices of constants that are bands, become integer sets in
// disjunctive form; those become the masks that have a name.
//
//===----------------------------------------------------------------------===//

#include "AttentionMatch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// `expr >= 0`, or `expr == 0`.
struct Constraint {
  AffineExpr expr;
  bool isEq = false;
};
using Conjunction = SmallVector<Constraint, 4>;
/// A union of intersections.
using Union = SmallVector<Conjunction, 4>;

/// A constraint `query * p + key * k + constant`, where it is one.
struct Plane {
  int64_t query, key, constant;
};

class MaskRaiser {
  static constexpr unsigned mostParts = 1000;

public:
  MaskRaiser(TensorExprs &exprs, const AttentionMatch &match, NearMiss &miss)
      : exprs(exprs), match(match), miss(miss), context(match.output->getContext()),
        queries(getExtent(exprs, match.dims.query)), keys(getExtent(exprs, match.dims.key)) {
    if (match.dims.query.size() == 1)
      query = getAffineDimExpr(match.dims.query[0], context);
    if (match.dims.key.size() == 1)
      key = getAffineDimExpr(match.dims.key[0], context);
  }

  std::optional<RaisedMask> run();

private:
  std::optional<Union> getSet(Element *x, bool shows);
  std::optional<Union> compare(Element *x, bool shows);
  std::optional<Union> getBool(Element *x, bool shows);
  std::optional<Union> fitMatrix(Element *x, bool shows);
  std::optional<Union> intersect(std::optional<Union> a, std::optional<Union> b);
  std::optional<Union> unite(std::optional<Union> a, std::optional<Union> b);
  void take(Element *x, bool shows, bool isFinite);
  bool takeLengths(Element *x, bool shows);
  bool movePosition(Constraint &constraint);
  bool isVisible(const Conjunction &set, int64_t q, int64_t k);
  bool everyRowSees();
  AffineExpr substitute(AffineExpr expr, int64_t q, int64_t k);
  std::optional<Plane> getPlane(AffineExpr expr);
  void dropTrivial();
  Align align();
  Attribute name(const Conjunction &set);
  Attribute nameAll();

  TensorExprs &exprs;
  const AttentionMatch &match;
  NearMiss &miss;
  MLIRContext *context;
  int64_t queries, keys, shift = 0;
  AffineExpr query, key, unmoved;
  bool isMoved = false;
  /// Parts of conditions that were looked at; one that is used twice counts twice.
  unsigned parts = 0;
  Union visible = {{}};
  RaisedMask result;
};
} // namespace

std::optional<Union> MaskRaiser::intersect(std::optional<Union> a, std::optional<Union> b) {
  if (!a || !b || a->size() * b->size() > 16)
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
  if (!a || !b || a->size() + b->size() > 16)
    return std::nullopt;
  llvm::append_range(*a, *b);
  return a;
}

/// Where a comparison of indices holds, or does not.
std::optional<Union> MaskRaiser::compare(Element *x, bool shows) {
  auto predicate = cast<arith::CmpIOp>(x->op).getPredicate();
  using P = arith::CmpIPredicate;
  AffineExpr a = exprs.simplify(x->operands[0]->indices[0]),
             b = exprs.simplify(x->operands[1]->indices[0]);
  if (predicate >= P::ult) {
    auto lowA = exprs.getRange(a).first, lowB = exprs.getRange(b).first;
    if (!lowA || !lowB || *lowA < 0 || *lowB < 0)
      return std::nullopt;
    predicate = P(int64_t(predicate) - int64_t(P::ult) + int64_t(P::slt));
  }
  if (!shows)
    predicate = arith::invertPredicate(predicate);
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

/// Where a number that was made of an i1 is not 0, or is.
std::optional<Union> MaskRaiser::getBool(Element *x, bool shows) {
  while (x->kind == Element::Kind::Op && x->operands.size() == 1 &&
         llvm::is_contained({"arith.extui", "arith.extsi", "arith.uitofp", "arith.sitofp",
                             "arith.trunci", "arith.extf", "arith.truncf"},
                            x->name))
    x = x->operands[0];
  if (x->type.isInteger(1))
    return getSet(x, shows);
  return fitMatrix(x, shows);
}

std::optional<Union> MaskRaiser::getSet(Element *x, bool shows) {
  if (++parts > mostParts)
    return std::nullopt;
  x = exprs.force(x);
  if (auto constant = dyn_cast_or_null<IntegerAttr>(x->constant))
    return constant.getValue().isZero() == shows ? Union{} : Union{{}};
  if (x->kind == Element::Kind::Load)
    return fitMatrix(x, shows);
  if (x->kind != Element::Kind::Op)
    return std::nullopt;
  auto both = [&](bool a, bool b) {
    return intersect(getSet(x->operands[0], a), getSet(x->operands[1], b));
  };
  if (x->name == "arith.andi" || x->name == "arith.ori") {
    bool meets = (x->name == "arith.andi") == shows;
    return meets ? both(shows, shows)
                 : unite(getSet(x->operands[0], shows), getSet(x->operands[1], shows));
  }
  if (x->name == "arith.xori")
    return unite(both(true, !shows), both(false, shows));
  if (x->name == "arith.select")
    return unite(intersect(getSet(x->operands[0], true), getSet(x->operands[1], shows)),
                 intersect(getSet(x->operands[0], false), getSet(x->operands[2], shows)));
  if (x->name == "arith.trunci")
    return getBool(x->operands[0], shows);
  bool isFloat = x->name == "arith.cmpf";
  if (!isFloat && x->name != "arith.cmpi")
    return std::nullopt;
  bool onIndices =
      llvm::all_of(x->operands, [](Element *y) { return y->kind == Element::Kind::Index; });
  if (!isFloat && onIndices)
    return compare(x, shows);
  // A bool that went through a number.
  if (exprs.getConstant(x->operands[1]) != 0.0)
    return std::nullopt;
  using F = arith::CmpFPredicate;
  bool isEqual, isUnequal;
  if (isFloat) {
    auto predicate = cast<arith::CmpFOp>(x->op).getPredicate();
    isEqual = predicate == F::OEQ || predicate == F::UEQ;
    isUnequal = predicate == F::ONE || predicate == F::UNE;
  } else {
    auto predicate = cast<arith::CmpIOp>(x->op).getPredicate();
    isEqual = predicate == arith::CmpIPredicate::eq;
    isUnequal = predicate == arith::CmpIPredicate::ne;
  }
  return isEqual || isUnequal ? getBool(x->operands[0], shows == isUnequal) : std::nullopt;
}

/// A matrix of constants that is a band, a prefix and a band, or sinks and a band.
std::optional<Union> MaskRaiser::fitMatrix(Element *x, bool shows) {
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
  for (int64_t value : readIntegers(values))
    shown.push_back((value == 0) != shows);
  if (auto floats = dyn_cast<DenseFPElementsAttr>(values))
    for (const APFloat &value : floats.getValues<APFloat>())
      shown.push_back(value.isZero() != shows);
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
  // From the last row: the keys from its end, and those from its beginning.
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

/// Where a query's index is compared with a symbol added, their sum is the query's position, and
/// the mask is made of that. False where symbols are compared otherwise.
bool MaskRaiser::movePosition(Constraint &constraint) {
  std::optional<unsigned> symbol;
  bool isOne = true;
  constraint.expr.walk([&](AffineExpr part) {
    if (auto found = dyn_cast<AffineSymbolExpr>(part)) {
      isOne &= !symbol || *symbol == found.getPosition();
      symbol = found.getPosition();
    }
  });
  if (!symbol)
    return true;
  Element *offset = exprs.getSymbol(*symbol);
  if (!isOne || (result.offset && result.offset != offset))
    return false;
  AffineExpr position = isMoved ? query : exprs.makeVariable(ShapedType::kDynamic);
  AffineExpr index = isMoved ? unmoved : query, sum = getAffineSymbolExpr(*symbol, context);
  // One query has no variable of its own.
  AffineExpr moved = exprs.simplify(index ? constraint.expr.replace(index, position - sum)
                                          : constraint.expr.replace(sum, position));
  bool isLeft = false;
  moved.walk([&](AffineExpr part) { isLeft |= isa<AffineSymbolExpr>(part); });
  if (isLeft)
    return false;
  constraint.expr = moved;
  unmoved = index;
  query = position;
  isMoved = true;
  result.offset = offset;
  return true;
}

/// Keys below a length of each batch.
bool MaskRaiser::takeLengths(Element *x, bool shows) {
  x = exprs.force(x);
  if (!x->is("arith.cmpi") || result.lengths || !key)
    return false;
  using P = arith::CmpIPredicate;
  P predicate = cast<arith::CmpIOp>(x->op).getPredicate();
  if (!shows)
    predicate = arith::invertPredicate(predicate);
  Element *keys = x->operands[0], *lengths = x->operands[1];
  if (predicate == P::sgt || predicate == P::ugt)
    std::swap(keys, lengths);
  else if (predicate != P::slt && predicate != P::ult)
    return false;
  if (keys->kind != Element::Kind::Index || exprs.simplify(keys->indices[0]) != key ||
      lengths->kind != Element::Kind::Load || match.dims.batch.empty() ||
      ShapedType::isDynamic(getExtent(exprs, match.dims.key)) ||
      (!lengths->type.isInteger(32) && !lengths->type.isInteger(64)))
    return false;
  llvm::SmallSetVector<unsigned, 8> variables;
  for (AffineExpr index : lengths->indices)
    exprs.collectVariables(index, variables);
  if (!llvm::all_of(variables, [&](unsigned variable) {
        return llvm::is_contained(match.dims.batch, variable);
      }))
    return false;
  result.lengths = lengths;
  return true;
}

/// Takes a condition, or the parts of it that all have to hold, as sets where they are some.
void MaskRaiser::take(Element *x, bool shows, bool isFinite) {
  if (std::optional<Union> set = getSet(x, shows)) {
    MaskRaiser before(*this);
    std::optional<Union> both = intersect(visible, set);
    bool isKnown = both && llvm::all_of(*both, [&](Conjunction &conjunction) {
                     return llvm::all_of(conjunction, [&](Constraint &constraint) {
                       return movePosition(constraint);
                     });
                   });
    isKnown = isKnown && llvm::all_of(*both, [&](Conjunction &conjunction) {
                return llvm::all_of(conjunction, [&](Constraint &constraint) {
                  llvm::SmallSetVector<unsigned, 8> variables;
                  exprs.collectVariables(constraint.expr, variables);
                  return llvm::all_of(variables, [&](unsigned variable) {
                    AffineExpr dim = getAffineDimExpr(variable, context);
                    return dim == query || dim == key;
                  });
                });
              });
    if (isKnown) {
      visible = *both;
      return;
    }
    std::tie(query, unmoved, isMoved, result) =
        std::tie(before.query, before.unmoved, before.isMoved, before.result);
  }
  exprs.touch(x);
  if (takeLengths(x, shows))
    return;
  Element *n = exprs.resolve(x);
  if (parts < mostParts && n->is(shows ? "arith.andi" : "arith.ori")) {
    take(n->operands[0], shows, isFinite);
    return take(n->operands[1], shows, isFinite);
  }
  if (n->is("arith.xori"))
    for (unsigned i : {0, 1}) {
      auto constant = dyn_cast_or_null<IntegerAttr>(exprs.force(n->operands[i])->constant);
      if (constant)
        return take(n->operands[1 - i], shows != constant.getValue().isOne(), isFinite);
    }
  if (isa<FloatType>(x->type))
    result.biases.push_back(x);
  else
    result.others.push_back({x, shows, isFinite});
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

/// Constraints that always hold go, and with those that never do, their set.
void MaskRaiser::dropTrivial() {
  llvm::erase_if(visible, [&](Conjunction &set) {
    llvm::erase_if(set, [&](Constraint &constraint) {
      auto [low, high] = exprs.getRange(constraint.expr);
      return constraint.isEq ? low == 0 && high == 0 : low && *low >= 0;
    });
    return llvm::any_of(set, [&](Constraint &constraint) {
      auto [low, high] = exprs.getRange(constraint.expr);
      return (high && *high < 0) || (constraint.isEq && low && *low > 0);
    });
  });
  if (llvm::any_of(visible, [](Conjunction &set) { return set.empty(); }))
    visible = {{}};
}

bool MaskRaiser::everyRowSees() {
  if (llvm::any_of(visible, [](Conjunction &set) { return set.empty(); }))
    return true;
  // Every row sees key 0, whatever the lengths.
  AffineExpr zero = getAffineConstantExpr(0, context);
  for (Conjunction &set : visible)
    if (llvm::all_of(set, [&](Constraint &constraint) {
          auto [low, high] = exprs.getRange(
              exprs.simplify(key ? constraint.expr.replace(key, zero) : constraint.expr));
          return low && *low >= 0 && (!constraint.isEq || (high && *high <= 0));
        }))
      return true;
  if (ShapedType::isDynamic(queries) || ShapedType::isDynamic(keys) || queries * keys > (1 << 22))
    return false;
  for (int64_t q = 0; q < queries; ++q) {
    bool sees = false;
    for (int64_t k = 0; k < keys && !sees; ++k)
      sees = llvm::any_of(visible, [&](auto &set) { return isVisible(set, q, k); });
    if (!sees)
      return false;
  }
  return true;
}

/// Where queries and keys differ in number, a bound at the last query's and the last key's corner.
Align MaskRaiser::align() {
  if (result.offset)
    return Align::BottomRight;
  // With lengths of its own the corner of a batch is elsewhere.
  if (result.lengths)
    return Align::TopLeft;
  if (queries == keys && !ShapedType::isDynamic(queries))
    return Align::BottomRight;
  if (ShapedType::isDynamic(queries) || ShapedType::isDynamic(keys))
    return Align::TopLeft;
  for (Conjunction &set : visible)
    for (Constraint &constraint : set) {
      auto plane = getPlane(constraint.expr);
      if (plane && plane->query == 1 && plane->key == -1 && plane->constant == keys - queries) {
        shift = keys - queries;
        return Align::BottomRight;
      }
    }
  return Align::TopLeft;
}

Attribute MaskRaiser::name(const Conjunction &set) {
  std::optional<int64_t> left, right, sinks;
  SmallVector<Constraint> rest;
  auto lower = [](std::optional<int64_t> &bound, int64_t value) {
    bound = bound ? std::min(*bound, value) : value;
  };
  for (const Constraint &constraint : set) {
    std::optional<Plane> plane = query && key ? getPlane(constraint.expr) : std::nullopt;
    int64_t r = plane ? plane->constant - shift * plane->query : 0;
    bool isRight = plane && plane->query == 1 && plane->key == -1 && r >= 0,
         isLeft = plane && plane->query == -1 && plane->key == 1 && r >= 0;
    if (constraint.isEq && (isRight || isLeft) && r == 0) {
      lower(right, 0);
      lower(left, 0);
    } else if (!constraint.isEq && isRight) {
      lower(right, r);
    } else if (!constraint.isEq && isLeft) {
      lower(left, r);
    } else if (!constraint.isEq && plane && plane->query == 0 && plane->key == -1 &&
               plane->constant >= 0) {
      lower(sinks, plane->constant + 1);
    } else {
      rest.push_back(constraint);
    }
  }
  SmallVector<Attribute> parts;
  if (sinks)
    parts.push_back(SinkAttr::get(context, *sinks));
  if (right == 0 && !left)
    parts.push_back(CausalAttr::get(context));
  else if (right || left)
    parts.push_back(WindowAttr::get(context, left, right));
  if (!rest.empty()) {
    SmallVector<AffineExpr> constraints;
    SmallVector<bool> isEq;
    llvm::DenseMap<AffineExpr, AffineExpr> rename;
    if (query)
      rename[query] = getAffineDimExpr(0, context) - shift;
    if (key)
      rename[key] = getAffineDimExpr(1, context);
    for (Constraint &constraint : rest) {
      constraints.push_back(simplifyAffineExpr(constraint.expr.replace(rename), 2, 0));
      isEq.push_back(constraint.isEq);
    }
    parts.push_back(
        SetAttr::get(context, IntegerSetAttr::get(IntegerSet::get(2, 2, constraints, isEq))));
  }
  return parts.size() == 1 ? parts[0] : AllOfAttr::get(context, ArrayAttr::get(context, parts));
}

Attribute MaskRaiser::nameAll() {
  llvm::SetVector<Attribute> names;
  for (Conjunction &set : visible)
    names.insert(name(set));
  return names.size() == 1 ? names.front()
                           : AnyOfAttr::get(context, ArrayAttr::get(context, names.getArrayRef()));
}

std::optional<RaisedMask> MaskRaiser::run() {
  bool isFinite = false;
  for (const Condition &condition : match.conditions) {
    take(condition.value, condition.shows, condition.isFinite);
    isFinite |= condition.isFinite;
  }
  dropTrivial();
  if (visible.empty() || (isFinite && !everyRowSees())) {
    miss = {match.output, "expected every query to see a key, where hidden scores are a number",
            "a mask that hides whole rows"};
    return std::nullopt;
  }
  bool isAll = llvm::any_of(visible, [](Conjunction &set) { return set.empty(); });
  if (!isAll) {
    result.align = align();
    result.mask = nameAll();
  }
  return result;
}

std::optional<RaisedMask> mlir::flashattn::raiseMask(TensorExprs &exprs,
                                                     const AttentionMatch &match, NearMiss &miss) {
  return MaskRaiser(exprs, match, miss).run();
}
