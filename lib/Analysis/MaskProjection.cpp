//===- MaskProjection.cpp - from a set to bounds along one axis -----------===//

#include "MaskBounds.h"
#include "mlir/Analysis/Presburger/IntegerRelation.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::bounds;
using llvm::DynamicAPInt;
using presburger::BoundType;
using presburger::IntegerPolyhedron;
using presburger::PresburgerSpace;
using presburger::VarKind;

//===----------------------------------------------------------------------===//
// Visible indices
//===----------------------------------------------------------------------===//

namespace {

/// Projects out the columns after the parameters, one after the other.
class Eliminator {
public:
  /// `poly` has the columns of a set's rows. The constructor inserts columns for the quotients that
  /// `parameters` already has.
  Eliminator(IntegerPolyhedron &poly, Parameters &parameters, Budget &budget)
      : poly(poly), parameters(parameters), budget(budget) {
    addQuotients();
  }

  /// Projects out all columns. Returns whether the result is exact, that is, has no additional
  /// integer point.
  bool run(bool roundToIntegers);

private:
  unsigned getNumKept() const { return parameters.getNumColumns() - 1; }
  void addQuotients() {
    for (; numQuotients < parameters.getQuotients().size(); ++numQuotients)
      poly.insertVar(VarKind::SetDim, parameters.getFirstQuotient() + numQuotients);
  }
  SmallVector<Row> getInequalities() const;
  SmallVector<Row> getContext() const;
  void tighten();
  void dropWide();
  void dropImplied();
  bool isExact(unsigned column) const;
  int64_t getThreshold(unsigned column) const;
  void limitGrowth(unsigned column);
  void dropColumns();

  IntegerPolyhedron &poly;
  Parameters &parameters;
  Budget &budget;
  unsigned numQuotients = 0;
  bool exact = true;
};

} // namespace

SmallVector<Row> Eliminator::getInequalities() const {
  SmallVector<Row> rows;
  for (unsigned i = 0, e = poly.getNumInequalities(); i < e; ++i)
    rows.emplace_back(poly.getInequality(i));
  return rows;
}

/// Returns the constraints on the parameters, and each equality as two inequalities.
SmallVector<Row> Eliminator::getContext() const {
  SmallVector<Row> rows = parameters.getContext();
  for (Row &row : rows)
    row.insert(row.end() - 1, poly.getNumVars() - getNumKept(), DynamicAPInt(0));
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i)
    for (int sign : {1, -1}) {
      Row &row = rows.emplace_back(poly.getNumCols(), DynamicAPInt(0));
      addMultiple(row, Row(poly.getEquality(i)), DynamicAPInt(sign));
    }
  return rows;
}

/// Tightens rows with a single column z to project out: g*z + r >= 0 becomes z + floor(r / g) >= 0.
/// Quotients of the tile's ends become parameters in this way.
void Eliminator::tighten() {
  for (unsigned i = poly.getNumInequalities(); i-- > 0;) {
    Row row(poly.getInequality(i));
    auto columns = llvm::make_filter_range(llvm::seq(getNumKept(), poly.getNumVars()),
                                           [&](unsigned column) { return row[column] != 0; });
    if (row[X] != 0 || !llvm::hasSingleElement(columns))
      continue;
    unsigned place = *columns.begin() - getNumKept();
    DynamicAPInt factor = row[*columns.begin()];
    std::optional<Row> floor;
    if (abs(factor) != 1)
      floor = parameters.getFloor(parameters.widen(row, getNumKept()), abs(factor));
    if (!floor)
      continue;
    addQuotients();
    floor->insert(floor->end() - 1, poly.getNumVars() - getNumKept(), DynamicAPInt(0));
    (*floor)[getNumKept() + place] = factor > 0 ? 1 : -1;
    poly.removeInequality(i);
    poly.addInequality(*floor);
  }
}

/// Drops rows with wide coefficients: their products cost time, and would be too wide in the end.
void Eliminator::dropWide() {
  const DynamicAPInt kWidest(int64_t(1) << 20);
  for (unsigned i = poly.getNumInequalities(); i-- > 0;) {
    ArrayRef<DynamicAPInt> row = poly.getInequality(i);
    if (llvm::all_of(row.drop_back(), [&](const DynamicAPInt &v) { return abs(v) <= kWidest; }))
      continue;
    poly.removeInequality(i);
    exact = false;
  }
}

void Eliminator::dropImplied() {
  SmallVector<Row> context = getContext(), rows = getInequalities();
  for (size_t i = rows.size(); i-- > 0;) {
    Row row = rows[i];
    rows.erase(rows.begin() + i);
    if (implies(context, rows, row, budget))
      poly.removeInequality(i);
    else
      rows.insert(rows.begin() + i, row);
  }
}

/// Whether projecting out `column` (z) is exact over the integers. If z occurs in equalities, one
/// of them must have a coefficient of 1 or -1. Otherwise, for each lower bound a*z >= l and upper
/// bound b*z <= u, a or b must be 1, or a*u - b*l >= (a - 1)*(b - 1) must be implied (the dark
/// shadow of the Omega test).
bool Eliminator::isExact(unsigned column) const {
  bool inEquality = false;
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i) {
    DynamicAPInt factor = abs(poly.atEq(i, column));
    if (factor == 1)
      return true;
    inEquality |= factor != 0;
  }
  if (inEquality)
    return false;
  SmallVector<Row> rows = getInequalities(), context;
  for (const Row &low : rows)
    for (const Row &high : rows) {
      DynamicAPInt a = low[column], b = -high[column];
      if (a <= 1 || b <= 1)
        continue;
      Row dark(poly.getNumCols(), DynamicAPInt(0));
      addMultiple(dark, low, b);
      addMultiple(dark, high, a);
      dark.back() -= (a - 1) * (b - 1);
      if (context.empty())
        context = getContext();
      if (!implies(context, rows, dark, budget))
        return false;
    }
  return true;
}

/// Returns the number of inequalities that projecting out `column` adds.
int64_t Eliminator::getThreshold(unsigned column) const {
  int64_t lower = 0, upper = 0;
  for (unsigned i = 0, e = poly.getNumInequalities(); i < e; ++i) {
    lower += poly.atIneq(i, column) > 0;
    upper += poly.atIneq(i, column) < 0;
  }
  return lower * upper - lower - upper;
}

/// Drops bounds of `column` until projecting it out leaves at most kMostBounds inequalities. The
/// result is then a wider cover.
void Eliminator::limitGrowth(unsigned column) {
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i)
    if (poly.atEq(i, column) != 0)
      return; // solved for the column
  for (unsigned i = poly.getNumInequalities();
       i-- > 0 && poly.getNumInequalities() + getThreshold(column) > kMostBounds;) {
    if (poly.atIneq(i, column) == 0)
      continue;
    poly.removeInequality(i);
    exact = false;
  }
}

/// Drops the remaining columns, and all constraints that contain them.
void Eliminator::dropColumns() {
  exact = false;
  auto isOfThem = [&](ArrayRef<DynamicAPInt> row) {
    return llvm::any_of(row.drop_back().drop_front(getNumKept()),
                        [](const DynamicAPInt &factor) { return factor != 0; });
  };
  for (unsigned i = poly.getNumInequalities(); i-- > 0;)
    if (isOfThem(poly.getInequality(i)))
      poly.removeInequality(i);
  for (unsigned i = poly.getNumEqualities(); i-- > 0;)
    if (isOfThem(poly.getEquality(i)))
      poly.removeEquality(i);
  poly.removeVarRange(VarKind::SetDim, getNumKept(), poly.getNumVars());
}

bool Eliminator::run(bool roundToIntegers) {
  while (poly.getNumVars() > getNumKept()) {
    if (!budget.take(poly.getNumConstraints(), poly.getNumCols())) {
      dropColumns();
      break;
    }
    if (poly.isEmptyByGCDTest()) {
      Row never(poly.getNumCols(), DynamicAPInt(0));
      never.back() = -1;
      poly.addInequality(never);
    }
    if (roundToIntegers) {
      tighten();
      dropWide();
      dropImplied();
    }
    auto columns = llvm::to_vector(llvm::seq(getNumKept(), poly.getNumVars()));
    llvm::sort(columns, [&](unsigned a, unsigned b) {
      return std::pair(getThreshold(a), a) < std::pair(getThreshold(b), b);
    });
    const unsigned *column =
        llvm::find_if(columns, [&](unsigned column) { return isExact(column); });
    exact &= column != columns.end();
    unsigned chosen = column != columns.end() ? *column : columns.front();
    limitGrowth(chosen);
    poly.projectOut(chosen);
  }
  return exact;
}

/// Returns the polyhedron of a set, with the columns of its rows.
static IntegerPolyhedron toPolyhedron(const FlatSet &set) {
  IntegerPolyhedron poly(
      PresburgerSpace::getSetSpace(set.columns.getLocals() + set.divisors.size()));
  for (const Row &row : set.inequalities)
    poly.addInequality(row);
  for (const Row &row : set.equalities)
    poly.addEquality(row);
  for (const Row &row : set.divisionBounds)
    poly.addInequality(row);
  return poly;
}

/// Whether the ranges of symbols lose nothing: at most one symbol counts, some index Y attains its
/// extreme values, and no other constraint restricts this index. Different symbols, or a symbol and
/// Y, may attain theirs at different indices.
static bool areRangesAttained(const FlatSet &set) {
  unsigned y = set.columns.getY(), found = 0;
  auto isUsed = [&](const Row &row, unsigned column) { return row[column] != 0; };
  auto anyUses = [&](ArrayRef<Row> rows, unsigned column) {
    return llvm::any_of(rows, [&](const Row &row) { return isUsed(row, column); });
  };
  bool isLost = false;
  for (auto [i, range] : llvm::enumerate(set.columns.getRanges())) {
    SymbolChange change = getChange(set, y + 1 + i);
    if (change == SymbolChange::None)
      continue;
    ++found;
    isLost |= !range || change == SymbolChange::Unknown;
  }
  bool usesY =
      anyUses(set.inequalities, y) || anyUses(set.equalities, y) || anyUses(set.dividends, y);
  return found == 0 || (!isLost && found == 1 && !usesY);
}

Projection bounds::projectVisible(const FlatSet &set, TileAxis axis, std::optional<int64_t> tile,
                                  Parameters &parameters, Budget &budget) {
  unsigned locals = set.columns.getLocals(), columns = locals + set.divisors.size() + 1;
  IntegerPolyhedron poly = toPolyhedron(set);
  auto limit = [&](unsigned column, unsigned least, unsigned greatest) {
    for (auto [parameter, sign] : {std::pair(least, 1), {greatest, -1}}) {
      Row end(columns, DynamicAPInt(0));
      end[column] = sign;
      end[parameter] = -sign;
      poly.addInequality(end);
    }
  };
  unsigned y = set.columns.getY();
  limit(y, First, Last);
  for (auto [i, least] : llvm::enumerate(set.columns.getRanges()))
    if (least)
      limit(y + 1 + i, *least, *least + 1);

  Projection result;
  for (Row row : getAxis(axis)) {
    if (tile) {
      Row ofSet = row;
      ofSet.insert(ofSet.end() - 1, columns - row.size(), DynamicAPInt(0));
      poly.addInequality(ofSet);
      row[X] *= DynamicAPInt(*tile); // the tile's first index
    }
    result.bounds.add(parameters.widen(row));
  }
  if (tile) {
    // x = tile*X + rest, 0 <= rest < tile.
    unsigned rest = poly.insertVar(VarKind::SetDim, locals);
    auto scale = [&](auto at, unsigned count) {
      for (unsigned i = 0; i < count; ++i) {
        at(i, rest) = at(i, X);
        at(i, X) *= DynamicAPInt(*tile);
      }
    };
    scale([&](unsigned i, unsigned j) -> DynamicAPInt & { return poly.atIneq(i, j); },
          poly.getNumInequalities());
    scale([&](unsigned i, unsigned j) -> DynamicAPInt & { return poly.atEq(i, j); },
          poly.getNumEqualities());
    poly.addBound(BoundType::LB, rest, 0);
    poly.addBound(BoundType::UB, rest, *tile - 1);
  }
  result.exact = Eliminator(poly, parameters, budget).run(/*roundToIntegers=*/tile.has_value());
  result.exact &= set.complete && areRangesAttained(set);

  auto add = [&](ArrayRef<DynamicAPInt> source, int sign) {
    Row row(source.size(), DynamicAPInt(0));
    addMultiple(row, Row(source), DynamicAPInt(sign));
    normalize(row);
    if (parameters.fits(row)) // otherwise the cover is wider, never narrower
      result.bounds.add(row);
    else
      result.exact = false;
  };
  for (unsigned i = 0, e = poly.getNumInequalities(); i < e; ++i)
    add(poly.getInequality(i), 1);
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i) {
    add(poly.getEquality(i), 1);
    add(poly.getEquality(i), -1);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

/// Clamps `x` to 2^62 in absolute value, which is beyond all positions.
static int64_t clamp(const DynamicAPInt &x) {
  constexpr int64_t kFar = int64_t(1) << 62;
  return x > kFar ? kFar : x < -kFar ? -kFar : int64_t(x);
}

PositionRange bounds::projectPositions(const FlatSet &set, std::optional<int64_t> nq,
                                       std::optional<int64_t> nk, const PositionRange &within,
                                       Budget &budget) {
  IntegerPolyhedron poly = toPolyhedron(set);
  // Exchanges k and p, and moves the lengths to the end, from where they are projected out.
  poly.swapVar(X, set.columns.getY());
  assert(set.columns.getY() == Symbols && "expected a set of unknown symbols");
  constexpr unsigned kKey = Symbols;
  SmallVector<unsigned> lengths;
  for (Column column : {Nq, Nk}) {
    lengths.push_back(poly.insertVar(VarKind::SetDim, poly.getNumVars()));
    poly.swapVar(column, lengths.back());
  }
  if (within.last == within.first) {
    // Replaces X by the position, so that equations without integer solutions are detected.
    auto insert = [&](auto at, unsigned count) {
      for (unsigned i = 0; i < count; ++i)
        at(i, poly.getNumVars()) += std::exchange(at(i, X), DynamicAPInt(0)) * within.first;
    };
    insert([&](unsigned i, unsigned j) -> DynamicAPInt & { return poly.atIneq(i, j); },
           poly.getNumInequalities());
    insert([&](unsigned i, unsigned j) -> DynamicAPInt & { return poly.atEq(i, j); },
           poly.getNumEqualities());
  }
  poly.addBound(BoundType::LB, X, within.first);
  if (within.last)
    poly.addBound(BoundType::UB, X, *within.last);
  poly.addBound(BoundType::LB, kKey, 0);
  Row keyExists(poly.getNumCols(), DynamicAPInt(0)); // k < nk, and so nk >= 1
  keyExists[kKey] = keyExists.back() = -1;
  keyExists[lengths[1]] = 1;
  poly.addInequality(keyExists);
  for (auto [column, length] : {std::pair(lengths[0], nq), std::pair(lengths[1], nk)})
    poly.addBound(length ? BoundType::EQ : BoundType::LB, column, length.value_or(1));

  PositionRange result = within;
  Parameters none;
  result.exact = Eliminator(poly, none, budget).run(/*roundToIntegers=*/true) && set.complete;
  auto add = [&](const DynamicAPInt &factor, const DynamicAPInt &rest) {
    if (factor > 0)
      result.first = std::max(result.first, clamp(ceilDiv(-rest, factor)));
    else if (factor < 0)
      result.last = std::min(result.last.value_or(std::numeric_limits<int64_t>::max()),
                             clamp(floorDiv(rest, -factor)));
    else
      result.empty |= rest < 0;
  };
  for (unsigned i = 0, e = poly.getNumInequalities(); i < e; ++i)
    add(poly.atIneq(i, X), poly.getInequality(i).back());
  for (unsigned i = 0, e = poly.getNumEqualities(); i < e; ++i)
    for (int sign : {1, -1})
      add(poly.atEq(i, X) * sign, poly.getEquality(i).back() * sign);
  result.empty |= result.last && *result.last < result.first;
  return result;
}

//===----------------------------------------------------------------------===//
// Indices that see the whole tile
//===----------------------------------------------------------------------===//

namespace {

/// Evaluates each constraint of a set at its worst end of the tile.
class WorstEnds {
public:
  WorstEnds(const FlatSet &set, Parameters &parameters) : set(set), parameters(parameters) {}

  /// Computes the ends of the quotients. Returns false if they do not fit 64 bits.
  bool prepare();

  /// Returns the bound that makes `row >= 0` hold for every y, or nullopt if it does not fit 64
  /// bits.
  std::optional<Row> getBound(Row row);

  /// Whether no bound so far is stronger than necessary.
  bool exact = true;

private:
  /// Whether some term of a sum rises with y, and some term falls. A symbol with a range, which
  /// `hasSymbol`, counts as one that rises or, beside other terms, does both.
  struct Change {
    bool rises = false, falls = false, hasSymbol = false;

    void add(const Change &term) {
      bool isBoth = (hasSymbol || term.hasSymbol) && (rises || falls) && (term.rises || term.falls);
      rises |= term.rises || isBoth;
      falls |= term.falls || isBoth;
      hasSymbol |= term.hasSymbol;
    }
    Change negate() const { return {falls, rises, hasSymbol}; }
  };
  /// The least and the greatest value, over the tile, of a quotient that does not depend on x.
  struct Ends {
    Row least, greatest;
    Change change;
  };
  Row getLeast(const Row &row, Change &change) const;
  Row getLeast(const Row &row) {
    Change change;
    Row least = getLeast(row, change);
    exact &= !(change.rises && change.falls);
    return least;
  }

  std::optional<unsigned> findQuotientOfX(const Row &row) const;

  const FlatSet &set;
  Parameters &parameters;
  SmallVector<std::optional<Ends>, 0> quotients; // nullopt: depends on x
  mutable bool isBounded = true;                 ///< no symbol so far is unknown
};

} // namespace

/// Returns the least value of `row` over y, and its change with y. Its quotients must not depend on
/// x. If it rises and falls, no y may attain the least value.
Row WorstEnds::getLeast(const Row &row, Change &change) const {
  unsigned y = set.columns.getY();
  Row least = parameters.widen(row, y);
  least[row[y] > 0 ? First : Last] += row[y];
  change.add({row[y] > 0, row[y] < 0});
  for (auto [i, range] : llvm::enumerate(set.columns.getRanges())) {
    const DynamicAPInt &factor = row[y + 1 + i];
    if (factor == 0)
      continue;
    isBounded &= range.has_value();
    if (range)
      least[factor > 0 ? *range : *range + 1] += factor;
    change.add({/*rises=*/true, /*falls=*/false, /*hasSymbol=*/true});
  }
  for (auto [i, ends] : llvm::enumerate(quotients)) {
    const DynamicAPInt &factor = row[set.columns.getLocals() + i];
    if (factor == 0)
      continue;
    addMultiple(least, factor > 0 ? ends->least : ends->greatest, factor);
    change.add(factor > 0 ? ends->change : ends->change.negate());
  }
  return least;
}

bool WorstEnds::prepare() {
  for (auto [dividend, divisor] : llvm::zip(set.dividends, set.divisors)) {
    bool dependsOnX = dividend[X] != 0;
    for (auto [i, ends] : llvm::enumerate(quotients))
      dependsOnX |= dividend[set.columns.getLocals() + i] != 0 && !ends;
    if (dependsOnX) {
      quotients.emplace_back();
      continue;
    }
    Ends ends;
    Row negated(dividend.size(), DynamicAPInt(0));
    addMultiple(negated, dividend, DynamicAPInt(-1));
    std::optional<Row> least = parameters.getFloor(getLeast(dividend, ends.change), divisor);
    // floor(e / d) = -ceil(-e / d) = -floor((-e + d - 1) / d), at the least -e.
    Change ofNegated;
    Row mirrored = getLeast(negated, ofNegated);
    mirrored.back() += divisor - 1;
    std::optional<Row> greatest = parameters.getFloor(mirrored, divisor);
    if (!least || !greatest || !isBounded)
      return false;
    ends.least = *least;
    ends.greatest.resize(greatest->size(), DynamicAPInt(0));
    addMultiple(ends.greatest, *greatest, DynamicAPInt(-1));
    quotients.push_back(ends);
  }
  return true;
}

/// Returns the index of the quotient that is the only term of `row` with x, if it depends on x
/// alone and has a factor other than 1 and -1.
std::optional<unsigned> WorstEnds::findQuotientOfX(const Row &row) const {
  std::optional<unsigned> found;
  unsigned locals = set.columns.getLocals();
  for (auto [i, ends] : llvm::enumerate(quotients)) {
    if (ends || row[locals + i] == 0)
      continue;
    bool isAlone =
        !found && row[X] == 0 && abs(row[locals + i]) > 1 &&
        llvm::all_of(ArrayRef(set.dividends[i]).drop_front(set.columns.getY()).drop_back(),
                     [](const DynamicAPInt &factor) { return factor == 0; });
    if (!isAlone)
      return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<Row> WorstEnds::getBound(Row row) {
  unsigned locals = set.columns.getLocals();
  if (std::optional<unsigned> i = findQuotientOfX(row)) {
    // f*q + r >= 0 is q + floor(r / f) >= 0, and r - f*q >= 0 is floor(r / f) - q >= 0.
    DynamicAPInt factor = row[locals + *i], divisor = set.divisors[*i];
    row[locals + *i] = 0;
    std::optional<Row> rest = parameters.getFloor(getLeast(row), abs(factor));
    if (!rest)
      return std::nullopt;
    row.assign(row.size(), DynamicAPInt(0));
    addMultiple(row, set.dividends[*i], DynamicAPInt(factor > 0 ? 1 : -1));
    if (factor < 0)
      row.back() += divisor - 1;
    Row bound = getLeast(row);
    addMultiple(bound, *rest, divisor);
    normalize(bound);
    return isBounded && parameters.fits(bound) ? std::optional(bound) : std::nullopt;
  }
  // A quotient q = floor(e / d) is between (e - d + 1) / d and e / d. Over the integers, q + r >= 0
  // is exactly e + d*r >= 0, and r - q >= 0 is exactly d*r + d - 1 - e >= 0. A later quotient may
  // depend on an earlier one, so the last is replaced first.
  for (unsigned i = set.divisors.size(); i-- > 0;) {
    DynamicAPInt factor = row[locals + i];
    if (factor == 0 || quotients[i])
      continue;
    row[locals + i] = 0;
    for (auto [value, dividend] : llvm::zip(row, set.dividends[i]))
      value = value * set.divisors[i] + factor * dividend;
    if (factor == -1)
      row.back() += set.divisors[i] - 1;
    else if (factor > 1)
      row.back() -= factor * (set.divisors[i] - 1);
    exact &= abs(factor) == 1;
  }
  Row bound = getLeast(row);
  normalize(bound);
  if (!isBounded || !parameters.fits(bound))
    return std::nullopt;
  return bound;
}

std::optional<Projection> bounds::projectFull(const FlatSet &set, TileAxis axis,
                                              Parameters &parameters) {
  WorstEnds ends(set, parameters);
  if (!set.complete || !ends.prepare())
    return std::nullopt;
  Projection result;
  for (const Row &row : getAxis(axis))
    result.bounds.add(parameters.widen(row));
  auto add = [&](const Row &source, int sign) {
    Row row(source.size(), DynamicAPInt(0));
    addMultiple(row, source, DynamicAPInt(sign));
    std::optional<Row> bound = ends.getBound(row);
    if (bound)
      result.bounds.add(*bound);
    return bound.has_value();
  };
  for (const Row &row : set.inequalities)
    if (!add(row, 1))
      return std::nullopt;
  for (const Row &row : set.equalities)
    if (!add(row, 1) || !add(row, -1))
      return std::nullopt;
  result.exact = ends.exact;
  return result;
}
