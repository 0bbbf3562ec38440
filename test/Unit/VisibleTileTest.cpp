//===- VisibleTileTest.cpp - the mask of a partial tile -------------------===//

#include "RandomMasks.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <functional>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

using VisibleTile = MaskTest;

/// Runs the arith and vector operations that buildVisibleTile emits.
class Interpreter {
public:
  /// Returns the elements of a value in row-major order; i32 elements fit 32 bits.
  const std::vector<int64_t> &operator[](Value value) { return values[value]; }
  /// Sets the elements of an argument of the block.
  void set(Value argument, std::vector<int64_t> elements) {
    values[argument] = std::move(elements);
  }

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

  /// Copies the elements of the values `from` to the values `to`.
  void copy(ValueRange from, ValueRange to) {
    for (auto [source, target] : llvm::zip_equal(from, to)) {
      std::vector<int64_t> elements = values[source];
      values[target] = std::move(elements);
    }
  }

  bool runRegion(Region &region, ValueRange results) {
    if (!run(region.front()))
      return false;
    copy(region.front().getTerminator()->getOperands(), results);
    return true;
  }

  bool runLoop(scf::ForOp loop) {
    copy(loop.getInits(), loop.getRegionIterArgs());
    int64_t begin = values[loop.getLowerBound()][0], end = values[loop.getUpperBound()][0];
    for (int64_t i = begin; i < end; ++i) {
      values[loop.getInductionVar()] = {i};
      if (!runRegion(loop.getRegion(), loop.getRegionIterArgs()))
        return false;
    }
    copy(loop.getRegionIterArgs(), loop.getResults());
    return true;
  }

  /// Runs an op with regions, or scf.yield; returns nullopt for any other op.
  std::optional<bool> runControl(Operation &op) {
    if (isa<scf::YieldOp>(op))
      return true;
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return runLoop(loop);
    if (auto branch = dyn_cast<scf::IfOp>(op))
      return runRegion(values[branch.getCondition()][0] ? branch.getThenRegion()
                                                        : branch.getElseRegion(),
                       op.getResults());
    if (auto choice = dyn_cast<scf::IndexSwitchOp>(op)) {
      auto *found = llvm::find(choice.getCases(), values[choice.getArg()][0]);
      return runRegion(found == choice.getCases().end()
                           ? choice.getDefaultRegion()
                           : choice.getCaseRegions()[found - choice.getCases().begin()],
                       op.getResults());
    }
    return std::nullopt;
  }

  bool run(Operation &op) {
    if (std::optional<bool> ran = runControl(op))
      return *ran;
    std::vector<int64_t> &out = values[op.getResult(0)];
    Type type = op.getResult(0).getType();
    out.resize(size(type));
    auto operand = [&](unsigned i, size_t j) { return values[op.getOperand(i)][j]; };
    auto each = [&](auto compute) {
      bool isNarrow = getElementTypeOrSelf(type).isInteger(32);
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = isNarrow ? narrow(op, compute(i)) : int64_t(compute(i));
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
        .Case<arith::RemSIOp, arith::RemUIOp>([&](Operation *) {
          return each([&](size_t i) { return operand(0, i) % operand(1, i); });
        })
        .Case([&](arith::XOrIOp) {
          return each([&](size_t i) { return operand(0, i) ^ operand(1, i); });
        })
        .Case([&](arith::ShRUIOp) {
          return each([&](size_t i) { return int32_t(uint32_t(operand(0, i)) >> operand(1, i)); });
        })
        .Case([&](arith::TruncIOp) {
          bool isBit = getElementTypeOrSelf(type).isInteger(1);
          return each([&](size_t i) { return isBit ? operand(0, i) & 1 : operand(0, i); });
        })
        .Case([&](arith::ShRSIOp) {
          return each([&](size_t i) { return operand(0, i) >> operand(1, i); });
        })
        .Case([&](arith::MinSIOp) {
          return each([&](size_t i) { return std::min(operand(0, i), operand(1, i)); });
        })
        .Case([&](arith::MinUIOp) {
          return each([&](size_t i) {
            return int32_t(std::min(uint32_t(operand(0, i)), uint32_t(operand(1, i))));
          });
        })
        .Case([&](arith::MaxSIOp) {
          return each([&](size_t i) { return std::max(operand(0, i), operand(1, i)); });
        })
        .Case<arith::DivUIOp, arith::FloorDivSIOp>([&](Operation *) {
          return each(
              [&](size_t i) { return llvm::divideFloorSigned(operand(0, i), operand(1, i)); });
        })
        .Case([&](arith::SelectOp) {
          return each([&](size_t i) { return operand(0, i) ? operand(1, i) : operand(2, i); });
        })
        .Case([&](arith::CmpIOp cmp) {
          return each([&](size_t i) {
            // Folding may have swapped the operands.
            return arith::applyCmpPredicate(cmp.getPredicate(), APInt(64, operand(0, i), true),
                                            APInt(64, operand(1, i), true));
          });
        })
        .Case<arith::IndexCastOp, arith::ExtUIOp, vector::ShapeCastOp>(
            [&](Operation *) { return each([&](size_t i) { return operand(0, i); }); })
        .Case([&](vector::StepOp) { return each([&](size_t i) { return int64_t(i); }); })
        .Case([&](vector::BroadcastOp broadcast) {
          auto source = dyn_cast<VectorType>(broadcast.getSourceType());
          auto result = broadcast.getResultVectorType();
          int64_t columns = result.getShape().back();
          return each([&](size_t i) {
            if (!source)
              return operand(0, 0);
            // If a tile has one row, folding leaves vector<1> or vector<N>.
            int64_t sourceColumns = source.getShape().back();
            int64_t row = source.getNumElements() == sourceColumns ? 0 : i / columns;
            int64_t column = sourceColumns == 1 ? 0 : i % columns;
            return operand(0, row * sourceColumns + column);
          });
        })
        .Default([](Operation *) { return false; });
  }

  /// Returns the 32-bit result of an op. Operations must not overflow: buildVisibleTile guarantees
  /// this. Only the sum with a truncated number wraps around.
  static int64_t narrow(Operation &op, int64_t value) {
    auto isTruncated = [](Value operand) {
      if (auto broadcast = operand.getDefiningOp<vector::BroadcastOp>())
        operand = broadcast.getSource();
      return operand.getDefiningOp<arith::TruncIOp>() != nullptr;
    };
    bool isSum = isa<arith::AddIOp, arith::SubIOp>(op);
    if (isa<arith::TruncIOp>(op) || (isSum && llvm::any_of(op.getOperands(), isTruncated)))
      return int32_t(value);
    EXPECT_TRUE(llvm::isInt<32>(value)) << op.getName().getStringRef().str();
    return value;
  }

  static int64_t signedValue(const APInt &value) {
    return value.getBitWidth() == 1 ? value.getZExtValue() : value.getSExtValue();
  }

  llvm::DenseMap<Value, std::vector<int64_t>> values;
};

TEST_F(VisibleTile, MatchesTheSet) {
  Random random(3);
  Location loc = UnknownLoc::get(&ctx);
  for (int i = 0; i < 4000; ++i) {
    Mask mask = random.mask();
    if (random.oneIn(50))
      mask.clear();
    // Many sets are stored in a table.
    if (random.oneIn(8))
      while (mask.size() < 24)
        llvm::append_range(mask, random.mask());
    SmallVector<IntegerSet> sets = toSets(mask, &ctx);
    Sizes s = randomSizes(random);
    // Also positions so large that the base of a constraint no longer fits 32 bits.
    int64_t p0 = random.oneIn(8) ? random.between(-(int64_t(1) << 31), int64_t(1) << 31)
                                 : random.between(-40, 40);
    int64_t k0 = random.between(0, s.nk);
    Block block;
    OpBuilder builder(&ctx);
    builder.setInsertionPointToEnd(&block);
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantIndexOp::create(builder, loc, value);
    };
    // Rows are queries of one head, or of several heads, concatenated or interleaved.
    RowPattern pattern;
    if (random.oneIn(3))
      pattern.span = random.between(1, s.tileM);
    else if (random.oneIn(2))
      pattern.repeat = random.between(1, s.tileM);
    bool transposed = random.oneIn(2);
    Value tile = buildVisibleTile(builder, loc, sets, constant(p0), constant(k0),
                                  ValueRange{constant(s.nq), constant(s.nk)}, s.tileM, s.tileN,
                                  pattern, transposed ? TileAxis::Queries : TileAxis::Keys);
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

/// A symbol of a tile of `m` queries and `n` keys.
struct TileSymbol {
  bool isOfQueries = false, isOfKeys = false; ///< neither: a scalar, both: a tile
  std::vector<int64_t> values;                ///< in the order of the pairs that it depends on

  int64_t get(int64_t row, int64_t column, int64_t n) const {
    return values[isOfQueries && isOfKeys ? row * n + column
                  : isOfQueries           ? row
                  : isOfKeys              ? column
                                          : 0];
  }
};

/// Draws a symbol whose values make some terms cancel, are the limits of 32 bits, or are small.
TileSymbol drawSymbol(Random &random, const Sizes &s, int64_t p0) {
  TileSymbol symbol;
  symbol.isOfQueries = random.oneIn(2);
  symbol.isOfKeys = random.oneIn(2);
  symbol.values.resize((symbol.isOfQueries ? s.tileM : 1) * (symbol.isOfKeys ? s.tileN : 1));
  constexpr int64_t kLimit = int64_t(1) << 31;
  bool isLarge = random.oneIn(4), isOfPosition = random.oneIn(4);
  for (int64_t &value : symbol.values) {
    value = random.between(-40, 40);
    if (isOfPosition)
      value += random.oneIn(2) ? p0 : -p0;
    if (isLarge || random.oneIn(16))
      value += random.oneIn(3)   ? random.between(-kLimit, kLimit)
               : random.oneIn(2) ? (random.oneIn(2) ? kLimit : -kLimit)
                                 : (random.oneIn(2) ? kLimit / 2 : -kLimit / 2);
    value = std::clamp(value, -kLimit, kLimit - 1);
  }
  return symbol;
}

// Y1, Y2: symbols are index values, or vectors of 32-bit numbers per query, key or pair.
TEST_F(VisibleTile, MatchesTheSetWithSymbols) {
  Random random(17, kMostSymbols);
  Location loc = UnknownLoc::get(&ctx);
  for (int i = 0; i < 4000; ++i) {
    Mask mask = random.mask();
    if (random.oneIn(12)) // a table of the sets that have no vector
      while (mask.size() < 12)
        llvm::append_range(mask, random.mask());
    SmallVector<IntegerSet> sets = toSets(mask, &ctx, kMostSymbols);
    Sizes s = randomSizes(random);
    // The shape of a vector shows what it depends on.
    s.tileM = std::max<int64_t>(s.tileM, 2);
    s.tileN = std::max<int64_t>(s.tileN, 2);
    int64_t p0 = random.oneIn(8) ? random.between(-(int64_t(1) << 31), int64_t(1) << 31)
                                 : random.between(-40, 40);
    int64_t k0 = random.between(0, s.nk);
    bool transposed = random.oneIn(2);
    Block block;
    OpBuilder builder(&ctx);
    builder.setInsertionPointToEnd(&block);
    Interpreter interpreter;
    auto addArgument = [&](Type type, std::vector<int64_t> values) -> Value {
      BlockArgument argument = block.addArgument(type, loc);
      interpreter.set(argument, std::move(values));
      return argument;
    };
    Type index = builder.getIndexType(), i32 = builder.getI32Type();
    Value first = addArgument(index, {p0}), firstKey = addArgument(index, {k0});
    SmallVector<Value> values = {addArgument(index, {s.nq}), addArgument(index, {s.nk})};
    SmallVector<TileSymbol> symbols;
    for (unsigned j = 0; j < kMostSymbols; ++j) {
      const TileSymbol &symbol = symbols.emplace_back(drawSymbol(random, s, p0));
      int64_t shape[] = {symbol.isOfQueries ? s.tileM : 1, symbol.isOfKeys ? s.tileN : 1};
      std::vector<int64_t> elements = symbol.values;
      if (transposed && symbol.isOfQueries && symbol.isOfKeys)
        for (int64_t r = 0; r < s.tileM; ++r)
          for (int64_t c = 0; c < s.tileN; ++c)
            elements[c * s.tileM + r] = symbol.get(r, c, s.tileN);
      if (transposed)
        std::swap(shape[0], shape[1]);
      bool isScalar = !symbol.isOfQueries && !symbol.isOfKeys;
      values.push_back(addArgument(isScalar ? index : VectorType::get(shape, i32), elements));
    }
    RowPattern pattern;
    if (random.oneIn(3))
      pattern.span = random.between(1, s.tileM);
    else if (random.oneIn(2))
      pattern.repeat = random.between(1, s.tileM);
    TileAxis numbers = random.oneIn(2) ? TileAxis::Keys : TileAxis::Queries;
    Value tile =
        buildVisibleTile(builder, loc, sets, first, firstKey, values, s.tileM, s.tileN, pattern,
                         transposed ? TileAxis::Queries : TileAxis::Keys, numbers);
    for (Operation &op : block)
      ASSERT_TRUE(op.getNumRegions() != 0 || succeeded(verify(&op))) << describe(sets, s);
    ASSERT_TRUE(interpreter.run(block)) << describe(sets, s);
    for (int64_t r = 0; r < s.tileM; ++r)
      for (int64_t c = 0; c < s.tileN; ++c) {
        int64_t of[kMostSymbols];
        for (auto [j, symbol] : llvm::enumerate(symbols))
          of[j] = symbol.get(r, c, s.tileN);
        int64_t p = p0 + r / pattern.repeat % pattern.span;
        bool expected = k0 + c < s.nk && isVisible(mask, p, k0 + c, s.nq, s.nk, of);
        ASSERT_EQ(interpreter[tile][transposed ? c * s.tileM + r : r * s.tileN + c], expected)
            << "case " << i << ", query " << r << ", key " << c << ", p0 = " << p0
            << ", k0 = " << k0 << ", symbols " << of[0] << ", " << of[1] << ", " << of[2] << "\n"
            << describe(sets, s);
      }
  }
}

// All upper limits on the columns become one compare of the tile, with the minimum of the limits,
// which is computed per row; lower limits likewise. Cases: causal (k <= p) with k < nk; a window (k
// >= p - 3, k <= p + 1) with k < nk. An equality is not a limit.
TEST_F(VisibleTile, MergesLimits) {
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
      // 2k <= p + 8 has another slope.
      {{{linear(1, -1, 0), linear(1, -2, 8)}}, 2, 1},
      {{{linear(1, -1, 0, /*isEquality=*/true)}}, 1, 0},
      // In a union, the limits of each set are merged separately.
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
    buildVisibleTile(builder, loc, toSets(c.mask, &ctx), v[0], v[1], ValueRange{v[2], v[3]}, 16, 8);
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

// A 32-bit compare is only for constraints whose row and column terms fit next to the clamped base:
// p + k <= 1536 with a base of 3 * 2^29 does not.
TEST_F(VisibleTile, OfLargeCoefficients) {
  Constraint c;
  c.linear = {-(1 << 20), -(1 << 20), 0, 0, 3 * (int64_t(1) << 29)};
  Block block;
  OpBuilder builder(&ctx);
  builder.setInsertionPointToEnd(&block);
  Location loc = UnknownLoc::get(&ctx);
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value length = arith::ConstantIndexOp::create(builder, loc, 1024);
  Value tile = buildVisibleTile(builder, loc, toSets({{c}}, &ctx), zero, zero,
                                ValueRange{length, length}, 1024, 1024);
  Interpreter interpreter;
  ASSERT_TRUE(interpreter.run(block));
  for (int64_t r = 0; r < 1024; ++r)
    for (int64_t k = 0; k < 1024; ++k)
      ASSERT_EQ(interpreter[tile][r * 1024 + k], r + k <= 1536) << r << ", " << k;
}

} // namespace
