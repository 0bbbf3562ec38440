//===- MaskShapeTest.cpp - the shapes of masks, as schedules go by them ----===//

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/AsmParser/AsmParser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

class ClassifyMask : public ::testing::Test {
protected:
  ClassifyMask() { ctx.loadDialect<FlashAttnDialect>(); }

  MaskShape classify(StringRef mask) {
    auto attr = dyn_cast_if_present<MaskAttrInterface>(parseAttribute(mask, &ctx));
    EXPECT_TRUE(attr) << mask.str();
    return attr ? classifyMask(attr.getVisibleSets()) : MaskShape::Full;
  }

  MLIRContext ctx;
};

TEST_F(ClassifyMask, Full) {
  EXPECT_EQ(classifyMask(IntegerSet::get(2, 2, getAffineConstantExpr(0, &ctx), {true})),
            MaskShape::Full);
  EXPECT_EQ(classify("#flashattn.window"), MaskShape::Full);
  // A set that repeats along the keys, or goes by the lengths, follows no query.
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
  // So many keys whatever the query.
  EXPECT_EQ(classify("#flashattn.sink<4>"), MaskShape::Banded);
  EXPECT_EQ(classify("#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, "
                     "#flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>"),
            MaskShape::Banded);
  // Keys of the query's own block of 64.
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (p floordiv 64 - k floordiv 64 == 0)\">"),
            MaskShape::Banded);
  // No pair at all.
  EXPECT_EQ(classify("#flashattn.set<\"(p, k)[nq, nk] : (-1 >= 0)\">"), MaskShape::Banded);
  EXPECT_EQ(classify("#flashattn.any_of<[]>"), MaskShape::Banded);
}

} // namespace
