//===- MathToNVVM.cpp - flashattn-math-to-nvvm ----------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Target/Machine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTMATHTONVVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Applies `intrinsic` to an f32, or to each element of an f32 vector.
Value mapElements(PatternRewriter &rewriter, Location loc, Value v, StringRef intrinsic) {
  auto apply = [&](Value element) -> Value {
    return LLVM::CallIntrinsicOp::create(rewriter, loc, rewriter.getF32Type(),
                                         rewriter.getStringAttr(intrinsic), ValueRange{element})
        .getResult(0);
  };
  if (!isa<VectorType>(v.getType()))
    return apply(v);
  auto elements = vector::ToElementsOp::create(rewriter, loc, v);
  SmallVector<Value> results = llvm::map_to_vector(elements.getResults(), apply);
  return vector::FromElementsOp::create(rewriter, loc, v.getType(), results);
}

/// Creates `value` as a constant of `type`, f32 or a vector of f32.
Value constant(PatternRewriter &rewriter, Location loc, Type type, double value) {
  TypedAttr attr = rewriter.getF32FloatAttr(value);
  if (auto vector = dyn_cast<ShapedType>(type))
    attr = DenseElementsAttr::get(vector, Attribute(attr));
  return arith::ConstantOp::create(rewriter, loc, attr);
}

/// Lowers an op to `after * intrinsic(before * operand)`.
template <typename MathOp> struct ToIntrinsic : OpRewritePattern<MathOp> {
  ToIntrinsic(MLIRContext *ctx, StringRef intrinsic, double before = 1, double after = 1)
      : OpRewritePattern<MathOp>(ctx), intrinsic(intrinsic), before(before), after(after) {}

  LogicalResult matchAndRewrite(MathOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return failure();
    Location loc = op.getLoc();
    auto times = [&](Value v, double factor) -> Value {
      if (factor == 1)
        return v;
      return arith::MulFOp::create(rewriter, loc, v, constant(rewriter, loc, op.getType(), factor));
    };
    Value x = times(op.getOperand(), before);
    rewriter.replaceOp(op, times(mapElements(rewriter, loc, x, intrinsic), after));
    return success();
  }

  StringRef intrinsic;
  double before, after;
};

/// Whether LLVM selects `tanh.approx`, which has 11 bits of precision.
bool isApproximate(math::TanhOp op) {
  return bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn);
}

/// Lowers tanh to 1 - 2 / (1 + e^2x), with two MUFU instructions, and near 0, where the difference
/// cancels, to its series. The relative error is at most 4e-7.
struct TanhToIntrinsic : OpRewritePattern<math::TanhOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::TanhOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32() || isApproximate(op))
      return failure();
    Location loc = op.getLoc();
    Value x = op.getOperand();
    auto number = [&](double v) { return constant(rewriter, loc, type, v); };
    Value twice = arith::MulFOp::create(rewriter, loc, x, number(2 * M_LOG2E));
    Value power = mapElements(rewriter, loc, twice, "llvm.nvvm.ex2.approx.ftz.f");
    Value sum = arith::AddFOp::create(rewriter, loc, power, number(1));
    Value inverse = mapElements(rewriter, loc, sum, "llvm.nvvm.rcp.approx.ftz.f");
    Value far = math::FmaOp::create(rewriter, loc, inverse, number(-2), number(1));
    // x - x^3/3 + 2x^5/15 - 17x^7/315 + 62x^9/2835 - 1382x^11/155925
    Value square = arith::MulFOp::create(rewriter, loc, x, x);
    Value series = number(-1382.0 / 155925);
    for (double term : {62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3, 1.0})
      series = math::FmaOp::create(rewriter, loc, series, square, number(term));
    Value near = arith::MulFOp::create(rewriter, loc, x, series);
    constexpr double kNear = 0.35;
    Value isNear = arith::CmpFOp::create(rewriter, loc, arith::CmpFPredicate::OLT, square,
                                         number(kNear * kNear));
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, isNear, near, far);
    return success();
  }
};

/// Lowers 1 / x to `rcp.approx.ftz`, whose error is at most 1 ulp. The full division is a call.
struct ReciprocalToIntrinsic : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::DivFOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32() || !matchPattern(op.getLhs(), m_OneFloat()))
      return failure();
    rewriter.replaceOp(
        op, mapElements(rewriter, op.getLoc(), op.getRhs(), "llvm.nvvm.rcp.approx.ftz.f"));
    return success();
  }
};

/// Combines the bits of the magnitude and of the sign. gpu-to-nvvm rejects the intrinsic that
/// math-to-llvm creates.
struct CopySignToBits : OpRewritePattern<math::CopySignOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::CopySignOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType();
    if (!getElementTypeOrSelf(type).isF32())
      return failure();
    Location loc = op.getLoc();
    Type bits = rewriter.getI32Type();
    if (auto vector = dyn_cast<VectorType>(type))
      bits = vector.clone(bits);
    auto masked = [&](Value value, int32_t mask) -> Value {
      TypedAttr attr = rewriter.getI32IntegerAttr(mask);
      if (auto vector = dyn_cast<VectorType>(bits))
        attr = DenseElementsAttr::get(vector, mask);
      return arith::AndIOp::create(rewriter, loc,
                                   arith::BitcastOp::create(rewriter, loc, bits, value),
                                   arith::ConstantOp::create(rewriter, loc, attr));
    };
    Value joined = arith::OrIOp::create(rewriter, loc, masked(op.getLhs(), INT32_MAX),
                                        masked(op.getRhs(), INT32_MIN));
    rewriter.replaceOpWithNewOp<arith::BitcastOp>(op, type, joined);
    return success();
  }
};

/// Creates an inline PTX instruction without side effects.
Value createPurePTX(PatternRewriter &rewriter, Location loc, Type type, StringRef text,
                    StringRef constraints, ValueRange inputs) {
  return LLVM::InlineAsmOp::create(rewriter, loc, type, inputs, text, constraints,
                                   /*has_side_effects=*/false, /*is_align_stack=*/false,
                                   LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

/// Returns the words that contain pairs of 16-bit elements of a vector; failure for other vectors.
FailureOr<SmallVector<Value>> getPairs(PatternRewriter &rewriter, Location loc, Value v) {
  auto type = cast<VectorType>(v.getType());
  if (type.getRank() != 1 || type.getElementTypeBitWidth() != 16 || type.getDimSize(0) % 2 != 0)
    return failure();
  auto words = VectorType::get({type.getDimSize(0) / 2}, rewriter.getI32Type());
  Value cast = vector::BitCastOp::create(rewriter, loc, words, v);
  return SmallVector<Value>(vector::ToElementsOp::create(rewriter, loc, cast).getResults());
}

/// Whether `op` is in a kernel for a chip with warpgroups. The patterns below are for such kernels:
/// mma.sync kernels have no registers to spare, and their backward pass with sink tokens would
/// spill; and not all of their chips support `set` for bf16.
bool isForWarpgroups(Operation *op) {
  auto hasWarpgroups = [](Attribute attr) {
    auto target = dyn_cast<NVVM::NVVMTargetAttr>(attr);
    if (!target)
      return false;
    llvm::Expected<Machine> machine = Machine::get(target.getChip());
    if (machine)
      return machine->hasWarpgroups();
    // Kernels that this compiler did not create.
    llvm::consumeError(machine.takeError());
    return false;
  };
  auto kernels = op->getParentOfType<gpu::GPUModuleOp>();
  ArrayAttr targets = kernels ? kernels.getTargetsAttr() : ArrayAttr();
  return targets && !targets.empty() && llvm::all_of(targets, hasWarpgroups);
}

/// Converts two f32 to a word of two bf16 in one instruction. If both words and halves are used,
/// LLVM would convert each half at a quarter of the rate and join them
/// (docs/rationale/mma-sync.md). Not needed in kernels with warpgroups, in which ExtendPairs
/// extracts halves from words.
struct TruncatePairs : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || type.getRank() != 1 || type.getDimSize(0) % 2 != 0 ||
        !type.getElementType().isBF16() || !getElementTypeOrSelf(op.getIn().getType()).isF32() ||
        isForWarpgroups(op))
      return failure();
    Location loc = op.getLoc();
    auto elements = vector::ToElementsOp::create(rewriter, loc, op.getIn());
    auto pairType = VectorType::get({2}, type.getElementType());
    auto wordType = VectorType::get({1}, rewriter.getI32Type());
    SmallVector<Value> words;
    for (int64_t i = 0; i < type.getDimSize(0); i += 2) {
      // The first operand is the upper half.
      Value pair = LLVM::CallIntrinsicOp::create(
                       rewriter, loc, pairType, rewriter.getStringAttr("llvm.nvvm.ff2bf16x2.rn"),
                       ValueRange{elements.getResult(i + 1), elements.getResult(i)})
                       .getResult(0);
      words.push_back(vector::ExtractOp::create(
          rewriter, loc, vector::BitCastOp::create(rewriter, loc, wordType, pair), 0));
    }
    auto wordsType = VectorType::get({type.getDimSize(0) / 2}, rewriter.getI32Type());
    Value joined = vector::FromElementsOp::create(rewriter, loc, wordsType, words);
    rewriter.replaceOpWithNewOp<vector::BitCastOp>(op, type, joined);
    return success();
  }
};

/// Converts pairs of f32 to f8E4M3FN (PTX ISA, `cvt.rn.satfinite.e4m3x2.f32`).
struct TruncatePairsToF8 : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || type.getRank() != 1 || type.getDimSize(0) % 2 != 0 ||
        !isa<Float8E4M3FNType>(type.getElementType()) ||
        !getElementTypeOrSelf(op.getIn().getType()).isF32())
      return failure();
    Location loc = op.getLoc();
    auto elements = vector::ToElementsOp::create(rewriter, loc, op.getIn());
    SmallVector<Value> pairs;
    for (int64_t i = 0; i < type.getDimSize(0); i += 2)
      // The first operand is the upper half.
      pairs.push_back(LLVM::CallIntrinsicOp::create(
                          rewriter, loc, rewriter.getI16Type(),
                          rewriter.getStringAttr("llvm.nvvm.ff.to.e4m3x2.rn"),
                          ValueRange{elements.getResult(i + 1), elements.getResult(i)})
                          .getResult(0));
    auto pairsType = VectorType::get({type.getDimSize(0) / 2}, rewriter.getI16Type());
    Value joined = vector::FromElementsOp::create(rewriter, loc, pairsType, pairs);
    rewriter.replaceOpWithNewOp<vector::BitCastOp>(op, type, joined);
    return success();
  }
};

/// Extends pairs of bf16, the upper halves of f32, by integer ops on the word. LLVM would keep each
/// half in its own register from where the word is defined. This way, each half takes one
/// instruction at its use.
struct ExtendPairs : OpRewritePattern<arith::ExtFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || !type.getElementType().isF32() ||
        !getElementTypeOrSelf(op.getIn().getType()).isBF16() || !isForWarpgroups(op))
      return failure();
    Location loc = op.getLoc();
    FailureOr<SmallVector<Value>> words = getPairs(rewriter, loc, op.getIn());
    if (failed(words))
      return failure();
    auto integer = [&](int64_t v) {
      return arith::ConstantIntOp::create(rewriter, loc, v, /*width=*/32);
    };
    SmallVector<Value> elements;
    for (Value word : *words)
      for (Value bits : {arith::ShLIOp::create(rewriter, loc, word, integer(16)).getResult(),
                         arith::AndIOp::create(rewriter, loc, word, integer(-0x10000)).getResult()})
        elements.push_back(arith::BitcastOp::create(rewriter, loc, rewriter.getF32Type(), bits));
    rewriter.replaceOpWithNewOp<vector::FromElementsOp>(op, type, elements);
    return success();
  }
};

/// Selects 16-bit elements where others are not 0, and 0 elsewhere, with a mask for each pair. LLVM
/// would need a predicate for each element.
struct SelectPairs : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    auto shown = op.getCondition().getDefiningOp<arith::CmpFOp>();
    bool isF16 = type && type.getElementType().isF16(),
         isBF16 = type && type.getElementType().isBF16();
    if ((!isF16 && !isBF16) || !isForWarpgroups(op) || !shown ||
        shown.getPredicate() != arith::CmpFPredicate::UNE || shown.getLhs().getType() != type ||
        !matchPattern(shown.getRhs(), m_AnyZeroFloat()) ||
        !matchPattern(op.getFalseValue(), m_PosZeroFloat()))
      return failure();
    Location loc = op.getLoc();
    FailureOr<SmallVector<Value>> values = getPairs(rewriter, loc, op.getTrueValue());
    FailureOr<SmallVector<Value>> others = getPairs(rewriter, loc, shown.getLhs());
    if (failed(values) || failed(others))
      return failure();
    Type word = rewriter.getI32Type();
    Value zero = arith::ConstantIntOp::create(rewriter, loc, 0, /*width=*/32);
    StringRef text = isF16 ? "set.neu.u32.f16x2 $0, $1, $2;" : "set.neu.u32.bf16x2 $0, $1, $2;";
    for (auto [value, other] : llvm::zip_equal(*values, *others)) {
      Value mask = createPurePTX(rewriter, loc, word, text, "=r,r,r", {other, zero});
      value = arith::AndIOp::create(rewriter, loc, value, mask);
    }
    auto words = VectorType::get({static_cast<int64_t>(values->size())}, word);
    Value joined = vector::FromElementsOp::create(rewriter, loc, words, *values);
    rewriter.replaceOpWithNewOp<vector::BitCastOp>(op, type, joined);
    return success();
  }
};

/// Whether the operands of the ops of types `Ops` that compute `condition`, followed through such
/// ops, are at most `most`. An operand counts once for each use, as often as a pattern that copies
/// these ops computes it: uses that are shared can double with each op.
template <typename... Ops> bool hasFewParts(Value condition, size_t most) {
  SmallVector<Value> left = {condition};
  size_t count = 0;
  while (!left.empty() && count <= most) {
    Operation *def = left.pop_back_val().getDefiningOp();
    if (isa_and_nonnull<Ops...>(def))
      llvm::append_range(left, def->getOperands());
    else
      ++count;
  }
  return count <= most;
}

/// The elements of a condition, each computed on demand.
class Condition {
public:
  Condition(PatternRewriter &rewriter, Location loc, Value v) : rewriter(rewriter), loc(loc) {
    Operation *def = v.getDefiningOp();
    if (isa_and_nonnull<arith::AndIOp, arith::OrIOp>(def)) {
      op = def;
      for (Value operand : def->getOperands())
        parts.emplace_back(rewriter, loc, operand);
    } else if (isa_and_nonnull<arith::CmpIOp>(def)) {
      op = def;
      for (Value operand : def->getOperands())
        elements.push_back(vector::ToElementsOp::create(rewriter, loc, operand).getResults());
    } else {
      elements.push_back(vector::ToElementsOp::create(rewriter, loc, v).getResults());
    }
  }

  Value at(size_t i) const {
    if (!op)
      return elements.front()[i];
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      return arith::CmpIOp::create(rewriter, loc, compare.getPredicate(), elements[0][i],
                                   elements[1][i]);
    Value lhs = parts[0].at(i), rhs = parts[1].at(i);
    return isa<arith::AndIOp>(op) ? arith::AndIOp::create(rewriter, loc, lhs, rhs).getResult()
                                  : arith::OrIOp::create(rewriter, loc, lhs, rhs).getResult();
  }

private:
  PatternRewriter &rewriter;
  Location loc;
  Operation *op = nullptr;
  std::vector<Condition> parts;
  SmallVector<ValueRange> elements;
};

/// Selects by a conjunction or disjunction with one `selp`: LLVM would create a select for each
/// condition, but `setp` can combine predicates. One element at a time, because there are only
/// seven predicate registers.
struct SelectByLogic : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  static constexpr size_t kMostParts = 64;

  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || type.getRank() != 1 || !type.getElementType().isF32() || !isForWarpgroups(op) ||
        !isa<VectorType>(op.getCondition().getType()) ||
        !isa_and_nonnull<arith::AndIOp, arith::OrIOp>(op.getCondition().getDefiningOp()) ||
        !hasFewParts<arith::AndIOp, arith::OrIOp>(op.getCondition(), kMostParts))
      return failure();
    Location loc = op.getLoc();
    Condition condition(rewriter, loc, op.getCondition());
    auto x = vector::ToElementsOp::create(rewriter, loc, op.getTrueValue());
    auto y = vector::ToElementsOp::create(rewriter, loc, op.getFalseValue());
    SmallVector<Value> elements;
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      elements.push_back(createPurePTX(rewriter, loc, type.getElementType(),
                                       "selp.f32 $0, $1, $2, $3;", "=f,f,f,b",
                                       {x.getResult(i), y.getResult(i), condition.at(i)}));
    rewriter.replaceOpWithNewOp<vector::FromElementsOp>(op, type, elements);
    return success();
  }
};

/// Rewrites a select by one of two conditions, such as for keys before and after a cut, to a select
/// of two selects. If the choice is known, as in most tiles, the other select is dead.
struct SelectByEither : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  static constexpr size_t kMostParts = 16;

  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    auto either = op.getCondition().getDefiningOp<arith::SelectOp>();
    if (!either || !isForWarpgroups(op) || !isa<VectorType>(op.getType()) ||
        either.getCondition().getType() != either.getType() ||
        !hasFewParts<arith::SelectOp>(either, kMostParts))
      return failure();
    auto choose = [&](Value condition) {
      return arith::SelectOp::create(rewriter, op.getLoc(), condition, op.getTrueValue(),
                                     op.getFalseValue());
    };
    Value first = choose(either.getTrueValue()), second = choose(either.getFalseValue());
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, either.getCondition(), first, second);
    return success();
  }
};

/// Whether LLVM can select `op` for NVPTX, directly or after lowering to an intrinsic.
bool isSelectable(Operation *op) {
  if (auto tanh = dyn_cast<math::TanhOp>(op))
    return isApproximate(tanh);
  return isa<math::AbsIOp, math::CountLeadingZerosOp, math::CtPopOp, math::FmaOp, math::IsFiniteOp,
             math::IsInfOp, math::IsNaNOp, math::IsNormalOp>(op);
}

/// Converts pairs of f8 to f16, which chips from sm_89 on have an instruction for (PTX ISA, `cvt`).
Value convertPairs(OpBuilder &b, Location loc, Value elements) {
  auto type = cast<VectorType>(elements.getType());
  bool isE4M3 = isa<Float8E4M3FNType>(type.getElementType());
  StringRef name = isE4M3 ? "llvm.nvvm.e4m3x2.to.f16x2.rn" : "llvm.nvvm.e5m2x2.to.f16x2.rn";
  int64_t pairs = type.getNumElements() / 2;
  auto pair = VectorType::get({2}, b.getF16Type()), word = VectorType::get({1}, b.getI32Type());
  Value bits =
      vector::BitCastOp::create(b, loc, VectorType::get({pairs}, b.getI16Type()), elements);
  SmallVector<Value> words;
  for (int64_t i = 0; i < pairs; ++i) {
    Value two =
        LLVM::CallIntrinsicOp::create(b, loc, pair, b.getStringAttr(name),
                                      ValueRange{vector::ExtractOp::create(b, loc, bits, i)})
            .getResult(0);
    words.push_back(
        vector::ExtractOp::create(b, loc, vector::BitCastOp::create(b, loc, word, two), 0));
  }
  Value joined =
      vector::FromElementsOp::create(b, loc, VectorType::get({pairs}, b.getI32Type()), words);
  return vector::BitCastOp::create(b, loc, type.clone(b.getF16Type()), joined);
}

/// Whether the chip of the kernel with `op` has conversions of pairs of f8.
bool convertsPairs(ConvertElementsOp op) {
  unsigned version = 0;
  auto module = op->getParentOfType<gpu::GPUModuleOp>();
  ArrayAttr targets = module ? module.getTargetsAttr() : nullptr;
  for (Attribute target : targets ? targets.getValue() : ArrayRef<Attribute>())
    if (auto nvvm = dyn_cast<NVVM::NVVMTargetAttr>(target)) {
      StringRef chip = nvvm.getChip();
      if (chip.consume_front("sm_"))
        chip.consumeInteger(10, version);
    }
  constexpr unsigned kFirst = 89;
  auto from = cast<VectorType>(cast<MemRefType>(op.getSource().getType()).getElementType());
  return version >= kFirst && from.getNumElements() % 2 == 0;
}

struct ConvertMathToNVVMPass : flashattn::impl::ConvertMathToNVVMBase<ConvertMathToNVVMPass> {
  void runOnOperation() override {
    MLIRContext *ctx = &getContext();
    IRRewriter rewriter(ctx);
    getOperation()->walk([&](ConvertElementsOp op) {
      expandConversion(rewriter, op, convertsPairs(op) ? F8Converter(convertPairs) : F8Converter());
    });
    // Ops of score modifications. First, ops that are expanded or approximated.
    RewritePatternSet expansions(ctx);
    math::populateExpansionPatterns(
        expansions, {"sinh", "cosh", "tan", "asinh", "acosh", "atanh", "powf", "fpowi", "round"});
    populateMathPolynomialApproximationPatterns(expansions, [](StringRef name) {
      return llvm::is_contained({"math.acos", "math.asin", "math.atan", "math.atan2", "math.cbrt",
                                 "math.cos", "math.erf", "math.erfc", "math.expm1", "math.log1p",
                                 "math.sin"},
                                name);
    });
    RewritePatternSet patterns(ctx);
    constexpr StringRef kExp2 = "llvm.nvvm.ex2.approx.ftz.f", kLog2 = "llvm.nvvm.lg2.approx.ftz.f";
    patterns.add<ToIntrinsic<math::Exp2Op>>(ctx, kExp2);
    patterns.add<ToIntrinsic<math::ExpOp>>(ctx, kExp2, /*before=*/M_LOG2E);
    patterns.add<ToIntrinsic<math::Log2Op>>(ctx, kLog2);
    patterns.add<ToIntrinsic<math::LogOp>>(ctx, kLog2, /*before=*/1, /*after=*/M_LN2);
    patterns.add<ToIntrinsic<math::Log10Op>>(ctx, kLog2, /*before=*/1, /*after=*/M_LN2 / M_LN10);
    patterns.add<ToIntrinsic<math::RsqrtOp>>(ctx, "llvm.nvvm.rsqrt.approx.ftz.f");
    // gpu-to-nvvm would lower these ops to libdevice calls, but keeps intrinsics.
    patterns.add<ToIntrinsic<math::AbsFOp>>(ctx, "llvm.fabs.f32");
    patterns.add<ToIntrinsic<math::CeilOp>>(ctx, "llvm.ceil.f32");
    patterns.add<ToIntrinsic<math::FloorOp>>(ctx, "llvm.floor.f32");
    patterns.add<ToIntrinsic<math::RoundEvenOp>>(ctx, "llvm.roundeven.f32");
    patterns.add<ToIntrinsic<math::SqrtOp>>(ctx, "llvm.nvvm.sqrt.rn.f");
    patterns.add<ToIntrinsic<math::TruncOp>>(ctx, "llvm.trunc.f32");
    patterns.add<TanhToIntrinsic, ReciprocalToIntrinsic, CopySignToBits, TruncatePairs,
                 TruncatePairsToF8, ExtendPairs, SelectPairs, SelectByLogic, SelectByEither>(ctx);
    if (failed(applyPatternsGreedily(getOperation(), std::move(expansions))) ||
        failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    WalkResult left = getOperation()->walk([](Operation *op) {
      bool isMath = isa_and_nonnull<math::MathDialect>(op->getDialect());
      if (!isa<arith::RemFOp>(op) && (!isMath || isSelectable(op)))
        return WalkResult::advance();
      op->emitOpError() << "has no lowering to PTX on " << op->getResult(0).getType();
      return WalkResult::interrupt();
    });
    if (left.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
