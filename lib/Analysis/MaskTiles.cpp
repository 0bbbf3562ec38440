//===- MaskTiles.cpp - tile intervals of a mask ----------------------------===//
//
// Along the tiled axis the visible indices of a convex set lie between the
// largest of some lower and the smallest of some upper bounds, affine in the
// ends of the other axis' tile and in the lengths: the projection of the set
// (Fourier-Motzkin). The indices that see the whole tile lie between bounds of
// the same form: each constraint at its worst end of the tile (rules M3 to M5).
//
//===----------------------------------------------------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Analysis/Presburger/PresburgerRelation.h"
#include "mlir/Analysis/Presburger/Simplex.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::DynamicAPInt;
using presburger::IntegerPolyhedron;
using presburger::PresburgerSpace;
using presburger::Simplex;

//===----------------------------------------------------------------------===//
// Constraints
//===----------------------------------------------------------------------===//

namespace {

/// Coefficients and the constant of `row >= 0`.
using Row = SmallVector<DynamicAPInt, 8>;

/// Columns: the index along the tiled axis, what a bound may depend on, and what
/// is projected out: the index along the other axis and the quotients of mod and
/// floordiv. The constant is last.
enum Column : unsigned { X, First, Last, Nq, Nk, Offset, Y, Locals };
constexpr unsigned kNumParameters = Offset; // First to Offset
/// Width of a row after the projection.
constexpr unsigned kBoundColumns = Y + 1;

bool dependsOnParameters(const Row &row) {
  return llvm::any_of(ArrayRef(row).slice(First, kNumParameters),
                      [](const DynamicAPInt &value) { return value != 0; });
}

/// Everything that holds for the parameters: first <= last, nq >= 0, nk >= 0.
SmallVector<Row> getContext() {
  SmallVector<Row> rows(3, Row(kBoundColumns, DynamicAPInt(0)));
  rows[0][Last] = 1;
  rows[0][First] = -1;
  rows[1][Nq] = 1;
  rows[2][Nk] = 1;
  return rows;
}

bool isRationallyEmpty(ArrayRef<Row> rows) {
  Simplex simplex(rows.front().size() - 1);
  for (const Row &row : rows)
    simplex.addInequality(row);
  return simplex.isEmpty();
}

/// Whether `row` holds at every integer point of `given` and `also`: a proof, not
/// a decision.
bool implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row) {
  SmallVector<Row> rows(given);
  llvm::append_range(rows, also);
  Row negated;
  for (const DynamicAPInt &value : row)
    negated.push_back(-value);
  negated.back() -= 1;
  rows.push_back(negated);
  return isRationallyEmpty(rows);
}

/// Divides by the greatest common divisor of the coefficients; the integer
/// points stay the same.
void normalize(Row &row) {
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
bool fits(const Row &row) {
  DynamicAPInt sum(0);
  for (const DynamicAPInt &value : ArrayRef(row).drop_back())
    sum += abs(value);
  return sum <= DynamicAPInt(int64_t(1) << 31) && abs(row.back()) <= DynamicAPInt(int64_t(1) << 61);
}

/// A convex set, its constraints at least 0 or equal to 0.
struct FlatSet {
  SmallVector<Row> inequalities, equalities;
  /// The floor divisions behind the local columns, over the columns of the set.
  SmallVector<Row> dividends;
  SmallVector<DynamicAPInt> divisors;
  /// dividend - divisor * local in [0, divisor).
  SmallVector<Row> divisionBounds;
};

FlatSet flatten(IntegerSet set, TileAxis axis) {
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

/// Bounds of X: rows with a positive, a negative and no coefficient of X.
struct Bounds {
  SmallVector<Row> lower, upper, conditions;

  void add(Row row) {
    normalize(row);
    (row[X] > 0 ? lower : row[X] < 0 ? upper : conditions).push_back(std::move(row));
  }

  /// 0 <= x <= n - 1, n the length of the axis.
  void addAxis(TileAxis axis) {
    Row row(kBoundColumns, DynamicAPInt(0));
    row[X] = 1;
    lower.push_back(row);
    row[X] = -1;
    row[axis == TileAxis::Keys ? Nk : Nq] = 1;
    row.back() = -1;
    upper.push_back(row);
  }

  SmallVector<Row> all() const {
    SmallVector<Row> rows(lower);
    llvm::append_range(rows, upper);
    llvm::append_range(rows, conditions);
    return rows;
  }

  /// Drops what the rest implies. Lower bounds are only compared with lower and
  /// upper ones with upper ones: each end stays right where the interval is empty.
  void simplify(ArrayRef<Row> context) {
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

  /// Whether every upper bound is at least the lower bounds less `slack`, for
  /// all values. Bounds with a divisor are not tried.
  bool isOrdered(ArrayRef<Row> context, int64_t slack) const {
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
};

/// The indices with a visible pair: the projection over y in [first, last].
Bounds projectVisible(const FlatSet &set, TileAxis axis) {
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
    Row row;
    for (const DynamicAPInt &value : source)
      row.push_back(DynamicAPInt(sign) * value);
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

/// The indices that see every y in [first, last]; nothing if their bounds do not
/// fit 64 bits.
std::optional<Bounds> projectFull(const FlatSet &set, TileAxis axis) {
  Bounds bounds;
  bounds.addAxis(axis);
  auto add = [&](ArrayRef<DynamicAPInt> source, int sign) {
    Row row;
    for (const DynamicAPInt &value : source)
      row.push_back(DynamicAPInt(sign) * value);
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
bool isWithin(const IntegerPolyhedron &a, const IntegerPolyhedron &b) {
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

/// The sets that are neither empty nor within another one, for 0 <= k < nk.
SmallVector<IntegerSet> dropRedundantSets(ArrayRef<IntegerSet> visible) {
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

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

/// Emits index arithmetic, folded where it can be.
struct Emitter {
  OpBuilder &builder;
  Location loc;
  /// Values of the columns First to Offset; null where no bound reads one.
  std::array<Value, kNumParameters> parameters;

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return builder.createOrFold<Op>(loc, std::forward<Args>(args)...);
  }
  Value constant(int64_t value) { return arith::ConstantIndexOp::create(builder, loc, value); }
  Value addConstant(Value value, int64_t constantTerm) {
    return constantTerm == 0 ? value : make<arith::AddIOp>(value, constant(constantTerm));
  }
  Value floorDivide(Value value, int64_t divisor) {
    if (divisor == 1)
      return value;
    if (llvm::isPowerOf2_64(divisor))
      return make<arith::ShRSIOp>(value, constant(llvm::Log2_64(divisor)));
    return make<arith::FloorDivSIOp>(value, constant(divisor));
  }
  Value ceilDivide(Value value, int64_t divisor) {
    return floorDivide(addConstant(value, divisor - 1), divisor);
  }
  Value compare(arith::CmpIPredicate predicate, Value lhs, Value rhs) {
    return make<arith::CmpIOp>(predicate, lhs, rhs);
  }
  Value select(Value condition, Value ifTrue, Value ifFalse) {
    return make<arith::SelectOp>(condition, ifTrue, ifFalse);
  }

  /// sign * (the row without X) + extra.
  Value linear(const Row &row, int sign, int64_t extra) {
    Value sum;
    auto addTerms = [&](bool positive) {
      for (unsigned i = First; i <= Offset; ++i) {
        int64_t factor = sign * int64_t(row[i]);
        if (factor == 0 || (factor > 0) != positive)
          continue;
        Value term = parameters[i - First];
        if (factor != 1 && factor != -1)
          term = make<arith::MulIOp>(term, constant(sum && !positive ? -factor : factor));
        if (!sum)
          sum = factor == -1 ? make<arith::SubIOp>(constant(0), term) : term;
        else
          sum = positive ? make<arith::AddIOp>(sum, term) : make<arith::SubIOp>(sum, term);
      }
    };
    addTerms(true);
    addTerms(false);
    int64_t constantTerm = sign * int64_t(row.back()) + extra;
    return sum ? addConstant(sum, constantTerm) : constant(constantTerm);
  }
  /// The least x of the lower bounds.
  Value lower(const Bounds &bounds) {
    Value result;
    for (const Row &row : bounds.lower) {
      Value bound = ceilDivide(linear(row, -1, 0), int64_t(row[X]));
      result = result ? make<arith::MaxSIOp>(result, bound) : bound;
    }
    return result;
  }
  /// One past the greatest x of the upper bounds.
  Value upper(const Bounds &bounds) {
    Value result;
    for (const Row &row : bounds.upper) {
      // floor(e / b) + 1 = floor((e + b) / b)
      int64_t divisor = -int64_t(row[X]);
      Value bound = floorDivide(linear(row, 1, divisor), divisor);
      result = result ? make<arith::MinSIOp>(result, bound) : bound;
    }
    return result;
  }
  /// Whether `given` (null: true) and the conditions hold; null if there are none.
  Value conditions(const Bounds &bounds, Value given = nullptr) {
    for (const Row &row : bounds.conditions) {
      Value test = compare(arith::CmpIPredicate::sge, linear(row, 1, 0), constant(0));
      given = given ? make<arith::AndIOp>(given, test) : test;
    }
    return given;
  }
};

} // namespace

struct TileIntervalPlan::Interval {
  Bounds visible;
  /// The lower bound is one constant multiple of the tile: a maximum is enough
  /// to tell an empty interval.
  bool alignedBegin = false;
  /// The bounds cross by at most one index (and not at all), for all values.
  bool ordered = false, nonEmpty = false;

  /// Nothing where no tile can be full.
  std::optional<Bounds> full;
  bool fullOrdered = false;
  /// The full bounds are within the visible ones, for all values.
  bool fullLowerWithin = false, fullUpperWithin = false;

  Interval(const FlatSet &set, TileAxis axis, int64_t tile);
  TileInterval emit(Emitter &emitter, int64_t tile) const;
};

TileIntervalPlan::Interval::Interval(const FlatSet &set, TileAxis axis, int64_t tile)
    : visible(projectVisible(set, axis)), full(projectFull(set, axis)) {
  SmallVector<Row> context = getContext();
  visible.simplify(context);
  if (visible.lower.size() == 1) {
    const Row &row = visible.lower.front();
    alignedBegin = row[X] == 1 && row.back() % DynamicAPInt(tile) == 0 && !dependsOnParameters(row);
  }
  ordered = visible.isOrdered(context, 1);
  nonEmpty = ordered && visible.isOrdered(context, 0);

  if (!full)
    return;
  // A full tile needs its first index above the lower and its last below the
  // upper bounds.
  SmallVector<Row> rows(context);
  for (Row row : full->all()) {
    if (row[X] < 0)
      row.back() += row[X] * DynamicAPInt(tile - 1);
    rows.push_back(row);
  }
  if (isRationallyEmpty(rows)) {
    full.reset();
    return;
  }
  full->simplify(context);
  fullOrdered = full->isOrdered(context, 1);
  fullLowerWithin = llvm::all_of(
      visible.lower, [&](const Row &row) { return implies(context, full->lower, row); });
  fullUpperWithin = llvm::all_of(
      visible.upper, [&](const Row &row) { return implies(context, full->upper, row); });
}

TileInterval TileIntervalPlan::Interval::emit(Emitter &e, int64_t tile) const {
  TileInterval result;
  Value low = e.lower(visible), high = e.upper(visible);
  result.begin = e.floorDivide(low, tile);
  result.end = e.ceilDivide(high, tile);
  if (!nonEmpty && !(alignedBegin && ordered))
    result.end = alignedBegin ? e.make<arith::MaxSIOp>(result.end, result.begin)
                              : e.select(e.compare(arith::CmpIPredicate::sgt, high, low),
                                         result.end, result.begin);
  if (Value holds = e.conditions(visible))
    result.end = e.select(holds, result.end, result.begin);

  if (!full) {
    result.fullBegin = result.fullEnd = result.begin;
    return result;
  }
  result.fullBegin = e.ceilDivide(e.lower(*full), tile);
  result.fullEnd = e.floorDivide(e.upper(*full), tile);
  if (!fullLowerWithin)
    result.fullBegin = e.make<arith::MaxSIOp>(result.fullBegin, result.begin);
  if (!fullUpperWithin || !visible.conditions.empty())
    result.fullEnd = e.make<arith::MinSIOp>(result.fullEnd, result.end);
  std::optional<int64_t> begin = getConstantIntValue(result.begin);
  if (result.fullBegin == result.begin ||
      (begin && begin == getConstantIntValue(result.fullBegin))) {
    result.fullBegin = result.begin;
    if (!(alignedBegin && fullOrdered && fullLowerWithin))
      result.fullEnd = e.make<arith::MaxSIOp>(result.fullEnd, result.begin);
    if (Value holds = e.conditions(*full))
      result.fullEnd = e.select(holds, result.fullEnd, result.begin);
    return result;
  }
  Value any = e.compare(arith::CmpIPredicate::slt, result.fullBegin, result.fullEnd);
  any = e.conditions(*full, any);
  result.fullBegin = e.select(any, result.fullBegin, result.begin);
  result.fullEnd = e.select(any, result.fullEnd, result.begin);
  return result;
}

//===----------------------------------------------------------------------===//
// Unions
//===----------------------------------------------------------------------===//

TileIntervalPlan::TileIntervalPlan(TileIntervalPlan &&) = default;
TileIntervalPlan::~TileIntervalPlan() = default;

TileIntervalPlan::TileIntervalPlan(ArrayRef<IntegerSet> visible, TileAxis axis, int64_t tile)
    : tile(tile) {
  for (IntegerSet set : dropRedundantSets(visible))
    intervals.push_back(std::make_unique<Interval>(flatten(set, axis), axis, tile));

  SmallVector<Row> context = getContext();
  auto beginsFirst = [&](const Interval &a, const Interval &b) {
    return llvm::all_of(a.visible.lower,
                        [&](const Row &row) { return implies(context, b.visible.lower, row); });
  };
  // Provably earlier ones first, so that most exchanges below are settled here.
  for (size_t i = 1; i < intervals.size(); ++i)
    for (size_t j = i; j > 0 && beginsFirst(*intervals[j], *intervals[j - 1]) &&
                       !beginsFirst(*intervals[j - 1], *intervals[j]);
         --j)
      std::swap(intervals[j], intervals[j - 1]);
  for (auto &a : intervals) {
    SmallVector<bool> &row = ordered.emplace_back();
    for (auto &b : intervals)
      row.push_back(beginsFirst(*a, *b));
  }
}

SmallVector<TileInterval> TileIntervalPlan::emit(OpBuilder &builder, Location loc, Value first,
                                                 Value last, Value offset, Value nq,
                                                 Value nk) const {
  Emitter e{builder, loc, {first, last, nq, nk, offset}};
  size_t n = intervals.size();
  SmallVector<TileInterval> result;
  for (auto &interval : intervals)
    result.push_back(interval->emit(e, tile));

  // Sort by begin: a bubble network in which an exchange is left out where its
  // outcome is proven for every interval that may stand there.
  SmallVector<SmallVector<size_t>> candidates;
  for (size_t i = 0; i < n; ++i)
    candidates.push_back({i});
  auto proven = [&](ArrayRef<size_t> a, ArrayRef<size_t> b) {
    return llvm::all_of(
        a, [&](size_t i) { return llvm::all_of(b, [&](size_t j) { return ordered[i][j]; }); });
  };
  for (size_t end = n; end > 1; --end)
    for (size_t i = 0; i + 1 < end; ++i) {
      TileInterval &a = result[i], &b = result[i + 1];
      if (proven(candidates[i], candidates[i + 1]))
        continue;
      if (proven(candidates[i + 1], candidates[i])) {
        std::swap(a, b);
        std::swap(candidates[i], candidates[i + 1]);
        continue;
      }
      Value inOrder = e.compare(arith::CmpIPredicate::sle, a.begin, b.begin);
      auto exchange = [&](Value &x, Value &y) {
        Value low = e.select(inOrder, x, y);
        y = e.select(inOrder, y, x);
        x = low;
      };
      exchange(a.begin, b.begin);
      exchange(a.fullBegin, b.fullBegin);
      exchange(a.fullEnd, b.fullEnd);
      exchange(a.end, b.end);
      for (size_t candidate : candidates[i + 1])
        if (!llvm::is_contained(candidates[i], candidate))
          candidates[i].push_back(candidate);
      candidates[i + 1] = candidates[i];
    }

  // Sweep: what an earlier interval holds is taken from the later ones.
  for (size_t i = 1; i < n; ++i) {
    TileInterval &interval = result[i];
    Value start = e.make<arith::MaxSIOp>(interval.begin, result[i - 1].end);
    interval.begin = start;
    interval.fullBegin = e.make<arith::MaxSIOp>(interval.fullBegin, start);
    interval.fullEnd = e.make<arith::MaxSIOp>(interval.fullEnd, start);
    interval.end = e.make<arith::MaxSIOp>(interval.end, start);
  }
  return result;
}

SmallVector<TileInterval> flashattn::buildKeyIntervals(OpBuilder &builder, Location loc,
                                                       ArrayRef<IntegerSet> visible,
                                                       Value firstPosition, Value lastPosition,
                                                       Value nq, Value nk, int64_t tileN) {
  return TileIntervalPlan(visible, TileAxis::Keys, tileN)
      .emit(builder, loc, firstPosition, lastPosition, /*offset=*/nullptr, nq, nk);
}

SmallVector<TileInterval> flashattn::buildQueryIntervals(OpBuilder &builder, Location loc,
                                                         ArrayRef<IntegerSet> visible,
                                                         Value firstKey, Value lastKey,
                                                         Value offset, Value nq, Value nk,
                                                         int64_t tileM) {
  return TileIntervalPlan(visible, TileAxis::Queries, tileM)
      .emit(builder, loc, firstKey, lastKey, offset, nq, nk);
}
