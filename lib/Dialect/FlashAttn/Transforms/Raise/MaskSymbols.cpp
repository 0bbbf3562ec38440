//===- MaskSymbols.cpp - conditions on tensors as sets with symbols -------===//
//
// In a comparison, an integer that depends on tensors is a symbol of the mask if all pairs of a
// sequence, of a query or of a key share it. It is computed for each of these before the op, with
// the ops of the module, so that it wraps as in the module. The sets themselves do not wrap, so an
// integer that depends on queries and keys must be a sum that does not wrap either.
//
//===----------------------------------------------------------------------===//

#include "MaskRaiser.h"

using namespace mlir;
using namespace mlir::flashattn;

/// The largest number of 32 bits. Indices are below it.
static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

static bool hasSymbols(AffineExpr expr) {
  bool found = false;
  expr.walk([&](AffineExpr part) { found |= isa<AffineSymbolExpr>(part); });
  return found;
}

/// Expands `x` completely, without folding: that would assume that scalars are small.
Element *MaskRaiser::expandAll(Element *x) {
  if (Element *known = expanded.lookup(x))
    return known;
  Element *all = exprs.resolve(x);
  SmallVector<Element *> operands;
  for (Element *operand : all->operands)
    operands.push_back(expandAll(operand));
  if (operands != all->operands)
    all = exprs.makeOp(all->name, all->type, operands, all->op);
  return expanded[x] = all;
}

/// Returns what all pairs of which `value` is the same share; nullopt if that is neither a
/// sequence, a query nor a key, or if `value` cannot be computed for it.
std::optional<RaisedMask::SymbolKind> MaskRaiser::findKind(Element *value) {
  llvm::SmallSetVector<unsigned, 8> used;
  bool isKnown = allParts(value, [&](Element *part) {
    for (AffineExpr index : part->indices)
      exprs.collectVariables(index, used);
    return part->kind != Element::Kind::Reduce && llvm::none_of(part->indices, hasSymbols) &&
           (part->kind != Element::Kind::Load || exprs.isLinear(part));
  });
  const Dimensions &dims = match.dims;
  auto isIn = [&](std::initializer_list<ArrayRef<unsigned>> all) {
    return llvm::all_of(used, [&](unsigned variable) {
      return llvm::any_of(all, [&](auto digits) { return llvm::is_contained(digits, variable); });
    });
  };
  if (!isKnown)
    return std::nullopt;
  if (isIn({dims.batch}))
    return RaisedMask::PerSequence;
  if (isIn({dims.batch, dims.head, dims.group, dims.query}))
    return RaisedMask::PerQuery;
  if (isIn({dims.batch, dims.head, dims.key}))
    return RaisedMask::PerKey;
  return std::nullopt;
}

/// Returns the name of an i32 that `findKind` takes.
AffineExpr MaskRaiser::nameSymbol(Element *value) {
  auto known = llvm::find_if(symbols, [&](Element *other) { return exprs.areEqual(other, value); });
  unsigned number = known - symbols.begin();
  if (known == symbols.end())
    symbols.push_back(value);
  return getAffineSymbolExpr(number, context);
}

/// Returns an integer that is computed for each sequence, query or key.
std::optional<DataNumber> MaskRaiser::readRows(Element *x) {
  unsigned width = x->type.isIndex() ? 64 : x->type.getIntOrFloatBitWidth();
  Element *value = expandAll(x);
  if (width == 1 || (width > 32 && width != 64) || !findKind(value))
    return std::nullopt;
  if (width == 64)
    return DataNumber{{}, value};
  if (width < 32)
    value = exprs.makeOp("arith.extsi", IntegerType::get(context, 32), {value});
  return DataNumber{nameSymbol(value)};
}

/// Returns an integer as a sum of indices and symbols that does not wrap, or as one number.
std::optional<DataNumber> MaskRaiser::getNumber(Element *x) {
  if (++parts > mostParts)
    return std::nullopt;
  Element *folded = exprs.force(x);
  if (folded->kind == Element::Kind::Index && !hasSymbols(folded->indices[0]))
    return DataNumber{exprs.simplify(folded->indices[0])};
  x = exprs.resolve(x);
  bool isSum = x->is("arith.addi") || x->is("arith.subi"),
       isCast = x->is("arith.extsi") || x->is("arith.index_cast");
  // Symbols have any value of 32 bits, so that only wider sums of them do not wrap.
  if ((isSum || isCast) && (x->type.isIndex() || x->type.isInteger(64))) {
    std::optional<DataNumber> a = getNumber(x->operands[0]), b = DataNumber{};
    if (isSum)
      b = getNumber(x->operands[1]);
    if (a && b && !a->wide && !b->wide) {
      AffineExpr sum = exprs.simplify(isCast                ? a->expr
                                      : x->is("arith.addi") ? a->expr + b->expr
                                                            : a->expr - b->expr);
      // Far below 64 bits, so that the computation of the range does not wrap either.
      constexpr int64_t limit = int64_t(1) << 40;
      auto [low, high] = exprs.getRange(sum, /*unknown=*/kMost + 1);
      if (low && high && *low > -limit && *high < limit)
        return DataNumber{sum};
    }
  }
  return readRows(x);
}

/// Returns the set of pairs for which a comparison that reads tensors is true or, without `shows`,
/// false.
std::optional<Union> MaskRaiser::compareData(Element *x, bool shows) {
  auto predicate = cast<arith::CmpIOp>(x->op).getPredicate();
  if (!shows)
    predicate = arith::invertPredicate(predicate);
  std::optional<DataNumber> a = getNumber(x->operands[0]), b = getNumber(x->operands[1]);
  if (!a || !b)
    return std::nullopt;
  if (a->wide || b->wide)
    return compareWide(x, predicate, *a, *b);
  return compare(predicate, a->expr, b->expr);
}

/// Compares numbers of 64 bits by symbols of 32 bits.
std::optional<Union> MaskRaiser::compareWide(Element *x, arith::CmpIPredicate predicate,
                                             DataNumber a, DataNumber b) {
  Type i32 = IntegerType::get(context, 32), i64 = IntegerType::get(context, 64);
  auto isNear = [&](const DataNumber &number) {
    if (number.wide || hasSymbols(number.expr))
      return false;
    auto [low, high] = exprs.getRange(number.expr, /*unknown=*/kMost - 1);
    return low && high && *low > -kMost && *high < kMost;
  };
  auto constant = [&](int64_t value) {
    return exprs.makeConstant(IntegerAttr::get(i64, value), i64);
  };
  auto toI64 = [&](Element *value) {
    return value->type.isIndex() ? exprs.makeOp("arith.index_cast", i64, {value}) : value;
  };
  // A number that is too large compares with indices as the largest number does.
  for (auto [mine, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (mine->wide && isNear(*other)) {
      Element *value = exprs.makeOp("arith.maxsi", i64, {toI64(mine->wide), constant(-kMost)});
      value = exprs.makeOp("arith.minsi", i64, {value, constant(kMost)});
      mine->expr = nameSymbol(exprs.makeOp("arith.trunci", i32, {value}));
      return compare(predicate, a.expr, b.expr);
    }
  using P = arith::CmpIPredicate;
  if (predicate != P::eq && predicate != P::ne)
    return std::nullopt;
  // Numbers are equal if both of their halves are.
  std::optional<Union> all;
  for (int64_t shift : {0, 32}) {
    SmallVector<AffineExpr, 2> halves;
    for (Element *side : x->operands) {
      Element *value = toI64(expandAll(side));
      if (!findKind(value))
        return std::nullopt;
      if (shift != 0)
        value = exprs.makeOp("arith.shrsi", i64, {value, constant(shift)});
      halves.push_back(nameSymbol(exprs.makeOp("arith.trunci", i32, {value})));
    }
    std::optional<Union> half = compare(predicate, halves[0], halves[1]);
    all = shift == 0 ? half : predicate == P::eq ? intersect(all, half) : unite(all, half);
  }
  return all;
}

/// Whether `x` is data of a sequence, a query or a key, and does not depend on positions.
bool MaskRaiser::isFlag(Element *x) {
  Element *value = expandAll(x);
  return findKind(value) && allParts(value, [&](Element *part) {
           return part->kind != Element::Kind::Index ||
                  isa<AffineConstantExpr>(exprs.simplify(part->indices[0]));
         });
}

/// Returns the set of pairs for which a boolean that is a flag is true or, without `shows`, false.
Union MaskRaiser::compareFlag(Element *x, bool shows) {
  AffineExpr flag =
      nameSymbol(exprs.makeOp("arith.extui", IntegerType::get(context, 32), {expandAll(x)}));
  return {{{shows ? flag - 1 : -flag}}};
}

/// Adds a condition that reads tensors as sets. Returns false if it is not a union of sets, or if
/// it is a flag, which the op can broadcast.
bool MaskRaiser::takeData(Element *x, bool shows) {
  if (isFlag(x))
    return false;
  readsData = true;
  std::optional<Union> sets = getSet(x, shows);
  readsData = false;
  if (sets)
    dataConditions.push_back({x, shows, *sets});
  return bool(sets);
}

/// Gives the symbols in `sets` their places in the op. Returns false if there are too many.
bool MaskRaiser::placeSymbols(const Union &sets) {
  llvm::SmallSetVector<AffineExpr, 8> used;
  for (const Conjunction &set : sets)
    for (const Constraint &constraint : set)
      constraint.expr.walk([&](AffineExpr part) {
        if (isa<AffineSymbolExpr>(part))
          used.insert(part);
      });
  placed.clear();
  unsigned next = 2;
  for (auto [kind, values] : llvm::enumerate(result.symbols)) {
    values.clear();
    for (auto [number, value] : llvm::enumerate(symbols)) {
      AffineExpr symbol = getAffineSymbolExpr(number, context);
      if (!used.contains(symbol) || findKind(value) != RaisedMask::SymbolKind(kind))
        continue;
      values.push_back(value);
      placed[symbol] = getAffineSymbolExpr(next++, context);
    }
    if (values.size() > OperandRule::kMostOperands)
      return false;
  }
  return true;
}

/// Restricts the visible pairs by the conditions that read tensors. Those that are no sets of
/// positions and keys, or too many, remain booleans.
void MaskRaiser::addData() {
  for (DataCondition &condition : dataConditions) {
    std::optional<Union> both = intersect(visible, condition.sets);
    if (both)
      dropTrivial(*both);
    if (both && !both->empty() && placeSymbols(*both) &&
        llvm::all_of(*both, [&](const Conjunction &set) {
          return llvm::all_of(set, [&](const Constraint &c) { return isOfPairs(c); });
        })) {
      visible = *both;
      continue;
    }
    result.others.emplace_back(condition.value, condition.shows);
    hasData = true;
  }
  placeSymbols(visible);
}
