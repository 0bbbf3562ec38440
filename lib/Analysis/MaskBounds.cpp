//===- MaskBounds.cpp ------------------------------------------------------===//

#include "MaskBounds.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/PresburgerRelation.h"
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
  return llvm::any_of(ArrayRef(row).slice(First, kNumParameters),
                      [](const DynamicAPInt &value) { return value != 0; });
}

SmallVector<Row> bounds::getContext() {
  SmallVector<Row> rows(3, Row(kBoundColumns, DynamicAPInt(0)));
  rows[0][Last] = 1;
  rows[0][First] = -1;
  rows[1][Nq] = 1;
  rows[2][Nk] = 1;
  return rows;
}

bool bounds::isRationallyEmpty(ArrayRef<Row> rows) {
  Simplex simplex(rows.front().size() - 1);
  for (const Row &row : rows)
    simplex.addInequality(row);
  return simplex.isEmpty();
}

static Row multiply(int factor, ArrayRef<DynamicAPInt> row) {
  return llvm::map_to_vector<8>(
      row, [&](const DynamicAPInt &value) { return DynamicAPInt(factor) * value; });
}

bool bounds::implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row) {
  SmallVector<Row> rows(given);
  llvm::append_range(rows, also);
  rows.push_back(multiply(-1, row));
  rows.back().back() -= 1;
  return isRationallyEmpty(rows);
}

/// Divides by the greatest common divisor of the coefficients; the integer
/// points stay the same.
static void normalize(Row &row) {
  DynamicAPInt divisor(0);
  for (const DynamicAPInt &value : ArrayRef(row).drop_back())
    divisor = gcd(divisor, abs(value));
  if (divisor <= 1)
    return;
  for (DynamicAPInt &value : row)
    value = floorDiv(value, divisor);
}

/// Whether the row's value fits 64 bits for operands below 2^31, with room for
/// the additions of a ceiling division.
static bool fits(const Row &row) {
  DynamicAPInt sum(0);
  for (const DynamicAPInt &value : ArrayRef(row).drop_back())
    sum += abs(value);
  return sum <= DynamicAPInt(int64_t(1) << 31) && abs(row.back()) <= DynamicAPInt(int64_t(1) << 61);
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

void Bounds::add(Row row) {
  normalize(row);
  (row[X] > 0 ? lower : row[X] < 0 ? upper : conditions).push_back(std::move(row));
}

void Bounds::addAxis(TileAxis axis) {
  Row row(kBoundColumns, DynamicAPInt(0));
  row[X] = 1;
  lower.push_back(row);
  row[X] = -1;
  row[axis == TileAxis::Keys ? Nk : Nq] = 1;
  row.back() = -1;
  upper.push_back(row);
}

SmallVector<Row> Bounds::all() const {
  SmallVector<Row> rows(lower);
  llvm::append_range(rows, upper);
  llvm::append_range(rows, conditions);
  return rows;
}

void Bounds::simplify(ArrayRef<Row> context) {
  auto dropImplied = [](SmallVector<Row> &rows, ArrayRef<Row> given) {
    for (size_t i = rows.size(); i-- > 0;) {
      Row row = rows[i];
      rows.erase(rows.begin() + i);
      if (!implies(given, rows, row))
        rows.insert(rows.begin() + i, row);
    }
    // Constants last, as canonical operands are.
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

bool Bounds::isOrdered(ArrayRef<Row> context, int64_t slack) const {
  for (const Row &low : lower)
    for (const Row &high : upper) {
      if (low[X] != 1 || high[X] != -1)
        return false;
      // x + e >= 0 and e' - x >= 0: e' + e + slack >= 0.
      Row sum;
      for (auto [l, h] : llvm::zip(low, high))
        sum.push_back(l + h);
      sum.back() += slack;
      if (!implies(context, {}, sum))
        return false;
    }
  return true;
}

//===----------------------------------------------------------------------===//
// Sets
//===----------------------------------------------------------------------===//

FlatSet bounds::flatten(IntegerSet set, TileAxis axis) {
  std::vector<SmallVector<int64_t, 8>> flat;
  FlatLinearConstraints divisions(2, 2);
  LogicalResult flattened = getFlattenedAffineExprs(set, &flat, &divisions);
  assert(succeeded(flattened) && "verified masks are pure affine");
  (void)flattened;
  unsigned numLocals = divisions.getNumLocalVars();

  // From [p, k, nq, nk, locals, constant].
  auto toRow = [&](auto &&source) {
    Row row(Locals + numLocals + 1, DynamicAPInt(0));
    DynamicAPInt p(source[0]), k(source[1]);
    row[X] = axis == TileAxis::Keys ? k : p;
    row[Y] = axis == TileAxis::Keys ? p : k;
    if (axis == TileAxis::Queries)
      row[Offset] = p; // p = offset + x
    row[Nq] = DynamicAPInt(source[2]);
    row[Nk] = DynamicAPInt(source[3]);
    for (unsigned i = 0; i <= numLocals; ++i)
      row[Locals + i] = DynamicAPInt(source[4 + i]);
    return row;
  };

  FlatSet result;
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

Bounds bounds::projectVisible(const FlatSet &set, TileAxis axis) {
  unsigned columns = Locals + set.divisors.size() + 1;
  IntegerPolyhedron poly(PresburgerSpace::getSetSpace(columns - 1));
  for (const Row &row : set.inequalities)
    poly.addInequality(row);
  for (const Row &row : set.equalities)
    poly.addEquality(row);
  for (const Row &row : set.divisionBounds)
    poly.addInequality(row);
  Row end(columns, DynamicAPInt(0));
  end[Y] = 1;
  end[First] = -1;
  poly.addInequality(end);
  end[Y] = -1;
  end[First] = 0;
  end[Last] = 1;
  poly.addInequality(end);
  poly.projectOut(Y, columns - 1 - Y);

  Bounds bounds;
  bounds.addAxis(axis);
  auto add = [&](ArrayRef<DynamicAPInt> source, int sign) {
    Row row = multiply(sign, source);
    normalize(row);
    if (fits(row)) // otherwise the cover is wider, never narrower
      bounds.add(row);
  };
  for (unsigned i = 0, e = poly.getNumInequalities(); i < e; ++i)
    add(poly.getInequality(i), 1);
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i) {
    add(poly.getEquality(i), 1);
    add(poly.getEquality(i), -1);
  }
  return bounds;
}

std::optional<Bounds> bounds::projectFull(const FlatSet &set, TileAxis axis) {
  Bounds bounds;
  bounds.addAxis(axis);
  auto add = [&](ArrayRef<DynamicAPInt> source, int sign) {
    Row row = multiply(sign, source);
    // A quotient q = floor(e / d) is between (e - d + 1) / d and e / d. Of integers,
    // q + r >= 0 is e + d*r >= 0 and r - q >= 0 is d*r + d - 1 - e >= 0: exact. A
    // later quotient may depend on an earlier one.
    for (unsigned i = set.divisors.size(); i-- > 0;) {
      DynamicAPInt factor = row[Locals + i];
      if (factor == 0)
        continue;
      row[Locals + i] = 0;
      for (auto [value, dividend] : llvm::zip(row, set.dividends[i]))
        value = value * set.divisors[i] + factor * dividend;
      if (factor == -1)
        row.back() += set.divisors[i] - 1;
      else if (factor > 1)
        row.back() -= factor * (set.divisors[i] - 1);
    }
    row[row[Y] > 0 ? First : Last] += row[Y];
    Row bound(ArrayRef(row).take_front(Y));
    bound.push_back(row.back());
    normalize(bound);
    if (!fits(bound))
      return false;
    bounds.add(bound);
    return true;
  };
  for (const Row &row : set.inequalities)
    if (!add(row, 1))
      return std::nullopt;
  for (const Row &row : set.equalities)
    if (!add(row, 1) || !add(row, -1))
      return std::nullopt;
  return bounds;
}

/// Whether `a` is known to be within `b`.
static bool isWithin(const IntegerPolyhedron &a, const IntegerPolyhedron &b) {
  if (b.getNumLocalVars() != 0)
    return a.isSubsetOf(b);
  // No point of `a` violates a constraint of `b`.
  auto holds = [&](ArrayRef<DynamicAPInt> row, int sign) {
    Row violated(a.getNumCols(), DynamicAPInt(0));
    for (unsigned i = 0, e = row.size() - 1; i < e; ++i)
      violated[i] = DynamicAPInt(-sign) * row[i];
    violated.back() = DynamicAPInt(-sign) * row.back() - 1;
    Simplex simplex(a);
    simplex.addInequality(violated);
    return simplex.isEmpty();
  };
  for (unsigned i = 0, e = b.getNumInequalities(); i < e; ++i)
    if (!holds(b.getInequality(i), 1))
      return false;
  for (unsigned i = 0, e = b.getNumEqualities(); i < e; ++i)
    if (!holds(b.getEquality(i), 1) || !holds(b.getEquality(i), -1))
      return false;
  return true;
}

SmallVector<IntegerSet> bounds::dropRedundantSets(ArrayRef<IntegerSet> visible) {
  // Pairs of sets are compared; a mask of very many sets stays as it is.
  constexpr size_t kMaxCompared = 16;
  SmallVector<IntegerSet> sets;
  std::vector<IntegerPolyhedron> polyhedra;
  for (IntegerSet set : visible) {
    if (llvm::is_contained(sets, set))
      continue;
    IntegerPolyhedron poly = FlatLinearValueConstraints(set);
    SmallVector<int64_t> row(poly.getNumCols(), 0);
    row[1] = 1;
    poly.addInequality(row);
    row[1] = -1;
    row[3] = 1;
    row.back() = -1;
    poly.addInequality(row);
    if (poly.isIntegerEmpty())
      continue;
    sets.push_back(set);
    polyhedra.push_back(std::move(poly));
  }
  if (sets.size() > kMaxCompared)
    return sets;
  for (size_t i = 0; i < sets.size();) {
    bool contained = false;
    for (size_t j = 0; j < sets.size() && !contained; ++j)
      contained = i != j && isWithin(polyhedra[i], polyhedra[j]);
    if (!contained) {
      ++i;
      continue;
    }
    sets.erase(sets.begin() + i);
    polyhedra.erase(polyhedra.begin() + i);
  }
  return sets;
}
