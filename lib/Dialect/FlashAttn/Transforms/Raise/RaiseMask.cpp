//===- RaiseMask.cpp - mask of the op from conditions of scores -----------===//
//
// Conditions that are sets become named masks. Lengths, offsets, booleans and biases remain.
//
//===----------------------------------------------------------------------===//

#include "ElementEvaluator.h"
#include "MaskRaiser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IntegerSet.h"

using namespace mlir;
using namespace mlir::flashattn;

/// If a query's index plus a symbol is compared, this sum is the query's position, in which the
/// mask is expressed. Returns false if symbols occur in any other way.
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
  // The index of a single query has no variable.
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

/// Matches keys below a length for each batch.
bool MaskRaiser::takeLengths(Element *x, bool shows) {
  x = exprs.force(x);
  if (!x->is("arith.cmpi") || result.lengths || !key)
    return false;
  using P = arith::CmpIPredicate;
  P predicate = cast<arith::CmpIOp>(x->op).getPredicate();
  if (!shows)
    predicate = arith::invertPredicate(predicate);
  Element *keys = x->operands[0], *lengths = x->operands[1];
  // As an unsigned number, a negative length would be a large one.
  if (predicate == P::sgt)
    std::swap(keys, lengths);
  else if (predicate != P::slt)
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

/// Whether a constraint depends only on the query and the key, and on symbols.
bool MaskRaiser::isOfPairs(const Constraint &constraint) {
  llvm::SmallSetVector<unsigned, 8> variables;
  exprs.collectVariables(constraint.expr, variables);
  return llvm::all_of(variables, [&](unsigned variable) {
    AffineExpr dim = getAffineDimExpr(variable, context);
    return dim == query || dim == key;
  });
}

/// Adds a condition as sets. Returns false, without a change, if it is not a union of sets.
bool MaskRaiser::takeSet(Element *x, bool shows) {
  std::optional<Union> set = getSet(x, shows);
  if (!set)
    return false;
  MaskRaiser before(*this);
  std::optional<Union> both = intersect(visible, set);
  auto all = [&](llvm::function_ref<bool(Constraint &)> holds) {
    return llvm::all_of(*both,
                        [&](Conjunction &conjunction) { return llvm::all_of(conjunction, holds); });
  };
  // A position may replace the query variable of earlier sets.
  if (both && all([&](Constraint &constraint) { return movePosition(constraint); }) &&
      all([&](Constraint &constraint) { return isOfPairs(constraint); })) {
    visible = *both;
    return true;
  }
  std::tie(query, unmoved, isMoved, result) =
      std::tie(before.query, before.unmoved, before.isMoved, before.result);
  return false;
}

/// Adds a boolean condition, or each of its parts if all of them must hold.
void MaskRaiser::take(Element *x, bool shows) {
  if (takeSet(x, shows)) {
    fixed.emplace_back(x, shows);
    return;
  }
  exprs.touch(x);
  if (takeLengths(x, shows))
    return;
  Element *n = exprs.resolve(x);
  if (parts < mostParts && n->is(shows ? "arith.andi" : "arith.ori")) {
    take(n->operands[0], shows);
    return take(n->operands[1], shows);
  }
  if (n->is("arith.xori"))
    for (unsigned i : {0, 1}) {
      auto constant = dyn_cast_or_null<IntegerAttr>(exprs.force(n->operands[i])->constant);
      if (constant)
        return take(n->operands[1 - i], shows != constant.getValue().isOne());
    }
  if (ElementEvaluator().prepare(exprs, x)) {
    fixed.emplace_back(x, shows);
    isAllSets = false;
  } else if (takeData(x, shows)) {
    return;
  } else {
    hasData = true;
  }
  result.others.emplace_back(x, shows);
}

void MaskRaiser::take(const Condition &condition) {
  if (!isa<FloatType>(condition.value->type))
    return take(condition.value, condition.shows);
  // Pairs are visible if the float is 0.
  if (takeSet(condition.value, true)) {
    fixed.emplace_back(condition.value, false);
    return;
  }
  exprs.touch(condition.value);
  // A row that data hides keeps the weights of its biases if these are finite.
  if (!condition.isFinite && takeData(condition.value, true))
    return;
  result.biases.push_back(*condition.bias);
}

/// Drops constraints that always hold, and sets with a constraint that never holds.
void MaskRaiser::dropTrivial(Union &sets) {
  using Range = std::pair<std::optional<int64_t>, std::optional<int64_t>>;
  auto getRange = [&](AffineExpr expr) -> Range {
    // An offset may be negative, and so may positions.
    bool hasPosition = false;
    expr.walk([&](AffineExpr part) { hasPosition |= isMoved && part == query; });
    return hasPosition ? Range() : exprs.getRange(expr);
  };
  llvm::erase_if(sets, [&](Conjunction &set) {
    llvm::erase_if(set, [&](Constraint &constraint) {
      auto [low, high] = getRange(constraint.expr);
      return constraint.isEq ? low == 0 && high == 0 : low && *low >= 0;
    });
    return llvm::any_of(set, [&](Constraint &constraint) {
      auto [low, high] = getRange(constraint.expr);
      return (high && *high < 0) || (constraint.isEq && low && *low > 0);
    });
  });
  if (llvm::any_of(sets, [](Conjunction &set) { return set.empty(); }))
    sets = {{}};
}

/// Whether every row sees a key in the conditions that do not depend on data, by evaluating them.
bool MaskRaiser::everyRowSeesByNumbers() {
  constexpr int64_t mostSteps = 1 << 26;
  SmallVector<ElementEvaluator> conditions(fixed.size());
  llvm::SmallSetVector<unsigned, 8> used;
  int64_t numParts = 0;
  for (auto [condition, part] : llvm::zip_equal(conditions, fixed)) {
    if (!condition.prepare(exprs, part.first))
      return false;
    numParts += condition.getNumParts();
    allParts(exprs.force(part.first), [&](Element *inside) {
      for (AffineExpr index : inside->indices)
        exprs.collectVariables(index, used);
      return true;
    });
  }
  SmallVector<unsigned> rows, keys(match.dims.key);
  for (unsigned variable : used)
    if (!llvm::is_contained(keys, variable))
      rows.push_back(variable);
  SmallVector<int64_t> values;
  int64_t numPairs = 1;
  for (unsigned digit : llvm::concat<unsigned>(rows, keys)) {
    if (ShapedType::isDynamic(exprs.getExtent(digit)))
      return false;
    numPairs = std::min(numPairs * std::min(exprs.getExtent(digit), mostSteps), mostSteps);
    values.resize(std::max<size_t>(values.size(), digit + 1));
  }
  if (numPairs * numParts >= mostSteps)
    return false;
  int64_t numRows = getExtent(exprs, rows), numKeys = getExtent(exprs, keys);
  auto set = [&](ArrayRef<unsigned> digits, int64_t number) {
    for (unsigned digit : llvm::reverse(digits)) {
      values[digit] = number % exprs.getExtent(digit);
      number /= exprs.getExtent(digit);
    }
  };
  for (int64_t row = 0; row < numRows; ++row) {
    set(rows, row);
    bool sees = false;
    for (int64_t k = 0; k < numKeys && !sees; ++k) {
      set(keys, k);
      sees = llvm::all_of(llvm::zip_equal(conditions, fixed), [&](auto both) {
        auto &[condition, part] = both;
        return (toDouble(condition.run(values), part.first->type) != 0) == part.second;
      });
    }
    if (!sees)
      return false;
  }
  return true;
}

bool MaskRaiser::everyRowSees() {
  if (!isAllSets)
    return everyRowSeesByNumbers();
  if (llvm::any_of(visible, [](Conjunction &set) { return set.empty(); }))
    return true;
  // Whether every row sees key 0, for any lengths.
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

/// Returns bottom_right for a bound through the corner of the last query and key, if lengths
/// differ.
Align MaskRaiser::align() {
  if (result.offset)
    return Align::BottomRight;
  // With a length for each batch, the corner differs between batches.
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
    rename.insert(placed.begin(), placed.end());
    // Only the symbols up to the last one that is used.
    unsigned numSymbols = 2;
    for (Constraint &constraint : rest) {
      constraints.push_back(
          simplifyAffineExpr(constraint.expr.replace(rename), 2, 2 + symbols.size()));
      isEq.push_back(constraint.isEq);
      constraints.back().walk([&](AffineExpr part) {
        if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
          numSymbols = std::max(numSymbols, symbol.getPosition() + 1);
      });
    }
    parts.push_back(SetAttr::get(
        context, IntegerSetAttr::get(IntegerSet::get(2, numSymbols, constraints, isEq))));
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

std::optional<RaisedMask> MaskRaiser::run(bool asBiases) {
  bool hasFinite = false;
  for (const Condition &condition : match.conditions) {
    // A guard sets the probabilities of hidden rows to 0, but does not change their log-sum-exp.
    bool isFinite = condition.isFinite && !(condition.isGuarded && !match.lse);
    if (asBiases && isFinite && condition.bias) {
      exprs.touch(condition.value);
      result.biases.push_back(*condition.bias);
      continue;
    }
    take(condition);
    hasFinite |= isFinite;
  }
  dropTrivial(visible);
  if (visible.empty() || (hasFinite && !everyRowSees()))
    return std::nullopt;
  addData();
  // Sets with symbols count as empty here.
  if (hasFinite && !placed.empty())
    hasData |= !isAllSets || !everyRowSees();
  result.mayHideRows = hasFinite && (hasData || result.lengths || result.offset);
  bool isAll = llvm::any_of(visible, [](Conjunction &set) { return set.empty(); });
  if (!isAll) {
    result.align = align();
    result.mask = nameAll();
  }
  return result;
}

std::optional<RaisedMask> mlir::flashattn::raiseMask(TensorExprs &exprs,
                                                     const AttentionMatch &match, NearMiss &miss) {
  for (bool asBiases : {false, true})
    if (auto mask = MaskRaiser(exprs, match).run(asBiases))
      return mask;
  miss = {match.output, "expected every query to see a key, because hidden scores are finite,",
          "a mask that hides whole rows"};
  return std::nullopt;
}
