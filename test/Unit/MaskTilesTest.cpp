//===- MaskTilesTest.cpp - rules M3 and M4 against enumeration -------------===//

#include "flashattn/Analysis/MaskTiles.h"
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

//===----------------------------------------------------------------------===//
// Random masks, evaluated without the compiler
//===----------------------------------------------------------------------===//

enum class Division { None, Mod, Floor, Ceil };

/// linear + scale * (inner op divisor), at least 0 or equal to 0; linear and
/// inner over (p, k, nq, nk, 1).
struct Constraint {
  std::array<int64_t, 5> linear{}, inner{};
  Division division = Division::None;
  int64_t scale = 0, divisor = 1;
  bool isEquality = false;

  static int64_t dot(const std::array<int64_t, 5> &row, const std::array<int64_t, 5> &point) {
    int64_t sum = 0;
    for (unsigned i = 0; i < 5; ++i)
      sum += row[i] * point[i];
    return sum;
  }
  bool holds(const std::array<int64_t, 5> &point) const {
    int64_t value = dot(linear, point), x = dot(inner, point);
    int64_t floor = x >= 0 ? x / divisor : -((-x + divisor - 1) / divisor);
    if (division == Division::Mod)
      value += scale * (x - floor * divisor);
    else if (division == Division::Floor)
      value += scale * floor;
    else if (division == Division::Ceil)
      value += scale * (floor + (floor * divisor != x));
    return isEquality ? value == 0 : value >= 0;
  }
  AffineExpr toExpr(MLIRContext *ctx) const {
    AffineExpr vars[] = {getAffineDimExpr(0, ctx), getAffineDimExpr(1, ctx),
                         getAffineSymbolExpr(0, ctx), getAffineSymbolExpr(1, ctx),
                         getAffineConstantExpr(1, ctx)};
    auto sum = [&](const std::array<int64_t, 5> &row) {
      AffineExpr result = getAffineConstantExpr(0, ctx);
      for (unsigned i = 0; i < 5; ++i)
        result = result + vars[i] * row[i];
      return result;
    };
    AffineExpr x = sum(inner);
    AffineExpr divided = division == Division::Mod     ? x % divisor
                         : division == Division::Floor ? x.floorDiv(divisor)
                                                       : x.ceilDiv(divisor);
    return division == Division::None ? sum(linear) : sum(linear) + divided * scale;
  }
};

using Mask = std::vector<std::vector<Constraint>>;

bool isVisible(const Mask &mask, int64_t p, int64_t k, int64_t nq, int64_t nk) {
  return llvm::any_of(mask, [&](const std::vector<Constraint> &set) {
    return llvm::all_of(set, [&](const Constraint &c) { return c.holds({p, k, nq, nk, 1}); });
  });
}

SmallVector<IntegerSet> toSets(const Mask &mask, MLIRContext *ctx) {
  SmallVector<IntegerSet> sets;
  for (const std::vector<Constraint> &set : mask) {
    SmallVector<AffineExpr> exprs;
    SmallVector<bool> eqFlags;
    for (const Constraint &c : set) {
      exprs.push_back(c.toExpr(ctx));
      eqFlags.push_back(c.isEquality);
    }
    sets.push_back(IntegerSet::get(2, 2, exprs, eqFlags));
  }
  return sets;
}

class Random {
public:
  explicit Random(unsigned seed) : engine(seed) {}
  int64_t between(int64_t low, int64_t high) { // inclusive
    return low + int64_t(engine() % uint64_t(high - low + 1));
  }
  bool oneIn(int64_t n) { return between(1, n) == 1; }

  Constraint constraint() {
    Constraint c;
    auto fill = [&](std::array<int64_t, 5> &row) {
      row = {between(-2, 2), between(-2, 2), oneIn(6) ? between(-1, 1) : 0,
             oneIn(6) ? between(-1, 1) : 0, between(-20, 20)};
      if (oneIn(2)) // a band along the diagonal, as most masks are
        row[1] = -(row[0] = oneIn(2) ? 1 : -1);
    };
    fill(c.linear);
    if (oneIn(12)) {
      int64_t large = int64_t(1) << between(8, 31);
      c.linear[between(0, 1)] = oneIn(2) ? large : -large;
      c.linear[4] = between(-large, large);
    }
    c.isEquality = oneIn(10);
    if (oneIn(8)) {
      c.division = Division(between(1, 3));
      fill(c.inner);
      c.divisor = oneIn(2) ? int64_t(1) << between(0, 4) : between(1, 12);
      c.scale = between(-3, 3);
    }
    return c;
  }
  Mask mask() {
    Mask mask(oneIn(2) ? 1 : between(1, 4));
    for (auto &set : mask)
      for (int64_t i = 0, n = between(1, 4); i < n; ++i)
        set.push_back(constraint());
    return mask;
  }

private:
  std::mt19937_64 engine;
};

//===----------------------------------------------------------------------===//
// Intervals
//===----------------------------------------------------------------------===//

struct Sizes {
  int64_t nq, nk, offset, tileM, tileN;
};

class MaskTiles : public ::testing::Test {
protected:
  MaskTiles() {
    ctx.disableMultithreading();
    ctx.loadDialect<arith::ArithDialect, vector::VectorDialect, FlashAttnDialect>();
  }

  std::string describe(ArrayRef<IntegerSet> sets, const Sizes &s) {
    std::string text;
    llvm::raw_string_ostream os(text);
    for (IntegerSet set : sets) {
      set.print(os);
      os << "\n";
    }
    os << llvm::formatv("nq = {0}, nk = {1}, offset = {2}, tile_m = {3}, tile_n = {4}", s.nq, s.nk,
                        s.offset, s.tileM, s.tileN);
    return text;
  }

  /// Checks one axis, `visible(i, k)` given; returns false at the first failure.
  bool checkAxis(ArrayRef<IntegerSet> sets, const Sizes &s, TileAxis axis, bool tight,
                 llvm::function_ref<bool(int64_t, int64_t)> visible) {
    bool keys = axis == TileAxis::Keys;
    TileIntervalPlan plan(sets, axis, keys ? s.tileN : s.tileM);
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
      auto intervals = plan.emit(builder, loc, constant(y0 + shift), constant(y1 - 1 + shift),
                                 constant(s.offset), constant(s.nq), constant(s.nk));
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

  void report() {
    llvm::outs() << llvm::formatv("{0} tiles covered, {1} visible; {2} taken as full, {3} full; "
                                  "{4} of {5} plans exact\n",
                                  covered, visited, full, fullInFact, exactPlans, plans);
  }

  Sizes randomSizes(Random &random) {
    Sizes s;
    s.nq = random.between(1, random.oneIn(4) ? 40 : 20);
    s.nk = random.between(1, random.oneIn(4) ? 40 : 20);
    s.offset = random.oneIn(2) ? s.nk - s.nq : random.between(-20, 20);
    s.tileM = random.between(1, 16);
    s.tileN = random.between(1, 16);
    return s;
  }

  MLIRContext ctx;
  /// Tiles: in an interval, full in an interval, with a visible pair, all visible.
  int64_t covered = 0, full = 0, visited = 0, fullInFact = 0;
  /// Of the plans, those that say to be exact.
  int64_t plans = 0, exactPlans = 0;
};

// M4
TEST_F(MaskTiles, RandomUnionsCoverExactly) {
  Random random(20240607);
  for (int i = 0; i < 4000; ++i) {
    Mask mask = random.mask();
    Sizes s = randomSizes(random);
    SmallVector<IntegerSet> sets = toSets(mask, &ctx);
    bool ok = check(sets, s, /*tight=*/false,
                    [&](int64_t p, int64_t k) { return isVisible(mask, p, k, s.nq, s.nk); });
    ASSERT_TRUE(ok) << "case " << i;
  }
  // The intervals are not only safe but of use.
  EXPECT_LT(covered, visited * 1.1);
  EXPECT_GT(full, fullInFact * 0.7);
  report();
}

// M3: masks with floordiv and mod as they are written, each with what it shows.
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
        // Attention in chunks.
        {"k - {0} * (p floordiv {0}) >= 0, p - k >= 0",
         [=](int64_t p, int64_t k) { return k >= c * floorDiv(p, c) && k <= p; }, true},
        // To the chunks before.
        {"{0} * (p floordiv {0}) - k - 1 >= 0",
         [=](int64_t p, int64_t k) { return k < c * floorDiv(p, c); }, true},
        // Blocks on the diagonal, with all before them, with some, and causal.
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
        // The first key of each block, and each key of a stride from the query.
        {"p - k >= 0, k mod {0} == 0", [=](int64_t p, int64_t k) { return k <= p && k % c == 0; },
         false},
        {"p - k >= 0, (p - k) mod {0} == 0, {0} * {1} - p + k >= 0",
         [=](int64_t p, int64_t k) { return k <= p && (p - k) % c == 0 && p - k <= c * w; },
         c <= std::min(s.tileM, s.tileN)},
        // Half of the keys.
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

// M3: no tile is visited in vain.
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
    // Each mask with what semantics.md says of it.
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
        ASSERT_EQ(flashattn::isVisible(sets, s.offset, k, s.nq, s.nk), predicate(s.offset, k));
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

// The bounds that need no loop are constants whatever the lengths.
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
                             last, nq, nk, 64);
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
  // The window is within causal, the sink is empty.
  auto dropped = build(
      AnyOfAttr::get(&ctx, ArrayAttr::get(&ctx, {CausalAttr::get(&ctx), WindowAttr::get(&ctx, 7, 0),
                                                 SinkAttr::get(&ctx, 0)})));
  EXPECT_EQ(dropped.size(), 1u);
}

//===----------------------------------------------------------------------===//
// The mask of a partial tile
//===----------------------------------------------------------------------===//

/// Runs the arith and vector operations that buildVisibleTile emits.
class Interpreter {
public:
  /// A value's elements in row-major order; 32-bit ones keep 32 bits.
  const std::vector<int64_t> &operator[](Value value) { return values[value]; }

  bool run(Block &block) {
    for (Operation &op : block)
      if (!run(op)) {
        ADD_FAILURE() << "cannot run " << op.getName().getStringRef().str();
        return false;
      }
    return true;
  }

private:
  static int64_t size(Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector ? vector.getNumElements() : 1;
  }

  bool run(Operation &op) {
    std::vector<int64_t> &out = values[op.getResult(0)];
    Type type = op.getResult(0).getType();
    out.resize(size(type));
    auto operand = [&](unsigned i, size_t j) { return values[op.getOperand(i)][j]; };
    auto each = [&](auto compute) {
      for (size_t i = 0; i < out.size(); ++i) {
        int64_t value = compute(i);
        // i32 must hold what it is given: the construction promises no overflow.
        if (getElementTypeOrSelf(type).isInteger(32))
          EXPECT_TRUE(llvm::isInt<32>(value)) << op.getName().getStringRef().str();
        out[i] = value;
      }
      return true;
    };
    Attribute constant;
    if (matchPattern(&op, m_Constant(&constant))) {
      if (auto dense = dyn_cast<DenseElementsAttr>(constant)) {
        auto elements = dense.getValues<APInt>();
        return each([&](size_t i) { return signedValue(elements[i]); });
      }
      return each([&](size_t) { return signedValue(cast<IntegerAttr>(constant).getValue()); });
    }
    return llvm::TypeSwitch<Operation *, bool>(&op)
        .Case([&](arith::AddIOp) {
          return each([&](size_t i) { return operand(0, i) + operand(1, i); });
        })
        .Case([&](arith::SubIOp) {
          return each([&](size_t i) { return operand(0, i) - operand(1, i); });
        })
        .Case([&](arith::MulIOp) {
          return each([&](size_t i) { return operand(0, i) * operand(1, i); });
        })
        .Case([&](arith::AndIOp) {
          return each([&](size_t i) { return operand(0, i) & operand(1, i); });
        })
        .Case([&](arith::OrIOp) {
          return each([&](size_t i) { return operand(0, i) | operand(1, i); });
        })
        .Case([&](arith::RemSIOp) {
          return each([&](size_t i) { return operand(0, i) % operand(1, i); });
        })
        .Case([&](arith::RemUIOp) {
          return each([&](size_t i) { return operand(0, i) % operand(1, i); });
        })
        .Case([&](arith::DivUIOp) {
          return each([&](size_t i) { return operand(0, i) / operand(1, i); });
        })
        .Case([&](arith::ShRSIOp) {
          return each([&](size_t i) { return operand(0, i) >> operand(1, i); });
        })
        .Case([&](arith::MinSIOp) {
          return each([&](size_t i) { return std::min(operand(0, i), operand(1, i)); });
        })
        .Case([&](arith::MaxSIOp) {
          return each([&](size_t i) { return std::max(operand(0, i), operand(1, i)); });
        })
        .Case([&](arith::FloorDivSIOp) {
          return each(
              [&](size_t i) { return llvm::divideFloorSigned(operand(0, i), operand(1, i)); });
        })
        .Case([&](arith::SelectOp) {
          return each([&](size_t i) { return operand(0, i) ? operand(1, i) : operand(2, i); });
        })
        .Case([&](arith::CmpIOp cmp) {
          return each([&](size_t i) {
            // Folding may have turned the operands round.
            return arith::applyCmpPredicate(cmp.getPredicate(), APInt(64, operand(0, i), true),
                                            APInt(64, operand(1, i), true));
          });
        })
        .Case<arith::IndexCastOp, vector::ShapeCastOp>(
            [&](Operation *) { return each([&](size_t i) { return operand(0, i); }); })
        .Case([&](vector::StepOp) { return each([&](size_t i) { return int64_t(i); }); })
        .Case([&](vector::BroadcastOp broadcast) {
          auto source = dyn_cast<VectorType>(broadcast.getSourceType());
          auto result = broadcast.getResultVectorType();
          int64_t columns = result.getShape().back();
          return each([&](size_t i) {
            if (!source)
              return operand(0, 0);
            // Folding leaves vector<1> or vector<N> where a tile has one row.
            int64_t sourceColumns = source.getShape().back();
            int64_t row = source.getNumElements() == sourceColumns ? 0 : i / columns;
            int64_t column = sourceColumns == 1 ? 0 : i % columns;
            return operand(0, row * sourceColumns + column);
          });
        })
        .Default([](Operation *) { return false; });
  }

  static int64_t signedValue(const APInt &value) {
    return value.getBitWidth() == 1 ? value.getZExtValue() : value.getSExtValue();
  }

  llvm::DenseMap<Value, std::vector<int64_t>> values;
};

TEST_F(MaskTiles, VisibleTileMatchesTheSet) {
  Random random(3);
  Location loc = UnknownLoc::get(&ctx);
  for (int i = 0; i < 4000; ++i) {
    Mask mask = random.mask();
    if (random.oneIn(50))
      mask.clear();
    SmallVector<IntegerSet> sets = toSets(mask, &ctx);
    Sizes s = randomSizes(random);
    // Far out, too: the base of a constraint no longer fits 32 bits.
    int64_t p0 = random.oneIn(8) ? random.between(-(int64_t(1) << 31), int64_t(1) << 31)
                                 : random.between(-40, 40);
    int64_t k0 = random.between(0, s.nk);
    Block block;
    OpBuilder builder(&ctx);
    builder.setInsertionPointToEnd(&block);
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(builder, loc, value);
    };
    // Queries of one head, or of several one after the other or in turn.
    RowPattern pattern;
    if (random.oneIn(3))
      pattern.span = random.between(1, s.tileM);
    else if (random.oneIn(2))
      pattern.repeat = random.between(1, s.tileM);
    bool transposed = random.oneIn(2);
    Value tile = buildVisibleTile(builder, loc, sets, constant(p0), constant(k0), constant(s.nq),
                                  constant(s.nk), s.tileM, s.tileN, pattern,
                                  transposed ? TileAxis::Queries : TileAxis::Keys);
    int64_t shape[] = {s.tileM, s.tileN};
    if (transposed)
      std::swap(shape[0], shape[1]);
    ASSERT_EQ(tile.getType(), VectorType::get(shape, builder.getI1Type()));
    Interpreter interpreter;
    ASSERT_TRUE(interpreter.run(block)) << describe(sets, s);
    for (int64_t r = 0; r < s.tileM; ++r)
      for (int64_t c = 0; c < s.tileN; ++c) {
        int64_t p = p0 + r / pattern.repeat % pattern.span;
        bool expected = k0 + c < s.nk && isVisible(mask, p, k0 + c, s.nq, s.nk);
        ASSERT_EQ(interpreter[tile][transposed ? c * s.tileM + r : r * s.tileN + c], expected)
            << "query " << r << ", key " << c << ", p0 = " << p0 << ", k0 = " << k0 << "\n"
            << describe(sets, s);
      }
  }
}

// Limits of one direction along the columns make one compare of the tile, and their minimum is
// taken for its rows: causal (k <= p) with k < nk, and a window (p - 3 <= k <= p + 1) with it. An
// equality is no limit.
TEST_F(MaskTiles, VisibleTileMergesLimits) {
  auto linear = [](int64_t p, int64_t k, int64_t one, bool isEquality = false) {
    Constraint c;
    c.linear = {p, k, 0, 0, one};
    c.isEquality = isEquality;
    return c;
  };
  struct Case {
    Mask mask;
    int64_t tileCompares, rowMinima;
  };
  Case cases[] = {
      {{{linear(1, -1, 0)}}, 1, 1},
      {{{linear(-1, 1, 3), linear(1, -1, 1)}}, 2, 1},
      // 2k <= p + 8 is of another slope.
      {{{linear(1, -1, 0), linear(1, -2, 8)}}, 2, 1},
      {{{linear(1, -1, 0, /*isEquality=*/true)}}, 1, 0},
      // A union keeps the limits of each set apart.
      {{{linear(1, -1, 0)}, {linear(1, -1, -8)}}, 2, 2},
  };
  Location loc = UnknownLoc::get(&ctx);
  Type rows = VectorType::get({16, 1}, IntegerType::get(&ctx, 32));
  for (auto [i, c] : llvm::enumerate(cases)) {
    Block block;
    OpBuilder builder(&ctx);
    builder.setInsertionPointToEnd(&block);
    SmallVector<Value> v;
    for (int j = 0; j < 4; ++j)
      v.push_back(block.addArgument(builder.getIndexType(), loc));
    buildVisibleTile(builder, loc, toSets(c.mask, &ctx), v[0], v[1], v[2], v[3], 16, 8);
    int64_t tileCompares = 0, rowMinima = 0;
    for (Operation &op : block) {
      if (auto compare = dyn_cast<arith::CmpIOp>(op))
        tileCompares += cast<VectorType>(compare.getType()).getNumElements() == 16 * 8;
      if (auto minimum = dyn_cast<arith::MinSIOp>(op))
        rowMinima += minimum.getType() == rows;
    }
    EXPECT_EQ(tileCompares, c.tileCompares) << "mask " << i;
    EXPECT_EQ(rowMinima, c.rowMinima) << "mask " << i;
  }
}

// The 32-bit compare is only for constraints whose rows and columns fit beside the
// clamped base: p + k <= 1536 with a base of 3 * 2^29 does not.
TEST_F(MaskTiles, VisibleTileOfLargeCoefficients) {
  Constraint c;
  c.linear = {-(1 << 20), -(1 << 20), 0, 0, 3 * (int64_t(1) << 29)};
  Block block;
  OpBuilder builder(&ctx);
  builder.setInsertionPointToEnd(&block);
  Location loc = UnknownLoc::get(&ctx);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value length = arith::ConstantIndexOp::create(builder, loc, 1024);
  Value tile =
      buildVisibleTile(builder, loc, toSets({{c}}, &ctx), zero, zero, length, length, 1024, 1024);
  Interpreter interpreter;
  ASSERT_TRUE(interpreter.run(block));
  for (int64_t r = 0; r < 1024; ++r)
    for (int64_t k = 0; k < 1024; ++k)
      ASSERT_EQ(interpreter[tile][r * 1024 + k], r + k <= 1536) << r << ", " << k;
}

} // namespace
