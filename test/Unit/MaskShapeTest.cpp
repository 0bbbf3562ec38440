//===- MaskShapeTest.cpp - classification of masks for schedules ----------===//

#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/AsmParser/AsmParser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ClassifyMask : public ::testing::Test {
protected:
  ClassifyMask() { ctx.loadDialect<FlashAttnDialect>(); }

  MaskClass classifyAll(StringRef mask) {
    auto attr = dyn_cast_if_present<MaskAttrInterface>(parseAttribute(mask, &ctx));
    EXPECT_TRUE(attr) << mask.str();
    return attr ? classifyMask(attr.getVisibleSets()) : MaskClass{MaskShape::Full, {}};
  }
  MaskShape classify(StringRef mask) { return classifyAll(mask).shape; }

  MLIRContext ctx;
};

TEST_F(ClassifyMask, Full) {
  EXPECT_EQ(classifyMask(IntegerSet::get(2, 2, getAffineConstantExpr(0, &ctx), {true})).shape,
            MaskShape::Full);
  EXPECT_EQ(classify("#flashattn.window"), MaskShape::Full);
  // A set that is periodic in the keys, or depends on the lengths alone, is independent of the
  // query.
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (k mod 2 == 0)\">"), MaskShape::Full);
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (nk - 1 - k >= 0)\">"), MaskShape::Full);
  EXPECT_EQ(classify("#flashattn.any_of<[#flashattn.causal, "
                     "#flashattn.set<\"(p, k)[nq, nk] : (k mod 64 == 0)\">]>"),
            MaskShape::Full);
}

TEST_F(ClassifyMask, Triangular) {
  EXPECT_EQ(classify("#flashattn.causal"), MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0)\">"),
            MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (k - p >= 0)\">"),
            MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.window<left = 127>"), MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.window<right = 127>"), MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (p - k >= 0, k mod 4 == 0)\">"),
            MaskShape::Triangular);
  EXPECT_EQ(classify("#flashattn.any_of<[#flashattn.causal, #flashattn.sink<4>]>"),
            MaskShape::Triangular);
}

TEST_F(ClassifyMask, Banded) {
  EXPECT_EQ(classify("#flashattn.window<left = 127, right = 0>"), MaskShape::Banded);
  EXPECT_EQ(classify("#flashattn.all_of<[#flashattn.causal, #flashattn.window<left = 127>]>"),
            MaskShape::Banded);
  // The same number of keys for every query.
  EXPECT_EQ(classify("#flashattn.sink<4>"), MaskShape::Banded);
  EXPECT_EQ(classify("#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, "
                     "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>"),
            MaskShape::Banded);
  // The keys in the query's block of 64.
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (p floordiv 64 - k floordiv 64 == 0)\">"),
            MaskShape::Banded);
  // No pair at all.
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (-1 >= 0)\">"), MaskShape::Banded);
  EXPECT_EQ(classify("#flashattn.any_of<[]>"), MaskShape::Banded);
}

TEST_F(ClassifyMask, WidthOfABand) {
  auto width = [&](StringRef mask) { return classifyAll(mask).width.value_or(-1); };
  EXPECT_EQ(width("#flashattn.window<left = 127, right = 0>"), 128);
  EXPECT_EQ(width("#flashattn.window<left = 3, right = 16383>"), 16387);
  EXPECT_EQ(width("#flashattn.sink<4>"), 4);
  // The width of a union is at most the sum of the widths.
  EXPECT_EQ(width("#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, "
                  "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>"),
            132);
  EXPECT_EQ(width("#flashattn.all_of<[#flashattn.causal, #flashattn.window<left = 127>]>"), 128);
  EXPECT_EQ(width("#flashattn.set<\"(p, k)[nq, nk] : (-1 >= 0)\">"), 0);
  EXPECT_EQ(width("#flashattn.any_of<[]>"), 0);
  EXPECT_EQ(width("#flashattn.window<left = 2147483647, right = 2147483647>"), 2147483647);
  EXPECT_EQ(width("#flashattn.causal"), -1);
  EXPECT_EQ(width("#flashattn.window"), -1);
}

} // namespace
