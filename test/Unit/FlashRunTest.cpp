//===- FlashRunTest.cpp - the pieces that flash-run checks with -------------===//

#include "Footprint.h"
#include "HostTensor.h"
#include "Npy.h"
#include "Reference.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/InitAll.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

uint16_t narrow(float value, const llvm::fltSemantics &semantics) {
  llvm::APFloat wide(value);
  bool losesInfo;
  wide.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return wide.bitcastToAPInt().getZExtValue();
}

/// Floats of all exponents, and those at and beside the middle of two narrow ones.
std::vector<float> someFloats() {
  std::mt19937 random(1);
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, 65504, 65519.996f, 65520, 65536};
  auto add = [&](uint32_t word) {
    float value;
    std::memcpy(&value, &word, 4);
    if (!std::isnan(value))
      values.push_back(value);
  };
  for (int i = 0; i < 200000; ++i) {
    add(random());
    uint32_t half = random() & ~0x1fffu; // what f16 has, then half of a unit more
    add(half | 0x1000), add(half | 0x1001), add(half | 0x0fff);
    add(half | 0x8000), add((half & ~0xffffu) | 0x7fff);
  }
  return values;
}

TEST(HostTensor, NarrowsLikeAPFloat) {
  for (float value : someFloats()) {
    ASSERT_EQ(toF16(value), narrow(value, llvm::APFloat::IEEEhalf())) << value;
    ASSERT_EQ(toBF16(value), narrow(value, llvm::APFloat::BFloat())) << value;
  }
  EXPECT_TRUE(std::isnan(fromF16(toF16(NAN))));
  EXPECT_TRUE(std::isnan(fromBF16(toBF16(NAN))));
}

TEST(HostTensor, WidensAndNarrowsToTheSame) {
  for (uint32_t bits = 0; bits < (1 << 16); ++bits) {
    float half = fromF16(bits), brain = fromBF16(bits);
    if (!std::isnan(half)) {
      ASSERT_EQ(toF16(half), bits);
    }
    if (!std::isnan(brain)) {
      ASSERT_EQ(toBF16(brain), bits);
    }
  }
}

TEST(HostTensor, RandomIsNormalAndTheSameEverywhere) {
  HostTensor tensor = llvm::cantFail(HostTensor::create(Scalar::F32, {100001}));
  tensor.fillRandom(7);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < tensor.getNumElements(); ++i) {
    sum += tensor.get(i);
    squares += tensor.get(i) * tensor.get(i);
  }
  EXPECT_NEAR(sum / tensor.getNumElements(), 0, 0.02);
  EXPECT_NEAR(squares / tensor.getNumElements(), 1, 0.02);
  EXPECT_NEAR(tensor.get(0), -0.2232, 5e-5);
  // An element depends on its index, not on how many there are.
  HostTensor few = llvm::cantFail(HostTensor::create(Scalar::F32, {3}));
  few.fillRandom(7);
  EXPECT_EQ(few.get(2), tensor.get(2));
}

TEST(Npy, RoundTrips) {
  SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("flash-run", "npy", path));
  for (Scalar scalar : {Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64, Scalar::I1, Scalar::I8,
                        Scalar::I32, Scalar::I64})
    for (SmallVector<int64_t> shape :
         {SmallVector<int64_t>{}, {5}, {2, 3}, {0, 4}, {1, 2, 3, 4, 5}}) {
      HostTensor tensor = llvm::cantFail(HostTensor::create(scalar, shape));
      tensor.fillRandom(1);
      ASSERT_FALSE(bool(writeNpy(path, tensor)));
      HostTensor read = llvm::cantFail(readNpy(path));
      EXPECT_EQ(read.getTypeName(), tensor.getTypeName());
      EXPECT_EQ(std::memcmp(read.data(), tensor.data(), tensor.getNumBytes()), 0);
    }
  llvm::sys::fs::remove(path);
}

/// By way of MLIR's own folding.
int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> dims, ArrayRef<int64_t> symbols) {
  auto constants = [&](ArrayRef<int64_t> values) {
    return llvm::map_to_vector(
        values, [&](int64_t value) { return getAffineConstantExpr(value, expr.getContext()); });
  };
  return cast<AffineConstantExpr>(expr.replaceDimsAndSymbols(constants(dims), constants(symbols)))
      .getValue();
}

TEST(Reference, VisibleKeysAreThoseOfTheSets) {
  MLIRContext context;
  const char *texts[] = {
      "(p, k)[nq, nk] : (p - k >= 0)",
      "(p, k)[nq, nk] : (p - k >= 0, k - p + 4 >= 0)",
      "(p, k)[nq, nk] : (3 - k >= 0)",
      "(p, k)[nq, nk] : (2 * p - 3 * k + 1 >= 0)",
      "(p, k)[nq, nk] : (3 * k - 2 * p - 7 >= 0)",
      "(p, k)[nq, nk] : (2 * k - p == 0)",
      "(p, k)[nq, nk] : (k mod 3 == 0, p - k >= 0)",
      "(p, k)[nq, nk] : (p floordiv 4 - k floordiv 4 == 0)",
      "(p, k)[nq, nk] : ((p floordiv 4) * 4 - k >= 0)",
      "(p, k)[nq, nk] : (nk - nq - k + p ceildiv 2 >= 0)",
      "(p, k)[nq, nk] : (p - 5 >= 0)",
      "(p, k)[nq, nk] : (-1 >= 0)",
  };
  for (const char *first : texts)
    for (const char *second : texts)
      for (int64_t offset : {-6, 0, 9}) {
        AttentionProblem problem{};
        problem.batch = problem.queryHeads = problem.keyHeads = 1;
        problem.numQueries = 9, problem.numKeys = 14, problem.offset = offset;
        problem.sets = {parseIntegerSet(first, &context), parseIntegerSet(second, &context)};
        uint64_t pairs = 0;
        for (int64_t row = 0; row < problem.numQueries; ++row) {
          std::vector<bool> visible(problem.numKeys);
          int64_t last = -1;
          for (KeyInterval interval : getVisibleKeys(problem, row)) {
            ASSERT_GT(interval.begin, last); // disjoint, in order, never touching
            last = interval.end;
            for (int64_t k = interval.begin; k < interval.end; ++k)
              visible[k] = true;
          }
          for (int64_t k = 0; k < problem.numKeys; ++k) {
            bool expected = llvm::any_of(problem.sets, [&](IntegerSet set) {
              return llvm::all_of(llvm::enumerate(set.getConstraints()), [&](auto constraint) {
                int64_t value = evaluate(constraint.value(), {row + offset, k}, {9, 14});
                return set.isEq(constraint.index()) ? value == 0 : value >= 0;
              });
            });
            ASSERT_EQ(visible[k], expected) << first << " " << second << " " << row << " " << k;
            pairs += expected;
          }
        }
        EXPECT_EQ(countVisiblePairs(problem), pairs);
      }
}

TEST(Footprint, IsWhereTheElementsAre) {
  Footprint footprint;
  footprint.shape = {2, 3, 4}, footprint.strides = {0, 0, 0};
  const int64_t descriptor[] = {7, 1000, 5, 2, 3, 4, 40, 8, 2};
  footprint.setDescriptor(descriptor);
  EXPECT_EQ(footprint.address, 1020u);
  int64_t index = 0, last = 0;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 4; ++k)
        EXPECT_EQ(footprint.getByteOffset(index++), last = (i * 40 + j * 8 + k * 2) * 4);
  EXPECT_EQ(footprint.getHullBytes(), last + 4);
  EXPECT_FALSE(footprint.isContiguous());
  footprint.strides = {12, 4, 1};
  EXPECT_TRUE(footprint.isContiguous());
  footprint.strides = {24, 4, 1};
  EXPECT_FALSE(footprint.isContiguous());
  footprint.shape[0] = 1; // whose stride does not matter
  EXPECT_TRUE(footprint.isContiguous());
}

// The parts of a whole: what attention over all keys gives.
TEST(Reference, CombineGivesTheWhole) {
  constexpr int64_t kKeys = 10, kDim = 4;
  std::vector<float> keys(kKeys * kDim), values(kKeys * kDim);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::vector<float> *list : {&keys, &values})
    for (float &value : *list)
      value = normal(random);
  SmallVector<float> query = {1, -2, 0.5, 3};
  MLIRContext context;
  AttentionProblem problem{};
  problem.batch = problem.queryHeads = problem.keyHeads = problem.numQueries = 1;
  problem.dim = problem.valueDim = kDim;
  problem.scale = 0.5;
  problem.scalar = Scalar::F32;
  problem.sets = {IntegerSet::get(2, 2, getAffineConstantExpr(0, &context), false)};
  auto attend = [&](int64_t begin, int64_t end) {
    problem.numKeys = end - begin;
    return computeReferenceRow(problem, query, keys.data() + begin * kDim,
                               values.data() + begin * kDim, 0, 0, 0);
  };
  ReferenceRow whole = attend(0, kKeys);
  HostTensor oParts = llvm::cantFail(HostTensor::create(Scalar::F64, {3, 1, 1, 1, kDim}));
  HostTensor lseParts = llvm::cantFail(HostTensor::create(Scalar::F64, {3, 1, 1, 1}));
  const int64_t bounds[] = {0, 3, 3, kKeys}; // the second part has no key (rule A6)
  for (int64_t part = 0; part < 3; ++part) {
    ReferenceRow row = attend(bounds[part], bounds[part + 1]);
    lseParts.set(part, row.lse);
    for (int64_t d = 0; d < kDim; ++d)
      oParts.set(part * kDim + d, row.o[d]);
  }
  CombineProblem combine{3, 1, 1, 1, kDim, &oParts, &lseParts, nullptr};
  ReferenceRow merged = computeCombinedRow(combine, Scalar::F32, 0, 0, 0);
  EXPECT_NEAR(merged.lse, whole.lse, 1e-12);
  for (int64_t d = 0; d < kDim; ++d) {
    EXPECT_NEAR(merged.o[d], whole.o[d], 1e-12);
    EXPECT_NEAR(merged.naiveO[d], whole.o[d], 1e-5);
  }
  // A sink's share goes to nobody.
  HostTensor sinks = llvm::cantFail(HostTensor::create(Scalar::F32, {1}));
  sinks.set(0, 1.5);
  combine.sinkLogits = &sinks;
  ReferenceRow sunk = computeCombinedRow(combine, Scalar::F32, 0, 0, 0);
  EXPECT_NEAR(sunk.lse, std::log(std::exp(whole.lse) + std::exp(1.5)), 1e-12);
  EXPECT_NEAR(sunk.o[0], whole.o[0] * std::exp(whole.lse - sunk.lse), 1e-12);
}

TEST(Reference, ScoreModIsWhatItsRegionSays) {
  DialectRegistry registry;
  registerAllFlashAttnDialects(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(R"(
    func.func @f(%q: memref<1x1x4x16xf32>, %o: memref<1x1x4x16xf32>) {
      %outside = arith.constant 0.25 : f32
      flashattn.attention
          ins(%q, %q, %q : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>, memref<1x1x4x16xf32>)
          score_mod {
          ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
            %three = arith.constant 3 : index
            %d = arith.subi %p, %k : index
            %m = arith.floordivsi %d, %three : index
            %r = arith.remui %k, %three : index
            %n = arith.addi %m, %r : index
            %n8 = arith.index_cast %n : index to i8
            %e8 = arith.muli %n8, %n8 : i8
            %f = arith.sitofp %e8 : i8 to f32
            %hit = arith.cmpi ugt, %d, %h : index
            %neg = arith.cmpf olt, %s, %outside : f32
            %both = arith.xori %hit, %neg : i1
            %t = math.tanh %s : f32
            %x = math.fma %f, %outside, %t : f32
            %c = arith.select %both, %x, %s : f32
            flashattn.yield %c : f32
          }
          outs(%o : memref<1x1x4x16xf32>)
      return
    })",
                                                             &context);
  ASSERT_TRUE(module);
  std::optional<ScoreMod> mod;
  module->walk([&](AttentionOp op) { mod = llvm::cantFail(ScoreMod::create(op.getScoreMod())); });
  for (double s : {-2.0, 0.125, 0.5, 3.0})
    for (int64_t h : {0, 2})
      for (int64_t p : {0, 5, 9})
        for (int64_t k : {0, 1, 7, 12}) {
          int64_t d = p - k;
          auto n = int8_t(std::floor(d / 3.0) + k % 3);
          bool both = (uint64_t(d) > uint64_t(h)) != (s < 0.25);
          double expected = both ? n * n * 0.25 + std::tanh(s) : s;
          EXPECT_DOUBLE_EQ(mod->evaluate<double>(s, 0, h, p, k), expected);
          EXPECT_FLOAT_EQ(mod->evaluate<float>(s, 0, h, p, k), expected);
        }
}

} // namespace
