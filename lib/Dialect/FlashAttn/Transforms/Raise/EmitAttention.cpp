//===- EmitAttention.cpp - creation of the attention op -------------------===//

#include "AttentionEmitter.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

AffineExpr AttentionEmitter::linearize(ArrayRef<unsigned> digits) {
  AffineExpr sum = getAffineConstantExpr(0, context);
  for (unsigned digit : digits)
    sum = sum * (ShapedType::isDynamic(exprs.getExtent(digit)) ? 1 : exprs.getExtent(digit)) +
          getAffineDimExpr(digit, context);
  return exprs.simplify(sum);
}

bool AttentionEmitter::isDirect(ArrayRef<AffineExpr> indices, const Roles &roles) {
  return indices.size() == roles.size() && llvm::all_of(llvm::zip(indices, roles), [&](auto pair) {
           return exprs.simplify(std::get<0>(pair)) == linearize(std::get<1>(pair));
         });
}

/// Whether `type` at `indices` has the dimensions of `roles`, except for dimensions of size 1.
bool AttentionEmitter::isDirectButForOnes(RankedTensorType type, ArrayRef<AffineExpr> indices,
                                          const Roles &roles) {
  AffineExpr zero = getAffineConstantExpr(0, context);
  SmallVector<AffineExpr> mine, asked;
  for (AffineExpr index : indices)
    if (exprs.simplify(index) != zero)
      mine.push_back(exprs.simplify(index));
  SmallVector<int64_t> sizes;
  for (auto &role : roles) {
    sizes.push_back(getExtent(exprs, role));
    if (linearize(role) != zero)
      asked.push_back(linearize(role));
  }
  return mine == asked && (type.getShape() == ArrayRef(sizes) ||
                           getReassociationIndicesForReshape(type, type.clone(sizes)).has_value());
}

/// Returns the dimensions of `roles` at `indices`; not a permutation if an index matches none.
SmallVector<int64_t> AttentionEmitter::findPermutation(ArrayRef<AffineExpr> indices,
                                                       const Roles &roles) {
  SmallVector<int64_t> permutation;
  for (AffineExpr index : indices)
    for (auto [i, role] : llvm::enumerate(roles))
      if (!role.empty() && exprs.simplify(index) == linearize(role))
        permutation.push_back(i);
  return permutation;
}

/// Returns the size that `digit` counts, read from a value with such a dimension if it is dynamic.
OpFoldResult AttentionEmitter::getSize(unsigned digit, ArrayRef<Element *> loads) {
  if (!ShapedType::isDynamic(exprs.getExtent(digit)))
    return rewriter.getIndexAttr(exprs.getExtent(digit));
  SmallVector<Element *> all(loads);
  all.append({match.q, match.k, match.v});
  for (Element *load : all)
    for (auto [i, index] : llvm::enumerate(load->indices))
      if (exprs.simplify(index) == getAffineDimExpr(digit, context))
        return tensor::DimOp::create(rewriter, loc, load->value, i).getResult();
  llvm_unreachable("expected a dimension for every length, as check asks for");
}

bool AttentionEmitter::isStatic(const Roles &roles) {
  return llvm::none_of(
      roles, [&](auto &digits) { return ShapedType::isDynamic(getExtent(exprs, digits)); });
}

Roles AttentionEmitter::rolesOf(ArrayRef<unsigned> heads, ArrayRef<unsigned> rows,
                                ArrayRef<unsigned> columns, Layout layout) {
  Roles roles = {match.dims.batch, SmallVector<unsigned>(heads), SmallVector<unsigned>(rows),
                 SmallVector<unsigned>(columns)};
  if (layout == Layout::BSHD)
    std::swap(roles[1], roles[2]);
  return roles;
}

/// Reshapes `value`, through one dimension if no single reshape is sufficient.
Value AttentionEmitter::reshape(Value value, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  auto target = RankedTensorType::get(shape, type.getElementType());
  if (type.getRank() != target.getRank())
    if (auto groups = getReassociationIndicesForReshape(type, target)) {
      if (type.getRank() > target.getRank())
        return tensor::CollapseShapeOp::create(rewriter, loc, target, value, *groups);
      return tensor::ExpandShapeOp::create(rewriter, loc, target, value, *groups);
    }
  auto flat = RankedTensorType::get({type.getNumElements()}, type.getElementType());
  auto all = [](int64_t rank) {
    return SmallVector<ReassociationIndices>{llvm::to_vector(llvm::seq<int64_t>(0, rank))};
  };
  if (type.getRank() > 1)
    value = tensor::CollapseShapeOp::create(rewriter, loc, flat, value, all(type.getRank()));
  if (target.getRank() > 1)
    value = tensor::ExpandShapeOp::create(rewriter, loc, target, value, all(target.getRank()));
  return value;
}

Value AttentionEmitter::convert(Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element)
    return value;
  auto target = type.clone(element);
  if (type.getElementTypeBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(rewriter, loc, target, value);
  return arith::TruncFOp::create(rewriter, loc, target, value);
}

void AttentionEmitter::collectLoads(Element *x, SmallVectorImpl<Element *> &loads) {
  allParts(x, [&](Element *part) {
    if (part->kind == Element::Kind::Load)
      loads.push_back(part);
    return true;
  });
}

Value AttentionEmitter::emitIndex(OpBuilder &b, AffineExpr expr,
                                  llvm::function_ref<Value(unsigned)> digits) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return arith::ConstantIndexOp::create(b, loc, constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return digits(dim.getPosition());
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    // Inserted after the definition, because a score_mod can read the value but not compute it.
    Element *leaf = exprs.getSymbol(symbol.getPosition());
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPointAfterValue(leaf->value);
    return toIndex(extractScalar(leaf));
  }
  auto binary = cast<AffineBinaryOpExpr>(expr);
  Value lhs = emitIndex(b, binary.getLHS(), digits), rhs = emitIndex(b, binary.getRHS(), digits);
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return arith::AddIOp::create(b, loc, lhs, rhs);
  case AffineExprKind::Mul:
    return arith::MulIOp::create(b, loc, lhs, rhs);
  case AffineExprKind::Mod:
    return arith::RemSIOp::create(b, loc, lhs, rhs);
  default:
    return arith::FloorDivSIOp::create(b, loc, lhs, rhs);
  }
}

Value AttentionEmitter::emit(OpBuilder &b, Element *x, ArrayRef<Element *> loads,
                             ValueRange arguments, llvm::function_ref<Value(unsigned)> digits) {
  llvm::DenseMap<Element *, Value> made;
  for (auto [load, argument] : llvm::zip(loads, arguments))
    made[load] = argument;
  return emit(b, x, digits, made);
}

Value AttentionEmitter::emit(OpBuilder &b, Element *x, llvm::function_ref<Value(unsigned)> digits,
                             llvm::DenseMap<Element *, Value> &made) {
  if (Value value = made.lookup(x))
    return value;
  Value value;
  switch (x->kind) {
  case Element::Kind::Const:
    value = arith::ConstantOp::create(b, loc, cast<TypedAttr>(x->constant));
    break;
  case Element::Kind::Scalar:
    value = x->value;
    break;
  case Element::Kind::Index:
    value = emitIndex(b, exprs.simplify(x->indices[0]), digits);
    if (!x->type.isIndex())
      value = arith::IndexCastOp::create(b, loc, x->type, value);
    break;
  default: {
    SmallVector<Value> operands;
    for (Element *operand : x->operands)
      operands.push_back(emit(b, operand, digits, made));
    OperationState state(loc, x->name, operands, x->type,
                         x->op ? x->op->getAttrDictionary().getValue()
                               : ArrayRef<NamedAttribute>());
    value = b.create(state)->getResult(0);
  }
  }
  return made[x] = value;
}

/// Computes `x` for all digits of `roles`, as a tensor with these dimensions.
Value AttentionEmitter::compute(Element *x, const Roles &roles, bool negated) {
  SmallVector<unsigned> digits;
  SmallVector<int64_t> sizes;
  for (auto &role : roles) {
    sizes.push_back(getExtent(exprs, role));
    llvm::append_range(digits, role);
  }
  SmallVector<Element *> loads;
  collectLoads(x, loads);
  llvm::DenseMap<AffineExpr, AffineExpr> loops;
  for (auto [i, digit] : llvm::enumerate(digits))
    loops[getAffineDimExpr(digit, context)] = getAffineDimExpr(i, context);
  SmallVector<AffineMap> maps;
  SmallVector<Value> inputs;
  for (Element *load : loads) {
    SmallVector<AffineExpr> indices;
    for (AffineExpr index : load->indices)
      indices.push_back(exprs.simplify(index).replace(loops));
    maps.push_back(AffineMap::get(digits.size(), 0, indices, context));
    inputs.push_back(load->value);
  }
  maps.push_back(AffineMap::getMultiDimIdentityMap(digits.size(), context));
  SmallVector<OpFoldResult> extents;
  for (unsigned digit : digits)
    extents.push_back(getSize(digit, loads));
  Value init = tensor::EmptyOp::create(rewriter, loc, extents, x->type);
  auto generic = linalg::GenericOp::create(
      rewriter, loc, init.getType(), inputs, init, maps,
      SmallVector<utils::IteratorType>(digits.size(), utils::IteratorType::parallel),
      [&](OpBuilder &b, Location, ValueRange arguments) {
        Value value = emit(b, x, loads, arguments, [&](unsigned digit) -> Value {
          return linalg::IndexOp::create(b, loc, llvm::find(digits, digit) - digits.begin());
        });
        if (negated && x->type.isInteger(1)) {
          Value one = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
          value = arith::XOrIOp::create(b, loc, value, one);
        } else if (negated) {
          value = arith::NegFOp::create(b, loc, value);
        }
        linalg::YieldOp::create(b, loc, value);
      });
  return reshape(generic.getResult(0), sizes);
}

/// Returns `load` with the dimensions of `roles`: unchanged, reshaped or copied.
Value AttentionEmitter::gather(Element *load, const Roles &roles) {
  if (isDirect(load->indices, roles))
    return load->value;
  SmallVector<unsigned> digits;
  SmallVector<int64_t> sizes;
  for (auto &role : roles) {
    sizes.push_back(getExtent(exprs, role));
    digits.append(role.begin(), role.end());
  }
  // A reshape is sufficient if the row-major index is the same.
  AffineExpr flat = getAffineConstantExpr(0, context);
  auto type = cast<RankedTensorType>(load->value.getType());
  if (isDirectButForOnes(type, load->indices, roles))
    return reshape(load->value, sizes);
  for (auto [index, size] : llvm::zip_equal(load->indices, type.getShape()))
    flat = flat * size + index;
  if (type.hasStaticShape() && exprs.simplify(flat) == linearize(digits) &&
      type.getNumElements() == ShapedType::getNumElements(sizes))
    return reshape(load->value, sizes);
  return compute(load, roles, false);
}

/// Returns the dimensions of pairs, empty except for those on which `x` depends.
Roles AttentionEmitter::pairRoles(Element *x) {
  llvm::SmallSetVector<unsigned, 8> used;
  allParts(x, [&](Element *part) {
    for (AffineExpr index : part->indices)
      exprs.collectVariables(index, used);
    return true;
  });
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  Roles roles = rolesOf(heads, match.dims.query, match.dims.key, Layout::BHSD);
  for (auto &role : roles)
    if (llvm::none_of(role, [&](unsigned digit) { return used.contains(digit); }))
      role.clear();
  return roles;
}

/// Returns the layout that needs fewer copies.
Layout AttentionEmitter::chooseLayout() {
  const Dimensions &d = match.dims;
  SmallVector<unsigned> heads(d.head);
  llvm::append_range(heads, d.group);
  auto count = [&](Layout layout) {
    return isDirect(match.q->indices, rolesOf(heads, d.query, d.inner, layout)) +
           isDirect(match.k->indices, rolesOf(d.head, d.key, d.inner, layout)) +
           isDirect(match.v->indices, rolesOf(d.head, d.key, d.value, layout)) +
           isDirect(match.indices, rolesOf(heads, d.query, d.value, layout));
  };
  return count(Layout::BSHD) > count(Layout::BHSD) ? Layout::BSHD : Layout::BHSD;
}

/// Whether the op can be created. Creates nothing.
bool AttentionEmitter::check(Layout layout) {
  const Dimensions &d = match.dims;
  SmallVector<unsigned> heads(d.head);
  llvm::append_range(heads, d.group);
  auto refuse = [&](const Twine &expected, const Twine &found) {
    if (!miss.op)
      miss = {match.output, expected.str(), found.str()};
    return false;
  };
  auto isKnown = [](Type type) { return type.isF16() || type.isBF16() || type.isF32(); };
  for (Element *x : {match.q, match.k, match.v}) {
    if (!isKnown(x->type))
      return refuse("expected operands of f16, bf16 or f32",
                    x == match.v ? "values of another type" : "queries or keys of another type");
    if (!exprs.isLinear(x))
      return refuse("expected reshapes that divide dimensions evenly", "an uneven reshape");
  }
  for (Value value : {match.q->value, match.k->value, match.v->value, match.result})
    if (Attribute encoding = cast<RankedTensorType>(value.getType()).getEncoding())
      return refuse("expected tensors without an encoding", llvm::formatv("{0}", encoding).str());
  Roles q = rolesOf(heads, d.query, d.inner, layout), k = rolesOf(d.head, d.key, d.inner, layout),
        v = rolesOf(d.head, d.key, d.value, layout), o = rolesOf(heads, d.query, d.value, layout);
  // Dynamic dimensions must be neither split nor merged.
  bool areStatic = isStatic(q) && isStatic(k) && isStatic(v);
  auto canMake = [&](Element *x, const Roles &roles) {
    return isDirect(x->indices, roles) ||
           (llvm::all_of(roles, [](auto &role) { return role.size() <= 1; }) && isMadeOf(x, roles));
  };
  auto isPermutation = [&](ArrayRef<int64_t> dims) {
    return dims.size() == o.size() && isPermutationVector(dims);
  };
  auto type = cast<RankedTensorType>(match.result.getType());
  if (!areStatic && !(canMake(match.q, q) && canMake(match.k, k) && canMake(match.v, v) &&
                      (isDirectButForOnes(type, match.indices, o) ||
                       isPermutation(findPermutation(match.indices, o)))))
    return refuse(
        "expected dimensions that are neither split nor merged, because lengths are dynamic,",
        "split or merged dimensions");
  if (!isKnown(getElementTypeOrSelf(match.result.getType())))
    return refuse("expected a result of f16, bf16 or f32", "another type");
  for (const OperandFactor &factor : match.operandFactors) {
    Element *operand = factor.isOfKeys ? match.k : match.q, *product = factor.product;
    auto refuseFactor = [&](const Twine &expected) {
      miss = {product->op ? product->op : match.output, expected.str(), product->name.str()};
      return false;
    };
    Element *value = findSource(factor.value, factor.isOfKeys ? k : q);
    if (!value || !isKnown(value->type))
      return refuseFactor("expected one factor for each query or for each key");
    // If scores are wider than the operand, the multiplied operand is rounded too early.
    if (product->type.getIntOrFloatBitWidth() > operand->type.getIntOrFloatBitWidth())
      return refuseFactor("expected a factor in the element type of queries and keys");
  }
  auto isScore = [&](Element *x) { return findSource(x, pairRoles(x)) != nullptr; };
  if (!llvm::all_of(biases, [&](const Term &bias) { return isScore(bias.element); }) ||
      !llvm::all_of(mask.others, [&](auto &condition) { return isScore(condition.first); }) ||
      (match.sink && !findSource(match.sink, {heads})))
    return refuse("expected a bias and a mask that broadcast to the scores, and one sink logit for "
                  "each head,",
                  "another bias, mask or sink logit");
  for (const Term &bias : biases)
    if (!isKnown(findSource(bias.element, pairRoles(bias.element))->type))
      return refuse("expected a bias of f16, bf16 or f32", "another type");
  return true;
}

/// Returns queries or keys, multiplied by the factors that are common to their scores.
Value AttentionEmitter::makeFactors(Element *operand, bool isKeys, const Roles &roles) {
  Element *product = operand;
  for (const OperandFactor &factor : match.operandFactors) {
    if (factor.isOfKeys != isKeys)
      continue;
    Element *value = findSource(factor.value, roles);
    unsigned width = value->type.getIntOrFloatBitWidth(),
             asked = operand->type.getIntOrFloatBitWidth();
    if (value->type != operand->type)
      value = exprs.makeOp(width < asked ? "arith.extf" : "arith.truncf", operand->type, {value});
    product =
        exprs.makeOp(factor.divides ? "arith.divf" : "arith.mulf", operand->type, {product, value});
  }
  return makeOperand(product, roles, /*negated=*/false);
}

/// Converts `o`, whose dimensions are `roles`, to the shape and type of the value that it replaces.
Value AttentionEmitter::makeResult(Value o, const Roles &roles, Value replaced,
                                   ArrayRef<AffineExpr> resultIndices) {
  auto type = cast<RankedTensorType>(replaced.getType());
  if (isDirect(resultIndices, roles))
    return convert(o, type.getElementType());
  if (isDirectButForOnes(type, resultIndices, roles))
    return reshape(convert(o, type.getElementType()), type.getShape());
  SmallVector<int64_t> permutation = findPermutation(resultIndices, roles);
  bool isPermuted = resultIndices.size() == roles.size() && isPermutationVector(permutation);
  auto transpose = [&]() -> Value {
    o = convert(o, type.getElementType());
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, o);
    applyPermutationToVector(sizes, permutation);
    Value init = tensor::EmptyOp::create(rewriter, loc, sizes, type.getElementType());
    return linalg::TransposeOp::create(rewriter, loc, o, init, permutation)->getResult(0);
  };
  if (!type.hasStaticShape())
    return transpose();
  SmallVector<unsigned> digits;
  for (auto &role : roles)
    digits.append(role.begin(), role.end());
  AffineExpr flat = getAffineConstantExpr(0, context);
  for (auto [index, size] : llvm::zip_equal(resultIndices, type.getShape()))
    flat = flat * size + index;
  if (exprs.simplify(flat) == linearize(digits))
    return reshape(convert(o, type.getElementType()), type.getShape());
  if (isPermuted)
    return transpose();
  // The order of the result in memory: the digit with the largest stride first.
  llvm::DenseMap<unsigned, int64_t> strides;
  for (unsigned digit : digits) {
    llvm::DenseMap<AffineExpr, AffineExpr> only;
    for (unsigned other : digits)
      only[getAffineDimExpr(other, context)] =
          getAffineConstantExpr(other == digit ? 1 : 0, context);
    auto stride = dyn_cast<AffineConstantExpr>(exprs.simplify(flat).replace(only));
    strides[digit] = stride ? stride.getValue() : 0;
  }
  llvm::sort(digits, [&](unsigned a, unsigned b) { return strides[a] > strides[b]; });
  Roles order;
  for (unsigned digit : digits)
    order.push_back({digit});
  SmallVector<AffineExpr> indices;
  for (auto &role : roles)
    indices.push_back(linearize(role));
  Element *load = exprs.makeLoad(o, indices);
  return reshape(convert(compute(load, order, false), type.getElementType()), type.getShape());
}

Value AttentionEmitter::makeOffset() {
  if (!mask.offset)
    return {};
  return toIndex(extractScalar(mask.offset));
}

Value AttentionEmitter::makeLengths() {
  if (!mask.lengths)
    return {};
  Value lengths = gather(mask.lengths, {match.dims.batch});
  auto type = cast<RankedTensorType>(lengths.getType());
  auto i32 = type.clone(rewriter.getI32Type());
  if (type == i32)
    return lengths;
  // Clamp before truncating: a length past the keys means all keys.
  int64_t keys = getExtent(exprs, match.dims.key);
  auto number = [&](int64_t value) -> Value {
    Attribute element = rewriter.getIntegerAttr(type.getElementType(), value);
    return arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(type, element));
  };
  lengths = arith::MinSIOp::create(rewriter, loc, lengths, number(keys));
  lengths = arith::MaxSIOp::create(rewriter, loc, lengths, number(0));
  return arith::TruncIOp::create(rewriter, loc, i32, lengths);
}

bool AttentionEmitter::run() {
  Layout layout = chooseLayout();
  if (!check(layout))
    return false;
  const Dimensions &d = match.dims;
  SmallVector<unsigned> heads(d.head);
  llvm::append_range(heads, d.group);
  Roles oRoles = rolesOf(heads, d.query, d.value, layout);
  Value q = makeFactors(match.q, false, rolesOf(heads, d.query, d.inner, layout)),
        k = makeFactors(match.k, true, rolesOf(d.head, d.key, d.inner, layout)),
        v = gather(match.v, rolesOf(d.head, d.key, d.value, layout));
  // The common type of operands and result: f32 if their types differ.
  Type element = match.q->type;
  for (Type other : {match.k->type, match.v->type, getElementTypeOrSelf(match.result.getType())})
    if (other != element && !(other.getIntOrFloatBitWidth() < 32 && element.isF32()))
      element = rewriter.getF32Type();
  q = convert(q, element);
  k = convert(k, element);
  v = convert(v, element);
  auto qType = cast<RankedTensorType>(q.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, q);
  sizes[3] = rewriter.getIndexAttr(cast<RankedTensorType>(v.getType()).getDimSize(3));
  Value init = tensor::EmptyOp::create(rewriter, loc, sizes, qType.getElementType());
  Value bias = makeBias(), attnMask = makeAttnMask(), sinks = makeSink(),
        scaleValue = emitFactors();
  FloatAttr scale;
  double byDefault = 1 / std::sqrt(double(qType.getDimSize(3)));
  if (!scaleValue && std::abs(match.scale / byDefault - 1) > 1e-6)
    scale = rewriter.getF32FloatAttr(match.scale);
  bool hasScoreMod = !scoreMods.empty() || !factors.empty() || !cappedFactors.empty();
  FloatAttr softcap;
  if (match.softcap && cappedFactors.empty())
    softcap = rewriter.getF32FloatAttr(*match.softcap);
  Value lseInit;
  SmallVector<Type> types = {init.getType()};
  if (match.lse) {
    OpFoldResult b = sizes[0], h = sizes[layout == Layout::BHSD ? 1 : 2],
                 n = sizes[layout == Layout::BHSD ? 2 : 1];
    lseInit = tensor::EmptyOp::create(rewriter, loc, {b, h, n}, rewriter.getF32Type());
    types.push_back(lseInit.getType());
  }
  auto op =
      AttentionOp::create(rewriter, loc, types, q, k, v, bias, attnMask, sinks, makeLengths(),
                          /*qLen=*/Value(), /*cuSeqlensQ=*/Value(), /*cuSeqlensK=*/Value(),
                          /*pageTable=*/Value(), /*leftpadK=*/Value(), /*kScale=*/Value(),
                          /*vScale=*/Value(), makeOffset(),
                          /*offsets=*/Value(), scaleValue, makeSymbols(RaisedMask::PerSequence),
                          makeSymbols(RaisedMask::PerQuery), makeSymbols(RaisedMask::PerKey), init,
                          lseInit, cast_or_null<MaskAttrInterface>(mask.mask), scale, softcap,
                          mask.align, layout, ScheduleAttr(), /*minSeqlenQ=*/IntegerAttr(),
                          /*maxSeqlenQ=*/IntegerAttr(), /*invariant=*/false, hasScoreMod ? 1 : 0);
  if (hasScoreMod)
    emitScoreMod(op);
  rewriter.replaceAllUsesWith(match.result,
                              makeResult(op->getResult(0), oRoles, match.result, match.indices));
  if (match.lse)
    rewriter.replaceAllUsesWith(match.lse, makeResult(op->getResult(1), {d.batch, heads, d.query},
                                                      match.lse, match.lseIndices));
  return true;
}

bool mlir::flashattn::emitAttention(RewriterBase &rewriter, TensorExprs &exprs,
                                    const AttentionMatch &match, const RaisedMask &mask,
                                    NearMiss &miss) {
  return AttentionEmitter(rewriter, exprs, match, mask, miss).run();
}
