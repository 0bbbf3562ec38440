//===- MaskTiles.cpp - tile intervals of a mask ---------------------------===//
//
// Emits the arithmetic that computes tile intervals from the bounds of the visible indices
// (MaskBounds.h).
//
//===----------------------------------------------------------------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "MaskBounds.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Analysis/FlatLinearValueConstraints.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::bounds;
using llvm::DynamicAPInt;

//===----------------------------------------------------------------------===//
// Emission
//===----------------------------------------------------------------------===//

namespace {

/// Emits index arithmetic, folded if possible.
struct Emitter {
  OpBuilder &builder;
  Location loc;
  const Parameters &plan;
  /// Values of the columns from First on. An unused offset, and a quotient that no bound has read
  /// yet, are null.
  SmallVector<Value> parameters;

  Emitter(OpBuilder &builder, Location loc, const Parameters &plan, Value first, Value last,
          Value offset, const SymbolValues &symbols)
      : builder(builder), loc(loc), plan(plan),
        parameters{first, last, symbols.nq, symbols.nk, offset} {
    for (const SymbolRange &range : symbols.others) {
      if (range.isKnown())
        parameters.push_back(range.least);
      if (range.isKnown() && !range.isValue())
        parameters.push_back(range.greatest);
    }
    assert(First + parameters.size() == plan.getFirstQuotient() && "expected the plan's symbols");
    parameters.append(plan.getQuotients().size(), Value());
  }

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

  Value getParameter(unsigned column) {
    Value value = parameters[column - First];
    if (!value && column >= plan.getFirstQuotient()) {
      const Parameters::Quotient &quotient =
          plan.getQuotients()[column - plan.getFirstQuotient()];
      value = floorDivide(linear(quotient.dividend, 1, 0), int64_t(quotient.divisor));
      parameters[column - First] = value;
    }
    return value;
  }
  /// Returns sign * (row without X) + extra.
  Value linear(const Row &row, int sign, int64_t extra) {
    Value sum;
    auto addTerms = [&](bool positive) {
      for (unsigned i = First; i + 1 < row.size(); ++i) {
        int64_t factor = sign * int64_t(row[i]);
        if (factor == 0 || (factor > 0) != positive)
          continue;
        Value term = getParameter(i);
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
  /// Returns the least x that satisfies the lower bounds.
  Value lower(const Bounds &bounds) {
    Value result;
    for (const Row &row : bounds.lower) {
      Value bound = ceilDivide(linear(row, -1, 0), int64_t(row[X]));
      result = result ? make<arith::MaxSIOp>(result, bound) : bound;
    }
    return result;
  }
  /// Returns one past the greatest x that satisfies the upper bounds.
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
  /// Returns whether `given` (null: true) and the conditions hold, or null if there are none.
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
  /// Whether the visible bounds count tiles, not indices.
  bool ofTiles = false;
  /// Whether the only lower bound is a constant multiple of the tile. Then the maximum of begin and
  /// end is the correct end of an empty interval, too.
  bool alignedBegin = false;
  /// Whether, for all values, the bounds cross by at most one index; and whether they do not cross.
  bool ordered = false, nonEmpty = false;

  /// Bounds of the indices that see the whole tile; nullopt if no tile can be full.
  std::optional<Bounds> full;
  bool fullOrdered = false;
  /// Whether the full bounds are within the visible bounds, for all values.
  bool fullLowerWithin = false, fullUpperWithin = false;

  /// Whether every tile between the bounds contains a visible pair, and whether every full tile is
  /// found.
  bool exact = false, fullExact = false;

  /// Drops redundant bounds, and sets the flags that hold for all `parameters`.
  void simplify(const Parameters &parameters, int64_t tile, Budget &budget);
  TileInterval emit(Emitter &emitter, int64_t tile) const;
  /// Returns the only tile that the interval can contain for any parameters, if there is only one.
  std::optional<int64_t> getOnlyTile(int64_t tile) const;
};

void TileIntervalPlan::Interval::simplify(const Parameters &parameters, int64_t tile,
                                          Budget &budget) {
  SmallVector<Row> context = parameters.getContext();
  visible.widen(parameters);
  visible.simplify(context, budget);
  if (visible.lower.size() == 1 && !ofTiles) {
    const Row &row = visible.lower.front();
    alignedBegin = row[X] == 1 && row.back() % DynamicAPInt(tile) == 0 && !dependsOnParameters(row);
  }
  ordered = visible.isOrdered(context, 1, budget);
  nonEmpty = ordered && visible.isOrdered(context, 0, budget);

  if (!full)
    return;
  // The first index of a full tile satisfies the lower bounds, and its last index the upper bounds.
  full->widen(parameters);
  SmallVector<Row> rows(context);
  for (Row row : full->all()) {
    if (row[X] < 0)
      row.back() += row[X] * DynamicAPInt(tile - 1);
    rows.push_back(row);
  }
  if (isRationallyEmpty(rows, budget)) {
    full.reset();
    return;
  }
  full->simplify(context, budget);
  fullOrdered = full->isOrdered(context, 1, budget);
  auto isWithin = [&](ArrayRef<Row> ofFull, ArrayRef<Row> ofVisible, int64_t index) {
    SmallVector<Row> given(ofFull);
    for (Row &row : given)
      if (ofTiles) {
        row.back() += row[X] * DynamicAPInt(index);
        row[X] *= DynamicAPInt(tile);
      }
    return llvm::all_of(ofVisible,
                        [&](const Row &row) { return implies(context, given, row, budget); });
  };
  fullLowerWithin = isWithin(full->lower, visible.lower, /*index=*/0);
  fullUpperWithin = isWithin(full->upper, visible.upper, /*index=*/tile - 1);
}

TileInterval TileIntervalPlan::Interval::emit(Emitter &e, int64_t tile) const {
  TileInterval result;
  Value low = e.lower(visible), high = e.upper(visible);
  result.begin = e.floorDivide(low, ofTiles ? 1 : tile);
  result.end = e.ceilDivide(high, ofTiles ? 1 : tile);
  if (!nonEmpty && !(alignedBegin && ordered))
    result.end = alignedBegin || ofTiles ? e.make<arith::MaxSIOp>(result.end, result.begin)
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

std::optional<int64_t> TileIntervalPlan::Interval::getOnlyTile(int64_t tile) const {
  if (ofTiles)
    return std::nullopt;
  // A row is row[X] * x + constant >= 0; row[X] is negative in upper bounds.
  std::optional<int64_t> first, last;
  for (const Row &row : visible.lower)
    if (!dependsOnParameters(row)) {
      int64_t bound = llvm::divideCeilSigned(-int64_t(row.back()), int64_t(row[X]));
      first = std::max(first.value_or(bound), bound);
    }
  for (const Row &row : visible.upper)
    if (!dependsOnParameters(row)) {
      int64_t bound = llvm::divideFloorSigned(int64_t(row.back()), -int64_t(row[X]));
      last = std::min(last.value_or(bound), bound);
    }
  if (!first || !last || *first < 0 || *first / tile != *last / tile)
    return std::nullopt;
  return *first / tile;
}

//===----------------------------------------------------------------------===//
// Unions
//===----------------------------------------------------------------------===//

TileIntervalPlan::TileIntervalPlan(TileIntervalPlan &&) = default;
TileIntervalPlan::~TileIntervalPlan() = default;

/// Returns what is known of `count` symbols: of missing ones, nothing.
static Columns makeColumns(ArrayRef<SymbolKnowledge> known, ArrayRef<IntegerSet> visible) {
  SmallVector<SymbolKnowledge> all(known);
  for (IntegerSet set : visible)
    all.resize(std::max<size_t>(all.size(), set.getNumSymbols() - 2));
  return Columns(all);
}

TileIntervalPlan::TileIntervalPlan(ArrayRef<IntegerSet> visible, TileAxis axis, int64_t tile,
                                   ArrayRef<SymbolKnowledge> symbols)
    : parameters(std::make_unique<Parameters>(makeColumns(symbols, visible))), axis(axis),
      tile(tile) {
  Budget budget;
  SmallVector<FlatSet, 0> sets =
      llvm::map_to_vector<0>(dropRedundantSets(visible, budget), [&](IntegerSet set) {
        return flatten(set, axis, parameters->getColumns());
      });
  // With quotients, there may be gaps between visible indices. The bounds are then those of the
  // tiles that contain a visible index.
  bool ofTiles = llvm::any_of(sets, [](const FlatSet &set) { return !set.divisors.empty(); });
  for (const FlatSet &set : sets) {
    auto &interval = intervals.emplace_back(std::make_unique<Interval>());
    Projection projection = projectVisible(
        set, axis, ofTiles ? std::optional<int64_t>(tile) : std::nullopt, *parameters, budget);
    interval->visible = std::move(projection.bounds);
    interval->exact = projection.exact;
    interval->ofTiles = ofTiles;
  }
  for (auto [interval, set] : llvm::zip(intervals, sets)) {
    if (isGrouped())
      break; // groups have no full tiles
    if (std::optional<Projection> full = projectFull(set, axis, *parameters)) {
      interval->full = std::move(full->bounds);
      interval->fullExact = full->exact;
    }
  }
  for (auto &interval : intervals)
    interval->simplify(*parameters, tile, budget);

  if (isGrouped())
    return;
  SmallVector<Row> context = parameters->getContext();
  auto beginsFirst = [&](const Interval &a, const Interval &b) {
    return llvm::all_of(a.visible.lower, [&](const Row &row) {
      return implies(context, b.visible.lower, row, budget);
    });
  };
  // Intervals that provably begin earlier come first, so that `emit` needs few exchanges.
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

size_t TileIntervalPlan::size() const { return std::min(intervals.size(), kMostIntervals); }

bool TileIntervalPlan::isExact() const {
  return !isGrouped() &&
         llvm::all_of(intervals, [](const auto &interval) { return interval->exact; });
}

bool TileIntervalPlan::findsEveryFullTile() const {
  return intervals.empty() || (intervals.size() == 1 && intervals.front()->fullExact);
}

/// Merges `count` groups of adjacent intervals into one interval each, without full tiles: from the
/// first begin to the last end of the group's nonempty intervals.
static SmallVector<TileInterval> joinGroups(Emitter &e, ArrayRef<TileInterval> intervals,
                                            size_t count) {
  Value none = e.constant(0), far = e.constant(std::numeric_limits<int32_t>::max());
  SmallVector<TileInterval> groups;
  for (size_t i = 0; i < count; ++i) {
    size_t first = intervals.size() * i / count, next = intervals.size() * (i + 1) / count;
    Value begin = far, end = none;
    for (const TileInterval &interval : intervals.slice(first, next - first)) {
      Value any = e.compare(arith::CmpIPredicate::slt, interval.begin, interval.end);
      begin = e.make<arith::MinSIOp>(begin, e.select(any, interval.begin, far));
      end = e.make<arith::MaxSIOp>(end, e.select(any, interval.end, none));
    }
    begin = e.make<arith::MinSIOp>(begin, end);
    groups.push_back({begin, begin, begin, end});
  }
  return groups;
}

SmallVector<TileInterval> TileIntervalPlan::emit(OpBuilder &builder, Location loc, Value first,
                                                 Value last, Value offset,
                                                 const SymbolValues &symbols,
                                                 bool constants) const {
  Emitter e(builder, loc, *parameters, first, last, offset, symbols);
  size_t n = size();
  SmallVector<TileInterval> result;
  for (auto &interval : intervals) {
    std::optional<int64_t> only = constants ? interval->getOnlyTile(tile) : std::nullopt;
    if (!only) {
      result.push_back(interval->emit(e, tile));
      continue;
    }
    Value begin = e.constant(*only);
    result.push_back({begin, begin, begin, e.constant(*only + 1)});
  }

  if (isGrouped())
    result = joinGroups(e, result, n);

  // Sort by begin with a bubble sort network. An exchange is omitted if its outcome is proven for
  // every interval that may be at these two positions.
  SmallVector<SmallVector<size_t>> candidates;
  for (size_t i = 0; i < n; ++i)
    candidates.push_back({i});
  auto proven = [&](ArrayRef<size_t> a, ArrayRef<size_t> b) {
    return !isGrouped() && llvm::all_of(a, [&](size_t i) {
      return llvm::all_of(b, [&](size_t j) { return ordered[i][j]; });
    });
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

  // Sweep: remove the tiles of earlier intervals from each interval.
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

/// Returns the constraints on the parameters of a plan that covers the whole other axis, if both
/// axes are not empty.
static SmallVector<Row> getWholeContext(const Parameters &parameters, TileAxis axis,
                                        std::optional<Align> align) {
  SmallVector<Row> rows = parameters.getContext();
  using Terms = ArrayRef<std::pair<unsigned, int>>;
  auto add = [&](Terms terms, int64_t constant, bool isEquality) {
    for (int sign : {1, -1}) {
      if (sign < 0 && !isEquality)
        break;
      Row &row = rows.emplace_back(parameters.getNumColumns(), DynamicAPInt(0));
      for (auto [column, factor] : terms)
        row[column] += sign * factor;
      row.back() = sign * constant;
    }
  };
  add({{Nq, 1}}, -1, /*isEquality=*/false);
  add({{Nk, 1}}, -1, /*isEquality=*/false);
  // The other axis has the positions from the first query's on, or the keys from 0 on.
  unsigned start = axis == TileAxis::Keys ? First : Offset;
  if (axis == TileAxis::Keys) {
    add({{Last, 1}, {First, -1}, {Nq, -1}}, 1, /*isEquality=*/true);
  } else {
    add({{First, 1}}, 0, /*isEquality=*/true);
    add({{Last, 1}, {Nk, -1}}, 1, /*isEquality=*/true);
  }
  if (align == Align::TopLeft)
    add({{start, 1}}, 0, /*isEquality=*/true);
  else if (align)
    add({{start, 1}, {Nk, -1}, {Nq, 1}}, 0, /*isEquality=*/true);
  return rows;
}

IndexRange TileIntervalPlan::emitHull(OpBuilder &builder, Location loc, Value first, Value last,
                                      Value offset, const SymbolValues &symbols,
                                      std::optional<Align> align) const {
  assert(tile == 1 && "expected a plan of indices");
  if (intervals.empty())
    return {nullptr, arith::ConstantIndexOp::create(builder, loc, 0)};
  SmallVector<Row> context = getWholeContext(*parameters, axis, align);
  Budget budget;
  unsigned count = axis == TileAxis::Keys ? Nk : Nq;
  auto proves = [&](const Row &row) { return implies(context, {}, row, budget); };
  auto isSeen = [&](const Bounds &bounds) {
    return bounds.isOrdered(context, 0, budget) && llvm::all_of(bounds.conditions, proves);
  };
  // Without conditions, the bounds of the only set are out of order if it shows nothing.
  bool isOnly = intervals.size() == 1 && llvm::all_of(intervals[0]->visible.conditions, proves);
  bool beginsAtStart = false, endsAtEnd = false;
  for (const auto &interval : intervals) {
    const Bounds &bounds = interval->visible;
    if (!isOnly && !isSeen(bounds))
      continue;
    beginsAtStart |= llvm::all_of(bounds.lower, [&](Row row) {
      row[X] = 0;
      return proves(row);
    });
    endsAtEnd |= llvm::all_of(bounds.upper, [&](Row row) {
      row[count] += row[X];
      row.back() -= row[X];
      row[X] = 0;
      return proves(row);
    });
  }
  if (beginsAtStart && endsAtEnd)
    return {};

  Emitter e(builder, loc, *parameters, first, last, offset, symbols);
  Value zero = e.constant(0), size = axis == TileAxis::Keys ? symbols.nk : symbols.nq;
  // An empty set begins at a position that does not widen the range of another set.
  Value noBegin = isOnly && !endsAtEnd ? zero : size;
  IndexRange range;
  for (const auto &interval : intervals) {
    const Bounds &bounds = interval->visible;
    Value low = e.lower(bounds), high = e.upper(bounds);
    if (!isSeen(bounds)) {
      Value any = e.conditions(bounds, e.compare(arith::CmpIPredicate::slt, low, high));
      low = e.select(any, low, noBegin);
      high = e.select(any, high, zero);
    }
    range.begin = range.begin ? e.make<arith::MinSIOp>(range.begin, low) : low;
    range.end = range.end ? e.make<arith::MaxSIOp>(range.end, high) : high;
  }
  std::optional<int64_t> length = getConstantIntValue(size);
  if (beginsAtStart || isConstantIntValue(range.begin, 0))
    range.begin = nullptr;
  if (endsAtEnd || range.end == size || (length && isConstantIntValue(range.end, *length)))
    range.end = nullptr;
  return range;
}

// A7
IndexRange flashattn::buildVisibleRange(OpBuilder &builder, Location loc,
                                        ArrayRef<IntegerSet> visible, TileAxis axis, Value offset,
                                        const SymbolValues &symbols, std::optional<Align> align) {
  Value one = arith::ConstantIndexOp::create(builder, loc, 1), first = offset, count = symbols.nq;
  if (axis == TileAxis::Queries) {
    first = arith::ConstantIndexOp::create(builder, loc, 0);
    count = symbols.nk;
  }
  Value last = builder.createOrFold<arith::AddIOp>(loc, first, count);
  last = builder.createOrFold<arith::SubIOp>(loc, last, one);
  return TileIntervalPlan(visible, axis, /*tile=*/1, symbols.getKnowledge())
      .emitHull(builder, loc, first, last, offset, symbols, align);
}

SmallVector<TileInterval> flashattn::buildKeyIntervals(OpBuilder &builder, Location loc,
                                                       ArrayRef<IntegerSet> visible,
                                                       Value firstPosition, Value lastPosition,
                                                       const SymbolValues &symbols, int64_t tileN,
                                                       bool constants) {
  return TileIntervalPlan(visible, TileAxis::Keys, tileN, symbols.getKnowledge())
      .emit(builder, loc, firstPosition, lastPosition, /*offset=*/nullptr, symbols, constants);
}

SmallVector<IntegerSet> flashattn::selectSetsFrom(ArrayRef<IntegerSet> visible, int64_t least) {
  Budget budget;
  return llvm::filter_to_vector(visible, [&](IntegerSet set) {
    FlatLinearValueConstraints pairs(set);
    pairs.addBound(presburger::BoundType::LB, /*pos=*/1, least);
    return !isKnownEmpty(pairs, budget);
  });
}

SmallVector<TileInterval> flashattn::buildQueryIntervals(OpBuilder &builder, Location loc,
                                                         ArrayRef<IntegerSet> visible,
                                                         Value firstKey, Value lastKey,
                                                         Value offset, const SymbolValues &symbols,
                                                         int64_t tileM) {
  return TileIntervalPlan(visible, TileAxis::Queries, tileM, symbols.getKnowledge())
      .emit(builder, loc, firstKey, lastKey, offset, symbols);
}
