//===- FlashAttnOps.cpp - verifier, effects, shapes, canonicalisation ------===//

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
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

#define GET_OP_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.cpp.inc"

void AttentionOp::build(OpBuilder &builder, OperationState &state, Value q, Value k, Value v,
                        Value offset, Value oInit, Value lseInit,
                        ArrayRef<NamedAttribute> attributes) {
  state.addOperands({q, k, v});
  if (offset)
    state.addOperands(offset);
  state.addOperands(oInit);
  if (lseInit)
    state.addOperands(lseInit);
  state.getOrAddProperties<Properties>().operandSegmentSizes = {
      1, 1, 1, offset ? 1 : 0, 1, lseInit ? 1 : 0};
  for (NamedAttribute attribute : attributes)
    if (attribute.getName() != "operandSegmentSizes")
      state.addAttribute(attribute.getName(), attribute.getValue());
  for (Value init : {oInit, lseInit})
    if (init && isa<RankedTensorType>(init.getType()))
      state.addTypes(init.getType());
}

double AttentionOp::getScaleOrDefault() {
  if (std::optional<APFloat> scale = getScale())
    return scale->convertToFloat();
  return 1.0 / std::sqrt(static_cast<double>(getD()));
}

SmallVector<IntegerSet> AttentionOp::getVisibleSets() {
  if (std::optional<MaskAttrInterface> mask = getMask())
    return mask->getVisibleSets();
  return {IntegerSet::get(2, 2, getAffineConstantExpr(0, getContext()), {true})};
}

//===----------------------------------------------------------------------===//
// Verifier (rule R1)
//===----------------------------------------------------------------------===//

/// R1: `found` must equal `expected` where both are static.
static LogicalResult verifyDim(AttentionOp op, StringRef operand, StringRef dim, int64_t found,
                               StringRef other, int64_t expected) {
  if (ShapedType::isDynamic(found) || ShapedType::isDynamic(expected) || found == expected)
    return success();
  return op.emitOpError() << "expected " << dim << " of '" << operand << "' to be " << expected
                          << " as in '" << other << "' but got " << found;
}

LogicalResult AttentionOp::verify() {
  ShapedType q = getQ().getType(), k = getK().getType(), v = getV().getType(),
             o = getOInit().getType();
  bool onTensors = isa<RankedTensorType>(q);
  auto sameKind = [&](StringRef name, Type type) -> LogicalResult {
    if (isa<RankedTensorType>(type) != onTensors)
      return emitOpError() << "expected all operands to be " << (onTensors ? "tensors" : "memrefs")
                           << " like 'q' but got '" << name << "' of type " << type;
    return success();
  };
  std::pair<StringRef, ShapedType> rank4[] = {{"q", q}, {"k", k}, {"v", v}, {"o", o}};
  for (auto [name, type] : rank4) {
    if (failed(sameKind(name, type)))
      return failure();
    if (type.getRank() != 4)
      return emitOpError() << "expected '" << name << "' of rank 4 but got rank " << type.getRank();
    Type element = type.getElementType();
    if (!element.isF16() && !element.isBF16() && !element.isF32())
      return emitOpError() << "expected element type f16, bf16 or f32 of '" << name << "' but got "
                           << element;
    if (element != q.getElementType())
      return emitOpError() << "expected element type " << q.getElementType() << " of '" << name
                           << "' as in 'q' but got " << element;
    if (type.isDynamicDim(3))
      return emitOpError() << "expected a static last dimension of '" << name << "' but got "
                           << type;
    if (auto memref = dyn_cast<MemRefType>(type)) {
      SmallVector<int64_t> strides;
      int64_t start;
      if (failed(memref.getStridesAndOffset(strides, start)))
        return emitOpError() << "expected a strided layout of '" << name << "' but got " << type;
      if (strides.back() != 1)
        return emitOpError() << "expected unit stride in the last dimension of '" << name
                             << "' but got " << type;
    }
  }

  unsigned head = getHeadDim(), seq = getSeqDim();
  if (failed(verifyDim(*this, "k", "batch size", k.getDimSize(0), "q", q.getDimSize(0))) ||
      failed(verifyDim(*this, "v", "batch size", v.getDimSize(0), "q", q.getDimSize(0))) ||
      failed(verifyDim(*this, "o", "batch size", o.getDimSize(0), "q", q.getDimSize(0))) ||
      failed(verifyDim(*this, "v", "head count", v.getDimSize(head), "k", k.getDimSize(head))) ||
      failed(verifyDim(*this, "o", "head count", o.getDimSize(head), "q", q.getDimSize(head))) ||
      failed(verifyDim(*this, "v", "length", v.getDimSize(seq), "k", k.getDimSize(seq))) ||
      failed(verifyDim(*this, "o", "length", o.getDimSize(seq), "q", q.getDimSize(seq))) ||
      failed(verifyDim(*this, "k", "head dimension", k.getDimSize(3), "q", q.getDimSize(3))) ||
      failed(verifyDim(*this, "o", "head dimension", o.getDimSize(3), "v", v.getDimSize(3))))
    return failure();
  if (q.getDimSize(3) < 1 || v.getDimSize(3) < 1)
    return emitOpError() << "expected head dimensions of at least 1 but got " << q.getDimSize(3)
                         << " of 'q' and " << v.getDimSize(3) << " of 'v'";

  // A4: every key/value head serves the same number of query heads.
  int64_t hq = q.getDimSize(head), hkv = k.getDimSize(head);
  if (!ShapedType::isDynamic(hkv) && hkv == 0 && hq != 0)
    return emitOpError() << "expected at least 1 key/value head but got 0";
  if (!ShapedType::isDynamic(hq) && !ShapedType::isDynamic(hkv) && hkv != 0 && hq % hkv != 0)
    return emitOpError() << "expected the query head count to be a multiple of the key/value head "
                            "count, "
                         << hkv << ", but got " << hq;

  if (Value lseInit = getLseInit()) {
    auto lse = cast<ShapedType>(lseInit.getType());
    if (failed(sameKind("lse", lse)))
      return failure();
    if (lse.getRank() != 3)
      return emitOpError() << "expected 'lse' of rank 3 but got rank " << lse.getRank();
    if (!lse.getElementType().isF32())
      return emitOpError() << "expected element type f32 of 'lse' but got " << lse.getElementType();
    // `lse` is [B, Hq, Nq] in either layout.
    if (failed(verifyDim(*this, "lse", "batch size", lse.getDimSize(0), "q", q.getDimSize(0))) ||
        failed(verifyDim(*this, "lse", "head count", lse.getDimSize(1), "q", hq)) ||
        failed(verifyDim(*this, "lse", "length", lse.getDimSize(2), "q", q.getDimSize(seq))))
      return failure();
    if (auto memref = dyn_cast<MemRefType>(lse)) {
      SmallVector<int64_t> strides;
      int64_t start;
      if (failed(memref.getStridesAndOffset(strides, start)) || strides.back() != 1)
        return emitOpError() << "expected unit stride in the last dimension of 'lse' but got "
                             << memref;
    }
  }

  if (std::optional<APFloat> scale = getScale())
    if (!scale->isFinite() || scale->isNegative() || scale->isZero()) {
      SmallString<16> text;
      scale->toString(text);
      return emitOpError() << "expected a finite positive scale but got " << text;
    }

  size_t expected = onTensors ? getDpsInits().size() : 0;
  if (getNumResults() != expected)
    return emitOpError() << "expected " << expected << " results but got " << getNumResults();
  for (auto [result, init] : llvm::zip(getResults(), getDpsInits()))
    if (result.getType() != init.getType())
      return emitOpError() << "expected result type " << init.getType() << " as in 'outs' but got "
                           << result.getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Interfaces
//===----------------------------------------------------------------------===//

void AttentionOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (hasPureTensorSemantics())
    return;
  for (OpOperand *input : getDpsInputOperands())
    if (isa<MemRefType>(input->get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), input, SideEffects::DefaultResource::get());
  for (OpOperand &init : getDpsInitsMutable())
    effects.emplace_back(MemoryEffects::Write::get(), &init, SideEffects::DefaultResource::get());
}

LogicalResult AttentionOp::reifyResultShapes(OpBuilder &builder,
                                             ReifiedRankedShapedTypeDims &shapes) {
  for (OpResult result : getResults())
    shapes.push_back(
        tensor::getMixedSizes(builder, getLoc(), getDpsInits()[result.getResultNumber()]));
  return success();
}

//===----------------------------------------------------------------------===//
// Canonicalisation
//===----------------------------------------------------------------------===//

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

} // namespace

/// A `tensor.cast` that forgets sizes is folded by the tensor dialect's own pattern, which serves
/// every op in destination-passing style.
void AttentionOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropMaskThatHidesNothing>(context);
}
