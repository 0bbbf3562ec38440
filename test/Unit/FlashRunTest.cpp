//===- FlashRunTest.cpp - the reference of flash-run ----------------------===//

#include "HostTensor.h"
#include "Reference.h"
#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/ToolContext.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// Evaluates an expression through MLIR's folding.
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
          for (KeyInterval interval : getVisibleKeys(problem, row, /*b=*/0, /*h=*/0)) {
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

// Merged splits give the attention over all keys.
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
    auto take = [&](const std::vector<float> &rows) {
      return ScaledRows{{rows.begin() + begin * kDim, rows.begin() + end * kDim}, {}};
    };
    return computeReferenceRow(problem, query, take(keys), take(values), /*special=*/{}, 0, 0, 0);
  };
  ReferenceRow whole = attend(0, kKeys);
  HostTensor oParts = llvm::cantFail(HostTensor::create(Scalar::F64, {3, 1, 1, 1, kDim}));
  HostTensor lseParts = llvm::cantFail(HostTensor::create(Scalar::F64, {3, 1, 1, 1}));
  const int64_t bounds[] = {0, 3, 3, kKeys}; // the second split has no key (rule A6)
  for (int64_t part = 0; part < 3; ++part) {
    ReferenceRow row = attend(bounds[part], bounds[part + 1]);
    lseParts.set(part, row.lse);
    for (int64_t d = 0; d < kDim; ++d)
      oParts.set(part * kDim + d, row.o[d]);
  }
  CombineProblem combine{3, 1, 1, 1, kDim, &oParts, &lseParts, nullptr, nullptr};
  ReferenceRow merged = computeCombinedRow(combine, Scalar::F32, 0, 0, 0);
  EXPECT_NEAR(merged.lse, whole.lse, 1e-12);
  for (int64_t d = 0; d < kDim; ++d) {
    EXPECT_NEAR(merged.o[d], whole.o[d], 1e-12);
    EXPECT_NEAR(merged.naiveO[d], whole.o[d], 1e-5);
  }
  // A sink only adds to the denominator.
  HostTensor sinks = llvm::cantFail(HostTensor::create(Scalar::F32, {1}));
  sinks.set(0, 1.5);
  combine.sinkLogits = &sinks;
  ReferenceRow sunk = computeCombinedRow(combine, Scalar::F32, 0, 0, 0);
  EXPECT_NEAR(sunk.lse, std::log(std::exp(whole.lse) + std::exp(1.5)), 1e-12);
  EXPECT_NEAR(sunk.o[0], whole.o[0] * std::exp(whole.lse - sunk.lse), 1e-12);
  // The log-sum-exps are equal, and only their rests determine the weights of the splits.
  HostTensor rests = llvm::cantFail(HostTensor::create(Scalar::F64, {3, 1, 1, 1}));
  for (int64_t part = 0; part < 3; ++part) {
    rests.set(part, part == 1 ? NAN : lseParts.get(part));
    lseParts.set(part, part == 1 ? -INFINITY : -1e30);
  }
  combine.sinkLogits = nullptr;
  combine.lseRests = &rests;
  ReferenceRow far = computeCombinedRow(combine, Scalar::F32, 0, 0, 0);
  EXPECT_EQ(far.lse, -1e30);
  for (int64_t d = 0; d < kDim; ++d)
    EXPECT_NEAR(far.o[d], whole.o[d], 1e-12);
}

TEST(Reference, ScoreModIsWhatItsRegionSays) {
  ToolContext tool;
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
                                                             &tool.context);
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

/// Parses a score modification from the ops that compute %y.
ScoreMod parseScoreMod(MLIRContext &context, StringRef body) {
  std::string text =
      "func.func @f(%q: memref<1x1x4x16xf32>, %o: memref<1x1x4x16xf32>) {\n"
      "flashattn.attention ins(%q, %q, %q : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>, "
      "memref<1x1x4x16xf32>) score_mod {\n"
      "^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):\n"
      "%half = arith.constant 0.5 : f32\n%one = arith.constant 1.0 : f32\n" +
      body.str() + "\nflashattn.yield %y : f32\n} outs(%o : memref<1x1x4x16xf32>)\nreturn\n}";
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  std::optional<ScoreMod> mod;
  if (module)
    module->walk([&](AttentionOp op) { mod = llvm::cantFail(ScoreMod::create(op.getScoreMod())); });
  return std::move(*mod);
}

// Every op with a derivative, at points where it exists, and ops without one.
TEST(Reference, ScoreModsAreDifferentiated) {
  ToolContext tool;
  const char *bodies[] = {
      "%y = arith.addf %s, %s : f32",
      "%y = arith.subf %half, %s : f32",
      "%y = arith.mulf %s, %s : f32",
      "%y = arith.divf %half, %s : f32",
      "%a = arith.addf %s, %one : f32  %y = arith.divf %s, %a : f32",
      "%a = arith.mulf %s, %s : f32  %y = arith.remf %a, %half : f32",
      "%a = arith.mulf %s, %half : f32  %y = arith.remf %one, %a : f32",
      "%y = arith.negf %s : f32",
      "%a = arith.mulf %s, %s : f32  %y = arith.maximumf %a, %s : f32",
      "%a = arith.mulf %s, %s : f32  %y = arith.maxnumf %s, %a : f32",
      "%a = arith.mulf %s, %s : f32  %y = arith.minimumf %a, %s : f32",
      "%a = arith.mulf %s, %s : f32  %y = arith.minnumf %s, %a : f32",
      "%y = math.fma %s, %s, %s : f32",
      "%a = arith.subf %s, %one : f32  %y = math.absf %a : f32",
      "%y = math.exp %s : f32",
      "%y = math.exp2 %s : f32",
      "%y = math.expm1 %s : f32",
      "%y = math.log %s : f32",
      "%y = math.log2 %s : f32",
      "%y = math.log1p %s : f32",
      "%y = math.tanh %s : f32",
      "%y = math.sin %s : f32",
      "%y = math.cos %s : f32",
      "%y = math.sqrt %s : f32",
      "%y = math.rsqrt %s : f32",
      "%y = math.powf %s, %half : f32",
      "%y = math.powf %half, %s : f32",
      "%y = math.powf %s, %s : f32",
      "%a = arith.negf %s : f32  %c = arith.constant 3.0 : f32  %y = math.powf %a, %c : f32",
      "%y = math.erf %s : f32",
      "%y = math.floor %s : f32",
      "%y = math.ceil %s : f32",
      "%a = arith.cmpf ogt, %s, %one : f32  %u = math.exp %s : f32  %y = arith.select %a, %u, %s : "
      "f32",
      "%a = arith.fptosi %s : f32 to i32  %u = arith.sitofp %a : i32 to f32  %y = arith.mulf %u, "
      "%s : f32",
      "%a = arith.truncf %s : f32 to bf16  %y = arith.extf %a : bf16 to f32",
      // A value that does not depend on the score, with infinite slope of the function.
      "%z = arith.subf %half, %half : f32  %a = math.sqrt %z : f32  %y = arith.addf %a, %s : f32",
  };
  constexpr double kStep = 1e-6;
  for (const char *body : bodies) {
    ScoreMod mod = parseScoreMod(tool.context, body);
    for (double s : {0.3, 0.9, 1.7, 2.4}) {
      auto evaluate = [&](double at) { return mod.evaluate<double>(at, 0, 1, 5, 7); };
      auto [value, slope] = mod.differentiate<double>(s, 0, 1, 5, 7);
      EXPECT_EQ(value, evaluate(s)) << body;
      EXPECT_NEAR(slope, (evaluate(s + kStep) - evaluate(s - kStep)) / (2 * kStep), 1e-7)
          << body << " at " << s;
      EXPECT_NEAR(mod.differentiate<float>(s, 0, 1, 5, 7).second, slope, 1e-4) << body;
    }
  }
}

/// A small attention with any modifications of the scores, and the operands of its backward pass.
struct SmallProblem {
  static constexpr int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kQueries = 5, kKeys = 7, kDim = 4,
                           kValueDim = 3;
  AttentionProblem problem{};
  llvm::StringMap<HostTensor> tensors;
  int64_t every = 5; ///< one in `every` elements is checked

  HostTensor &add(StringRef name, ArrayRef<int64_t> shape, Scalar scalar = Scalar::F32) {
    HostTensor tensor = llvm::cantFail(HostTensor::create(scalar, shape));
    tensor.fillRandom(tensors.size());
    // Values to which the steps of `differentiate` can be added exactly.
    if (scalar == Scalar::F32)
      for (int64_t i = 0; i < tensor.getNumElements(); ++i)
        tensor.set(i, std::round(tensor.get(i) * 64) / 64);
    HostTensor &added = tensors.try_emplace(name, std::move(tensor)).first->second;
    problem.operands.emplace_back(name, &added);
    return added;
  }

  HostTensor &get(StringRef name) { return tensors.find(name)->second; }

  explicit SmallProblem(bool isBSHD) {
    problem.batch = kBatch, problem.queryHeads = kHeads, problem.keyHeads = kKeyHeads;
    problem.numQueries = kQueries, problem.numKeys = kKeys;
    problem.dim = kDim, problem.valueDim = kValueDim;
    problem.scale = 0.75, problem.offset = kKeys - kQueries;
    problem.isBSHD = isBSHD;
    problem.scalar = Scalar::F32;
    auto addRows = [&](StringRef name, int64_t heads, int64_t length, int64_t width) {
      if (isBSHD)
        std::swap(heads, length);
      add(name, {kBatch, heads, length, width});
    };
    addRows("q", kHeads, kQueries, kDim);
    addRows("k", kKeyHeads, kKeys, kDim);
    addRows("v", kKeyHeads, kKeys, kValueDim);
    addRows("d_o", kHeads, kQueries, kValueDim);
  }

  ForwardRow computeForward(int64_t b, int64_t h, int64_t i, int64_t every = 1) {
    std::vector<float> keys(kKeys * kDim), values(kKeys * kValueDim);
    SmallVector<float> query(kDim);
    int64_t keyHead = h / (kHeads / kKeyHeads);
    readHead(get("k"), problem.isBSHD, b, keyHead, kKeyHeads, kKeys, kDim, keys.data());
    readHead(get("v"), problem.isBSHD, b, keyHead, kKeyHeads, kKeys, kValueDim, values.data());
    get("q").getFloats(getRowStart(problem.isBSHD, b, h, i, kHeads, kQueries, kDim), kDim,
                       query.data());
    return computeForwardRow(problem, query, keys.data(), values.data(), b, h, i, every);
  }

  void forEachRow(llvm::function_ref<void(int64_t b, int64_t h, int64_t i)> visit) {
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kQueries; ++i)
          visit(b, h, i);
  }

  /// Computes the loss. Rows that see no key do not contribute (rule B7).
  double computeLoss() {
    double loss = 0;
    forEachRow([&](int64_t b, int64_t h, int64_t i) {
      ForwardRow row = computeForward(b, h, i);
      int64_t start = getRowStart(problem.isBSHD, b, h, i, kHeads, kQueries, kValueDim);
      for (int64_t d = 0; d < kValueDim; ++d)
        loss += row.o[d] * get("d_o").get(start + d);
      if (const HostTensor *dLse = problem.getOperand("d_lse"); dLse && std::isfinite(row.lse))
        loss += row.lse * dLse->get((b * kHeads + h) * kQueries + i);
    });
    return loss;
  }

  /// Computes a derivative by fourth-order central differences, with a step far above the rounding
  /// of scores.
  double differentiate(StringRef name, int64_t element) {
    constexpr double kStep = 1.0 / 64;
    HostTensor &tensor = get(name);
    double value = tensor.get(element);
    auto differenceAt = [&](double distance) {
      tensor.set(element, value + distance);
      double above = computeLoss();
      tensor.set(element, value - distance);
      return above - computeLoss();
    };
    double near = differenceAt(kStep), far = differenceAt(2 * kStep);
    tensor.set(element, value);
    return (8 * near - far) / (12 * kStep);
  }

  /// Adds the attention's o and lse as operands.
  void addForward() {
    SmallVector<int64_t> shape(get("d_o").getShape());
    HostTensor &o = add("o", shape, Scalar::F64);
    HostTensor &lse = add("lse", {kBatch, kHeads, kQueries}, Scalar::F64);
    forEachRow([&](int64_t b, int64_t h, int64_t i) {
      ForwardRow row = computeForward(b, h, i);
      int64_t start = getRowStart(problem.isBSHD, b, h, i, kHeads, kQueries, kValueDim);
      for (int64_t d = 0; d < kValueDim; ++d)
        o.set(start + d, row.o[d]);
      lse.set((b * kHeads + h) * kQueries + i, row.lse);
    });
  }

  void expectGradient(StringRef name, int64_t element, double exact, double naive) {
    if (element % every)
      return;
    double expected = differentiate(name, element);
    EXPECT_NEAR(exact, expected, 2e-5) << name.str() << " " << element;
    EXPECT_NEAR(naive, exact, 2e-5) << name.str() << " " << element;
  }

  void expectRow(StringRef name, int64_t start, const GradientRow &row) {
    for (size_t d = 0; d < row.exact.size(); ++d) {
      expectGradient(name, start + d, row.exact[d], row.naive[d]);
      EXPECT_TRUE(!row.isHidden || row.exact[d] == 0);
    }
  }

  /// Compares each gradient with differences of the loss.
  void expectGradients() {
    addForward();
    Gradients gradients(problem);
    const HostTensor *bias = problem.getOperand("bias");
    std::vector<GradientSum> biasSums(bias ? bias->getNumElements() : 0), sinkSums(kHeads);
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t g = 0; g < kKeyHeads; ++g) {
        gradients.load(b, g);
        for (int64_t k = 0; k < kKeys; ++k) {
          Gradients::KeyRows rows = gradients.computeKeyRows(k);
          expectRow("k", getRowStart(problem.isBSHD, b, g, k, kKeyHeads, kKeys, kDim), rows.dk);
          expectRow("v", getRowStart(problem.isBSHD, b, g, k, kKeyHeads, kKeys, kValueDim),
                    rows.dv);
        }
        for (int64_t h = 2 * g; h < 2 * g + 2; ++h) {
          for (int64_t i = 0; i < kQueries; ++i) {
            expectRow("q", getRowStart(problem.isBSHD, b, h, i, kHeads, kQueries, kDim),
                      gradients.computeQueryRow(h, i));
            if (!bias)
              continue;
            ArrayRef<int64_t> shape = bias->getShape();
            int64_t start = 0, width = shape[3], places[] = {b, h, i};
            for (auto [size, place] : llvm::zip(shape, places))
              start = start * size + (size == 1 ? 0 : place);
            gradients.addScoreRow(h, i, MutableArrayRef(biasSums).slice(start * width, width));
          }
          if (problem.getOperand("sink_logits"))
            gradients.addSink(h, sinkSums[h]);
        }
      }
    for (size_t n = 0; n < biasSums.size(); ++n)
      expectGradient("bias", n, biasSums[n].exact, biasSums[n].naive);
    for (int64_t h = 0; h < kHeads && problem.getOperand("sink_logits"); ++h)
      expectGradient("sink_logits", h, sinkSums[h].exact, sinkSums[h].naive);
  }
};

IntegerSet parseMask(MLIRContext &context, StringRef constraints) {
  return parseIntegerSet(("(p, k)[nq, nk] : (" + constraints + ")").str(), &context);
}

TEST(Reference, GradientsAreThoseOfTheLoss) {
  ToolContext tool;
  for (bool isBSHD : {false, true}) {
    SmallProblem plain(isBSHD);
    plain.problem.sets = {parseMask(tool.context, "p >= 0")};
    plain.expectGradients();
    // A window and a sink key: the first rows see one key or none.
    SmallProblem masked(isBSHD);
    masked.problem.sets = {parseMask(tool.context, "p - k >= 0, k - p + 2 >= 0"),
                           parseMask(tool.context, "0 - k >= 0, p - k - 3 >= 0")};
    masked.problem.offset = -1;
    masked.add("d_lse", {2, 4, 5});
    masked.add("attn_mask", {2, 1, 5, 7}, Scalar::I1);
    masked.expectGradients();
    // Sink logits, a score modification after a softcap, and kv_len.
    SmallProblem sunk(isBSHD);
    sunk.problem.sets = {parseMask(tool.context, "p - k >= 0")};
    sunk.problem.softcap = 2;
    sunk.problem.scoreMod = parseScoreMod(tool.context, R"(
      %i = arith.index_cast %k : index to i32
      %f = arith.sitofp %i : i32 to f32
      %u = arith.mulf %s, %s : f32
      %v = math.tanh %u : f32
      %c = arith.mulf %f, %half : f32
      %y = math.fma %v, %c, %s : f32)");
    sunk.problem.followsLengths = true;
    HostTensor &length = sunk.add("kv_len", {2}, Scalar::I32);
    length.set(0, 6), length.set(1, 3); // two rows of the second batch see no key
    sunk.add("d_lse", {2, 4, 5});
    sunk.add("sink_logits", {4});
    sunk.expectGradients();
  }
}

// Rule B5: a bias with every combination of broadcast dimensions.
TEST(Reference, BiasGradientsAreSummedAlongItsBroadcasts) {
  MLIRContext context;
  for (unsigned bits = 0; bits < 16; ++bits) {
    SmallProblem biased(/*isBSHD=*/false);
    biased.problem.sets = {parseMask(context, "p - k >= 0")};
    biased.problem.softcap = 3;
    biased.every = 13;
    biased.add("bias", {bits & 1 ? 2 : 1, bits & 2 ? 4 : 1, bits & 4 ? 5 : 1, bits & 8 ? 7 : 1});
    biased.expectGradients();
  }
}

// The estimate for large problems: exact here, because all keys are the same.
TEST(Reference, ForwardOfSomeKeysIsNearThatOfAll) {
  MLIRContext context;
  SmallProblem small(/*isBSHD=*/false);
  small.problem.sets = {parseMask(context, "p >= 0")};
  for (bool hasSinks : {false, true}) {
    if (hasSinks)
      small.add("sink_logits", {4});
    // The same key seven times.
    for (StringRef name : {"k", "v"}) {
      HostTensor &tensor = small.get(name);
      int64_t width = tensor.getShape()[3];
      for (int64_t i = 0; i < tensor.getNumElements(); ++i)
        tensor.set(i, tensor.get(i % width));
    }
    ForwardRow all = small.computeForward(1, 2, 3), some = small.computeForward(1, 2, 3, 7);
    EXPECT_NEAR(some.lse, all.lse, 1e-12);
    for (int64_t d = 0; d < 3; ++d)
      EXPECT_NEAR(some.o[d], all.o[d], 1e-12);
  }
}

// An lse with an error of some hundred roundings of an f32 fails for every operand type, except for
// bf16 scores with a softcap, whose tanh has fewer bits on a GPU.
TEST(Verify, SumsAreThoseOfF32) {
  struct Case {
    StringRef element, clause;
    double right, wrong;
  };
  const Case cases[] = {{"f16", "", 4e-6, 1e-4},
                        {"bf16", "", 4e-6, 1e-4},
                        {"f32", "", 4e-6, 4e-5},
                        {"f16", "softcap(2.0)", 4e-6, 1e-4},
                        {"bf16", "softcap(2.0)", 4e-4, 4e-3}};
  ToolContext tool;
  for (const Case &c : cases) {
    SCOPED_TRACE((c.element + " " + c.clause).str());
    std::string type = ("memref<1x1x6x16x" + c.element + ">").str();
    std::string text = llvm::formatv("func.func @f(%q: {0}, %o: {0}, %l: memref<1x1x6xf32>) {{\n"
                                     "  flashattn.attention {1} ins(%q, %q, %q : {0}, {0}, {0}) "
                                     "outs(%o, %l : {0}, memref<1x1x6xf32>)\n  return\n}",
                                     type, c.clause);
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &tool.context);
    ASSERT_TRUE(module);
    std::optional<CheckedOp> op;
    module->walk([&](AttentionOp attention) { op = CheckedOp::create(attention); });
    ASSERT_TRUE(op);
    Scalar scalar = c.element == "f16"    ? Scalar::F16
                    : c.element == "bf16" ? Scalar::BF16
                                          : Scalar::F32;
    HostTensor q = llvm::cantFail(HostTensor::create(scalar, {1, 1, 6, 16}));
    HostTensor lse = llvm::cantFail(HostTensor::create(Scalar::F32, {1, 1, 6}));
    q.fillRandom(3);
    OperandValues values;
    for (StringRef name : {"q", "k", "v"})
      values.set(name, &q);
    AttentionProblem problem = llvm::cantFail(getProblem(*op, values));
    ScaledRows rows = readScaledRows(problem, "k", 0, 0);
    values.set("lse", &lse);
    for (auto [factor, holds] :
         {std::pair(0.0, true), {c.right, true}, {c.wrong, false}, {-c.wrong, false}}) {
      for (int64_t i = 0; i < 6; ++i) {
        ArrayRef<float> query(rows.getExact() + i * 16, 16);
        double exact = computeReferenceRow(problem, query, rows, rows, /*special=*/{}, 0, 0, i).lse;
        lse.set(i, exact + factor * std::max(1.0, std::abs(exact)));
      }
      Comparison comparison = llvm::cantFail(compare(*op, values, kDefaultVerifyWork));
      ASSERT_EQ(comparison.verdicts.size(), 1u);
      EXPECT_EQ(comparison.verdicts[0].holds(), holds) << factor;
    }
  }
}

} // namespace
