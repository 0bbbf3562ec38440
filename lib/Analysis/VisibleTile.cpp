//===- VisibleTile.cpp - the mask of a partial tile as IR ------------------===//
//
// Queries are vector<Mx1>, keys vector<1xN>, or the transposes: a pass that
// distributes tiles to threads sees at the type what an operand depends on, and
// every operation runs at the smallest shape that holds its result.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/Simplex.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// The base of a linear constraint is clamped to this magnitude before it becomes
/// 32 bits wide; what the queries and keys of a tile add must be less.
constexpr int64_t kBaseLimit = int64_t(1) << 30;
constexpr int64_t kMaxNarrowCoefficient = int64_t(1) << 20;

/// A linear constraint over [p, k, nq, nk, 1].
using Linear = std::array<int64_t, 5>;
constexpr Linear kKeyExists = {0, -1, 0, 1, -1}; // k < nk

std::optional<Linear> getLinear(AffineExpr expr) {
  bool hasDivision = false;
  expr.walk([&](AffineExpr e) {
    hasDivision |= e.getKind() == AffineExprKind::Mod || e.getKind() == AffineExprKind::FloorDiv ||
                   e.getKind() == AffineExprKind::CeilDiv;
  });
  SmallVector<int64_t> flat;
  if (hasDivision || failed(getFlattenedAffineExpr(expr, 2, 2, &flat)) || flat.size() != 5)
    return std::nullopt;
  Linear linear;
  llvm::copy(flat, linear.begin());
  return linear;
}

bool implies(ArrayRef<Linear> given, Linear row) {
  presburger::Simplex simplex(row.size() - 1);
  for (const Linear &r : given)
    simplex.addInequality(presburger::getDynamicAPIntVec(ArrayRef<int64_t>(r)));
  return simplex.isEmpty() ||
         simplex.isRedundantInequality(presburger::getDynamicAPIntVec(ArrayRef<int64_t>(row)));
}

/// What a value depends on, and so the shape it is computed at.
struct Shape {
  bool queries = false, keys = false;
  bool operator==(const Shape &other) const {
    return queries == other.queries && keys == other.keys;
  }
  Shape join(const Shape &other) const { return {queries || other.queries, keys || other.keys}; }
};

struct Term {
  Value value; // null: nothing emitted yet
  Shape shape;
};

class TileBuilder {
public:
  TileBuilder(OpBuilder &builder, Location loc, Value p0, Value k0, Value nq, Value nk, int64_t m,
              int64_t n, RowPattern pattern, TileAxis columns, TileAxis numbers)
      : builder(builder), loc(loc), operands{p0, k0, nq, nk}, m(m), n(n), pattern(pattern),
        columns(columns), numbers(numbers) {}

  Value build(ArrayRef<IntegerSet> visible);

private:
  template <typename Op, typename... Args> Value make(Args &&...args) {
    return builder.createOrFold<Op>(loc, std::forward<Args>(args)...);
  }
  /// A constant of the scalar or vector type `type`.
  Value constant(Type type, int64_t value) {
    TypedAttr attr = builder.getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, cast<Attribute>(attr));
    return arith::ConstantOp::create(builder, loc, attr);
  }
  Type getType(Type element, Shape shape) {
    if (!shape.queries && !shape.keys)
      return element;
    int64_t sizes[] = {shape.queries ? m : 1, shape.keys ? n : 1};
    if (columns == TileAxis::Queries)
      std::swap(sizes[0], sizes[1]);
    return VectorType::get(sizes, element);
  }
  Value broadcast(Term term, Shape shape) {
    if (term.shape == shape)
      return term.value;
    return make<vector::BroadcastOp>(getType(getElementTypeOrSelf(term.value.getType()), shape),
                                     term.value);
  }
  template <typename Op> Term binary(Term a, Term b) {
    Shape shape = a.shape.join(b.shape);
    return {make<Op>(broadcast(a, shape), broadcast(b, shape)), shape};
  }
  template <typename Op> void combine(Term &a, Term b) { a = a.value ? binary<Op>(a, b) : b; }
  /// Positions or keys after the first, in `element`.
  Term step(bool queries, Type element);
  Term scaledStep(bool queries, int64_t factor);
  Term compare(bool isEquality, Term lhs, Term rhs);

  /// Coefficients of `linear` along the axis of limits and along that of `numbers`.
  int64_t ofLimits(const Linear &linear) const { return linear[areLimitsQueries() ? 0 : 1]; }
  int64_t ofNumbers(const Linear &linear) const { return linear[areLimitsQueries() ? 1 : 0]; }
  bool areLimitsQueries() const { return numbers == TileAxis::Keys; }
  /// The base and the limits' part of `linear`, in 32 bits; in index where it depends on neither
  /// axis.
  Term limit(const Linear &linear);
  /// limit >= -factor * number, or equal.
  Term test(Term limit, int64_t factor, bool isEquality);
  /// The value of an expression in index arithmetic, each part at its own shape.
  Term evaluate(AffineExpr expr);
  /// The conjunction of a set's constraints that depend on neither axis, on
  /// either, and on both, each its own.
  void addConstraints(IntegerSet set, bool addKeyExists, Term (&parts)[2][2]);

  OpBuilder &builder;
  Location loc;
  std::array<Value, 4> operands;
  int64_t m, n;
  RowPattern pattern;
  TileAxis columns, numbers;
  /// Steps by axis and element type; emitted once.
  Value steps[2][2];
  std::array<Value, 2> positions; // p0 + i, k0 + j in index
};

} // namespace

Term TileBuilder::step(bool queries, Type element) {
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

Term TileBuilder::compare(bool isEquality, Term lhs, Term rhs) {
  Shape shape = lhs.shape.join(rhs.shape);
  auto predicate = isEquality ? arith::CmpIPredicate::eq : arith::CmpIPredicate::sge;
  return {make<arith::CmpIOp>(predicate, broadcast(lhs, shape), broadcast(rhs, shape)), shape};
}

Term TileBuilder::scaledStep(bool queries, int64_t factor) {
  Term term = step(queries, builder.getI32Type());
  if (factor != 1)
    term = binary<arith::MulIOp>(term, {constant(term.value.getType(), factor), term.shape});
  return term;
}

/// Clamping the base keeps the answer of the test, as the queries and keys of a tile together
/// add less than the limit.
Term TileBuilder::limit(const Linear &linear) {
  Type index = builder.getIndexType(), i32 = builder.getI32Type();
  Value base;
  for (bool positive : {true, false})
    for (unsigned i = 0; i < operands.size(); ++i) {
      int64_t factor = linear[i];
      if (factor == 0 || (factor > 0) != positive)
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
    base = constant(index, linear[4]);
  else if (linear[4] != 0)
    base = make<arith::AddIOp>(base, constant(index, linear[4]));
  if (linear[0] == 0 && linear[1] == 0)
    return {base, {}};

  base = make<arith::MinSIOp>(base, constant(index, kBaseLimit));
  base = make<arith::MaxSIOp>(base, constant(index, -kBaseLimit));
  Term row{make<arith::IndexCastOp>(i32, base), {}};
  int64_t factor = ofLimits(linear);
  if (factor == -1)
    row = binary<arith::SubIOp>(row, step(/*queries=*/areLimitsQueries(), i32));
  else if (factor != 0)
    row = binary<arith::AddIOp>(row, scaledStep(/*queries=*/areLimitsQueries(), factor));
  return row;
}

Term TileBuilder::test(Term limit, int64_t factor, bool isEquality) {
  Type element = getElementTypeOrSelf(limit.value.getType());
  return compare(isEquality, limit,
                 factor == 0 ? Term{constant(element, 0), {}}
                             : scaledStep(/*queries=*/!areLimitsQueries(), -factor));
}

Term TileBuilder::evaluate(AffineExpr expr) {
  Type index = builder.getIndexType();
  if (auto constantExpr = dyn_cast<AffineConstantExpr>(expr))
    return {constant(index, constantExpr.getValue()), {}};
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return {operands[2 + symbol.getPosition()], {}};
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
    // remsi has the sign of the dividend, mod has none.
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

void TileBuilder::addConstraints(IntegerSet set, bool addKeyExists, Term (&parts)[2][2]) {
  // What the rest implies is left out; 0 <= k, nq, nk always holds, and k < nk where it is
  // added.
  SmallVector<Linear> known = {{0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 1, 0}};
  if (addKeyExists)
    known.push_back(kKeyExists);
  struct Constraint {
    AffineExpr expr;
    bool isEquality;
    std::optional<Linear> linear;
  };
  SmallVector<Constraint> constraints;
  for (auto [expr, isEquality] : llvm::zip(set.getConstraints(), set.getEqFlags()))
    constraints.push_back({expr, isEquality, getLinear(expr)});
  // Of very many they stay: proofs would take longer than they save.
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

  auto add = [&](Term test) {
    combine<arith::AndIOp>(parts[test.shape.queries][test.shape.keys], test);
  };
  // Limits of the same direction along the numbers make one: what depends on the whole tile
  // is compared once.
  SmallVector<std::pair<int64_t, Term>> limits;
  if (addKeyExists)
    constraints.push_back({{}, /*isEquality=*/false, kKeyExists});
  for (const Constraint &c : constraints) {
    auto isNarrow = [&](const Linear &row) {
      int64_t a = row[0], b = row[1];
      return std::abs(a) <= kMaxNarrowCoefficient && std::abs(b) <= kMaxNarrowCoefficient &&
             std::abs(a) * (m - 1) + std::abs(b) * (n - 1) < kBaseLimit;
    };
    if (!c.linear || !isNarrow(*c.linear)) {
      add(compare(c.isEquality, evaluate(c.expr), {constant(builder.getIndexType(), 0), {}}));
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
  // What no number takes part in, a limit says too: one comparison fewer of each pair.
  auto *apart = llvm::find_if(limits, [](const auto &limit) { return limit.first == 0; });
  if (apart != limits.end() && limits.size() > 1) {
    Term holds = test(apart->second, /*factor=*/0, /*isEquality=*/false);
    limits.erase(apart);
    Term &bound = limits.front().second;
    // Less than anything that a tile's numbers make.
    Term never{constant(bound.value.getType(), -kBaseLimit), bound.shape};
    Shape shape = bound.shape.join(holds.shape);
    bound = {make<arith::SelectOp>(broadcast(holds, shape), broadcast(bound, shape),
                                   broadcast(never, shape)),
             shape};
  }
  for (const auto &[factor, bound] : limits)
    add(test(bound, factor, /*isEquality=*/false));
}

Value TileBuilder::build(ArrayRef<IntegerSet> visible) {
  // k < nk belongs to every set, unless each of them says so already.
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
    return implies(rows, kKeyExists);
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
  for (IntegerSet set : visible) {
    Term parts[2][2];
    addConstraints(set, /*addKeyExists=*/!implied, parts);
    Term all = conjoin(parts);
    combine<arith::OrIOp>(any, all.value ? all : Term{constant(i1, 1), {}});
  }
  if (!any.value)
    any = {constant(i1, 0), {}};
  return broadcast(any, full);
}

Value flashattn::buildVisibleTile(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible,
                                  Value p0, Value k0, Value nq, Value nk, int64_t m, int64_t n,
                                  RowPattern pattern, TileAxis columns, TileAxis numbers) {
  return TileBuilder(builder, loc, p0, k0, nq, nk, m, n, pattern, columns, numbers).build(visible);
}
