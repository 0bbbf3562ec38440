//===- FlashAttnOps.cpp - verifier, effects, shapes, canonicalisation ------===//

#include "Verify.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// An enumeration between the parentheses of its clause: the bare keyword, where the attribute's
/// own printer would put a space before it.
template <typename EnumAttrT>
static ParseResult parseEnumKeyword(OpAsmParser &parser, EnumAttrT &attr) {
  using Enum = decltype(attr.getValue());
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword)))
    keyword = "";
  std::string known;
  for (uint32_t i = 0; !stringifyEnum(Enum(i)).empty(); ++i) {
    known += (i ? " or " : "") + stringifyEnum(Enum(i)).str();
    if (stringifyEnum(Enum(i)) == keyword) {
      attr = EnumAttrT::get(parser.getContext(), Enum(i));
      return success();
    }
  }
  return parser.emitError(loc) << "expected " << known << " but got '" << keyword << "'";
}

template <typename EnumAttrT>
static void printEnumKeyword(OpAsmPrinter &printer, Operation *, EnumAttrT attr) {
  printer.printKeywordOrString(stringifyEnum(attr.getValue()));
}

/// A1: `scale(0.1)` is the attribute, `scale(%x)` the operand.
static ParseResult parseScaleFactor(OpAsmParser &parser, FloatAttr &scale,
                                    std::optional<OpAsmParser::UnresolvedOperand> &value) {
  OpAsmParser::UnresolvedOperand operand;
  OptionalParseResult parsed = parser.parseOptionalOperand(operand);
  if (!parsed.has_value())
    return parser.parseAttribute(scale, parser.getBuilder().getF32Type());
  value = operand;
  return *parsed;
}

static void printScaleFactor(OpAsmPrinter &printer, Operation *, FloatAttr scale, Value value) {
  if (value)
    printer << value;
  else
    printer.printAttributeWithoutType(scale);
}

/// Memory that is read and written: that of the operands; tensors have none.
static void getDestinationEffects(
    DestinationStyleOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (op.hasPureTensorSemantics())
    return;
  for (OpOperand *input : op.getDpsInputOperands())
    if (isa<MemRefType>(input->get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), input, SideEffects::DefaultResource::get());
  for (OpOperand &init : op.getDpsInitsMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &init, SideEffects::DefaultResource::get());
}

/// Results have the sizes of their destinations.
static LogicalResult reifyDestinationShapes(DestinationStyleOpInterface op, OpBuilder &builder,
                                            ReifiedRankedShapedTypeDims &shapes) {
  for (OpResult result : op->getResults())
    shapes.push_back(
        tensor::getMixedSizes(builder, op.getLoc(), op.getDpsInits()[result.getResultNumber()]));
  return success();
}

static void printMask(OpAsmPrinter &printer, Operation *, MaskAttrInterface mask) {
  printer << mask;
}

#define GET_OP_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.cpp.inc"

int64_t AttentionOp::getKnownGroup() {
  int64_t heads = getQ().getType().getDimSize(getHeadDim());
  int64_t kvHeads = getK().getType().getDimSize(getHeadDim());
  bool known = !ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads > 0;
  return known ? heads / kvHeads : 1;
}

double AttentionOp::getScaleOrDefault() {
  if (std::optional<APFloat> scale = getScale())
    return scale->convertToFloat();
  return 1.0 / std::sqrt(static_cast<double>(getD()));
}

StringRef AttentionOp::findInputOfHeads(bool inParts) {
  for (const OperandRole &role : getOperandRoles())
    if (role.value && role.rule->is(OperandRule::Optional) && !role.rule->is(OperandRule::Output) &&
        role.rule->dims.contains('H') && !(inParts && role.value == getSinkLogits()))
      return role.getName();
  return hasScoreMod() ? "a score modification" : "";
}

SmallVector<IntegerSet> AttentionOp::getVisibleSets() {
  if (std::optional<MaskAttrInterface> mask = getMask())
    return mask->getVisibleSets();
  return {IntegerSet::get(2, 2, getAffineConstantExpr(0, getContext()), {true})};
}

//===----------------------------------------------------------------------===//
// Verifier (rule R1)
//===----------------------------------------------------------------------===//

static std::string toText(const APFloat &value) {
  SmallString<16> text;
  value.toString(text);
  return text.str().str();
}

LogicalResult mlir::flashattn::verifyMemory(Operation *op, StringRef name, ShapedType type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return success();
  SmallVector<int64_t> strides;
  int64_t start;
  if (failed(memref.getStridesAndOffset(strides, start)))
    return op->emitOpError() << "expected a strided layout of '" << name << "' but got " << type;
  if (strides.back() != 1)
    return op->emitOpError() << "expected unit stride in the last dimension of '" << name
                             << "' but got " << type;
  if (memref.getMemorySpace())
    return op->emitOpError() << "expected the default memory space of '" << name << "' but got "
                             << type;
  return success();
}

LogicalResult mlir::flashattn::verifyResults(DestinationStyleOpInterface op) {
  OperandRange inits = op.getDpsInits();
  size_t expected = isa<RankedTensorType>(inits[0].getType()) ? inits.size() : 0;
  if (op->getNumResults() != expected)
    return op->emitOpError() << "expected " << expected << " results but got "
                             << op->getNumResults();
  for (auto [result, init] : llvm::zip(op->getResults(), inits))
    if (result.getType() != init.getType())
      return op->emitOpError() << "expected result type " << init.getType()
                               << " as in 'outs' but got " << result.getType();
  return success();
}

/// A1 and A2: what a scale or a softcap may be.
static bool isInFactorRange(const APFloat &value) {
  // Their quotient in f32 must be finite, or a score of 0 is NaN.
  double number = value.convertToFloat();
  return number >= 0.999e-18 && number <= 1.001e18;
}

LogicalResult AttentionOp::verify() {
  OperandSizes sizes;
  if (failed(verifyOperands(*this, sizes)))
    return failure();
  if (getD() < 1 || getDv() < 1)
    return emitOpError() << "expected head dimensions of at least 1 but got " << getD()
                         << " of 'q' and " << getDv() << " of 'v'";
  // A4: every key/value head serves the same number of query heads.
  if (std::string wrong = explainHeads(sizes.get('H'), sizes.get('G')); !wrong.empty())
    return emitOpError() << wrong;

  for (auto [name, value] : {std::pair("scale", getScale()), std::pair("softcap", getSoftcap())}) {
    if (!value)
      continue;
    if (!value->isFinite() || value->isNegative() || value->isZero())
      return emitOpError() << "expected a finite positive " << name << " but got "
                           << toText(*value);
    if (!isInFactorRange(*value))
      return emitOpError() << "expected " << name << " from 1e-18 to 1e18 but got "
                           << toText(*value);
  }
  if (getScale() && getScaleValue())
    return emitOpError() << "expected one scale but got an attribute, " << toText(*getScale())
                         << ", and an operand";

  return verifyResults(*this);
}

/// R1 for the score modification; each error stands at the op that is not as it should be.
LogicalResult AttentionOp::verifyRegions() {
  if (getScoreMods().size() > 1)
    return emitOpError() << "expected at most 1 score_mod but got " << getScoreMods().size();
  if (!hasScoreMod())
    return success();
  Block &body = getScoreMod().front();
  Builder b(getContext());
  Type f32 = b.getF32Type(), index = b.getIndexType();
  SmallVector<Type> expected = {f32, index, index, index, index};
  if (!llvm::equal(body.getArgumentTypes(), expected)) {
    InFlightDiagnostic error =
        emitOpError() << "expected score_mod of (f32, index, index, index, index) but got (";
    llvm::interleaveComma(body.getArgumentTypes(), error);
    return error << ")";
  }
  // Every target computes with these.
  auto isScalar = [](Type type) {
    return type.isIndex() || type.isF16() || type.isBF16() || type.isF32() || type.isF64() ||
           (type.isSignlessInteger() &&
            llvm::is_contained({1, 8, 16, 32, 64}, type.getIntOrFloatBitWidth()));
  };
  for (Operation &op : body) {
    if (&op == &body.back()) {
      if (isa<YieldOp>(op))
        continue;
      return op.emitOpError() << "expected 'flashattn.yield' at the end of score_mod but got '"
                              << op.getName() << "'";
    }
    if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect()) ||
        op.getNumRegions() != 0 || !isMemoryEffectFree(&op))
      return op.emitOpError() << "expected an op of arith or math in score_mod but got '"
                              << op.getName() << "'";
    for (Type type : llvm::concat<const Type>(SmallVector<Type>(op.getOperandTypes()),
                                              SmallVector<Type>(op.getResultTypes())))
      if (!isScalar(type))
        return op.emitOpError() << "expected scalars of i1, i8, i16, i32, i64, index, f16, bf16, "
                                   "f32 or f64 in score_mod but got "
                                << type;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Canonicalisation
//===----------------------------------------------------------------------===//

/// The one value of all elements of a constant, or null.
static Attribute getSplat(Value value) {
  if (!value)
    return nullptr;
  Attribute constant;
  if (auto global = value.getDefiningOp<memref::GetGlobalOp>()) {
    auto symbol =
        SymbolTable::lookupNearestSymbolFrom<memref::GlobalOp>(global, global.getNameAttr());
    if (symbol && symbol.getConstant())
      constant = symbol.getConstantInitValue();
  } else {
    matchPattern(value, m_Constant(&constant));
  }
  auto splat = dyn_cast_or_null<SplatElementsAttr>(constant);
  return splat ? splat.getSplatValue<Attribute>() : Attribute();
}

std::optional<bool> AttentionOp::getConstantKeep() {
  auto value = dyn_cast_or_null<IntegerAttr>(getSplat(getKeep()));
  return value ? std::optional(!value.getValue().isZero()) : std::nullopt;
}

namespace {

/// A mask one of whose sets has only constraints that always hold hides nothing.
struct DropMaskThatHidesNothing : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    if (!op.getMask())
      return failure();
    auto holds = [](AffineExpr e, bool isEq) {
      auto c = dyn_cast<AffineConstantExpr>(e);
      return c && (isEq ? c.getValue() == 0 : c.getValue() >= 0);
    };
    bool hidesNothing = llvm::any_of(op.getVisibleSets(), [&](IntegerSet set) {
      return llvm::all_of(llvm::zip(set.getConstraints(), set.getEqFlags()),
                          [&](auto pair) { return holds(std::get<0>(pair), std::get<1>(pair)); });
    });
    if (!hidesNothing)
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op.removeMaskAttr(); });
    return success();
  }
};

/// A `keep` that is true everywhere and a `bias` of zeros change nothing.
struct DropOperandsWithoutEffect : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    auto bias = dyn_cast_or_null<FloatAttr>(getSplat(op.getBias()));
    bool dropKeep = op.getConstantKeep() == true, dropBias = bias && bias.getValue().isZero();
    if (!dropKeep && !dropBias)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (dropKeep)
        op.getKeepMutable().clear();
      if (dropBias)
        op.getBiasMutable().clear();
    });
    return success();
  }
};

/// A scale that is known at compile time is the attribute. One out of range stays what it is.
struct TakeConstantScale : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    FloatAttr scale;
    if (!op.getScaleValue() || !matchPattern(op.getScaleValue(), m_Constant(&scale)) ||
        !isInFactorRange(scale.getValue()))
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      op.getScaleValueMutable().clear();
      op.setScaleAttr(scale);
    });
    return success();
  }
};

/// A score modification that yields the score as it came.
struct DropScoreModWithoutEffect : OpRewritePattern<AttentionOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(AttentionOp op, PatternRewriter &rewriter) const override {
    if (!op.hasScoreMod())
      return failure();
    Block &body = op.getScoreMod().front();
    if (cast<YieldOp>(body.getTerminator()).getScore() != body.getArgument(0))
      return failure();
    rewriter.replaceOpWithNewOp<AttentionOp>(
        op, op->getResultTypes(), op->getOperands(), op.getProperties(),
        llvm::to_vector(op->getDiscardableAttrs()), /*numRegions=*/0);
    return success();
  }
};

} // namespace

/// A `tensor.cast` that forgets sizes is folded by the tensor dialect's own pattern, which serves
/// every op in destination-passing style.
void AttentionOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropMaskThatHidesNothing, DropOperandsWithoutEffect, DropScoreModWithoutEffect,
               TakeConstantScale>(context);
}
