//===- ScaledRowsTest.cpp - keys and values of 8 bits (rules F1 and F2) ---===//

#include "CheckedOp.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/ToolContext.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringMap.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// The only attention of a module, with random operands.
class RandomAttention {
public:
  explicit RandomAttention(StringRef text) {
    module = parseSourceString<ModuleOp>(text, &tool.context);
    EXPECT_TRUE(module);
    module->walk([&](AttentionOp attention) { op = CheckedOp::create(attention); });
    for (const OperandRole &role : op->roles) {
      auto type = cast<ShapedType>(role.value.getType());
      HostTensor tensor =
          llvm::cantFail(HostTensor::create(*getScalar(type.getElementType()), type.getShape()));
      tensor.fillRandom(tensors.size());
      tensors.try_emplace(role.getName(), std::move(tensor));
      values.set(role.getName(), &get(role.getName()));
    }
  }

  HostTensor &get(StringRef name) { return tensors.find(name)->second; }
  float getNumber(StringRef name, int64_t index) { return get(name).get(index); }
  void set(StringRef name, ArrayRef<double> numbers) {
    for (auto [i, number] : llvm::enumerate(numbers))
      get(name).set(i, number);
  }
  AttentionProblem makeProblem() { return llvm::cantFail(getProblem(*op, values)); }

private:
  ToolContext tool;
  OwningOpRef<ModuleOp> module;
  std::optional<CheckedOp> op;
  llvm::StringMap<HostTensor> tensors;
  OperandValues values;
};

TEST(ScaledRows, HaveTheScaleOfTheirHeadOrRow) {
  RandomAttention attention(R"(
    func.func @f(%q: memref<2x4x3x32xf16>, %k: memref<2x2x5x32xf8E4M3FN>, %v: memref<2x2x5x32xi8>,
                 %ks: memref<2x2x1x1xf32>, %vs: memref<2x1x5x2xf32>, %o: memref<2x4x3x32xf16>) {
      flashattn.attention
          ins(%q, %k, %v : memref<2x4x3x32xf16>, memref<2x2x5x32xf8E4M3FN>, memref<2x2x5x32xi8>)
          k_scale(%ks : memref<2x2x1x1xf32>) v_scale(%vs : memref<2x1x5x2xf32>)
          outs(%o : memref<2x4x3x32xf16>)
      return
    })");
  AttentionProblem problem = attention.makeProblem();
  EXPECT_FALSE(roundsScaled(problem, "k"));
  EXPECT_TRUE(roundsScaled(problem, "v"));
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h) {
      ScaledRows keys = readScaledRows(problem, "k", b, h),
                 rows = readScaledRows(problem, "v", b, h);
      EXPECT_EQ(keys.getNaive(), keys.getExact());
      for (int64_t j = 0; j < 5; ++j)
        for (int64_t d = 0; d < 32; ++d) {
          int64_t element = ((b * 2 + h) * 5 + j) * 32 + d;
          EXPECT_EQ(keys.getExact()[j * 32 + d],
                    attention.getNumber("k", element) * attention.getNumber("k_scale", b * 2 + h));
          float value = attention.getNumber("v", element) *
                        attention.getNumber("v_scale", (b * 5 + j) * 2 + d / 16);
          EXPECT_EQ(rows.getExact()[j * 32 + d], value);
          EXPECT_EQ(rows.getNaive()[j * 32 + d], roundTo(Scalar::F16, value));
        }
    }
}

TEST(ScaledRows, HaveTheScaleOfTheirSequence) {
  RandomAttention attention(R"(
    func.func @f(%q: memref<1x2x3x16xf32>, %k: memref<1x1x7x16xi8>, %s: memref<3xi32>,
                 %t: memref<3xi32>, %ks: memref<2x1x1x1xf32>, %vs: memref<1x1x7x1xf32>,
                 %o: memref<1x2x3x16xf32>) {
      flashattn.attention cu_seqlens_q(%s : memref<3xi32>) cu_seqlens_k(%t : memref<3xi32>)
          ins(%q, %k, %k : memref<1x2x3x16xf32>, memref<1x1x7x16xi8>, memref<1x1x7x16xi8>)
          k_scale(%ks : memref<2x1x1x1xf32>) v_scale(%vs : memref<1x1x7x1xf32>)
          outs(%o : memref<1x2x3x16xf32>)
      return
    })");
  attention.set("cu_seqlens_q", {0, 1, 3});
  attention.set("cu_seqlens_k", {0, 4, 6}); // row 6 is of no sequence
  AttentionProblem problem = attention.makeProblem();
  EXPECT_FALSE(roundsScaled(problem, "v")); // queries of f32
  ScaledRows keys = readScaledRows(problem, "k", 0, 0), rows = readScaledRows(problem, "v", 0, 0);
  for (int64_t j = 0; j < 7; ++j)
    for (int64_t d = 0; d < 16; ++d) {
      float scale = j < 6 ? attention.getNumber("k_scale", j / 4) : 1;
      EXPECT_EQ(keys.getExact()[j * 16 + d], attention.getNumber("k", j * 16 + d) * scale);
      EXPECT_EQ(rows.getExact()[j * 16 + d],
                attention.getNumber("v", j * 16 + d) * attention.getNumber("v_scale", j));
    }
}

TEST(ScaledRows, AreGatheredWithTheirScales) {
  RandomAttention attention(R"(
    func.func @f(%q: memref<2x1x2x32xf32>, %k: memref<4x8x2x32xf8E5M2>, %n: memref<2xi32>,
                 %t: memref<2x2xi32>, %p: memref<2xi32>, %ks: memref<4x8x1x2xf32>,
                 %vs: memref<2x1x2x1xf32>, %o: memref<2x1x2x32xf32>) {
      flashattn.attention layout(bshd)
          ins(%q, %k, %k : memref<2x1x2x32xf32>, memref<4x8x2x32xf8E5M2>, memref<4x8x2x32xf8E5M2>)
          kv_len(%n : memref<2xi32>) page_table(%t : memref<2x2xi32>) leftpad_k(%p : memref<2xi32>)
          k_scale(%ks : memref<4x8x1x2xf32>) v_scale(%vs : memref<2x1x2x1xf32>)
          outs(%o : memref<2x1x2x32xf32>)
      return
    })");
  const int64_t lengths[] = {11, 5}, pages[] = {3, 1, 2, -1}, padding[] = {3, 1};
  attention.set("kv_len", {11, 5});
  attention.set("page_table", {3, 1, 2, -1});
  attention.set("leftpad_k", {3, 1});
  AttentionProblem problem = attention.makeProblem();
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h) {
      ScaledRows keys = readScaledRows(problem, "k", b, h),
                 rows = readScaledRows(problem, "v", b, h);
      for (int64_t j = 0; j < lengths[b]; ++j)
        for (int64_t d = 0; d < 32; ++d) {
          int64_t row = j + padding[b], place = pages[b * 2 + row / 8] * 8 + row % 8;
          float stored = attention.getNumber("k", (place * 2 + h) * 32 + d);
          EXPECT_EQ(keys.getExact()[j * 32 + d],
                    stored * attention.getNumber("k_scale", place * 2 + d / 16));
          EXPECT_EQ(rows.getExact()[j * 32 + d],
                    attention.getNumber("v", (place * 2 + h) * 32 + d) *
                        attention.getNumber("v_scale", b * 2 + h));
        }
    }
}

} // namespace
