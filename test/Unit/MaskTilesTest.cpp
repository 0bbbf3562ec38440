//===- MaskTilesTest.cpp - rules M3 and M4 against enumeration ------------===//

#include "flashattn/Analysis/MaskTiles.h"
#include "RandomMasks.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Returns how many of `cases` random cases a test examines that does not need all of them. A
/// sanitizer watches the code, whose results another build checks: a quarter.
constexpr int countCases(int cases) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  return cases / 4;
#endif
#endif
  return cases;
}

/// A symbol of a mask: what a plan knows of it, and its values: one, or one for each index of the
/// other axis (Range) or of the axis that is divided into tiles (Nothing).
struct PlanSymbol {
  SymbolKnowledge known;
  std::vector<int64_t> values;

  /// Returns the value for the indices `x` of the axis and `y` of the other axis.
  int64_t get(int64_t x, int64_t y) const {
    return values[known == SymbolKnowledge::Value ? 0 : known == SymbolKnowledge::Range ? y : x];
  }
};

class MaskTiles : public MaskTest {
protected:
  /// Checks one axis against `visible(i, k)`. Returns false at the first failure.
  bool checkAxis(ArrayRef<IntegerSet> sets, const Sizes &s, TileAxis axis, bool tight,
                 llvm::function_ref<bool(int64_t, int64_t)> visible,
                 ArrayRef<PlanSymbol> symbols = {}) {
    bool keys = axis == TileAxis::Keys;
    TileIntervalPlan plan(
        sets, axis, keys ? s.tileN : s.tileM,
        llvm::map_to_vector(symbols, [](const PlanSymbol &symbol) { return symbol.known; }));
    if (tight && !plan.isExact()) {
      ADD_FAILURE() << "the intervals are not known to be exact\n" << describe(sets, s);
      return false;
    }
    exactPlans += plan.isExact();
    ++plans;
    int64_t otherTile = keys ? s.tileM : s.tileN, otherLength = keys ? s.nq : s.nk;
    int64_t tile = keys ? s.tileN : s.tileM, length = keys ? s.nk : s.nq;
    int64_t numTiles = llvm::divideCeil(length, tile);
    Location loc = UnknownLoc::get(&ctx);
    for (int64_t y0 = 0; y0 < otherLength; y0 += otherTile) {
      int64_t y1 = std::min(y0 + otherTile, otherLength);
      Block block;
      OpBuilder builder(&ctx);
      builder.setInsertionPointToEnd(&block);
      auto constant = [&](int64_t value) -> Value {
        return arith::ConstantIndexOp::create(builder, loc, value);
      };
      int64_t shift = keys ? s.offset : 0;
      SymbolValues values{constant(s.nq), constant(s.nk)};
      for (const PlanSymbol &symbol : symbols) {
        SymbolRange &range = values.others.emplace_back();
        if (symbol.known == SymbolKnowledge::Value)
          range.least = range.greatest = constant(symbol.values[0]);
        auto begin = symbol.values.begin();
        if (symbol.known == SymbolKnowledge::Range)
          range = {constant(*std::min_element(begin + y0, begin + y1)),
                   constant(*std::max_element(begin + y0, begin + y1))};
      }
      auto intervals = plan.emit(builder, loc, constant(y0 + shift), constant(y1 - 1 + shift),
                                 constant(s.offset), values);
      std::string state(numTiles, '.');
      int64_t previous = std::numeric_limits<int64_t>::min();
      auto fail = [&](const llvm::Twine &what) {
        ADD_FAILURE() << what.str() << "\n"
                      << (keys ? "keys" : "queries") << " of the tile [" << y0 << ", " << y1
                      << "): " << state << "\n"
                      << describe(sets, s);
        return false;
      };
      for (const TileInterval &interval : intervals) {
        int64_t bounds[4];
        Value values[] = {interval.begin, interval.fullBegin, interval.fullEnd, interval.end};
        for (auto [bound, value] : llvm::zip(bounds, values)) {
          std::optional<int64_t> folded = getConstantIntValue(value);
          if (!folded)
            return fail("a bound did not fold");
          if (*folded < previous)
            return fail("bounds do not ascend");
          bound = previous = *folded;
        }
        if (bounds[0] < bounds[3] && (bounds[0] < 0 || bounds[3] > numTiles))
          return fail("an interval leaves the axis");
        for (int64_t t = bounds[0]; t < bounds[3]; ++t) {
          if (state[t] != '.')
            return fail("intervals overlap");
          state[t] = t >= bounds[1] && t < bounds[2] ? '#' : '+';
        }
      }
      for (int64_t t = 0; t < numTiles; ++t) {
        bool any = false, all = (t + 1) * tile <= length;
        for (int64_t x = t * tile; x < std::min((t + 1) * tile, length); ++x)
          for (int64_t y = y0; y < y1; ++y) {
            bool pair = keys ? visible(y, x) : visible(x, y);
            any |= pair;
            all &= pair;
          }
        if (any && state[t] == '.')
          return fail("tile " + llvm::Twine(t) + " holds a visible pair and is dropped");
        if (!all && state[t] == '#')
          return fail("tile " + llvm::Twine(t) + " holds a hidden pair and is full");
        if (plan.isExact() && !any && state[t] != '.')
          return fail("tile " + llvm::Twine(t) + " holds no visible pair and is kept");
        if (plan.findsEveryFullTile() && all && state[t] != '#')
          return fail("tile " + llvm::Twine(t) + " is full and taken for partial");
        covered += state[t] != '.';
        full += state[t] == '#';
        visited += any;
        fullInFact += all;
      }
    }
    return true;
  }

  bool check(ArrayRef<IntegerSet> sets, const Sizes &s, bool tight,
             llvm::function_ref<bool(int64_t, int64_t)> visible) {
    std::vector<char> pairs(s.nq * s.nk);
    for (int64_t i = 0; i < s.nq; ++i)
      for (int64_t k = 0; k < s.nk; ++k)
        pairs[i * s.nk + k] = visible(i + s.offset, k);
    auto at = [&](int64_t i, int64_t k) -> bool { return pairs[i * s.nk + k]; };
    return checkAxis(sets, s, TileAxis::Keys, tight, at) &&
           checkAxis(sets, s, TileAxis::Queries, tight, at);
  }

  /// Returns symbols with random values around the positions and keys, some of which are the limits
  /// of 32 bits. `known`: what is known of each.
  SmallVector<PlanSymbol> drawSymbols(Random &random, const Sizes &s,
                                      ArrayRef<SymbolKnowledge> known) {
    constexpr int64_t kLimit = int64_t(1) << 31;
    SmallVector<PlanSymbol> symbols;
    for (SymbolKnowledge of : known) {
      PlanSymbol &symbol = symbols.emplace_back(PlanSymbol{of, {}});
      int64_t last = random.between(-20, 20);
      bool isSorted = random.oneIn(2), hasLimits = random.oneIn(4);
      symbol.values.resize(std::max(s.nq, s.nk));
      for (int64_t &value : symbol.values) {
        value =
            isSorted ? last += random.oneIn(3) ? random.between(0, 8) : 0 : random.between(-25, 45);
        if (hasLimits && random.oneIn(8))
          value = random.oneIn(2) ? kLimit - 1 : -kLimit;
      }
    }
    return symbols;
  }

  /// Checks both axes of a mask with symbols.
  bool checkSymbols(Random &random, const Mask &mask, const Sizes &s,
                    ArrayRef<SymbolKnowledge> known, bool tight) {
    SmallVector<IntegerSet> sets = toSets(mask, &ctx, known.size());
    for (TileAxis axis : {TileAxis::Keys, TileAxis::Queries}) {
      SmallVector<PlanSymbol> symbols = drawSymbols(random, s, known);
      auto visible = [&](int64_t i, int64_t k) {
        int64_t x = axis == TileAxis::Keys ? k : i, y = axis == TileAxis::Keys ? i : k;
        auto values = llvm::map_to_vector(
            symbols, [&](const PlanSymbol &symbol) { return symbol.get(x, y); });
        return isVisible(mask, i + s.offset, k, s.nq, s.nk, values);
      };
      if (!checkAxis(sets, s, axis, tight, visible, symbols))
        return false;
    }
    return true;
  }

  void report() {
    llvm::outs() << llvm::formatv("{0} tiles covered, {1} visible; {2} taken as full, {3} full; "
                                  "{4} of {5} plans exact\n",
                                  covered, visited, full, fullInFact, exactPlans, plans);
  }

  /// Numbers of tiles: in an interval, in an interval as full, with a visible pair, all visible.
  int64_t covered = 0, full = 0, visited = 0, fullInFact = 0;
  /// Numbers of plans, and of plans that claim to be exact.
  int64_t plans = 0, exactPlans = 0;
};

// M4
TEST_F(MaskTiles, RandomUnionsCoverExactly) {
  Random random(20240607);
  for (int i = 0; i < countCases(4000); ++i) {
    Mask mask = random.mask();
    Sizes s = randomSizes(random);
    SmallVector<IntegerSet> sets = toSets(mask, &ctx);
    bool ok = check(sets, s, /*tight=*/false,
                    [&](int64_t p, int64_t k) { return isVisible(mask, p, k, s.nq, s.nk); });
    ASSERT_TRUE(ok) << "case " << i;
  }
  // The intervals are not only correct but tight.
  EXPECT_LT(covered, visited * 1.1);
  EXPECT_GT(full, fullInFact * 0.7);
  report();
}

// Y1, Y2: plans with symbols of which a value, a range or nothing is known.
TEST_F(MaskTiles, RandomUnionsWithSymbolsCover) {
  Random random(29, kMostSymbols);
  for (int i = 0; i < countCases(1200); ++i) {
    Mask mask = random.mask();
    SmallVector<SymbolKnowledge> known;
    for (unsigned j = 0; j < kMostSymbols; ++j)
      known.push_back(SymbolKnowledge(random.between(0, 2)));
    Sizes s = randomSizes(random);
    ASSERT_TRUE(checkSymbols(random, mask, s, known, /*tight=*/false)) << "case " << i;
  }
  report();
}

// Y1: plans that know the values of all symbols are as tight as those without symbols.
TEST_F(MaskTiles, KnownSymbolsCoverExactly) {
  Random random(30, kMostSymbols);
  SmallVector<SymbolKnowledge> known(kMostSymbols, SymbolKnowledge::Value);
  for (int i = 0; i < 800; ++i) {
    Mask mask = random.mask();
    Sizes s = randomSizes(random);
    ASSERT_TRUE(checkSymbols(random, mask, s, known, /*tight=*/false)) << "case " << i;
  }
  EXPECT_LT(covered, visited * 1.1);
  EXPECT_GT(full, fullInFact * 0.7);
  report();
}

// Y2: if only one symbol with a range counts, with one sign, and no index of the other axis, the
// visited tiles are those with a visible pair. Other sets do not claim it wrongly.
TEST_F(MaskTiles, OneRangeCoversExactly) {
  Random random(31, kMostSymbols);
  SmallVector<SymbolKnowledge> known = {SymbolKnowledge::Value, SymbolKnowledge::Range,
                                        SymbolKnowledge::Range};
  for (int i = 0; i < countCases(2000); ++i) {
    Sizes s = randomSizes(random);
    int64_t sign = random.oneIn(2) ? 1 : -1;
    bool isOne = random.oneIn(2);
    for (TileAxis axis : {TileAxis::Keys, TileAxis::Queries}) {
      std::vector<Constraint> set(random.between(1, 3));
      for (Constraint &c : set) {
        c.linear[axis == TileAxis::Keys ? 1 : 0] = random.between(-1, 1);
        c.linear[4] = random.between(-20, 20);
        c.linear[5] = random.oneIn(3) ? random.between(-1, 1) : 0;
        c.linear[6] = random.oneIn(4) ? 0 : sign * random.between(1, 2);
        if (isOne)
          continue;
        c.linear[6] *= random.oneIn(3) ? -1 : 1;
        c.linear[7] = random.oneIn(3) ? random.between(-1, 1) : 0;
        c.isEquality = random.oneIn(6);
        if (random.oneIn(6)) {
          c.division = Division(random.between(1, 3));
          c.inner[6] = c.scale = random.oneIn(2) ? 1 : -1;
          c.divisor = random.between(2, 5);
        }
      }
      SmallVector<PlanSymbol> symbols = drawSymbols(random, s, known);
      auto visible = [&](int64_t q, int64_t k) {
        int64_t x = axis == TileAxis::Keys ? k : q, y = axis == TileAxis::Keys ? q : k;
        int64_t values[kMostSymbols];
        for (auto [value, symbol] : llvm::zip_equal(values, symbols))
          value = symbol.get(x, y);
        return isVisible({set}, q + s.offset, k, s.nq, s.nk, values);
      };
      ASSERT_TRUE(
          checkAxis(toSets({set}, &ctx, kMostSymbols), s, axis, /*tight=*/isOne, visible, symbols))
          << "case " << i;
    }
  }
  report();
}

// M3: masks with floordiv and mod in various forms, each with its predicate.
TEST_F(MaskTiles, DividedMasksCoverExactly) {
  Random random(31);
  auto floorDiv = [](int64_t p, int64_t divisor) { return llvm::divideFloorSigned(p, divisor); };
  for (int i = 0; i < 200; ++i) {
    int64_t c = random.between(1, 12), w = random.between(0, 3);
    Sizes s = randomSizes(random);
    using Predicate = std::function<bool(int64_t, int64_t)>;
    struct Case {
      std::string constraints;
      Predicate visible;
      bool exact;
    };
    Case cases[] = {
        // Chunked attention.
        {"k - {0} * (p floordiv {0}) >= 0, p - k >= 0",
         [=](int64_t p, int64_t k) { return k >= c * floorDiv(p, c) && k <= p; }, true},
        // All previous chunks.
        {"{0} * (p floordiv {0}) - k - 1 >= 0",
         [=](int64_t p, int64_t k) { return k < c * floorDiv(p, c); }, true},
        // Block-diagonal masks: alone, with all previous blocks, with some of them, and causal.
        {"p floordiv {0} - k floordiv {0} == 0",
         [=](int64_t p, int64_t k) { return floorDiv(p, c) == k / c; }, true},
        {"p floordiv {0} - k floordiv {0} >= 0",
         [=](int64_t p, int64_t k) { return floorDiv(p, c) >= k / c; }, true},
        {"p floordiv {0} - k floordiv {0} >= 0, k floordiv {0} - p floordiv {0} + {1} >= 0",
         [=](int64_t p, int64_t k) {
           int64_t blocks = floorDiv(p, c) - k / c;
           return blocks >= 0 && blocks <= w;
         },
         true},
        {"p floordiv {0} - k floordiv {0} == 0, p - k >= 0",
         [=](int64_t p, int64_t k) { return floorDiv(p, c) == k / c && k <= p; }, true},
        // The first key of each block, and the keys at a stride from the query.
        {"p - k >= 0, k mod {0} == 0", [=](int64_t p, int64_t k) { return k <= p && k % c == 0; },
         false},
        {"p - k >= 0, (p - k) mod {0} == 0, {0} * {1} - p + k >= 0",
         [=](int64_t p, int64_t k) { return k <= p && (p - k) % c == 0 && p - k <= c * w; },
         c <= std::min(s.tileM, s.tileN)},
        // The first half of the keys.
        {"nk floordiv 2 - k - 1 >= 0", [=](int64_t, int64_t k) { return k < s.nk / 2; }, true},
    };
    for (const Case &each : cases) {
      std::string text = "affine_set<(p, k)[nq, nk] : (" +
                         llvm::formatv(each.constraints.c_str(), c, w).str() + ")>";
      auto set = cast<IntegerSetAttr>(parseAttribute(text, &ctx)).getValue();
      ASSERT_TRUE(check(set, s, /*tight=*/each.exact, each.visible)) << "case " << i;
    }
  }
  EXPECT_GT(exactPlans, plans * 0.9);
  report();
}

// M3: no tile without a visible pair is visited.
TEST_F(MaskTiles, NamedMasksAreTight) {
  Random random(7);
  auto window = [&](std::optional<int64_t> left, std::optional<int64_t> right) {
    return cast<MaskAttrInterface>(Attribute(WindowAttr::get(&ctx, left, right)));
  };
  auto anyOf = [&](ArrayRef<Attribute> masks) {
    return cast<MaskAttrInterface>(Attribute(AnyOfAttr::get(&ctx, ArrayAttr::get(&ctx, masks))));
  };
  auto allOf = [&](ArrayRef<Attribute> masks) {
    return cast<MaskAttrInterface>(Attribute(AllOfAttr::get(&ctx, ArrayAttr::get(&ctx, masks))));
  };
  for (int i = 0; i < 400; ++i) {
    int64_t left = random.between(0, 20), right = random.between(0, 20);
    int64_t count = random.between(0, 12);
    Attribute causal = CausalAttr::get(&ctx), sink = SinkAttr::get(&ctx, count);
    // Each mask with the predicate that defines it.
    using Predicate = std::function<bool(int64_t, int64_t)>;
    auto isCausal = [](int64_t p, int64_t k) { return k <= p; };
    auto isSink = [=](int64_t p, int64_t k) { return k < count; };
    auto isNear = [=](int64_t p, int64_t k) { return p - left <= k && k <= p + right; };
    auto isSeedWindow = [=](int64_t p, int64_t k) { return p - left <= k && k <= p; };
    std::pair<MaskAttrInterface, Predicate> masks[] = {
        {allOf({}), [](int64_t, int64_t) { return true; }},
        {anyOf({}), [](int64_t, int64_t) { return false; }},
        {cast<MaskAttrInterface>(causal), isCausal},
        {cast<MaskAttrInterface>(sink), isSink},
        {window(left, right), isNear},
        {window(left, 0), isSeedWindow},
        {window(left, std::nullopt), [=](int64_t p, int64_t k) { return p - left <= k; }},
        {window(std::nullopt, right), [=](int64_t p, int64_t k) { return k <= p + right; }},
        {allOf({sink, causal}),
         [=](int64_t p, int64_t k) { return isSink(p, k) && isCausal(p, k); }},
        {anyOf({window(left, 0), allOf({sink, causal})}),
         [=](int64_t p, int64_t k) {
           return isSeedWindow(p, k) || (isSink(p, k) && isCausal(p, k));
         }},
        {anyOf({sink, window(left, right)}),
         [=](int64_t p, int64_t k) { return isSink(p, k) || isNear(p, k); }}};
    Sizes s = randomSizes(random);
    for (auto &[mask, predicate] : masks) {
      SmallVector<IntegerSet> sets = mask.getVisibleSets();
      ASSERT_TRUE(check(sets, s, /*tight=*/true, predicate)) << "case " << i;
      for (int64_t k = 0; k < s.nk; ++k)
        ASSERT_EQ(flashattn::isVisible(sets, s.offset, k, {s.nq, s.nk}), predicate(s.offset, k));
    }
  }
}

// More sets than any named mask has.
TEST_F(MaskTiles, ManySets) {
  Random random(11);
  for (int i = 0; i < 30; ++i) {
    Mask mask;
    for (int64_t j = 0, n = random.between(5, 20); j < n; ++j)
      mask.push_back({random.constraint(), random.constraint(), random.constraint()});
    Sizes s = randomSizes(random);
    ASSERT_TRUE(check(toSets(mask, &ctx), s, /*tight=*/false,
                      [&](int64_t p, int64_t k) { return isVisible(mask, p, k, s.nq, s.nk); }))
        << "case " << i;
  }
}

// A7: the range of rows holds every row with a visible pair. For a set with factors of 1 and -1, it
// ends at such rows, and is empty if there are none.
TEST_F(MaskTiles, RangesEndAtVisibleRows) {
  Random random(41, kMostSymbols);
  Location loc = UnknownLoc::get(&ctx);
  int64_t numEmpty = 0, numTight = 0;
  for (int i = 0; i < countCases(1000); ++i) {
    Mask mask = random.mask();
    Sizes s = randomSizes(random);
    SmallVector<IntegerSet> sets = toSets(mask, &ctx, kMostSymbols);
    // Y1, Y2: of some symbols, nothing is known.
    SmallVector<SymbolKnowledge> known;
    for (unsigned j = 0; j < kMostSymbols; ++j)
      known.push_back(random.oneIn(4) ? SymbolKnowledge::Nothing : SymbolKnowledge::Value);
    SmallVector<PlanSymbol> symbols = drawSymbols(random, s, known);
    bool isTight = mask.size() == 1 && llvm::all_of(mask[0], [&](const Constraint &c) {
                     for (auto [j, symbol] : llvm::enumerate(known))
                       if (symbol == SymbolKnowledge::Nothing && c.linear[5 + j] != 0)
                         return false;
                     return c.division == Division::None && !c.isEquality &&
                            std::abs(c.linear[0]) <= 1 && std::abs(c.linear[1]) <= 1;
                   });
    for (TileAxis axis : {TileAxis::Keys, TileAxis::Queries}) {
      int64_t length = axis == TileAxis::Keys ? s.nk : s.nq, first = length, end = 0;
      for (int64_t q = 0; q < s.nq; ++q)
        for (int64_t k = 0; k < s.nk; ++k) {
          int64_t row = axis == TileAxis::Keys ? k : q;
          auto values = llvm::map_to_vector(
              symbols, [&](const PlanSymbol &symbol) { return symbol.get(row, /*y=*/0); });
          if (isVisible(mask, q + s.offset, k, s.nq, s.nk, values)) {
            first = std::min(first, row);
            end = std::max(end, row + 1);
          }
        }
      Block block;
      OpBuilder builder(&ctx);
      builder.setInsertionPointToEnd(&block);
      auto constant = [&](int64_t value) -> Value {
        return arith::ConstantIndexOp::create(builder, loc, value);
      };
      SymbolValues values{constant(s.nq), constant(s.nk)};
      for (const PlanSymbol &symbol : symbols) {
        SymbolRange &of = values.others.emplace_back();
        if (symbol.known == SymbolKnowledge::Value)
          of.least = of.greatest = constant(symbol.values[0]);
      }
      IndexRange range =
          buildVisibleRange(builder, loc, sets, axis, constant(s.offset), values, std::nullopt);
      std::optional<int64_t> foundFirst = 0, foundEnd = length;
      if (range.begin)
        foundFirst = getConstantIntValue(range.begin);
      if (range.end)
        foundEnd = getConstantIntValue(range.end);
      ASSERT_TRUE(foundFirst && foundEnd) << "a bound did not fold\n" << describe(sets, s);
      bool holds = first >= end || (*foundFirst <= first && *foundEnd >= end);
      if (isTight)
        holds &= first >= end ? *foundFirst >= *foundEnd : *foundFirst == first && *foundEnd == end;
      ASSERT_TRUE(holds) << "case " << i << ": expected [" << first << ", " << end << ") but got ["
                         << *foundFirst << ", " << *foundEnd << ")\n"
                         << describe(sets, s);
      numTight += isTight;
      numEmpty += isTight && first >= end;
    }
  }
  EXPECT_GT(numTight, countCases(100));
  EXPECT_GT(numEmpty, countCases(20));
}

// How a set changes with its symbols. Equations, divisions and both signs have no direction.
TEST_F(MaskTiles, SymbolChanges) {
  constexpr auto None = SymbolChange::None, Grows = SymbolChange::Grows,
                 Shrinks = SymbolChange::Shrinks, Unknown = SymbolChange::Unknown;
  std::pair<const char *, std::array<SymbolChange, 2>> cases[] = {
      {"(p, k)[nq, nk, a, b] : (p - k >= 0, k - a >= 0)", {Shrinks, None}},
      {"(p, k)[nq, nk, a, b] : (p - k >= 0, 2 * b - 1 - p >= 0)", {None, Grows}},
      {"(p, k)[nq, nk, a, b] : (k - a >= 0, a + b - k >= 0)", {Unknown, Grows}},
      {"(p, k)[nq, nk, a, b] : (k - a == 0, k - b floordiv 2 >= 0)", {Unknown, Unknown}},
      {"(p, k)[nq, nk, a, b] : (k - b mod 4 >= 0, k - nq >= 0)", {None, Unknown}},
  };
  for (const auto &[text, changes] : cases) {
    auto set = cast<IntegerSetAttr>(parseAttribute("affine_set<" + std::string(text) + ">", &ctx));
    for (unsigned i : {0, 1})
      EXPECT_EQ(getSymbolChange(set.getValue(), i), changes[i]) << text << ", symbol " << i;
  }
}

// Bounds that need no loop are constants for all lengths.
TEST_F(MaskTiles, SymbolicBoundsFold) {
  Location loc = UnknownLoc::get(&ctx);
  Block block;
  OpBuilder builder(&ctx);
  builder.setInsertionPointToEnd(&block);
  Type index = builder.getIndexType();
  Value first = block.addArgument(index, loc), last = block.addArgument(index, loc);
  Value nq = block.addArgument(index, loc), nk = block.addArgument(index, loc);
  auto build = [&](Attribute mask) {
    return buildKeyIntervals(builder, loc, cast<MaskAttrInterface>(mask).getVisibleSets(), first,
                             last, {nq, nk}, 64);
  };
  auto none = build(AllOfAttr::get(&ctx, ArrayAttr::get(&ctx, {})));
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(getConstantIntValue(none[0].begin), 0);
  EXPECT_EQ(getConstantIntValue(none[0].fullBegin), 0);
  EXPECT_TRUE(none[0].fullEnd.getDefiningOp<arith::ShRSIOp>());
  EXPECT_TRUE(none[0].end.getDefiningOp<arith::ShRSIOp>());
  auto causal = build(CausalAttr::get(&ctx));
  ASSERT_EQ(causal.size(), 1u);
  EXPECT_EQ(getConstantIntValue(causal[0].begin), 0);
  EXPECT_EQ(getConstantIntValue(causal[0].fullBegin), 0);
  EXPECT_TRUE(build(AnyOfAttr::get(&ctx, ArrayAttr::get(&ctx, {}))).empty());
  // The window is contained in causal, and the sink is empty.
  auto dropped = build(
      AnyOfAttr::get(&ctx, ArrayAttr::get(&ctx, {CausalAttr::get(&ctx), WindowAttr::get(&ctx, 7, 0),
                                                 SinkAttr::get(&ctx, 0)})));
  EXPECT_EQ(dropped.size(), 1u);
}

} // namespace
