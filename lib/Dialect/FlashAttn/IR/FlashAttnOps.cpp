//===- FlashAttnOps.cpp - verifiers, effects, shapes, canonicalization ----===//

#include "MaskLimits.h"
#include "Spaces.h"
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

/// Adds reads of inputs and writes of destinations. Ops on tensors have no effects.
static void getDestinationEffects(
    DestinationStyleOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (op.hasPureTensorSemantics())
    return;
  for (OpOperand *input : op.getDpsInputOperands())
    if (isa<MemRefType>(input->get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), input, SideEffects::DefaultResource::get());
  for (OpOperand &init : op.getDpsInitsMutable()) {
    if (keepsOutputs(op))
      effects.emplace_back(MemoryEffects::Read::get(), &init, SideEffects::DefaultResource::get());
    effects.emplace_back(MemoryEffects::Write::get(), &init, SideEffects::DefaultResource::get());
  }
  // Memory that a score modification reads is no operand of the op.
  for (Region &region : op->getRegions())
    for (auto load : region.getOps<memref::LoadOp>())
      effects.emplace_back(MemoryEffects::Read::get(), &load.getMemrefMutable(),
                           SideEffects::DefaultResource::get());
}

/// Results have the sizes of their destinations.
static LogicalResult reifyDestinationShapes(DestinationStyleOpInterface op, OpBuilder &builder,
                                            ReifiedRankedShapedTypeDims &shapes) {
  for (OpResult result : op->getResults())
    shapes.push_back(
        tensor::getMixedSizes(builder, op.getLoc(), op.getDpsInits()[result.getResultNumber()]));
  return success();
}

#define GET_OP_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.cpp.inc"

int64_t flashattn::getKnownGroup(AttentionOpInterface op) {
  int64_t heads = op.getQ().getType().getDimSize(op.getHeadDim());
  int64_t kvHeads = op.getK().getType().getDimSize(op.getHeadDim());
  bool known = !ShapedType::isDynamic(heads) && !ShapedType::isDynamic(kvHeads) && kvHeads > 0;
  return known ? heads / kvHeads : 1;
}

std::optional<int64_t> flashattn::getLimit(Operation *op, StringRef name) {
  auto limit = op->getAttrOfType<IntegerAttr>(name);
  return limit ? std::optional(limit.getInt()) : std::nullopt;
}

double flashattn::getScaleOrDefault(AttentionOpInterface op) {
  if (std::optional<APFloat> scale = op.getScale())
    return scale->convertToFloat();
  return 1.0 / std::sqrt(static_cast<double>(op.getD()));
}

StringRef AttentionOp::findInputOfHeads(bool inParts) {
  for (const OperandRole &role : getOperandRoles())
    if (role.value && role.rule->is(OperandRule::Optional) && !role.rule->is(OperandRule::Output) &&
        role.rule->dims.contains('H') && !(inParts && role.value == getSinkLogits()))
      return role.getName();
  return hasScoreMod() ? "a score modification" : "";
}

SmallVector<IntegerSet> flashattn::getVisibleSets(AttentionOpInterface op) {
  unsigned symbols = 2 + op.countSymbols();
  std::optional<MaskAttrInterface> mask = op.getMask();
  if (!mask)
    return {IntegerSet::get(2, symbols, getAffineConstantExpr(0, op->getContext()), {true})};
  SmallVector<IntegerSet> sets = mask->getVisibleSets();
  for (IntegerSet &set : sets)
    if (set && set.getNumSymbols() >= 2 && set.getNumSymbols() < symbols)
      set = IntegerSet::get(set.getNumDims(), symbols, set.getConstraints(), set.getEqFlags());
  return sets;
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

/// Whether `value` is in the range of a scale (rule A1) or a softcap (rule A2).
static bool isInFactorRange(const APFloat &value) {
  // Their quotient in f32 must be finite; otherwise a score of 0 becomes NaN.
  double number = value.convertToFloat();
  return number >= 0.999e-18 && number <= 1.001e18;
}

/// P1, P3, P4.
static LogicalResult verifyPages(AttentionOpInterface op, const OperandSizes &sizes) {
  for (auto [name, value] : {std::pair("page_table", Value(op.getPageTable())),
                             std::pair("leftpad_k", Value(op.getLeftpadK()))})
    if (value && op.getCuSeqlensK())
      return op->emitOpError() << "expected no '" << name
                               << "' with 'cu_seqlens_k', which packs the keys, but got one";
  if (!op.getPageTable())
    return success();
  if (!op.getKvLen())
    return op->emitOpError() << "expected 'kv_len' with 'page_table' but got none";
  int64_t size = sizes.get('Z'), keys = sizes.get('K');
  if (op.hasPages() && ShapedType::isDynamic(size))
    return op->emitOpError() << "expected a static page size of 'k' and 'v', or a 'page_table' of "
                                "one column, but got "
                             << op.getK().getType() << " and " << op.getPageTable().getType();
  if (size == 0)
    return op->emitOpError() << "expected a page size of at least 1 but got 0";
  // Positions have 32 bits.
  if (!ShapedType::isDynamic(keys) && keys > INT32_MAX)
    return op->emitOpError() << "expected at most " << INT32_MAX
                             << " rows in the pages of a sequence but got " << keys;
  return success();
}

/// F1.
static LogicalResult verifyScales(AttentionOpInterface op) {
  for (auto [name, scale, of, rows] :
       {std::tuple("k_scale", Value(op.getKScale()), "k", Value(op.getK())),
        std::tuple("v_scale", Value(op.getVScale()), "v", Value(op.getV()))}) {
    if (!scale)
      continue;
    auto type = cast<ShapedType>(rows.getType());
    if (!isNarrow(type.getElementType()))
      return op->emitOpError() << "expected no '" << name << "' with '" << of << "' of "
                               << type.getElementType() << " but got one";
    int64_t columns = type.getShape().back(),
            blocks = cast<ShapedType>(scale.getType()).getShape().back();
    if (!mayHaveScales(columns, blocks))
      return op->emitOpError() << "expected '" << name << "' with one scale of a row of " << columns
                               << ", or scales of blocks of a multiple of " << kScaleBlock
                               << " elements, but got " << blocks << " scales";
  }
  return success();
}

/// S7.
static LogicalResult verifyLimits(AttentionOpInterface op) {
  std::optional<int64_t> least = op.getLeastQueries(), most = op.getMostQueries();
  for (auto [name, limit] : {std::pair("min_seqlen_q", least), std::pair("max_seqlen_q", most)}) {
    if (!limit)
      continue;
    if (!op.getCuSeqlensQ())
      return op->emitOpError() << "expected 'cu_seqlens_q' with '" << name << "' but got none";
    if (op.getCuSeqlensK())
      return op->emitOpError() << "expected no 'cu_seqlens_k' with '" << name << "' but got one";
    if (*limit > INT32_MAX)
      return op->emitOpError() << "expected '" << name << "' of at most " << INT32_MAX
                               << " but got " << *limit;
  }
  if (least && most && *least > *most)
    return op->emitOpError() << "expected 'min_seqlen_q' of at most 'max_seqlen_q', " << *most
                             << ", but got " << *least;
  return success();
}

bool flashattn::keepsOutputs(Operation *op) {
  if (auto combine = dyn_cast<CombineOp>(op))
    return combine.getCuSeqlensQ() != nullptr;
  auto attention = dyn_cast<AttentionOpInterface>(op);
  return attention && (attention.getLeastQueries() || attention.getMostQueries());
}

/// Verifies attention of either direction. Adds the known sizes of the operands to `sizes`.
static LogicalResult verifyAttention(AttentionOpInterface op, OperandSizes &sizes) {
  if (failed(verifyOperands(op, sizes)))
    return failure();
  if (op.getD() < 1 || op.getDv() < 1)
    return op->emitOpError() << "expected head dimensions of at least 1 but got " << op.getD()
                             << " of 'q' and " << op.getDv() << " of 'v'";
  // A4: every key/value head serves the same number of query heads.
  if (std::string wrong = explainHeads(sizes.get('H'), sizes.get('G')); !wrong.empty())
    return op->emitOpError() << wrong;

  for (auto [name, value] :
       {std::pair("scale", op.getScale()), std::pair("softcap", op.getSoftcap())}) {
    if (!value)
      continue;
    if (!value->isFinite() || value->isNegative() || value->isZero())
      return op->emitOpError() << "expected a finite positive " << name << " but got "
                               << toText(*value);
    if (!isInFactorRange(*value))
      return op->emitOpError() << "expected " << name << " from 1e-18 to 1e18 but got "
                               << toText(*value);
  }
  if (op.getScale() && op.getScaleValue())
    return op->emitOpError() << "expected one scale but got an attribute, "
                             << toText(*op.getScale()) << ", and an operand";
  if (op.getOffset() && op.getOffsets())
    return op->emitOpError() << "expected one offset but got an index and "
                             << op.getOffsets().getType();
  // S1, S4: the elements of a bias and of attn_mask belong to rectangles.
  for (auto [name, value] :
       {std::pair("bias", Value(op.getBias())), std::pair("attn_mask", Value(op.getAttnMask()))})
    if (StringRef other = op.hasPackedSequences() ? "packed sequences"
                          : op.getQLen()          ? "'q_len'"
                          : op.getPageTable()     ? "'page_table'"
                          : op.getLeftpadK()      ? "'leftpad_k'"
                                                  : "";
        value && !other.empty())
      return op->emitOpError() << "expected no '" << name << "' with " << other << " but got one";
  if (failed(verifyPages(op, sizes)) || failed(verifyScales(op)) || failed(verifyLimits(op)))
    return failure();
  // A mask attribute of another dialect may return invalid sets.
  SmallVector<IntegerSet> sets = op.getVisibleSets();
  if (failed(verifyVisibleSets([&] { return op->emitOpError(); }, sets)))
    return failure();
  // Y1
  for (IntegerSet set : sets)
    if (unsigned expected = op.countSymbols(), found = set.getNumSymbols() - 2; found > expected)
      return op->emitOpError() << "expected a mask of at most " << expected
                               << " symbols after nq and nk, one for each operand of "
                                  "'per_sequence', 'per_query' and 'per_key', but got "
                               << found;
  if (op.countSymbols() != 0 && !op.getMask())
    return op->emitOpError() << "expected a mask with 'per_sequence', 'per_query' or 'per_key' but "
                                "got none";
  return verifyResults(cast<DestinationStyleOpInterface>(op.getOperation()));
}

LogicalResult AttentionOp::verify() {
  OperandSizes sizes;
  return verifyAttention(*this, sizes);
}

/// B5: the gradient is summed over broadcast dimensions, so its type must have the shape of the
/// operand. Only static sizes are compared: folding a cast may make one of the types more static.
static bool haveSameShape(ShapedType a, ShapedType b) {
  return a.getElementType() == b.getElementType() && succeeded(verifyCompatibleShape(a, b));
}

LogicalResult AttentionBackwardOp::verify() {
  OperandSizes sizes;
  if (failed(verifyAttention(*this, sizes)))
    return failure();
  for (auto [name, gradient, source, operand] :
       {std::tuple("d_bias", getDBiasInit(), "bias", getBias()),
        std::tuple("d_sink_logits", getDSinkLogitsInit(), "sink_logits", getSinkLogits())})
    if (gradient && !operand)
      return emitOpError() << "expected '" << source << "' for the gradient '" << name
                           << "' but got none";
  if (getDBiasInit() && !haveSameShape(getBias().getType(), getDBiasInit().getType()))
    return emitOpError() << "expected 'd_bias' of the type of 'bias', " << getBias().getType()
                         << ", but got " << getDBiasInit().getType();
  return success();
}

/// Whether values of this type are scalars that every target supports.
static bool isScalar(Type type) {
  return type.isIndex() || type.isF16() || type.isBF16() || type.isF32() || type.isF64() ||
         (type.isSignlessInteger() &&
          llvm::is_contained({1, 8, 16, 32, 64}, type.getIntOrFloatBitWidth()));
}

static constexpr llvm::StringLiteral kScalars =
    "i1, i8, i16, i32, i64, index, f16, bf16, f32 or f64";

/// Returns the tensor or memref that an op of a score modification loads an element of, or null.
static Value getLoaded(Operation *op) {
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return extract.getTensor();
  auto load = dyn_cast<memref::LoadOp>(op);
  return load ? load.getMemref() : Value();
}

bool flashattn::isScoreModLoad(Operation *op) { return getLoaded(op) != nullptr; }

/// A10. `origins` names the argument on which a value depends, for arguments that differ between
/// the scores of a head.
static LogicalResult verifyScoreModLoad(AttentionOpInterface attention, Operation *op,
                                        const llvm::DenseMap<Value, StringRef> &origins) {
  Value loaded = getLoaded(op);
  auto type = cast<ShapedType>(loaded.getType());
  bool onTensors = isa<RankedTensorType>(attention.getQ().getType());
  if (isa<RankedTensorType>(type) != onTensors)
    return op->emitOpError() << "expected a load from a " << (onTensors ? "tensor" : "memref")
                             << " in score_mod, like 'q', but got " << type;
  constexpr int64_t kMostRank = 2;
  if (type.getRank() > kMostRank)
    return op->emitOpError() << "expected a load from a " << (onTensors ? "tensor" : "memref")
                             << " of rank 0, 1 or 2 in score_mod but got " << type;
  if (!isScalar(type.getElementType()))
    return op->emitOpError() << "expected a load of " << kScalars << " in score_mod but got "
                             << type;
  if (auto memref = dyn_cast<MemRefType>(type);
      memref && (memref.getMemorySpace() || !memref.isStrided()))
    return op->emitOpError() << "expected a load from the default memory space, with a strided "
                                "layout, in score_mod but got "
                             << type;
  for (const OperandRole &role : attention.getOperandRoles())
    if (!onTensors && role.rule->is(OperandRule::Output) && role.value == loaded)
      return op->emitOpError() << "expected score_mod to load from other memory than the output '"
                               << role.getName() << "' but got " << type;
  for (Value index : op->getOperands().drop_front())
    if (StringRef origin = origins.lookup(index); !origin.empty())
      return op->emitOpError() << "expected indices that depend only on the batch and the head in "
                                  "score_mod but got one that depends on the "
                               << origin;
  return success();
}

/// Rule R1 for the score modification. Each error is located at the invalid op.
static LogicalResult verifyScoreMod(AttentionOpInterface attention) {
  if (attention.getScoreMods().size() > 1)
    return attention->emitOpError()
           << "expected at most 1 score_mod but got " << attention.getScoreMods().size();
  if (!attention.hasScoreMod())
    return success();
  Block &body = attention.getScoreMod().front();
  Builder b(attention->getContext());
  Type f32 = b.getF32Type(), index = b.getIndexType();
  SmallVector<Type> expected = {f32, index, index, index, index};
  if (!llvm::equal(body.getArgumentTypes(), expected)) {
    InFlightDiagnostic error =
        attention->emitOpError()
        << "expected score_mod of (f32, index, index, index, index) but got (";
    llvm::interleaveComma(body.getArgumentTypes(), error);
    return error << ")";
  }
  llvm::DenseMap<Value, StringRef> origins = {{body.getArgument(0), "score"},
                                              {body.getArgument(3), "query position"},
                                              {body.getArgument(4), "key"}};
  for (Operation &op : body) {
    if (&op == &body.back()) {
      if (isa<YieldOp>(op))
        continue;
      return op.emitOpError() << "expected 'flashattn.yield' at the end of score_mod but got '"
                              << op.getName() << "'";
    }
    if (isScoreModLoad(&op)) {
      if (failed(verifyScoreModLoad(attention, &op, origins)))
        return failure();
      continue;
    }
    if (!isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect()) ||
        op.getNumRegions() != 0 || !isMemoryEffectFree(&op))
      return op.emitOpError() << "expected an op of arith or math, or a load, in score_mod but got "
                                 "'"
                              << op.getName() << "'";
    for (Type type : llvm::concat<const Type>(SmallVector<Type>(op.getOperandTypes()),
                                              SmallVector<Type>(op.getResultTypes())))
      if (!isScalar(type))
        return op.emitOpError() << "expected scalars of " << kScalars << " in score_mod but got "
                                << type;
    for (Value operand : op.getOperands())
      if (StringRef origin = origins.lookup(operand); !origin.empty())
        for (Value result : op.getResults())
          origins[result] = origin;
  }
  return success();
}

LogicalResult AttentionOp::verifyRegions() { return verifyScoreMod(*this); }

LogicalResult AttentionBackwardOp::verifyRegions() { return verifyScoreMod(*this); }

//===----------------------------------------------------------------------===//
// Canonicalization
//===----------------------------------------------------------------------===//

/// Returns the value of all elements of a splat constant, or null.
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

std::optional<bool> flashattn::getConstantAttnMask(AttentionOpInterface op) {
  auto value = dyn_cast_or_null<IntegerAttr>(getSplat(op.getAttnMask()));
  return value ? std::optional(!value.getValue().isZero()) : std::nullopt;
}

bool flashattn::addsToScore(AttentionOpInterface op) {
  Block &body = op.getScoreMod().front();
  // Values that depend on the score, and sums among them with the score as one term.
  llvm::SmallDenseSet<Value> dependent = {body.getArgument(0)}, sums = dependent;
  for (Operation &inner : body.without_terminator()) {
    if (llvm::none_of(inner.getOperands(), [&](Value v) { return dependent.contains(v); }))
      continue;
    dependent.insert(inner.result_begin(), inner.result_end());
    auto addsTo = [&](unsigned term) {
      return sums.contains(inner.getOperand(term)) &&
             !dependent.contains(inner.getOperand(1 - term));
    };
    if ((isa<arith::AddFOp, arith::SubFOp>(inner) && addsTo(0)) ||
        (isa<arith::AddFOp>(inner) && addsTo(1)))
      sums.insert(inner.getResult(0));
  }
  return sums.contains(cast<YieldOp>(body.getTerminator()).getScore());
}

namespace {

/// Drops a mask that hides nothing, because all constraints of one of its sets always hold.
template <typename OpT> struct DropMaskThatHidesNothing : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
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
    rewriter.modifyOpInPlace(op, [&] {
      op.removeMaskAttr();
      op.getPerSequenceMutable().clear();
      op.getPerQueryMutable().clear();
      op.getPerKeyMutable().clear();
    });
    return success();
  }
};

/// Drops an `attn_mask` that is true everywhere and a `bias` of zeros.
template <typename OpT> struct DropOperandsWithoutEffect : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    auto bias = dyn_cast_or_null<FloatAttr>(getSplat(op.getBias()));
    bool dropAttnMask = op.getConstantAttnMask() == true,
         dropBias = bias && bias.getValue().isZero();
    // B5: the gradient of a zero bias is not zero.
    if constexpr (std::is_same_v<OpT, AttentionBackwardOp>)
      dropBias &= !op.getDBiasInit();
    if (!dropAttnMask && !dropBias)
      return failure();
    rewriter.modifyOpInPlace(op, [&] {
      if (dropAttnMask)
        op.getAttnMaskMutable().clear();
      if (dropBias)
        op.getBiasMutable().clear();
    });
    return success();
  }
};

/// Replaces a constant scale operand by the attribute. A constant out of range is left unchanged.
template <typename OpT> struct TakeConstantScale : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
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

/// Drops a score modification that yields the score unchanged.
template <typename OpT> struct DropScoreModWithoutEffect : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    if (!op.hasScoreMod())
      return failure();
    Block &body = op.getScoreMod().front();
    if (cast<YieldOp>(body.getTerminator()).getScore() != body.getArgument(0))
      return failure();
    rewriter.replaceOpWithNewOp<OpT>(op, op->getResultTypes(), op->getOperands(),
                                     op.getProperties(), llvm::to_vector(op->getDiscardableAttrs()),
                                     /*numRegions=*/0);
    return success();
  }
};

} // namespace

/// There is no pattern for `tensor.cast`: the tensor dialect's own pattern folds casts to less
/// static types into every op in destination-passing style.
template <typename OpT> static void addPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<DropMaskThatHidesNothing<OpT>, DropOperandsWithoutEffect<OpT>,
               DropScoreModWithoutEffect<OpT>, TakeConstantScale<OpT>>(context);
}

void AttentionOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  addPatterns<AttentionOp>(patterns, context);
}

void AttentionBackwardOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                                      MLIRContext *context) {
  addPatterns<AttentionBackwardOp>(patterns, context);
}
