//===- TensorExpr.cpp - elements of tensors as expressions ----------------===//

#include "TensorExpr.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::flashattn;

bool mlir::flashattn::allParts(Element *root, llvm::function_ref<bool(Element *)> holds) {
  SmallVector<Element *> work = {root};
  llvm::SmallPtrSet<Element *, 16> seen;
  while (!work.empty()) {
    Element *part = work.pop_back_val();
    if (!seen.insert(part).second)
      continue;
    if (!holds(part))
      return false;
    llvm::append_range(work, llvm::reverse(part->operands));
  }
  return true;
}

Element *TensorExprs::create(Element::Kind kind, Type type) {
  if (budget > 0)
    --budget;
  elements.emplace_back();
  elements.back().kind = kind;
  elements.back().type = type;
  return &elements.back();
}

Element *TensorExprs::makeLoad(Value value, ArrayRef<AffineExpr> indices, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  Element *element = create(Element::Kind::Load, type.getElementType());
  element->value = value;
  element->indices.assign(indices.begin(), indices.end());
  element->shape.assign(type.getShape().begin(), type.getShape().end());
  for (auto [size, known] : llvm::zip(element->shape, shape))
    if (ShapedType::isDynamic(size))
      size = known;
  // The only index in a dimension of size 1 is 0.
  for (auto [index, size] : llvm::zip_equal(element->indices, element->shape))
    if (size == 1)
      index = getAffineConstantExpr(0, context);
  return element;
}

Element *TensorExprs::makeConstant(Attribute constant, Type type) {
  Element *element = create(Element::Kind::Const, type);
  element->constant = constant;
  return element;
}

Element *TensorExprs::makeIndex(AffineExpr expr, Type type) {
  Element *element = create(Element::Kind::Index, type);
  element->indices.push_back(expr);
  return element;
}

Element *TensorExprs::makeOp(StringRef name, Type type, ArrayRef<Element *> operands,
                             Operation *op) {
  Element *element = create(Element::Kind::Op, type);
  element->name = name;
  element->operands.assign(operands.begin(), operands.end());
  element->op = op;
  return element;
}

static bool hasSymbols(AffineExpr expr) {
  bool found = false;
  expr.walk([&](AffineExpr part) { found |= isa<AffineSymbolExpr>(part); });
  return found;
}

namespace mlir::flashattn {
/// Builds elements for the values in the body of a linalg op, at given indices of its loops.
class ElementBuilder {
public:
  ElementBuilder(TensorExprs &exprs, linalg::LinalgOp op, ArrayRef<AffineExpr> loops)
      : exprs(exprs), op(op), loops(loops) {}

  /// Returns null if the value is not known, such as a loop-carried value.
  Element *get(Value value) {
    auto [it, isNew] = known.try_emplace(value, nullptr);
    if (!isNew)
      return it->second;
    Element *element = build(value);
    return known[value] = element;
  }

private:
  Element *build(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && argument.getOwner() == op.getBlock())
      return getOperand(op.getMatchingOpOperand(argument));
    Attribute constant;
    if (matchPattern(value, m_Constant(&constant)) && isa<IntegerAttr, FloatAttr>(constant))
      return exprs.makeNumber(constant, value.getType());
    Operation *definition = value.getDefiningOp();
    if (!definition || definition->getBlock() != op.getBlock())
      return getScalar(value);
    if (auto index = dyn_cast<linalg::IndexOp>(definition))
      return loops[index.getDim()] ? exprs.makeIndex(loops[index.getDim()], value.getType())
                                   : nullptr;
    if (auto extract = dyn_cast<tensor::ExtractOp>(definition))
      return getExtracted(extract);
    if (definition->getNumRegions() != 0 || definition->getNumResults() != 1 ||
        !isMemoryEffectFree(definition))
      return nullptr;
    SmallVector<Element *> operands;
    for (Value operand : definition->getOperands()) {
      if (isa<ShapedType>(operand.getType()))
        return nullptr;
      operands.push_back(get(operand));
      if (!operands.back())
        return nullptr;
    }
    return exprs.makeOp(definition->getName().getStringRef(), value.getType(), operands,
                        definition);
  }

  Element *getOperand(OpOperand *operand) {
    Value value = operand->get();
    if (!isa<RankedTensorType>(value.getType()))
      return isa<ShapedType>(value.getType()) ? nullptr : getScalarOrConstant(value);
    // The initial value of a reduction is not known here.
    if (op.isDpsInit(operand) && op.getNumReductionLoops() != 0)
      return nullptr;
    SmallVector<AffineExpr> indices;
    for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults()) {
      bool unknown = false;
      expr.walk([&](AffineExpr part) {
        if (auto dim = dyn_cast<AffineDimExpr>(part))
          unknown |= !loops[dim.getPosition()];
      });
      if (unknown)
        return nullptr;
      indices.push_back(exprs.simplify(replaceLoops(expr)));
    }
    return exprs.makeLoad(value, indices);
  }

  AffineExpr replaceLoops(AffineExpr expr) {
    SmallVector<AffineExpr> replacements(loops);
    for (AffineExpr &replacement : replacements)
      if (!replacement)
        replacement = getAffineConstantExpr(0, expr.getContext());
    return expr.replaceDims(replacements);
  }

  Element *getScalarOrConstant(Value value) {
    Attribute constant;
    if (matchPattern(value, m_Constant(&constant)) && isa<IntegerAttr, FloatAttr>(constant))
      return exprs.makeNumber(constant, value.getType());
    return getScalar(value);
  }

  Element *getScalar(Value value) {
    if (auto extract = value.getDefiningOp<tensor::ExtractOp>())
      if (Element *element = getExtracted(extract))
        return element;
    // Scalars that are multiplied outside of the body.
    Operation *definition = value.getDefiningOp();
    if (definition && depth < 8 &&
        isa<arith::MulFOp, arith::DivFOp, math::SqrtOp, math::RsqrtOp>(definition)) {
      ++depth;
      SmallVector<Element *> operands = llvm::map_to_vector(
          definition->getOperands(), [&](Value operand) { return getScalarOrConstant(operand); });
      --depth;
      return exprs.makeOp(definition->getName().getStringRef(), value.getType(), operands,
                          definition);
    }
    Element *element = exprs.create(Element::Kind::Scalar, value.getType());
    element->value = value;
    return element;
  }

  Element *getExtracted(tensor::ExtractOp extract) {
    if (auto made = extract.getTensor().getDefiningOp<tensor::FromElementsOp>();
        made && made.getElements().size() == 1)
      return get(made.getElements()[0]);
    SmallVector<AffineExpr> indices;
    for (Value index : extract.getIndices()) {
      Element *element = get(index);
      element = element ? exprs.force(element) : nullptr;
      if (!element || element->kind != Element::Kind::Index || hasSymbols(element->indices[0]))
        return nullptr;
      indices.push_back(element->indices[0]);
    }
    return exprs.makeLoad(extract.getTensor(), indices);
  }

  TensorExprs &exprs;
  linalg::LinalgOp op;
  ArrayRef<AffineExpr> loops;
  llvm::DenseMap<Value, Element *> known;
  unsigned depth = 0;
};
} // namespace mlir::flashattn

/// Looks through a tensor of one element to the scalar that it wraps.
static Value lookThroughTensor(Value value) {
  while (auto extract = value.getDefiningOp<tensor::ExtractOp>()) {
    auto made = extract.getTensor().getDefiningOp<tensor::FromElementsOp>();
    if (!made || made.getElements().size() != 1)
      break;
    value = made.getElements()[0];
  }
  return value;
}

static bool isMaximum(StringRef name) {
  return name == "arith.maximumf" || name == "arith.maxnumf";
}

/// Returns the splat constant `init`, from which a reduction starts; null if `init` is not one.
static Attribute getStart(Value init) {
  Value start;
  if (auto fill = init.getDefiningOp<linalg::FillOp>())
    start = fill.getInputs()[0];
  else if (auto generic = init.getDefiningOp<linalg::GenericOp>();
           generic && generic.getNumDpsInputs() == 0)
    start = generic.getBlock()->getTerminator()->getOperand(0);
  else
    start = init;
  Attribute constant;
  if (!matchPattern(start, m_Constant(&constant)))
    return {};
  if (auto splat = dyn_cast<SplatElementsAttr>(constant))
    constant = splat.getSplatValue<Attribute>();
  return constant;
}

/// Whether `start` is neutral for a reduction with `name`. For a maximum, any low number is.
static bool isNeutral(Attribute start, StringRef name) {
  if (auto number = dyn_cast_or_null<FloatAttr>(start)) {
    if (name == "arith.addf")
      return number.getValue().isZero();
    const llvm::fltSemantics &semantics = number.getValue().getSemantics();
    return isMaximum(name) &&
           number.getValue().compare(llvm::APFloat::getLargest(semantics, true)) !=
               llvm::APFloat::cmpGreaterThan;
  }
  auto integer = dyn_cast_or_null<IntegerAttr>(start);
  return integer && ((name == "arith.andi" && integer.getValue().isAllOnes()) ||
                     (name == "arith.ori" && integer.getValue().isZero()));
}

/// Returns the op that reduces into result `number`, and the reduced value.
static std::pair<Operation *, Value> findReducer(linalg::LinalgOp op, unsigned number) {
  Value yielded = lookThroughTensor(op.getBlock()->getTerminator()->getOperand(number));
  Operation *reducer = yielded.getDefiningOp();
  if (!reducer || reducer->getNumOperands() != 2 || reducer->getBlock() != op.getBlock())
    return {};
  Value carried = op.getRegionOutputArgs()[number];
  for (unsigned i : {0, 1})
    if (lookThroughTensor(reducer->getOperand(i)) == carried)
      return {reducer, lookThroughTensor(reducer->getOperand(1 - i))};
  return {};
}

/// Whether `element` is 0, as the initial sum of an online softmax is: 0 times e^(x - m), with a
/// maximum m that starts from x.
bool TensorExprs::isZero(Element *element) {
  if (getConstant(element) == 0.0)
    return true;
  Element *product = resolve(element);
  if (!product->is("arith.mulf"))
    return false;
  for (unsigned i : {0, 1}) {
    Element *correction = resolve(product->operands[1 - i]);
    if (!isZero(product->operands[i]) ||
        !(correction->is("math.exp") || correction->is("math.exp2")))
      continue;
    Element *shifted = resolve(correction->operands[0]);
    auto start = shifted->is("arith.subf") ? getConstant(shifted->operands[0]) : std::nullopt;
    Element *maximum = start ? resolve(shifted->operands[1]) : nullptr;
    return maximum && maximum->kind == Element::Kind::Reduce && maximum->name == "arith.maximumf" &&
           *start <= -double(std::numeric_limits<float>::max());
  }
  return false;
}

Element *TensorExprs::expandLinalg(linalg::LinalgOp op, Element *load,
                                   std::optional<ArrayRef<AffineExpr>> reduced) {
  unsigned number = cast<OpResult>(load->value).getResultNumber();
  OpOperand *init = op.getDpsInitOperand(number);
  SmallVector<AffineExpr> loops(op.getNumLoops());
  for (auto [expr, index] :
       llvm::zip_equal(op.getMatchingIndexingMap(init).getResults(), load->indices)) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = index;
    else if (!isa<AffineConstantExpr>(expr))
      return nullptr;
  }
  SmallVector<unsigned> reductionLoops;
  op.getReductionDims(reductionLoops);
  for (unsigned i = 0; i < loops.size(); ++i)
    if (!loops[i] && !llvm::is_contained(reductionLoops, i))
      return nullptr;
  if (reductionLoops.empty())
    return ElementBuilder(*this, op, loops).get(op.getBlock()->getTerminator()->getOperand(number));
  auto [reducer, value] = findReducer(op, number);
  StringRef name = reducer ? reducer->getName().getStringRef() : "";
  Attribute start = getStart(init->get());
  bool startsLow = isNeutral(start, name),
       isBounded = !startsLow && isMaximum(name) && isa_and_nonnull<FloatAttr>(start);
  if (!reducer || (!startsLow && !isBounded &&
                   (name != "arith.addf" || !isZero(makeLoad(init->get(), load->indices)))))
    return nullptr;
  if (!reduced) {
    Element *element = create(Element::Kind::Reduce, load->type);
    element->value = load->value;
    element->indices = load->indices;
    element->shape = load->shape;
    element->name = name;
    element->op = op;
    // A maximum that starts from another number is the maximum of both.
    return isBounded ? makeOp(name, load->type, {element, makeConstant(start, load->type)}, reducer)
                     : element;
  }
  for (auto [loop, index] : llvm::zip_equal(reductionLoops, *reduced))
    loops[loop] = index;
  return ElementBuilder(*this, op, loops).get(value);
}

/// `exp(x) / sum(exp(x))`: the maximum cancels out.
Element *TensorExprs::expandSoftmax(linalg::SoftmaxOp op, Element *load) {
  Element *input = makeLoad(op.getInput(), load->indices, load->shape);
  Element *sum = create(Element::Kind::Reduce, load->type);
  sum->value = load->value;
  sum->indices = load->indices;
  sum->indices.erase(sum->indices.begin() + op.getDimension());
  sum->name = "arith.addf";
  sum->op = op;
  return makeOp("arith.divf", load->type, {makeOp("math.exp", load->type, input), sum});
}

Element *TensorExprs::getReduced(Element *reduction, ArrayRef<AffineExpr> indices) {
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(reduction->op)) {
    auto all = llvm::to_vector(reduction->indices);
    all.insert(all.begin() + softmax.getDimension(), indices[0]);
    return makeOp("math.exp", reduction->type, makeLoad(softmax.getInput(), all));
  }
  return expandLinalg(cast<linalg::LinalgOp>(reduction->op), reduction, indices);
}

SmallVector<int64_t> TensorExprs::getReducedSizes(Element *reduction) {
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(reduction->op))
    return {softmax.getInputOperandType().getDimSize(softmax.getDimension())};
  auto op = cast<linalg::LinalgOp>(reduction->op);
  SmallVector<unsigned> loops;
  op.getReductionDims(loops);
  SmallVector<int64_t> ranges = op.getStaticLoopRanges(), sizes;
  for (unsigned loop : loops)
    sizes.push_back(ranges[loop]);
  return sizes;
}

Element *TensorExprs::expandReshape(Operation *op, Element *load) {
  bool isCollapse = isa<tensor::CollapseShapeOp>(op);
  Value source = op->getOperand(0);
  SmallVector<int64_t> shape(cast<RankedTensorType>(source.getType()).getShape());
  SmallVector<AffineExpr> indices(shape.size(), getAffineConstantExpr(0, context));
  auto groups = isCollapse ? cast<tensor::CollapseShapeOp>(op).getReassociationIndices()
                           : cast<tensor::ExpandShapeOp>(op).getReassociationIndices();
  for (auto [i, group] : llvm::enumerate(groups)) {
    if (!isCollapse) {
      AffineExpr sum = getAffineConstantExpr(0, context);
      for (int64_t dim : group) {
        // The first size does not matter, because the sum before it is 0.
        if (ShapedType::isDynamic(load->shape[dim]) && sum != getAffineConstantExpr(0, context))
          return nullptr;
        int64_t size = ShapedType::isDynamic(load->shape[dim]) ? 1 : load->shape[dim];
        sum = sum * size + load->indices[dim];
      }
      indices[i] = simplify(sum);
      continue;
    }
    // A single unknown size follows from the other sizes.
    int64_t known = 1, unknown = 0;
    for (int64_t dim : group)
      ShapedType::isDynamic(shape[dim]) ? ++unknown : known *= shape[dim];
    if (unknown == 1 && !ShapedType::isDynamic(load->shape[i]))
      for (int64_t dim : group)
        if (ShapedType::isDynamic(shape[dim]))
          shape[dim] = load->shape[i] / known;
    AffineExpr rest = load->indices[i];
    SmallVector<int64_t> wide =
        llvm::filter_to_vector(group, [&](int64_t dim) { return shape[dim] != 1; });
    for (int64_t dim : llvm::reverse(wide)) {
      if (dim == wide.front()) {
        indices[dim] = rest;
        break;
      }
      if (ShapedType::isDynamic(shape[dim]))
        return nullptr;
      indices[dim] = rest % shape[dim];
      rest = rest.floorDiv(shape[dim]);
    }
  }
  for (AffineExpr &index : indices)
    index = cutDigits(index);
  return makeLoad(source, indices, shape);
}

/// Expands a reshape by a shape tensor if the types have static sizes.
Element *TensorExprs::expandReshapeBySizes(tensor::ReshapeOp op, Element *load) {
  auto source = dyn_cast<RankedTensorType>(op.getSource().getType());
  if (!source || !source.hasStaticShape() || llvm::any_of(load->shape, ShapedType::isDynamic))
    return nullptr;
  AffineExpr rest = getAffineConstantExpr(0, context);
  for (auto [index, size] : llvm::zip_equal(load->indices, load->shape))
    rest = rest * size + index;
  SmallVector<AffineExpr> indices(source.getRank(), getAffineConstantExpr(0, context));
  for (int64_t dim = source.getRank() - 1; dim >= 0; --dim) {
    indices[dim] = cutDigits(dim == 0 ? rest : rest % source.getDimSize(dim));
    rest = rest.floorDiv(source.getDimSize(dim));
  }
  return makeLoad(op.getSource(), indices);
}

Element *TensorExprs::expandSlice(Operation *op, Element *load) {
  if (auto concat = dyn_cast<tensor::ConcatOp>(op)) {
    auto indices = llvm::to_vector(load->indices);
    int64_t dim = concat.getDim(), before = 0;
    auto [low, high] = getRange(simplify(indices[dim]));
    for (Value input : concat.getInputs()) {
      int64_t size = cast<RankedTensorType>(input.getType()).getDimSize(dim);
      if (ShapedType::isDynamic(size) || !low || !high)
        return nullptr;
      if (*low >= before && *high < before + size) {
        indices[dim] = simplify(indices[dim] - before);
        return makeLoad(input, indices);
      }
      before += size;
    }
    return nullptr;
  }
  auto slice = cast<OffsetSizeAndStrideOpInterface>(op);
  if (llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic) ||
      llvm::any_of(slice.getStaticStrides(), ShapedType::isDynamic))
    return nullptr;
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op)) {
    // A slice of unknown size need not be the whole source, even if the types are equal.
    for (auto [dim, size] : llvm::enumerate(slice.getMixedSizes())) {
      auto value = dyn_cast<Value>(size);
      auto whole = value ? value.getDefiningOp<tensor::DimOp>() : tensor::DimOp();
      if (value && (!whole || whole.getSource() != extract.getSource() ||
                    whole.getConstantIndex() != int64_t(dim)))
        return nullptr;
    }
    SmallVector<AffineExpr> indices;
    llvm::SmallBitVector dropped = extract.getDroppedDims();
    unsigned next = 0;
    for (unsigned i = 0; i < dropped.size(); ++i) {
      AffineExpr index = dropped[i] ? getAffineConstantExpr(0, context) : load->indices[next++];
      indices.push_back(
          simplify(index * slice.getStaticStrides()[i] + slice.getStaticOffsets()[i]));
    }
    return makeLoad(extract.getSource(), indices);
  }
  auto insert = cast<tensor::InsertSliceOp>(op);
  if (llvm::any_of(insert.getStaticSizes(), ShapedType::isDynamic) || !insert.hasUnitStride())
    return nullptr;
  SmallVector<AffineExpr> inside;
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  for (auto [i, index, offset, size] :
       llvm::enumerate(load->indices, insert.getStaticOffsets(), insert.getStaticSizes())) {
    AffineExpr shifted = simplify(index - offset);
    if (!dropped[i])
      inside.push_back(shifted);
    auto [low, high] = getRange(shifted);
    if (!low || !high || (*low < 0 && *high >= 0) || (*low < size && *high >= size))
      return nullptr;
    if (*high < 0 || *low >= size)
      return makeLoad(insert.getDest(), load->indices);
  }
  return makeLoad(insert.getSource(), inside);
}

Element *TensorExprs::expandUncached(Element *load) {
  Operation *op = load->value.getDefiningOp();
  if (!op || budget == 0)
    return nullptr;
  for (AffineExpr &index : load->indices)
    index = simplify(index);
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return expandLinalg(linalgOp, load, std::nullopt);
  if (auto softmax = dyn_cast<linalg::SoftmaxOp>(op))
    return expandSoftmax(softmax, load);
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
    return expandReshape(op, load);
  if (auto reshape = dyn_cast<tensor::ReshapeOp>(op))
    return expandReshapeBySizes(reshape, load);
  if (isa<tensor::ExtractSliceOp, tensor::InsertSliceOp, tensor::ConcatOp>(op))
    return expandSlice(op, load);
  if (auto castOp = dyn_cast<tensor::CastOp>(op))
    return isa<RankedTensorType>(castOp.getSource().getType())
               ? makeLoad(castOp.getSource(), load->indices, load->shape)
               : nullptr;
  Attribute constant;
  if (matchPattern(op, m_Constant(&constant)))
    return expandConstant(constant, load);
  if (op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1) {
    SmallVector<Element *> operands;
    for (Value operand : op->getOperands()) {
      if (!isa<RankedTensorType>(operand.getType()))
        return nullptr;
      operands.push_back(makeLoad(operand, load->indices));
    }
    return makeOp(op->getName().getStringRef(), load->type, operands, op);
  }
  return nullptr;
}

Element *TensorExprs::expand(Element *load) {
  if (load->kind != Element::Kind::Load)
    return nullptr;
  auto found = expanded.find(load);
  if (found != expanded.end())
    return found->second;
  Element *element = expandUncached(load);
  if (element)
    visited.insert(load->value.getDefiningOp());
  return expanded[load] = element;
}

Element *TensorExprs::resolve(Element *element) {
  while (Element *next = expand(element))
    element = next;
  return element;
}
