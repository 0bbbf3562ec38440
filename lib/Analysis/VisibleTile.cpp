//===- VisibleTile.cpp - the mask of a partial tile as IR -----------------===//

#include "VisibleTile.h"
#include "flashattn/Analysis/MaskShape.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/Simplex.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::masktile;

std::optional<Linear> MaskBuilder::getLinear(AffineExpr expr) const {
  bool hasDivision = false;
  expr.walk([&](AffineExpr e) {
    hasDivision |= e.getKind() == AffineExprKind::Mod || e.getKind() == AffineExprKind::FloorDiv ||
                   e.getKind() == AffineExprKind::CeilDiv;
  });
  SmallVector<int64_t> flat;
  if (hasDivision || failed(getFlattenedAffineExpr(expr, 2, operands.size() - 2, &flat)) ||
      flat.size() != keyExists.size())
    return std::nullopt;
  return Linear(ArrayRef<int64_t>(flat));
}

static bool implies(ArrayRef<Linear> given, const Linear &row) {
  presburger::Simplex simplex(row.size() - 1);
  for (const Linear &r : given)
    simplex.addInequality(presburger::getDynamicAPIntVec(ArrayRef<int64_t>(r)));
  return simplex.isEmpty() ||
         simplex.isRedundantInequality(presburger::getDynamicAPIntVec(ArrayRef<int64_t>(row)));
}

Term MaskBuilder::step(bool queries, Type element) {
  Shape shape{queries, !queries};
  Value &cached = steps[queries][element.isIndex()];
  if (!cached) {
    int64_t length = queries ? m : n;
    Value step =
        vector::StepOp::create(builder, loc, VectorType::get({length}, builder.getIndexType()));
    if (!element.isIndex())
      step = make<arith::IndexCastOp>(VectorType::get({length}, element), step);
    cached = make<vector::ShapeCastOp>(getType(element, shape), step);
    if (queries && pattern.repeat > 1)
      cached = make<arith::DivUIOp>(cached, constant(cached.getType(), pattern.repeat));
    if (queries && pattern.span < m / pattern.repeat)
      cached = make<arith::RemUIOp>(cached, constant(cached.getType(), pattern.span));
  }
  return {cached, shape};
}

Term MaskBuilder::compare(arith::CmpIPredicate predicate, Term lhs, Term rhs) {
  Shape shape = lhs.shape.join(rhs.shape);
  return {make<arith::CmpIOp>(predicate, broadcast(lhs, shape), broadcast(rhs, shape)), shape};
}

Term MaskBuilder::compare(bool isEquality, Term lhs, Term rhs) {
  return compare(isEquality ? arith::CmpIPredicate::eq : arith::CmpIPredicate::sge, lhs, rhs);
}

Term MaskBuilder::pick(Term condition, Term yes, Term no) {
  Shape shape = condition.shape.join(yes.shape).join(no.shape);
  return {make<arith::SelectOp>(broadcast(condition, shape), broadcast(yes, shape),
                                broadcast(no, shape)),
          shape};
}

Term MaskBuilder::scaledStep(bool queries, int64_t factor) {
  Term term = step(queries, builder.getI32Type());
  if (factor != 1)
    term = binary<arith::MulIOp>(term, {constant(term.value.getType(), factor), term.shape});
  return term;
}

Value MaskBuilder::clamp(Value base) {
  Type index = builder.getIndexType();
  base = make<arith::MinSIOp>(base, constant(index, kBaseLimit));
  base = make<arith::MaxSIOp>(base, constant(index, -kBaseLimit));
  return make<arith::IndexCastOp>(builder.getI32Type(), base);
}

Value MaskBuilder::getBase(const Linear &linear) {
  Type index = builder.getIndexType();
  Value base;
  for (bool positive : {true, false})
    for (unsigned i = 0; i < operands.size(); ++i) {
      int64_t factor = linear[i];
      if (factor == 0 || (factor > 0) != positive || !operands[i].getType().isIndex())
        continue;
      Value term = operands[i];
      if (factor != 1 && factor != -1)
        term = make<arith::MulIOp>(term, constant(index, std::abs(factor)));
      if (factor < 0)
        base = make<arith::SubIOp>(base ? base : constant(index, 0), term);
      else
        base = base ? make<arith::AddIOp>(base, term) : term;
    }
  if (!base)
    base = constant(index, linear.back());
  else if (linear.back() != 0)
    base = make<arith::AddIOp>(base, constant(index, linear.back()));
  return base;
}

Term MaskBuilder::limit(const Linear &linear) {
  Type i32 = builder.getI32Type();
  Value base = getBase(linear);
  if (linear[0] == 0 && linear[1] == 0)
    return {base, {}};

  Term row{clamp(base), {}};
  int64_t factor = ofLimits(linear);
  if (factor == -1)
    row = binary<arith::SubIOp>(row, step(/*queries=*/areLimitsQueries(), i32));
  else if (factor != 0)
    row = binary<arith::AddIOp>(row, scaledStep(/*queries=*/areLimitsQueries(), factor));
  return row;
}

Term MaskBuilder::test(Term limit, int64_t factor, bool isEquality) {
  Type element = getElementTypeOrSelf(limit.value.getType());
  return compare(isEquality, limit,
                 factor == 0 ? Term{constant(element, 0), {}}
                             : scaledStep(/*queries=*/!areLimitsQueries(), -factor));
}

Term MaskBuilder::evaluate(AffineExpr expr) {
  Type index = builder.getIndexType();
  if (auto constantExpr = dyn_cast<AffineConstantExpr>(expr))
    return {constant(index, constantExpr.getValue()), {}};
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    Term term = getSymbol(symbol.getPosition());
    if (!term.value.getType().isIndex())
      term.value = make<arith::IndexCastOp>(getType(index, term.shape), term.value);
    return term;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    bool queries = dim.getPosition() == 0;
    Value &position = positions[dim.getPosition()];
    if (!position)
      position =
          binary<arith::AddIOp>({operands[dim.getPosition()], {}}, step(queries, index)).value;
    return {position, {queries, !queries}};
  }
  auto binaryExpr = cast<AffineBinaryOpExpr>(expr);
  Term lhs = evaluate(binaryExpr.getLHS());
  if (expr.getKind() == AffineExprKind::Add)
    return binary<arith::AddIOp>(lhs, evaluate(binaryExpr.getRHS()));
  if (expr.getKind() == AffineExprKind::Mul)
    return binary<arith::MulIOp>(lhs, evaluate(binaryExpr.getRHS()));

  // Masks are pure affine: the divisor is a positive constant.
  int64_t divisor = cast<AffineConstantExpr>(binaryExpr.getRHS()).getValue();
  bool isPowerOf2 = llvm::isPowerOf2_64(divisor);
  auto splat = [&](int64_t value) -> Term {
    return {constant(lhs.value.getType(), value), lhs.shape};
  };
  if (expr.getKind() == AffineExprKind::Mod) {
    if (isPowerOf2)
      return binary<arith::AndIOp>(lhs, splat(divisor - 1));
    // remsi has the sign of the dividend; mod is never negative.
    Term remainder = binary<arith::RemSIOp>(lhs, splat(divisor));
    Term wrapped = binary<arith::AddIOp>(remainder, splat(divisor));
    Value negative =
        make<arith::CmpIOp>(arith::CmpIPredicate::slt, remainder.value, splat(0).value);
    return {make<arith::SelectOp>(negative, wrapped.value, remainder.value), lhs.shape};
  }
  if (expr.getKind() == AffineExprKind::CeilDiv)
    lhs = binary<arith::AddIOp>(lhs, splat(divisor - 1));
  if (isPowerOf2)
    return binary<arith::ShRSIOp>(lhs, splat(llvm::Log2_64(divisor)));
  return binary<arith::FloorDivSIOp>(lhs, splat(divisor));
}

Offset MaskBuilder::add(Offset a, Offset b) {
  if (!a.term.value || !b.term.value)
    return a.term.value ? a : b;
  return {binary<arith::AddIOp>(a.term, b.term), a.least + b.least, a.most + b.most};
}

std::optional<Sum> MaskBuilder::divide(AffineExprKind kind, Sum sum, int64_t divisor) {
  Type index = builder.getIndexType(), i32 = builder.getI32Type();
  bool isPowerOf2 = llvm::isPowerOf2_64(divisor);
  auto number = [&](int64_t value) { return Term{constant(i32, value), {}}; };
  auto wide = [&](int64_t value) { return constant(index, value); };
  if (kind == AffineExprKind::CeilDiv)
    sum.base = make<arith::AddIOp>(sum.base, wide(divisor - 1));
  Value quotient = isPowerOf2 ? make<arith::ShRSIOp>(sum.base, wide(llvm::Log2_64(divisor)))
                              : make<arith::FloorDivSIOp>(sum.base, wide(divisor));
  Value remainder = make<arith::SubIOp>(sum.base, make<arith::MulIOp>(quotient, wide(divisor)));
  bool isMod = kind == AffineExprKind::Mod;
  if (!sum.queries.term.value && !sum.keys.term.value && !sum.pairs.term.value)
    return Sum{isMod ? remainder : quotient, {}, {}, {}};

  // Parts that are divided separately. The base's remainder is added to the first part.
  SmallVector<Offset> parts;
  if (sum.pairs.term.value)
    parts.push_back(add(add(sum.queries, sum.keys), sum.pairs));
  else
    for (const Offset &part : {sum.queries, sum.keys})
      if (part.term.value)
        parts.push_back(part);
  Offset rest{{make<arith::IndexCastOp>(i32, remainder), {}}, 0, divisor - 1};
  parts.front() = add(rest, parts.front());
  int64_t raised = 0;
  SmallVector<Term> quotients, remainders;
  for (Offset &part : parts) {
    // Adds a multiple of the divisor, so that the part is not negative.
    uint64_t below = -std::min<int64_t>(part.least, 0);
    int64_t raise = llvm::divideCeil(below, static_cast<uint64_t>(divisor)) * divisor;
    raised += raise / divisor;
    if (part.most + raise >= kBaseLimit)
      return std::nullopt;
    Term value = raise == 0 ? part.term : binary<arith::AddIOp>(part.term, number(raise));
    part.most += raise;
    if (isMod && isPowerOf2) {
      remainders.push_back(binary<arith::AndIOp>(value, number(divisor - 1)));
    } else if (isMod) {
      remainders.push_back(binary<arith::RemUIOp>(value, number(divisor)));
    } else {
      Term whole = isPowerOf2 ? binary<arith::ShRUIOp>(value, number(llvm::Log2_64(divisor)))
                              : binary<arith::DivUIOp>(value, number(divisor));
      quotients.push_back(whole);
      if (parts.size() > 1)
        remainders.push_back(
            binary<arith::SubIOp>(value, binary<arith::MulIOp>(whole, number(divisor))));
    }
  }

  Sum result{isMod ? wide(0) : make<arith::SubIOp>(quotient, wide(raised)), {}, {}, {}};
  auto place = [&](Term term, int64_t most) {
    Offset &part = !term.shape.keys     ? result.queries
                   : term.shape.queries ? result.pairs
                                        : result.keys;
    part = {term, 0, most};
  };
  if (!isMod)
    for (auto [part, whole] : llvm::zip_equal(parts, quotients))
      place(whole, part.most / divisor);
  else if (parts.size() == 1)
    place(remainders.front(), divisor - 1);
  if (parts.size() == 1)
    return result;
  // The sum of two remainders is less than twice the divisor.
  Term both = binary<arith::AddIOp>(remainders[0], remainders[1]);
  if (!isMod) {
    Term carries = compare(/*isEquality=*/false, both, number(divisor));
    place({make<arith::ExtUIOp>(both.value.getType(), carries.value), both.shape}, 1);
  } else if (isPowerOf2) {
    place(binary<arith::AndIOp>(both, number(divisor - 1)), divisor - 1);
  } else {
    // If the sum is below the divisor, the difference wraps around and is the larger operand.
    place(binary<arith::MinUIOp>(both, binary<arith::SubIOp>(both, number(divisor))), divisor - 1);
  }
  return result;
}

std::optional<Sum> MaskBuilder::evaluateNarrow(AffineExpr expr) {
  Type index = builder.getIndexType(), i32 = builder.getI32Type();
  auto fits = [](const Sum &sum) -> std::optional<Sum> {
    int64_t least = 0, most = 0;
    for (const Offset &part : {sum.queries, sum.keys, sum.pairs}) {
      least += std::min<int64_t>(part.least, 0);
      most += std::max<int64_t>(part.most, 0);
    }
    if (least <= -kBaseLimit || most >= kBaseLimit)
      return std::nullopt;
    return sum;
  };
  if (auto constantExpr = dyn_cast<AffineConstantExpr>(expr))
    return Sum{constant(index, constantExpr.getValue()), {}, {}, {}};
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    Term term = getSymbol(symbol.getPosition());
    if (!term.value.getType().isIndex())
      return std::nullopt;
    return Sum{term.value, {}, {}, {}};
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    bool isQuery = dim.getPosition() == 0;
    Sum sum{operands[dim.getPosition()], {}, {}, {}};
    (isQuery ? sum.queries : sum.keys) = {step(isQuery, i32), 0, (isQuery ? m : n) - 1};
    return fits(sum);
  }
  auto binaryExpr = cast<AffineBinaryOpExpr>(expr);
  std::optional<Sum> lhs = evaluateNarrow(binaryExpr.getLHS());
  if (!lhs)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add) {
    std::optional<Sum> rhs = evaluateNarrow(binaryExpr.getRHS());
    if (!rhs)
      return std::nullopt;
    return fits({make<arith::AddIOp>(lhs->base, rhs->base), add(lhs->queries, rhs->queries),
                 add(lhs->keys, rhs->keys), add(lhs->pairs, rhs->pairs)});
  }
  // Masks are pure affine: the other operand is a constant, and a divisor is positive.
  int64_t factor = cast<AffineConstantExpr>(binaryExpr.getRHS()).getValue();
  if (factor <= -kMaxNarrowCoefficient || factor >= kMaxNarrowCoefficient)
    return std::nullopt;
  if (expr.getKind() != AffineExprKind::Mul) {
    std::optional<Sum> divided = divide(expr.getKind(), *lhs, factor);
    return divided ? fits(*divided) : std::nullopt;
  }
  lhs->base = make<arith::MulIOp>(lhs->base, constant(index, factor));
  for (Offset *part : {&lhs->queries, &lhs->keys, &lhs->pairs}) {
    part->least *= factor;
    part->most *= factor;
    if (factor < 0)
      std::swap(part->least, part->most);
  }
  if (!fits(*lhs))
    return std::nullopt;
  for (Offset *part : {&lhs->queries, &lhs->keys, &lhs->pairs})
    if (part->term.value)
      part->term = binary<arith::MulIOp>(part->term, {constant(i32, factor), {}});
  return lhs;
}

Term MaskBuilder::test(Sum sum, bool isEquality) {
  Type i32 = builder.getI32Type();
  Term zero{constant(i32, 0), {}};
  if (!sum.queries.term.value && !sum.keys.term.value && !sum.pairs.term.value)
    return compare(isEquality, {sum.base, {}}, {constant(builder.getIndexType(), 0), {}});
  // Terms that depend on one axis or none are moved to the other side, so that few operations run
  // on pairs.
  Offset limit = add({{clamp(sum.base), {}}, 0, 0}, sum.queries), number = sum.keys;
  if (sum.pairs.term.value) {
    limit = add(limit, number);
    number = sum.pairs;
    return compare(isEquality, number.term, binary<arith::SubIOp>(zero, limit.term));
  }
  return compare(isEquality, limit.term,
                 number.term.value ? binary<arith::SubIOp>(zero, number.term) : zero);
}

SmallVector<Constraint> MaskBuilder::simplify(IntegerSet set, bool addKeyExists) const {
  // Drops constraints that the others imply. 0 <= k, nq, nk always hold, and k < nk holds if it is
  // added.
  SmallVector<Linear> known;
  for (unsigned operand : {1, 2, 3}) {
    known.emplace_back(keyExists.size(), 0);
    known.back()[operand] = 1;
  }
  if (addKeyExists)
    known.push_back(keyExists);
  SmallVector<Constraint> constraints;
  for (auto [expr, isEquality] : llvm::zip(set.getConstraints(), set.getEqFlags()))
    constraints.push_back({expr, isEquality, getLinear(expr)});
  // Longer lists stay as they are: proofs would take longer than they save.
  constexpr size_t kMostCompared = 32;
  for (size_t i = 0; i < constraints.size() && constraints.size() <= kMostCompared;) {
    SmallVector<Linear> given(known);
    for (size_t j = 0; j < constraints.size(); ++j) {
      if (i == j || !constraints[j].linear)
        continue;
      Linear row = *constraints[j].linear;
      given.push_back(row);
      if (constraints[j].isEquality) {
        for (int64_t &value : row)
          value = -value;
        given.push_back(row);
      }
    }
    auto holds = [&](const Constraint &c) {
      if (!c.linear)
        return false;
      Linear negated = *c.linear;
      for (int64_t &value : negated)
        value = -value;
      return implies(given, *c.linear) && (!c.isEquality || implies(given, negated));
    };
    if (holds(constraints[i]))
      constraints.erase(constraints.begin() + i);
    else
      ++i;
  }
  if (addKeyExists)
    constraints.push_back({{}, /*isEquality=*/false, keyExists});
  return constraints;
}

bool MaskBuilder::hasVarying(const Linear &linear) const {
  return llvm::any_of(llvm::zip(linear, operands), [](auto term) {
    return std::get<0>(term) != 0 && !std::get<1>(term).getType().isIndex();
  });
}

bool MaskBuilder::isNarrow(const Linear &linear) const {
  int64_t a = std::abs(linear[0]), b = std::abs(linear[1]);
  return a <= kMaxNarrowCoefficient && b <= kMaxNarrowCoefficient &&
         a * (m - 1) + b * (n - 1) < kBaseLimit;
}

void MaskBuilder::addConstraints(ArrayRef<Constraint> constraints, Term (&parts)[2][2]) {
  auto add = [&](Term test) {
    combine<arith::AndIOp>(parts[test.shape.queries][test.shape.keys], test);
  };
  // Limits with the same factor along `numbers` are combined into their minimum, so that each
  // element of the tile is compared once.
  SmallVector<std::pair<int64_t, Term>> limits;
  for (const Constraint &c : constraints) {
    if (std::optional<unsigned> symbol = c.linear ? findVarying(*c.linear) : std::nullopt) {
      std::optional<Term> compared;
      if (!c.isEquality)
        compared = compareVarying(*c.linear, *symbol);
      add(compared ? *compared : test(evaluateVarying(*c.linear, *symbol), c.isEquality));
      continue;
    }
    if (!c.linear || !isNarrow(*c.linear) || hasVarying(*c.linear)) {
      // Divisions of other constraints run on rows or columns alone, and are few.
      std::optional<Sum> sum;
      if (countPairDivisions(c.expr) > 0)
        sum = evaluateNarrow(c.expr);
      add(sum ? test(*sum, c.isEquality)
              : compare(c.isEquality, evaluate(c.expr), {constant(builder.getIndexType(), 0), {}}));
      continue;
    }
    int64_t factor = ofNumbers(*c.linear);
    Term mine = limit(*c.linear);
    auto *same = llvm::find_if(limits, [&](const auto &other) { return other.first == factor; });
    if (c.isEquality || ((*c.linear)[0] == 0 && (*c.linear)[1] == 0))
      add(test(mine, factor, c.isEquality));
    else if (same == limits.end())
      limits.push_back({factor, mine});
    else
      combine<arith::MinSIOp>(same->second, mine);
  }
  // A constraint with factor 0 is folded into another limit, which saves a comparison per pair.
  auto *apart = llvm::find_if(limits, [](const auto &limit) { return limit.first == 0; });
  if (apart != limits.end() && limits.size() > 1) {
    Term holds = test(apart->second, /*factor=*/0, /*isEquality=*/false);
    limits.erase(apart);
    Term &bound = limits.front().second;
    // Less than any value that the indices of a tile produce.
    Term never{constant(bound.value.getType(), -kBaseLimit), bound.shape};
    bound = pick(holds, bound, never);
  }
  for (const auto &[factor, bound] : limits)
    add(test(bound, factor, /*isEquality=*/false));
}

Value MaskBuilder::build(ArrayRef<IntegerSet> visible) {
  // k < nk is added to every set, unless all sets imply it.
  bool implied = llvm::all_of(visible, [&](IntegerSet set) {
    SmallVector<Linear> rows;
    for (auto [expr, isEquality] : llvm::zip(set.getConstraints(), set.getEqFlags()))
      if (std::optional<Linear> row = getLinear(expr)) {
        rows.push_back(*row);
        if (isEquality) {
          for (int64_t &value : *row)
            value = -value;
          rows.push_back(*row);
        }
      }
    return implies(rows, keyExists);
  });

  Shape full{true, true};
  auto conjoin = [&](Term(&parts)[2][2]) {
    // Scalars first: each conjunction runs at the smallest shape that holds it.
    Term all;
    for (Term part : {parts[0][0], parts[0][1], parts[1][0], parts[1][1]})
      if (part.value)
        combine<arith::AndIOp>(all, part);
    return all;
  };
  Type i1 = builder.getI1Type();
  Term any;
  SmallVector<SmallVector<Constraint>> unrolled;
  SmallVector<SmallVector<Linear>> table;
  for (IntegerSet set : visible) {
    SmallVector<Constraint> constraints = simplify(set, /*addKeyExists=*/!implied);
    unrolled.push_back(constraints);
  }
  // An unrolled set costs separate comparisons for every element of the tile.
  constexpr size_t kMostUnrolled = 8;
  if (unrolled.size() > kMostUnrolled)
    llvm::erase_if(unrolled, [&](ArrayRef<Constraint> constraints) {
      if (!llvm::all_of(constraints, [&](const Constraint &c) {
            return c.linear && isNarrow(*c.linear) && !hasVarying(*c.linear);
          }))
        return false;
      SmallVector<Linear> &rows = table.emplace_back();
      for (const Constraint &c : constraints) {
        rows.push_back(*c.linear);
        if (c.isEquality) {
          rows.push_back(*c.linear);
          for (int64_t &value : rows.back())
            value = -value;
        }
      }
      return true;
    });
  if (!table.empty())
    any = buildTable(table);
  for (ArrayRef<Constraint> constraints : unrolled) {
    Term parts[2][2];
    addConstraints(constraints, parts);
    Term all = conjoin(parts);
    combine<arith::OrIOp>(any, all.value ? all : Term{constant(i1, 1), {}});
  }
  if (!any.value)
    any = {constant(i1, 0), {}};
  return broadcast(any, full);
}

Value flashattn::buildVisibleTile(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible,
                                  Value p0, Value k0, ValueRange symbols, int64_t m, int64_t n,
                                  RowPattern pattern, TileAxis columns, TileAxis numbers) {
  return MaskBuilder(builder, loc, p0, k0, symbols, m, n, pattern, columns, numbers).build(visible);
}
