//===- MaskLimitsTest.cpp - limits on masks of other dialects -------------===//

#include "flashattn/Analysis/MaskShape.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// An array attribute as a mask. Elements that are not integer sets become null sets.
struct ArrayMask : MaskAttrInterface::ExternalModel<ArrayMask, ArrayAttr> {
  SmallVector<IntegerSet> getVisibleSets(Attribute attribute) const {
    return llvm::map_to_vector(cast<ArrayAttr>(attribute), [](Attribute element) {
      auto set = dyn_cast<IntegerSetAttr>(element);
      return set ? set.getValue() : IntegerSet();
    });
  }
};

/// Applies `depth` times: the sum of a remainder and a quotient of the previous expression. The
/// result shares its subexpressions; expanded, it has more than 2^depth terms.
AffineExpr share(AffineExpr expr, unsigned depth) {
  for (unsigned i = 0; i < depth; ++i)
    expr = expr % (2 * i + 5) + expr.floorDiv(2 * i + 3);
  return expr;
}

class MaskLimits : public ::testing::Test {
protected:
  MaskLimits() {
    ctx.loadDialect<FlashAttnDialect, func::FuncDialect>();
    ArrayAttr::attachInterface<ArrayMask>(ctx);
  }

  /// Returns the errors of a module with an op that has `mask`.
  std::string verify(StringRef mask, bool backward) {
    std::string type = "tensor<1x1x8x16xf32>", lse = "tensor<1x1x8xf32>";
    std::string text = "func.func @f(%q: " + type + ", %lse: " + lse + ") {\n";
    if (backward)
      text += "%r:3 = flashattn.attention_backward mask(" + mask.str() +
              ") ins(%q, %q, %q, %q, %lse, %q : " + type + ", " + type + ", " + type + ", " + type +
              ", " + lse + ", " + type + ") outs(%q, %q, %q : " + type + ", " + type + ", " + type +
              ") -> " + type + ", " + type + ", " + type + "\n";
    else
      text += "%r = flashattn.attention mask(" + mask.str() + ") ins(%q, %q, %q : " + type + ", " +
              type + ", " + type + ") outs(%q : " + type + ") -> " + type + "\n";
    text += "return\n}\n";
    std::string errors;
    ScopedDiagnosticHandler handler(&ctx, [&](Diagnostic &d) { errors += d.str() + "\n"; });
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &ctx);
    EXPECT_EQ(bool(module), errors.empty()) << errors;
    return errors;
  }

  MLIRContext ctx;
};

} // namespace

// Every op with a mask, and every mask attribute that contains other masks.
TEST_F(MaskLimits, SetsOfOtherDialects) {
  std::string causal = "affine_set<(p, k)[nq, nk] : (p - k >= 0)>";
  SmallVector<std::string> many(65, causal);
  std::pair<std::string, const char *> cases[] = {
      {"[" + causal + "]", ""},
      {"[affine_set<(p) : (p >= 0)>]",
       "over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] "
       "but got 1 dimensions and 0 symbols"},
      {"[affine_set<(p, k, x)[nq, nk] : (p - x >= 0)>]",
       "over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 3 dimensions and 2 "
       "symbols"},
      {"[" + causal + ", affine_set<(p, k)[nq] : (p - k >= 0)>]",
       "over the 2 dimensions (p, k) and 2 to 26 symbols [nq, nk, ...] but got 2 dimensions and 1 "
       "symbols"},
      {"[affine_set<(p, k)[nq, nk] : (p * 4611686018427387904 - k >= 0)>]",
       "expected coefficients of absolute value at most 2147483648 but got 4611686018427387904"},
      {"[affine_set<(p, k)[nq, nk] : (p * nq - k >= 0)>]", "expected a pure affine constraint"},
      {"[affine_set<(p, k)[nq, nk] : (p mod 0 - k >= 0)>]",
       "expected divisors and moduli of at least 1 but got 0"},
      {"[4 : i32]", "expected the integer sets of a mask but got a null set"},
      {"[" + llvm::join(many, ", ") + "]",
       "expected a mask of at most 64 integer sets but got 65"}};
  for (const auto &[mask, expected] : cases)
    for (const char *around : {"", "any_of<[", "all_of<[causal, "})
      for (bool backward : {false, true}) {
        std::string text = around + mask + (*around ? "]>" : "");
        std::string errors = verify(text, backward);
        if (*expected)
          EXPECT_NE(errors.find(expected), std::string::npos) << text << "\n" << errors;
        else
          EXPECT_EQ(errors, "") << text;
      }
}

// An expression with shared subexpressions may be stored in much less memory than its terms would
// need.
TEST_F(MaskLimits, SharedParts) {
  AffineExpr p, k;
  bindDims(&ctx, p, k);
  for (unsigned depth : {2, 12}) {
    Attribute set = IntegerSetAttr::get(IntegerSet::get(2, 2, {share(p - k, depth)}, {false}));
    std::string errors;
    ScopedDiagnosticHandler handler(&ctx, [&](Diagnostic &d) { errors += d.str(); });
    auto mask = AnyOfAttr::getChecked([&] { return emitError(UnknownLoc::get(&ctx)); }, &ctx,
                                      ArrayAttr::get(&ctx, {ArrayAttr::get(&ctx, {set})}));
    EXPECT_EQ(bool(mask), depth == 2);
    EXPECT_EQ(errors, depth == 2
                          ? ""
                          : "expected a mask of at most 4096 identifiers and constants in its sets "
                            "but got 4097");
  }
}
