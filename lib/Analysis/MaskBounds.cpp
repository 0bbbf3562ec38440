//===- MaskBounds.cpp -----------------------------------------------------===//

#include "MaskBounds.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/Simplex.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::bounds;
using llvm::DynamicAPInt;
using presburger::IntegerPolyhedron;
using presburger::PresburgerSpace;
using presburger::Simplex;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

bool bounds::dependsOnParameters(const Row &row) {
  return llvm::any_of(ArrayRef(row).drop_back().drop_front(First),
                      [](const DynamicAPInt &value) { return value != 0; });
}

/// Assumes one pivot for each row. A pivot visits all elements, whose size grows with the number of
/// columns.
bool Budget::take(int64_t rows, int64_t columns) {
  int64_t cost = rows * rows * columns * (1 + columns / 16);
  if (cost > left)
    return false;
  left -= cost;
  return true;
}

bool bounds::isRationallyEmpty(ArrayRef<Row> rows, Budget &budget) {
  if (!budget.take(rows.size(), rows.front().size()))
    return false;
  Simplex simplex(rows.front().size() - 1);
  for (const Row &row : rows)
    simplex.addInequality(row);
  return simplex.isEmpty();
}

static Row negate(ArrayRef<DynamicAPInt> row) {
  return llvm::map_to_vector<8>(row, [&](const DynamicAPInt &value) { return -value; });
}

void bounds::addMultiple(Row &row, const Row &other, const DynamicAPInt &factor) {
  for (unsigned i = 0, e = other.size() - 1; i < e; ++i)
    row[i] += factor * other[i];
  row.back() += factor * other.back();
}

bool bounds::implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row, Budget &budget) {
  SmallVector<Row> rows(given);
  llvm::append_range(rows, also);
  rows.push_back(negate(row));
  rows.back().back() -= 1;
  return isRationallyEmpty(rows, budget);
}

bool bounds::isKnownEmpty(const presburger::IntegerRelation &pairs, Budget &budget) {
  return budget.take(pairs.getNumConstraints(), pairs.getNumCols()) &&
         (Simplex(pairs).isEmpty() || pairs.isEmptyByGCDTest());
}

void bounds::normalize(Row &row) {
  DynamicAPInt divisor(0);
  for (const DynamicAPInt &value : ArrayRef(row).drop_back())
    divisor = gcd(divisor, abs(value));
  if (divisor <= 1)
    return;
  for (DynamicAPInt &value : row)
    value = floorDiv(value, divisor);
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

Columns::Columns(ArrayRef<SymbolKnowledge> known) {
  for (SymbolKnowledge symbol : known)
    numParameters += symbol == SymbolKnowledge::Value ? 1 : symbol == SymbolKnowledge::Range ? 2 : 0;
  unsigned parameter = Symbols;
  for (SymbolKnowledge symbol : known) {
    if (symbol == SymbolKnowledge::Value) {
      columns.push_back(parameter++);
      continue;
    }
    columns.push_back(numParameters + 1 + ranges.size());
    bool isRange = symbol == SymbolKnowledge::Range;
    ranges.push_back(isRange ? std::optional(parameter) : std::nullopt);
    parameter += isRange ? 2 : 0;
  }
}

Row Parameters::widen(ArrayRef<DynamicAPInt> row, unsigned numKept) const {
  Row wide(row.take_front(numKept));
  wide.resize(getNumColumns(), DynamicAPInt(0));
  wide.back() = row.back();
  return wide;
}

DynamicAPInt Parameters::getMagnitude(const Row &row) const {
  DynamicAPInt sum(0);
  for (auto [i, value] : llvm::enumerate(ArrayRef(row).drop_back()))
    sum += i < getFirstQuotient() ? abs(value)
                                  : abs(value) * quotients[i - getFirstQuotient()].magnitude;
  return sum;
}

bool Parameters::fits(const Row &row) const {
  return getMagnitude(row) <= DynamicAPInt(int64_t(1) << 31) &&
         abs(row.back()) <= DynamicAPInt(int64_t(1) << 61);
}

std::optional<Row> Parameters::getFloor(Row dividend, DynamicAPInt divisor) {
  dividend = widen(dividend);
  // Multiples of the divisor are moved out of the quotient. The remaining dividend is made
  // canonical, so that equal quotients have equal rows: its first coefficient is positive, and its
  // constant is in [0, divisor).
  Row result(getNumColumns(), DynamicAPInt(0));
  for (auto [value, whole] : llvm::zip(dividend, result)) {
    if (&value != &dividend.back() && value % divisor != 0)
      continue;
    whole = floorDiv(value, divisor);
    value -= whole * divisor;
  }
  DynamicAPInt common = divisor;
  for (const DynamicAPInt &value : ArrayRef(dividend).drop_back())
    common = gcd(common, abs(value));
  divisor /= common;
  for (DynamicAPInt &value : dividend)
    value = floorDiv(value, common);
  const auto *leading = llvm::find_if(dividend, [](const DynamicAPInt &c) { return c != 0; });
  if (divisor == 1 || leading == dividend.end() || leading == &dividend.back())
    return result;
  bool isNegative = *leading < 0;
  if (isNegative) { // floor(-e / d) = -floor((e + d - 1) / d)
    dividend = negate(dividend);
    dividend.back() += divisor - 1;
  }

  const auto *known = llvm::find_if(quotients, [&](const Quotient &q) {
    return q.divisor == divisor && widen(q.dividend) == dividend;
  });
  unsigned column = getFirstQuotient() + (known - quotients.begin());
  if (known == quotients.end()) {
    if (!fits(dividend))
      return std::nullopt;
    quotients.push_back({dividend, divisor, ceilDiv(getMagnitude(dividend), divisor) + 1});
    result = widen(result);
  }
  result[column] = isNegative ? -1 : 1;
  return result;
}

SmallVector<Row> Parameters::getContext() const {
  SmallVector<Row> rows(3, Row(getNumColumns(), DynamicAPInt(0)));
  rows[0][Last] = 1;
  rows[0][First] = -1;
  rows[1][Nq] = 1;
  rows[2][Nk] = 1;
  for (std::optional<unsigned> least : columns.getRanges())
    if (least) {
      Row &row = rows.emplace_back(getNumColumns(), DynamicAPInt(0));
      row[*least] = -1;
      row[*least + 1] = 1;
    }
  for (auto [i, quotient] : llvm::enumerate(quotients)) {
    // The remainder is in [0, divisor).
    Row row = widen(quotient.dividend);
    row[getFirstQuotient() + i] = -quotient.divisor;
    rows.push_back(row);
    row = negate(row);
    row.back() += quotient.divisor - 1;
    rows.push_back(row);
  }
  return rows;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

void Bounds::add(Row row) {
  normalize(row);
  (row[X] > 0 ? lower : row[X] < 0 ? upper : conditions).push_back(std::move(row));
}

SmallVector<Row> Bounds::all() const {
  SmallVector<Row> rows(lower);
  llvm::append_range(rows, upper);
  llvm::append_range(rows, conditions);
  return rows;
}

void Bounds::widen(const Parameters &parameters) {
  for (SmallVector<Row> *rows : {&lower, &upper, &conditions})
    for (Row &row : *rows)
      row = parameters.widen(row);
}

void Bounds::simplify(ArrayRef<Row> context, Budget &budget) {
  auto dropImplied = [&](SmallVector<Row> &rows, ArrayRef<Row> given) {
    for (size_t i = rows.size(); i-- > 0;) {
      Row row = rows[i];
      rows.erase(rows.begin() + i);
      if (!implies(given, rows, row, budget))
        rows.insert(rows.begin() + i, row);
    }
    // Constants come last, as in canonical operand order.
    SmallVector<Row> varying, constant;
    for (Row &row : rows)
      (dependsOnParameters(row) ? varying : constant).push_back(std::move(row));
    rows = std::move(varying);
    llvm::append_range(rows, constant);
  };
  dropImplied(lower, context);
  dropImplied(upper, context);
  SmallVector<Row> given(context);
  llvm::append_range(given, lower);
  llvm::append_range(given, upper);
  dropImplied(conditions, given);
}

bool Bounds::isOrdered(ArrayRef<Row> context, int64_t slack, Budget &budget) const {
  for (const Row &low : lower)
    for (const Row &high : upper) {
      if (low[X] != 1 || high[X] != -1)
        return false;
      // x + e >= 0 and e' - x >= 0 are ordered if e' + e + slack >= 0.
      Row sum;
      for (auto [l, h] : llvm::zip(low, high))
        sum.push_back(l + h);
      sum.back() += slack;
      if (!implies(context, {}, sum, budget))
        return false;
    }
  return true;
}

//===----------------------------------------------------------------------===//
// Sets
//===----------------------------------------------------------------------===//

std::array<Row, 2> bounds::getAxis(TileAxis axis) {
  Row lower(Symbols + 1, DynamicAPInt(0)), upper = lower;
  lower[X] = 1;
  upper[X] = -1;
  upper[axis == TileAxis::Keys ? Nk : Nq] = 1;
  upper.back() = -1;
  return {lower, upper};
}

/// Returns the number of quotients in an expression.
static unsigned countQuotients(AffineExpr expr) {
  unsigned count = 0;
  expr.walk([&](AffineExpr e) {
    count += e.getKind() == AffineExprKind::Mod || e.getKind() == AffineExprKind::FloorDiv ||
             e.getKind() == AffineExprKind::CeilDiv;
  });
  return count;
}

/// Returns the first constraints of `set`, up to kMostConstraints and without those whose quotients
/// would exceed kMostQuotients.
static IntegerSet takeFirst(IntegerSet set) {
  SmallVector<AffineExpr> taken;
  SmallVector<bool> eqFlags;
  unsigned numQuotients = 0;
  for (auto [expr, isEquality] : llvm::zip(set.getConstraints(), set.getEqFlags())) {
    unsigned mine = countQuotients(expr);
    if (taken.size() == kMostConstraints || numQuotients + mine > kMostQuotients)
      continue;
    numQuotients += mine;
    taken.push_back(expr);
    eqFlags.push_back(isEquality);
  }
  unsigned symbols = set.getNumSymbols();
  if (taken.empty())
    return IntegerSet::get(2, symbols, getAffineConstantExpr(0, set.getContext()), {true});
  return IntegerSet::get(2, symbols, taken, eqFlags);
}

FlatSet bounds::flatten(IntegerSet set, TileAxis axis) {
  return flatten(set, axis, Columns(SmallVector<SymbolKnowledge>(set.getNumSymbols() - 2)));
}

FlatSet bounds::flatten(IntegerSet whole, TileAxis axis, const Columns &columns) {
  IntegerSet set = takeFirst(whole);
  unsigned numSymbols = set.getNumSymbols() - 2, numInputs = 4 + numSymbols;
  assert(numSymbols <= columns.getNumSymbols() && "expected columns for all symbols");
  std::vector<SmallVector<int64_t, 8>> flat;
  FlatLinearConstraints divisions(2, 2 + numSymbols);
  LogicalResult flattened = getFlattenedAffineExprs(set, &flat, &divisions);
  assert(succeeded(flattened) && "verified masks are pure affine");
  (void)flattened;
  unsigned numLocals = divisions.getNumLocalVars();

  // Converts a row over [p, k, nq, nk, symbols, locals, constant].
  auto toRow = [&](auto &&source) {
    Row row(columns.getLocals() + numLocals + 1, DynamicAPInt(0));
    DynamicAPInt p(source[0]), k(source[1]);
    row[X] = axis == TileAxis::Keys ? k : p;
    row[columns.getY()] = axis == TileAxis::Keys ? p : k;
    if (axis == TileAxis::Queries)
      row[Offset] = p; // p = offset + x
    row[Nq] = DynamicAPInt(source[2]);
    row[Nk] = DynamicAPInt(source[3]);
    for (unsigned i = 0; i < numSymbols; ++i)
      row[columns.getSymbol(i)] = DynamicAPInt(source[4 + i]);
    for (unsigned i = 0; i <= numLocals; ++i)
      row[columns.getLocals() + i] = DynamicAPInt(source[numInputs + i]);
    return row;
  };

  FlatSet result;
  result.columns = columns;
  result.complete = set == whole;
  for (auto [row, isEquality] : llvm::zip(flat, set.getEqFlags()))
    (isEquality ? result.equalities : result.inequalities).push_back(toRow(row));
  if (numLocals == 0)
    return result;
  for (unsigned i = 0, e = divisions.getNumInequalities(); i < e; ++i)
    result.divisionBounds.push_back(toRow(divisions.getInequality(i)));
  presburger::DivisionRepr reprs = divisions.getLocalReprs();
  for (unsigned i = 0; i < numLocals; ++i) {
    result.dividends.push_back(toRow(reprs.getDividend(i)));
    result.divisors.push_back(reprs.getDenom(i));
  }
  return result;
}

/// Whether it is proven that `a`, the pairs of set `of`, is within `b`: each constraint of `b` is a
/// constraint of `of`, or no point of `a` violates it.
static bool isWithin(IntegerSet of, const IntegerPolyhedron &a, IntegerSet b, Budget &budget) {
  auto holds = [&](ArrayRef<int64_t> row, int sign) {
    Row violated(a.getNumCols(), DynamicAPInt(0));
    for (unsigned i = 0, e = row.size() - 1; i < e; ++i)
      violated[i] = DynamicAPInt(-sign * row[i]);
    violated.back() = DynamicAPInt(-sign) * DynamicAPInt(row.back()) - 1;
    if (!budget.take(a.getNumConstraints() + 1, a.getNumCols()))
      return false;
    Simplex simplex(a);
    simplex.addInequality(violated);
    return simplex.isEmpty();
  };
  return llvm::all_of(llvm::zip(b.getConstraints(), b.getEqFlags()), [&](auto constraint) {
    auto [expr, isEquality] = constraint;
    for (auto [mine, isMineEquality] : llvm::zip(of.getConstraints(), of.getEqFlags()))
      if (mine == expr && (isMineEquality || !isEquality))
        return true;
    SmallVector<int64_t> row;
    return countQuotients(expr) == 0 &&
           succeeded(getFlattenedAffineExpr(expr, 2, b.getNumSymbols(), &row)) &&
           holds(row, 1) && (!isEquality || holds(row, -1));
  });
}

SmallVector<IntegerSet> bounds::dropRedundantSets(ArrayRef<IntegerSet> visible, Budget &budget) {
  // Every pair of sets is compared, so a mask of more sets stays as it is.
  constexpr size_t kMaxCompared = 16;
  SmallVector<IntegerSet> sets;
  std::vector<IntegerPolyhedron> polyhedra;
  for (IntegerSet set : visible) {
    if (llvm::is_contained(sets, set))
      continue;
    IntegerPolyhedron poly = FlatLinearValueConstraints(takeFirst(set));
    SmallVector<int64_t> row(poly.getNumCols(), 0);
    row[1] = 1;
    poly.addInequality(row);
    row[1] = -1;
    row[3] = 1;
    row.back() = -1;
    poly.addInequality(row);
    if (isKnownEmpty(poly, budget))
      continue;
    sets.push_back(set);
    polyhedra.push_back(std::move(poly));
  }
  if (sets.size() > kMaxCompared)
    return sets;
  for (size_t i = 0; i < sets.size();) {
    bool contained = false;
    for (size_t j = 0; j < sets.size() && !contained; ++j)
      contained = i != j && isWithin(sets[i], polyhedra[i], sets[j], budget);
    if (!contained) {
      ++i;
      continue;
    }
    sets.erase(sets.begin() + i);
    polyhedra.erase(polyhedra.begin() + i);
  }
  return sets;
}
