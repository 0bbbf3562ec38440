//===- ScoresTest.cpp - scores and derivatives in both orientations -------===//
//
// Runs the code of ScoreBuilder on the CPU, and compares it with the formula in float64 and its
// central differences: rules A1, A2, B6, B7 and M7.
//
//===----------------------------------------------------------------------===//

#include "Dialect/FlashAttn/Program/Scores.h"
#include "Dialect/FlashAttn/Program/ScoreMod.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/Executable.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/TargetSelect.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

constexpr int64_t kBatches = 2, kHeads = 2, kQueries = 21, kKeys = 37, kDim = 8;
constexpr int64_t kOffset = 12; ///< position of query 0; some keys are beyond every position
constexpr double kScale = 0.7;

/// A test case: how its scores are modified.
struct Case {
  const char *name;
  double softcap = 0;
  bool hasBias = false, hasAttnMask = false, isCausal = false;
  /// Ops of score_mod that compute %r from %s, %b, %h, %p and %key, and the same function in C++.
  const char *ops = "";
  double (*scoreMod)(double s, double p, double key) = nullptr;
};

void PrintTo(const Case &c, std::ostream *os) { *os << c.name; }

/// Builds programs in place of an attention op that write its scores and their derivatives.
class ScoreWriter : TileBuilder {
public:
  ScoreWriter(OpBuilder &b, AttentionOp op, TileAxis columns)
      : TileBuilder(b, op.getLoc()), op(op), columns(columns), m(op.getScheduleAttr().getTileM()),
        n(op.getScheduleAttr().getTileN()) {
    if (columns == TileAxis::Queries)
      std::swap(m, n);
  }

  void build(Value scores, Value slopes) {
    Value rowTiles =
        columns == TileAxis::Keys ? ceilDiv(index(kQueries), m) : ceilDiv(index(kKeys), n);
    Value columnTiles =
        columns == TileAxis::Keys ? ceilDiv(index(kKeys), n) : ceilDiv(index(kQueries), m);
    ProgramAxis axes[] = {ProgramAxis::Batch, ProgramAxis::Head, ProgramAxis::QueryTile};
    auto program = ProgramOp::create(b, loc, {index(kBatches), index(kHeads), rowTiles}, axes,
                                     op.getScheduleAttr());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(program.getBody());
    Value batch = program.getNumbers()[0], head = program.getNumbers()[1],
          row = program.getNumbers()[2], zero = index(0);
    ScoreBuilder builder(b, op, columns, RowPattern(), /*fullTilesKeep=*/false);
    auto load = [&](Value memref, Value tile, int64_t size) -> Value {
      return LoadTileOp::create(b, loc, VectorType::get({size, kDim}, b.getF32Type()), memref,
                                ValueRange{batch, head, tile, zero}, ArrayRef<int64_t>{2, 3},
                                ArrayRef<bool>{false, true});
    };
    // Loop-invariant operands are loaded before the loop.
    bool rowsAreQueries = columns == TileAxis::Keys;
    Value rows = rowsAreQueries ? load(op.getQ(), row, m) : load(op.getK(), row, n);
    auto loop = TileLoopOp::create(b, loc, {zero, zero, zero, columnTiles}, Value(), {}, Value(),
                                   ValueRange());
    b.setInsertionPointToStart(loop.getBody());
    Value column = loop.getTile();
    Value queryTile = rowsAreQueries ? row : column, keyTile = rowsAreQueries ? column : row;
    Value products = rowsAreQueries ? builder.multiply(rows, load(op.getK(), column, n))
                                    : builder.multiply(load(op.getQ(), column, m), rows);
    ScoreDerivative derivative;
    Sequence sequence{batch, index(kQueries), index(kKeys), index(kOffset)};
    Value shaped = builder.shape(products,
                                 {sequence, head, queryTile, keyTile,
                                  add(mul(queryTile, m), sequence.offset), mul(keyTile, n)},
                                 &derivative);
    auto type = cast<VectorType>(shaped.getType());
    Value slope = splat(type, derivative.factor);
    if (derivative.slope)
      slope = arith::MulFOp::create(b, loc, derivative.slope, slope);
    for (auto [tile, to] : {std::pair(shaped, scores), {slope, slopes}})
      StoreTileOp::create(b, loc, tile, to, ValueRange{batch, head, row, loop.getTile()},
                          ArrayRef<int64_t>{2, 3}, ArrayRef<bool>{false, false});
    TileYieldOp::create(b, loc, ValueRange());
  }

  /// Returns the factor that the scores still lack (ScoreBuilder::getFactor), divided by log2 e.
  static double getRest(OpBuilder &b, AttentionOp op) {
    return ScoreBuilder(b, op, TileAxis::Keys, RowPattern(), false).getFactor().number / M_LOG2E;
  }

private:
  AttentionOp op;
  TileAxis columns;
  int64_t m, n; ///< queries and keys of a tile
};

struct Array {
  std::vector<int64_t> sizes;
  std::vector<float> data;

  explicit Array(std::vector<int64_t> sizes, float value = 0) : sizes(std::move(sizes)) {
    int64_t count = 1;
    for (int64_t size : this->sizes)
      count *= size;
    data.assign(count, value);
  }
  float &at(std::initializer_list<int64_t> place) {
    int64_t index = 0;
    for (auto [i, size] : llvm::zip_equal(place, sizes))
      index = index * size + i;
    return data[index];
  }
  /// Returns {allocated, aligned, offset, sizes, strides}.
  std::vector<int64_t> getDescriptor() {
    std::vector<int64_t> words = {int64_t(data.data()), int64_t(data.data()), 0};
    words.insert(words.end(), sizes.begin(), sizes.end());
    int64_t stride = data.size();
    for (int64_t size : sizes)
      words.push_back(stride /= size);
    return words;
  }
};

class Scores : public ::testing::TestWithParam<Case> {
protected:
  Scores() {
    DialectRegistry registry;
    registerAllFlashAttnDialects(registry);
    registerAllFlashAttnExtensions(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Array *array : {&q, &k, &bias})
      for (float &x : array->data)
        x = normal(random);
    for (size_t i = 0; i < attnMask.size(); ++i)
      attnMask[i] = random() % 3 != 0;
  }

  std::string getText(const Case &c) {
    std::string mod = c.scoreMod ? llvm::formatv(R"(score_mod {{
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      {0}
      flashattn.yield %r : f32
    })",
                                                 c.ops)
                                       .str()
                                 : "";
    std::string clauses = c.isCausal ? "mask(#flashattn.causal)" : "";
    clauses += llvm::formatv(" scale({0:f6})", kScale);
    if (c.softcap)
      clauses += llvm::formatv(" softcap({0:f6})", c.softcap);
    return llvm::formatv(R"(
func.func @f(%q: memref<2x2x21x8xf32>, %k: memref<2x2x37x8xf32>, %bias: memref<1x2x21x37xf32>,
             %attn_mask: memref<2x1x21x37xi1>,
             %s0: memref<2x2x21x37xf32>, %d0: memref<2x2x21x37xf32>,
             %s1: memref<2x2x37x21xf32>, %d1: memref<2x2x37x21xf32>, %o: memref<2x2x21x8xf32>) {{
  %c12 = arith.constant 12 : index
  flashattn.attention {0}
      schedule(<tile_m = 16, tile_n = 16, stages = 1, dot_type = f32, mapping = cpu>)
      ins(%q, %k, %k : memref<2x2x21x8xf32>, memref<2x2x37x8xf32>, memref<2x2x37x8xf32>)
      {1} {2} offset(%c12) {3}
      outs(%o : memref<2x2x21x8xf32>)
  return
})",
                         clauses, c.hasBias ? "bias(%bias : memref<1x2x21x37xf32>)" : "",
                         c.hasAttnMask ? "attn_mask(%attn_mask : memref<2x1x21x37xi1>)" : "", mod)
        .str();
  }

  /// Runs the programs on the arrays. Returns false if compilation fails.
  bool run(ModuleOp module) {
    AttentionOp op;
    module.walk([&](AttentionOp found) { op = found; });
    OpBuilder b(op);
    rest = ScoreWriter::getRest(b, op);
    auto arguments = op->getParentOfType<func::FuncOp>().getArguments();
    ScoreWriter(b, op, TileAxis::Keys).build(arguments[4], arguments[5]);
    ScoreWriter(b, op, TileAxis::Queries).build(arguments[6], arguments[7]);
    op.erase();
    CompileOptions options;
    options.chip = "cpu";
    if (failed(compile(module, options)))
      return false;
    auto device = llvm::cantFail(createCPUDevice());
    auto executable = llvm::cantFail(Executable::create(module, *device));
    Array output({kBatches, kHeads, kQueries, kDim});
    std::vector<std::vector<int64_t>> descriptors;
    for (Array *array : {&q, &k, &bias})
      descriptors.push_back(array->getDescriptor());
    Array shape({kBatches, 1, kQueries, kKeys});
    descriptors.push_back(shape.getDescriptor());
    descriptors.back()[0] = descriptors.back()[1] = int64_t(attnMask.data());
    for (Array *array : {&scores[0], &slopes[0], &scores[1], &slopes[1], &output})
      descriptors.push_back(array->getDescriptor());
    std::vector<void *> addresses;
    for (std::vector<int64_t> &descriptor : descriptors)
      addresses.push_back(descriptor.data());
    llvm::Error error = executable->invoke("f", addresses);
    EXPECT_FALSE(bool(error)) << llvm::toString(std::move(error));
    return true;
  }

  MLIRContext context;
  Array q{{kBatches, kHeads, kQueries, kDim}}, k{{kBatches, kHeads, kKeys, kDim}},
      bias{{1, kHeads, kQueries, kKeys}};
  std::vector<uint8_t> attnMask = std::vector<uint8_t>(kBatches * kQueries * kKeys);
  /// First with queries as rows, then with keys as rows.
  Array scores[2] = {Array({kBatches, kHeads, kQueries, kKeys}, NAN),
                     Array({kBatches, kHeads, kKeys, kQueries}, NAN)};
  Array slopes[2] = {scores[0], scores[1]};
  double rest = 1;
};

TEST_P(Scores, MatchTheFormula) {
  const Case &c = GetParam();
  auto module = parseSourceString<ModuleOp>(getText(c), &context);
  ASSERT_TRUE(module);
  module->walk([&](AttentionOp op) {
    EXPECT_TRUE(succeeded(verifyScoreModVectorizes(op)));
    ASSERT_TRUE(succeeded(verifyScoreModHasDerivative(op)));
  });
  ASSERT_TRUE(run(*module));

  for (int64_t b = 0; b < kBatches; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kQueries; ++i)
        for (int64_t j = 0; j < kKeys; ++j) {
          double product = 0;
          for (int64_t d = 0; d < kDim; ++d)
            product += double(q.at({b, h, i, d})) * k.at({b, h, j, d});
          auto shape = [&](double x) {
            double s = x * kScale;
            if (c.softcap)
              s = c.softcap * std::tanh(s / c.softcap);
            if (c.scoreMod)
              s = c.scoreMod(s, i + kOffset, j);
            return c.hasBias ? s + bias.at({0, h, i, j}) : s;
          };
          bool isHidden = (c.isCausal && j > i + kOffset) ||
                          (c.hasAttnMask && !attnMask[(b * kQueries + i) * kKeys + j]);
          constexpr double kStep = 1e-5;
          double slope = (shape(product + kStep) - shape(product - kStep)) / (2 * kStep);
          for (int transposed = 0; transposed < 2; ++transposed) {
            auto at = [&](Array &array) {
              return transposed ? array.at({b, h, j, i}) : array.at({b, h, i, j});
            };
            auto where = [&] {
              return llvm::formatv("at {0}, {1}, {2}, {3}, transposed {4}", b, h, i, j, transposed)
                  .str();
            };
            if (isHidden) {
              ASSERT_EQ(at(scores[transposed]), -INFINITY) << where();
              continue;
            }
            double expected = shape(product);
            ASSERT_NEAR(at(scores[transposed]) * rest, expected, 1e-5 * (1 + std::abs(expected)))
                << where();
            ASSERT_NEAR(at(slopes[transposed]), slope, 2e-5 * (1 + std::abs(slope))) << where();
          }
        }
}

const Case kCases[] = {
    {"plain"},
    {"softcap", 1.5},
    {"bias", 0, true},
    {"attn_mask", 0, false, true},
    {"causal", 0, false, false, true},
    {"all", 2, true, true, true, R"(
      %d = arith.subi %key, %p : index
      %i = arith.index_cast %d : index to i32
      %x = arith.sitofp %i : i32 to f32
      %slope = arith.constant 0.125 : f32
      %square = arith.mulf %s, %s : f32
      %r = math.fma %x, %slope, %square : f32)",
     [](double s, double p, double key) { return (key - p) * 0.125 + s * s; }},
    {"chain", 0, false, false, false, R"(
      %c = arith.constant 0.5 : f32
      %t = math.tanh %s : f32
      %e = math.exp %t : f32
      %u = arith.divf %e, %c : f32
      %v = arith.subf %u, %s : f32
      %r = arith.negf %v : f32)",
     [](double s, double, double) { return s - std::exp(std::tanh(s)) / 0.5; }},
    {"quotient", 0, false, false, false, R"(
      %one = arith.constant 1.0 : f32
      %square = math.fma %s, %s, %one : f32
      %r = arith.divf %s, %square : f32)",
     [](double s, double, double) { return s / (s * s + 1); }},
    {"pieces", 0, false, false, false, R"(
      %zero = arith.constant 0.0 : f32
      %half = arith.constant 0.5 : f32
      %is = arith.cmpf ogt, %s, %zero : f32
      %scaled = arith.mulf %s, %half : f32
      %leaky = arith.select %is, %s, %scaled : f32
      %a = math.absf %leaky : f32
      %one = arith.constant 1.0 : f32
      %low = arith.minimumf %a, %one : f32
      %r = arith.maximumf %low, %leaky : f32)",
     [](double s, double, double) {
       double leaky = s > 0 ? s : s / 2;
       return std::max(std::min(std::abs(leaky), 1.0), leaky);
     }},
    // The result does not depend on the score.
    {"constant", 0, false, false, false, R"(
      %i = arith.index_cast %key : index to i32
      %r = arith.sitofp %i : i32 to f32)",
     [](double, double, double key) { return key; }},
    {"wide", 0, false, false, false, R"(
      %w = arith.extf %s : f32 to f64
      %y = arith.mulf %w, %w : f64
      %r = arith.truncf %y : f64 to f32)",
     [](double s, double, double) { return s * s; }},
    {"roots", 0, false, false, false, R"(
      %one = arith.constant 1.0 : f32
      %x = math.fma %s, %s, %one : f32
      %a = math.sqrt %x : f32
      %i = math.rsqrt %x : f32
      %e = math.log %x : f32
      %two = math.log2 %x : f32
      %g = math.exp2 %i : f32
      %u = arith.addf %a, %e : f32
      %v = arith.addf %u, %two : f32
      %r = arith.addf %v, %g : f32)",
     [](double s, double, double) {
       double x = s * s + 1;
       return std::sqrt(x) + std::log(x) + std::log2(x) + std::exp2(1 / std::sqrt(x));
     }},
    {"circles", 0, false, false, false, R"(
      %a = math.sin %s : f32
      %c = math.cos %s : f32
      %e = math.erf %s : f32
      %u = arith.mulf %a, %c : f32
      %r = arith.addf %u, %e : f32)",
     [](double s, double, double) { return std::sin(s) * std::cos(s) + std::erf(s); }},
    {"hyperbolic", 0, false, false, false, R"(
      %t = math.tanh %s : f32
      %a = math.atan %s : f32
      %two = arith.constant 2.0 : f32
      %g = math.atan2 %t, %two : f32
      %square = arith.mulf %s, %s : f32
      %l = math.log1p %square : f32
      %m = math.expm1 %t : f32
      %u = arith.addf %a, %g : f32
      %v = arith.addf %l, %m : f32
      %r = arith.addf %u, %v : f32)",
     [](double s, double, double) {
       double t = std::tanh(s);
       return std::atan(s) + std::atan2(t, 2.0) + std::log1p(s * s) + std::expm1(t);
     }},
    {"logarithms", 0, false, false, false, R"(
      %one = arith.constant 1.0 : f32
      %x = math.fma %s, %s, %one : f32
      %a = math.cbrt %x : f32
      %c = math.log10 %x : f32
      %i = arith.constant 3 : i32
      %g = math.fpowi %s, %i : f32, i32
      %u = arith.addf %a, %c : f32
      %r = arith.addf %u, %g : f32)",
     [](double s, double, double) {
       double x = s * s + 1;
       return std::cbrt(x) + std::log10(x) + s * s * s;
     }},
    {"inverses", 0, false, false, false, R"(
      %t = math.tanh %s : f32
      %almost = arith.constant 0.9 : f32
      %x = arith.mulf %t, %almost : f32
      %two = arith.constant 2.0 : f32
      %y = math.fma %s, %s, %two : f32
      %i0 = math.asin %x : f32
      %i1 = math.acos %x : f32
      %i2 = math.atanh %x : f32
      %i3 = math.asinh %s : f32
      %i4 = math.acosh %y : f32
      %i5 = math.sinh %x : f32
      %i6 = math.cosh %x : f32
      %i7 = math.tan %x : f32
      %i8 = arith.mulf %i1, %i0 : f32
      %i9 = arith.addf %i8, %i2 : f32
      %i10 = arith.addf %i9, %i3 : f32
      %i11 = arith.addf %i10, %i4 : f32
      %i12 = arith.addf %i11, %i5 : f32
      %i13 = arith.addf %i12, %i6 : f32
      %r = arith.addf %i13, %i7 : f32)",
     [](double s, double, double) {
       double x = 0.9 * std::tanh(s), y = s * s + 2;
       return std::acos(x) * std::asin(x) + std::atanh(x) + std::asinh(s) + std::acosh(y) +
              std::sinh(x) + std::cosh(x) + std::tan(x);
     }},
    {"steps", 0, false, false, false, R"(
      %a = math.floor %s : f32
      %c = math.ceil %s : f32
      %d = arith.mulf %a, %c : f32
      %two = arith.constant 2.0 : f32
      %e = arith.maxnumf %s, %two : f32
      %f = arith.minnumf %e, %d : f32
      %r = arith.addf %f, %s : f32)",
     [](double s, double, double) {
       return std::min(std::max(s, 2.0), std::floor(s) * std::ceil(s)) + s;
     }},
    {"powers", 0, false, false, false, R"(
      %one = arith.constant 1.0 : f32
      %x = math.fma %s, %s, %one : f32
      %y = arith.constant 1.7 : f32
      %u = math.powf %x, %y : f32
      %v = math.powf %y, %s : f32
      %r = arith.addf %u, %v : f32)",
     [](double s, double, double) { return std::pow(s * s + 1, 1.7) + std::pow(1.7, s); }}};

INSTANTIATE_TEST_SUITE_P(ScoresOf, Scores, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case> &info) {
                           return std::string(info.param.name);
                         });

TEST_F(Scores, NoDerivative) {
  Case c{"", 0, false, false, false, R"(
      %two = arith.constant 2.0 : f32
      %r = arith.remf %s, %two : f32)", [](double s, double, double) { return s; }};
  auto module = parseSourceString<ModuleOp>(getText(c), &context);
  ASSERT_TRUE(module);
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  module->walk([&](AttentionOp op) { EXPECT_TRUE(failed(verifyScoreModHasDerivative(op))); });
  EXPECT_EQ(message, "'arith.remf' op expected an op with a derivative between the score and the "
                     "result of score_mod but got 'arith.remf'");
}

} // namespace

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  initializeBackEnds();
  return RUN_ALL_TESTS();
}
