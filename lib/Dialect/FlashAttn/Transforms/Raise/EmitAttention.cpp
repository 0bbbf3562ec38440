//===- EmitAttention.cpp - the attention op in place of what it says -------===//

#include "AttentionMatch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

/// What each dimension of a tensor counts, as digits.
using Roles = SmallVector<SmallVector<unsigned>>;

namespace {
class Emitter {
public:
  Emitter(RewriterBase &rewriter, TensorExprs &exprs, const AttentionMatch &match,
          const RaisedMask &mask, NearMiss &miss)
      : rewriter(rewriter), exprs(exprs), match(match), mask(mask), miss(miss),
        loc(match.result.getLoc()), context(rewriter.getContext()) {}

  bool run();

private:
  AffineExpr linearize(ArrayRef<unsigned> digits);
  bool isDirect(ArrayRef<AffineExpr> indices, const Roles &roles);
  bool isStatic(const Roles &roles);
  Roles rolesOf(ArrayRef<unsigned> heads, ArrayRef<unsigned> rows, ArrayRef<unsigned> columns,
                Layout layout);
  Roles pairRoles(Element *x);
  void collectLoads(Element *x, SmallVectorImpl<Element *> &loads);
  Value gather(Element *x, const Roles &roles);
  Value compute(Element *x, const Roles &roles, bool negated);
  Value makeOperand(Element *x, const Roles &roles, bool negated);
  Value emit(OpBuilder &b, Element *x, ArrayRef<Element *> loads, ValueRange arguments,
             llvm::function_ref<Value(unsigned)> digits);
  Value emitIndex(OpBuilder &b, AffineExpr expr, llvm::function_ref<Value(unsigned)> digits);
  Value reshape(Value value, ArrayRef<int64_t> shape);
  Value convert(Value value, Type element);
  Value makeBias();
  Value makeKeep();
  Value makeSink();
  Value makeResult(Value o, const Roles &roles, Value replaced, ArrayRef<AffineExpr> indices);
  Layout chooseLayout();
  bool check(Layout layout);
  bool isDecomposed(Element *load);
  Value extractScalar(Element *leaf);
  Value makeOffset();
  Value makeLengths();
  bool isComputed(Element *x);
  void emitScoreMod(AttentionOp op);

  RewriterBase &rewriter;
  TensorExprs &exprs;
  const AttentionMatch &match;
  const RaisedMask &mask;
  NearMiss &miss;
  Location loc;
  MLIRContext *context;
  /// What a score_mod adds, or subtracts.
  SmallVector<std::pair<Element *, bool>> scoreMods;
};
} // namespace

AffineExpr Emitter::linearize(ArrayRef<unsigned> digits) {
  AffineExpr sum = getAffineConstantExpr(0, context);
  for (unsigned digit : digits)
    sum = sum * (ShapedType::isDynamic(exprs.getExtent(digit)) ? 1 : exprs.getExtent(digit)) +
          getAffineDimExpr(digit, context);
  return exprs.simplify(sum);
}

bool Emitter::isDirect(ArrayRef<AffineExpr> indices, const Roles &roles) {
  return indices.size() == roles.size() && llvm::all_of(llvm::zip(indices, roles), [&](auto pair) {
           return exprs.simplify(std::get<0>(pair)) == linearize(std::get<1>(pair));
         });
}

bool Emitter::isStatic(const Roles &roles) {
  return llvm::none_of(
      roles, [&](auto &digits) { return ShapedType::isDynamic(getExtent(exprs, digits)); });
}

Roles Emitter::rolesOf(ArrayRef<unsigned> heads, ArrayRef<unsigned> rows,
                       ArrayRef<unsigned> columns, Layout layout) {
  Roles roles = {match.dims.batch, SmallVector<unsigned>(heads), SmallVector<unsigned>(rows),
                 SmallVector<unsigned>(columns)};
  if (layout == Layout::BSHD)
    std::swap(roles[1], roles[2]);
  return roles;
}

/// Flattened to one dimension and cut anew where it has to be.
Value Emitter::reshape(Value value, ArrayRef<int64_t> shape) {
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

Value Emitter::convert(Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element)
    return value;
  auto target = type.clone(element);
  if (type.getElementTypeBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(rewriter, loc, target, value);
  return arith::TruncFOp::create(rewriter, loc, target, value);
}

void Emitter::collectLoads(Element *x, SmallVectorImpl<Element *> &loads) {
  if (x->kind == Element::Kind::Load && !llvm::is_contained(loads, x))
    loads.push_back(x);
  for (Element *operand : x->operands)
    collectLoads(operand, loads);
}

Value Emitter::emitIndex(OpBuilder &b, AffineExpr expr,
                         llvm::function_ref<Value(unsigned)> digits) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return arith::ConstantIndexOp::create(b, loc, constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return digits(dim.getPosition());
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

Value Emitter::emit(OpBuilder &b, Element *x, ArrayRef<Element *> loads, ValueRange arguments,
                    llvm::function_ref<Value(unsigned)> digits) {
  switch (x->kind) {
  case Element::Kind::Load:
    return arguments[llvm::find(loads, x) - loads.begin()];
  case Element::Kind::Const:
    return arith::ConstantOp::create(b, loc, cast<TypedAttr>(x->constant));
  case Element::Kind::Scalar:
    return x->value;
  case Element::Kind::Index: {
    Value index = emitIndex(b, exprs.simplify(x->indices[0]), digits);
    return x->type.isIndex() ? index : arith::IndexCastOp::create(b, loc, x->type, index);
  }
  default: {
    SmallVector<Value> operands;
    for (Element *operand : x->operands)
      operands.push_back(emit(b, operand, loads, arguments, digits));
    OperationState state(loc, x->name, operands, x->type,
                         x->op ? x->op->getAttrDictionary().getValue()
                               : ArrayRef<NamedAttribute>());
    return b.create(state)->getResult(0);
  }
  }
}

/// `x` at every digit of `roles`, as a tensor of those dimensions.
Value Emitter::compute(Element *x, const Roles &roles, bool negated) {
  SmallVector<unsigned> digits;
  SmallVector<int64_t> digitSizes, sizes;
  for (auto &role : roles) {
    sizes.push_back(getExtent(exprs, role));
    for (unsigned digit : role) {
      digits.push_back(digit);
      digitSizes.push_back(exprs.getExtent(digit));
    }
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
  Value init = tensor::EmptyOp::create(rewriter, loc, digitSizes, x->type);
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

/// `load` with the dimensions of `roles`: as it is, reshaped, or moved.
Value Emitter::gather(Element *load, const Roles &roles) {
  if (isDirect(load->indices, roles))
    return load->value;
  SmallVector<unsigned> digits;
  SmallVector<int64_t> sizes;
  for (auto &role : roles) {
    sizes.push_back(getExtent(exprs, role));
    digits.append(role.begin(), role.end());
  }
  // In memory's order already, where the flat index is the same.
  AffineExpr flat = getAffineConstantExpr(0, context);
  auto type = cast<RankedTensorType>(load->value.getType());
  for (auto [index, size] : llvm::zip_equal(load->indices, type.getShape()))
    flat = flat * size + index;
  if (type.hasStaticShape() && exprs.simplify(flat) == linearize(digits) &&
      type.getNumElements() == ShapedType::getNumElements(sizes))
    return reshape(load->value, sizes);
  return compute(load, roles, false);
}

/// `x` for pairs: only the dimensions along which it differs.
Roles Emitter::pairRoles(Element *x) {
  SmallVector<Element *> work = {x};
  llvm::SmallSetVector<unsigned, 8> used;
  while (!work.empty()) {
    Element *y = work.pop_back_val();
    for (AffineExpr index : y->indices)
      exprs.collectVariables(index, used);
    work.append(y->operands.begin(), y->operands.end());
  }
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  Roles roles = rolesOf(heads, match.dims.query, match.dims.key, Layout::BHSD);
  for (auto &role : roles)
    if (llvm::none_of(role, [&](unsigned digit) { return used.contains(digit); }))
      role.clear();
  return roles;
}

/// The view that `x` is of another value, if it is one.
static Element *findSource(TensorExprs &exprs, Element *x) {
  Element *source = x;
  for (Element *next = x; next && next->kind == Element::Kind::Load; next = exprs.expand(next))
    source = next;
  return source;
}

Value Emitter::makeOperand(Element *x, const Roles &roles, bool negated) {
  if (x->kind == Element::Kind::Load && !negated)
    return gather(x, roles);
  return compute(x, roles, negated);
}

Value Emitter::makeBias() {
  SmallVector<std::pair<Element *, bool>> biases(match.biases);
  for (Element *bias : mask.biases)
    biases.emplace_back(bias, false);
  // Positions are what the mask's alignment makes of queries.
  bool isPosition =
      !mask.offset && (mask.align == Align::TopLeft ||
                       getExtent(exprs, match.dims.query) == getExtent(exprs, match.dims.key));
  llvm::erase_if(biases, [&](auto &bias) {
    Element *x = exprs.force(bias.first);
    if (!isPosition || mask.lengths || !x->type.isF32() || x->kind == Element::Kind::Const ||
        !isComputed(x))
      return false;
    scoreMods.emplace_back(x, bias.second);
    return true;
  });
  if (biases.empty())
    return {};
  Element *sum = nullptr;
  bool negated = false;
  for (auto [bias, isSubtracted] : biases) {
    Element *x = findSource(exprs, bias);
    if (!sum) {
      sum = x;
      negated = isSubtracted;
    } else if (negated && !isSubtracted) {
      sum = exprs.makeOp("arith.subf", x->type, {x, sum});
      negated = false;
    } else {
      sum = exprs.makeOp(isSubtracted == negated ? "arith.addf" : "arith.subf", x->type, {sum, x});
    }
  }
  return makeOperand(sum, pairRoles(sum), negated);
}

Value Emitter::makeKeep() {
  Element *all = nullptr;
  bool hides = false;
  Type i1 = rewriter.getI1Type();
  Element *truth = exprs.makeConstant(rewriter.getBoolAttr(true), i1);
  auto flip = [&](Element *x) { return exprs.makeOp("arith.xori", i1, {x, truth}); };
  for (const Condition &condition : mask.others) {
    Element *x = findSource(exprs, condition.value);
    if (!all) {
      all = x;
      hides = !condition.shows;
    } else if (hides) {
      all = exprs.makeOp("arith.ori", i1, {all, condition.shows ? flip(x) : x});
    } else {
      all = exprs.makeOp("arith.andi", i1, {all, condition.shows ? x : flip(x)});
    }
  }
  return all ? makeOperand(all, pairRoles(all), hides) : Value();
}

Value Emitter::makeSink() {
  if (!match.sink)
    return {};
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  Element *source = findSource(exprs, match.sink);
  while (source->isFloatCast())
    source = source->operands[0];
  return convert(gather(source, {heads}), rewriter.getF32Type());
}

bool Emitter::isDecomposed(Element *load) {
  return llvm::all_of(load->indices, [&](AffineExpr index) {
    bool isLinear = true;
    exprs.simplify(index).walk([&](AffineExpr part) {
      isLinear &= part.getKind() != AffineExprKind::Mod &&
                  part.getKind() != AffineExprKind::FloorDiv &&
                  part.getKind() != AffineExprKind::CeilDiv;
    });
    return isLinear;
  });
}

/// The layout that needs fewer copies.
Layout Emitter::chooseLayout() {
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

/// Whether the op has what it needs; nothing is made before.
bool Emitter::check(Layout layout) {
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
                    x == match.v ? "other values" : "other queries or keys");
    if (!isDecomposed(x))
      return refuse("expected operands whose dimensions divide evenly", "a reshape that does not");
  }
  Roles q = rolesOf(heads, d.query, d.inner, layout), k = rolesOf(d.head, d.key, d.inner, layout),
        v = rolesOf(d.head, d.key, d.value, layout), o = rolesOf(heads, d.query, d.value, layout);
  bool areStatic = isStatic(q) && isStatic(k) && isStatic(v);
  if (!areStatic && !(isDirect(match.q->indices, q) && isDirect(match.k->indices, k) &&
                      isDirect(match.v->indices, v) && isDirect(match.indices, o)))
    return refuse("expected operands with dimensions of the op where lengths are dynamic",
                  "others");
  if (!isKnown(getElementTypeOrSelf(match.result.getType())))
    return refuse("expected a result of f16, bf16 or f32", "another type");
  for (auto [bias, negated] : match.biases)
    if (!isKnown(findSource(exprs, bias)->type) || !isDecomposed(bias))
      return refuse("expected a bias of f16, bf16 or f32 along queries and keys", "another one");
  return true;
}

/// `o`, whose dimensions are `roles`, as the value that it replaces.
Value Emitter::makeResult(Value o, const Roles &roles, Value replaced,
                          ArrayRef<AffineExpr> resultIndices) {
  auto type = cast<RankedTensorType>(replaced.getType());
  if (isDirect(resultIndices, roles))
    return convert(o, type.getElementType());
  SmallVector<unsigned> digits;
  for (auto &role : roles)
    digits.append(role.begin(), role.end());
  AffineExpr flat = getAffineConstantExpr(0, context);
  for (auto [index, size] : llvm::zip_equal(resultIndices, type.getShape()))
    flat = flat * size + index;
  if (exprs.simplify(flat) == linearize(digits))
    return reshape(convert(o, type.getElementType()), type.getShape());
  SmallVector<int64_t> permutation;
  for (AffineExpr index : resultIndices)
    for (auto [i, role] : llvm::enumerate(roles))
      if (!role.empty() && exprs.simplify(index) == linearize(role))
        permutation.push_back(i);
  if (resultIndices.size() == roles.size() && isPermutationVector(permutation)) {
    o = convert(o, type.getElementType());
    Value init = tensor::EmptyOp::create(rewriter, loc, type.getShape(), type.getElementType());
    return linalg::TransposeOp::create(rewriter, loc, o, init, permutation)->getResult(0);
  }
  // In the order of the result: the digit with the largest stride first.
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

/// The one element of a leaf that is the same for all.
Value Emitter::extractScalar(Element *leaf) {
  if (leaf->kind != Element::Kind::Load)
    return leaf->value;
  SmallVector<Value> indices;
  for (AffineExpr index : leaf->indices)
    indices.push_back(arith::ConstantIndexOp::create(
        rewriter, loc, cast<AffineConstantExpr>(exprs.simplify(index)).getValue()));
  return tensor::ExtractOp::create(rewriter, loc, leaf->value, indices);
}

Value Emitter::makeOffset() {
  if (!mask.offset)
    return {};
  Value offset = extractScalar(mask.offset);
  if (offset.getType().isIndex())
    return offset;
  return arith::IndexCastOp::create(rewriter, loc, rewriter.getIndexType(), offset);
}

Value Emitter::makeLengths() {
  if (!mask.lengths)
    return {};
  Value lengths = gather(mask.lengths, {match.dims.batch});
  auto type = cast<RankedTensorType>(lengths.getType());
  auto i32 = type.clone(rewriter.getI32Type());
  if (type == i32)
    return lengths;
  // Lengths past the keys count as all of them, so none is lost.
  int64_t keys = getExtent(exprs, match.dims.key);
  auto number = [&](int64_t value) -> Value {
    Attribute element = rewriter.getIntegerAttr(type.getElementType(), value);
    return arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(type, element));
  };
  lengths = arith::MinSIOp::create(rewriter, loc, lengths, number(keys));
  lengths = arith::MaxSIOp::create(rewriter, loc, lengths, number(0));
  return arith::TruncIOp::create(rewriter, loc, i32, lengths);
}

/// Whether a bias is made of positions and numbers alone, so that a score_mod can say it.
bool Emitter::isComputed(Element *x) {
  if (x->kind == Element::Kind::Load || x->kind == Element::Kind::Reduce)
    return false;
  if (x->kind == Element::Kind::Scalar && !(x->type.isF32() || x->type.isIntOrIndex()))
    return false;
  return llvm::all_of(x->operands, [&](Element *y) { return isComputed(y); });
}

void Emitter::emitScoreMod(AttentionOp op) {
  OpBuilder::InsertionGuard guard(rewriter);
  Region &region = op.getScoreMods()[0];
  Type f32 = rewriter.getF32Type(), index = rewriter.getIndexType();
  Block *block = rewriter.createBlock(&region, {}, {f32, index, index, index, index},
                                      SmallVector<Location>(5, loc));
  llvm::DenseMap<unsigned, Value> values;
  auto setDigits = [&](ArrayRef<unsigned> digits, Value argument) {
    // Digits of an index: the last one varies fastest.
    for (unsigned digit : llvm::reverse(digits)) {
      Value extent = arith::ConstantIndexOp::create(rewriter, loc, exprs.getExtent(digit));
      bool isFirst = digit == digits.front();
      values[digit] =
          isFirst ? argument : arith::RemSIOp::create(rewriter, loc, argument, extent).getResult();
      if (!isFirst)
        argument = arith::DivSIOp::create(rewriter, loc, argument, extent);
    }
  };
  SmallVector<unsigned> heads(match.dims.head);
  llvm::append_range(heads, match.dims.group);
  setDigits(match.dims.batch, block->getArgument(1));
  setDigits(heads, block->getArgument(2));
  setDigits(match.dims.query, block->getArgument(3));
  setDigits(match.dims.key, block->getArgument(4));
  Value score = block->getArgument(0);
  for (auto [bias, negated] : scoreMods) {
    Value value = emit(rewriter, bias, {}, {}, [&](unsigned digit) { return values[digit]; });
    score = negated ? arith::SubFOp::create(rewriter, loc, score, value).getResult()
                    : arith::AddFOp::create(rewriter, loc, score, value).getResult();
  }
  YieldOp::create(rewriter, loc, score);
}

bool Emitter::run() {
  Layout layout = chooseLayout();
  if (!check(layout))
    return false;
  const Dimensions &d = match.dims;
  SmallVector<unsigned> heads(d.head);
  llvm::append_range(heads, d.group);
  Roles oRoles = rolesOf(heads, d.query, d.value, layout);
  Value q = gather(match.q, rolesOf(heads, d.query, d.inner, layout)),
        k = gather(match.k, rolesOf(d.head, d.key, d.inner, layout)),
        v = gather(match.v, rolesOf(d.head, d.key, d.value, layout));
  // The widest of their types is that of all.
  Type element = match.q->type;
  for (Element *x : {match.k, match.v})
    if (x->type != element)
      element = rewriter.getF32Type();
  q = convert(q, element);
  k = convert(k, element);
  v = convert(v, element);
  auto qType = cast<RankedTensorType>(q.getType());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, q);
  sizes[3] = rewriter.getIndexAttr(cast<RankedTensorType>(v.getType()).getDimSize(3));
  Value init = tensor::EmptyOp::create(rewriter, loc, sizes, qType.getElementType());
  Value bias = makeBias(), keep = makeKeep(), sinks = makeSink(), scaleValue;
  FloatAttr scale;
  double byDefault = 1 / std::sqrt(double(qType.getDimSize(3)));
  if (match.scaleValue) {
    scaleValue = extractScalar(match.scaleValue);
    if (!scaleValue.getType().isF32())
      scaleValue = arith::ExtFOp::create(rewriter, loc, rewriter.getF32Type(), scaleValue);
    if (std::abs(match.scale - 1) > 1e-6) {
      Value factor =
          arith::ConstantOp::create(rewriter, loc, rewriter.getF32FloatAttr(match.scale));
      scaleValue = arith::MulFOp::create(rewriter, loc, scaleValue, factor);
    }
  } else if (std::abs(match.scale / byDefault - 1) > 1e-6) {
    scale = rewriter.getF32FloatAttr(match.scale);
  }
  Value lseInit;
  SmallVector<Type> types = {init.getType()};
  if (match.lse) {
    OpFoldResult b = sizes[0], h = sizes[layout == Layout::BHSD ? 1 : 2],
                 n = sizes[layout == Layout::BHSD ? 2 : 1];
    lseInit = tensor::EmptyOp::create(rewriter, loc, {b, h, n}, rewriter.getF32Type());
    types.push_back(lseInit.getType());
  }
  auto op = AttentionOp::create(
      rewriter, loc, types, q, k, v, bias, keep, sinks, makeLengths(), makeOffset(), scaleValue,
      init, lseInit, cast_or_null<MaskAttrInterface>(mask.mask), scale,
      match.softcap ? rewriter.getF32FloatAttr(*match.softcap) : FloatAttr(), mask.align, layout,
      ScheduleAttr(), scoreMods.empty() ? 0 : 1);
  if (!scoreMods.empty())
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
  return Emitter(rewriter, exprs, match, mask, miss).run();
}
