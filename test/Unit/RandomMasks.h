//===- RandomMasks.h - random masks and their evaluation --------*- C++ -*-===//

#ifndef FLASHATTN_TEST_UNIT_RANDOMMASKS_H
#define FLASHATTN_TEST_UNIT_RANDOMMASKS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/IntegerSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>
#include <random>

namespace mlir::flashattn {

enum class Division { None, Mod, Floor, Ceil };

/// The most symbols that a mask has after nq and nk.
constexpr unsigned kMostSymbols = 3;
/// Factors of (p, k, nq, nk, 1, symbols), or the values of these.
using Terms = std::array<int64_t, 5 + kMostSymbols>;

/// The constraint `linear + scale * (inner op divisor)` >= 0, or == 0.
struct Constraint {
  Terms linear{}, inner{};
  Division division = Division::None;
  int64_t scale = 0, divisor = 1;
  bool isEquality = false;

  static int64_t dot(const Terms &row, const Terms &point) {
    int64_t sum = 0;
    for (unsigned i = 0; i < row.size(); ++i)
      sum += row[i] * point[i];
    return sum;
  }
  bool holds(const Terms &point) const {
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
    auto sum = [&](const Terms &row) {
      AffineExpr result = getAffineConstantExpr(0, ctx);
      for (unsigned i = 0; i < row.size(); ++i)
        result = result + (i < 5 ? vars[i] : getAffineSymbolExpr(i - 3, ctx)) * row[i];
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

/// Whether one of the sets of `mask` contains the pair.
inline bool isVisible(const Mask &mask, int64_t p, int64_t k, int64_t nq, int64_t nk,
                      ArrayRef<int64_t> symbols = {}) {
  Terms point = {p, k, nq, nk, 1};
  llvm::copy(symbols, point.begin() + 5);
  return llvm::any_of(mask, [&](const std::vector<Constraint> &set) {
    return llvm::all_of(set, [&](const Constraint &c) { return c.holds(point); });
  });
}

inline SmallVector<IntegerSet> toSets(const Mask &mask, MLIRContext *ctx, unsigned symbols = 0) {
  SmallVector<IntegerSet> sets;
  for (const std::vector<Constraint> &set : mask) {
    SmallVector<AffineExpr> exprs;
    SmallVector<bool> eqFlags;
    for (const Constraint &c : set) {
      exprs.push_back(c.toExpr(ctx));
      eqFlags.push_back(c.isEquality);
    }
    sets.push_back(IntegerSet::get(2, 2 + symbols, exprs, eqFlags));
  }
  return sets;
}

class Random {
public:
  /// `symbols` is the number of symbols of a mask after nq and nk.
  explicit Random(unsigned seed, unsigned symbols = 0) : engine(seed), symbols(symbols) {}
  int64_t between(int64_t low, int64_t high) { // inclusive
    return low + int64_t(engine() % uint64_t(high - low + 1));
  }
  bool oneIn(int64_t n) { return between(1, n) == 1; }

  Constraint constraint() {
    Constraint c;
    auto fill = [&](Terms &row) {
      row = {between(-2, 2), between(-2, 2), oneIn(6) ? between(-1, 1) : 0,
             oneIn(6) ? between(-1, 1) : 0, between(-20, 20)};
      if (oneIn(2)) // a band along the diagonal, as most masks are
        row[1] = -(row[0] = oneIn(2) ? 1 : -1);
      for (unsigned i = 0; i < symbols; ++i)
        if (oneIn(3))
          row[5 + i] = oneIn(3) ? between(-2, 2) : oneIn(2) ? 1 : -1;
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
  unsigned symbols;
};

struct Sizes {
  int64_t nq, nk, offset, tileM, tileN;
};

/// Random masks and problems of random sizes.
class MaskTest : public ::testing::Test {
protected:
  MaskTest() {
    ctx.disableMultithreading();
    ctx.loadDialect<arith::ArithDialect, scf::SCFDialect, vector::VectorDialect,
                    FlashAttnDialect>();
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
};

} // namespace mlir::flashattn

#endif // FLASHATTN_TEST_UNIT_RANDOMMASKS_H
