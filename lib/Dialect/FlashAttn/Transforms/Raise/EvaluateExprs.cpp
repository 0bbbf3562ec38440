//===- EvaluateExprs.cpp - values, equality and dependence of elements ----===//

#include "ElementEvaluator.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

std::vector<int64_t> mlir::flashattn::readIntegers(Attribute value) {
  std::vector<int64_t> numbers;
  if (auto dense = dyn_cast<DenseIntElementsAttr>(value)) {
    numbers.reserve(dense.getNumElements());
    for (const APInt &number : dense.getValues<APInt>())
      numbers.push_back(number.getSExtValue());
  }
  auto resource = dyn_cast<DenseResourceElementsAttr>(value);
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  if (!blob || !resource.getElementType().isInteger())
    return numbers;
  unsigned bytes = resource.getElementType().getIntOrFloatBitWidth() / 8;
  ArrayRef<char> data = blob->getData();
  if (bytes == 0 || bytes > 8 || data.size() != size_t(resource.getNumElements()) * bytes)
    return numbers;
  for (size_t at = 0; at < data.size(); at += bytes) {
    APInt number(bytes * 8, 0);
    llvm::LoadIntFromMemory(number, reinterpret_cast<const uint8_t *>(data.data()) + at, bytes);
    numbers.push_back(number.getSExtValue());
  }
  return numbers;
}

/// Returns numbers that are an affine function of their indices as an index expression, or null.
static AffineExpr fitIndices(ArrayRef<int64_t> numbers, RankedTensorType type,
                             ArrayRef<AffineExpr> indices, MLIRContext *context) {
  SmallVector<int64_t> slopes(type.getRank()), strides = computeStrides(type.getShape());
  int64_t first = numbers[0];
  AffineExpr sum = getAffineConstantExpr(first, context);
  for (auto [i, size] : llvm::enumerate(type.getShape())) {
    slopes[i] = size > 1 ? numbers[strides[i]] - first : 0;
    sum = sum + indices[i] * slopes[i];
  }
  for (auto [position, number] : llvm::enumerate(numbers)) {
    int64_t expected = first, rest = position;
    for (auto [stride, slope] : llvm::zip_equal(strides, slopes)) {
      expected += rest / stride * slope;
      rest %= stride;
    }
    if (number != expected)
      return {};
  }
  return sum;
}

static bool isSmallInteger(int64_t value) {
  return value > -TensorExprs::mostIndex && value < TensorExprs::mostIndex;
}

/// Creates a constant. An integer other than i1 becomes an index if sums of it do not wrap.
Element *TensorExprs::makeNumber(Attribute number, Type type) {
  auto integer = dyn_cast<IntegerAttr>(number);
  if (integer && !type.isInteger(1) && integer.getValue().getSignificantBits() <= 64 &&
      isSmallInteger(integer.getValue().getSExtValue()))
    return makeIndex(getAffineConstantExpr(integer.getValue().getSExtValue(), context), type);
  return makeConstant(number, type);
}

Element *TensorExprs::expandConstant(Attribute value, Element *load) {
  bool isBool = load->type.isInteger(1);
  if (auto dense = dyn_cast<DenseElementsAttr>(value); dense && dense.isSplat()) {
    auto number = dense.getSplatValue<Attribute>();
    return makeNumber(number, load->type);
  }
  std::vector<int64_t> integers = isBool ? std::vector<int64_t>() : readIntegers(value);
  if (integers.empty() || !llvm::all_of(integers, isSmallInteger))
    return nullptr;
  AffineExpr fitted =
      fitIndices(integers, cast<RankedTensorType>(load->value.getType()), load->indices, context);
  return fitted ? makeIndex(simplify(fitted), load->type) : nullptr;
}

static bool isIntegerConstant(TensorExprs &exprs, Element *element, int64_t &value) {
  if (element->kind != Element::Kind::Index)
    return false;
  auto constant = dyn_cast<AffineConstantExpr>(exprs.simplify(element->indices[0]));
  if (constant)
    value = constant.getValue();
  return bool(constant);
}

/// Replaces an integer that is the same everywhere by a symbol.
Element *TensorExprs::nameSymbol(Element *element) {
  bool isLeaf = element->kind == Element::Kind::Load || element->kind == Element::Kind::Scalar;
  bool isUniform = llvm::all_of(
      element->indices, [&](AffineExpr index) { return isa<AffineConstantExpr>(simplify(index)); });
  if (!isLeaf || !isUniform || element->type.isInteger(1) || !element->type.isIntOrIndex())
    return element;
  auto known = llvm::find_if(symbols, [&](Element *symbol) { return areEqual(symbol, element); });
  unsigned position = known - symbols.begin();
  if (known == symbols.end())
    symbols.push_back(element);
  return makeIndex(getAffineSymbolExpr(position, context), element->type);
}

/// Whether `type`, as a signed type, can hold every value of `expr`. Lengths and positions that are
/// only known at run time are assumed to be below 2^24, so types below 32 bits need known lengths.
bool TensorExprs::fits(AffineExpr expr, Type type) {
  unsigned width = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  int64_t size = std::min(mostIndex, int64_t(1) << (std::min(width, 63u) - 1));
  auto [low, high] = getRange(expr, /*unknown=*/1 << 24);
  return low && high && *low >= -size && *high < size;
}

/// Returns the operand that a select, a minimum or a maximum of indices always returns, or null: an
/// index that is limited to the size of a tensor, or counted from its end if it is negative.
Element *TensorExprs::findChosen(Element *element) {
  bool isSelect = element->is("arith.select"), isMax = element->is("arith.maxsi");
  Element *compared = isSelect ? element->operands[0] : element;
  auto compare = isSelect ? dyn_cast_or_null<arith::CmpIOp>(compared->op) : arith::CmpIOp();
  if (isSelect ? !compare || compare.getPredicate() != arith::CmpIPredicate::slt
               : !isMax && !element->is("arith.minsi"))
    return nullptr;
  if (llvm::any_of(compared->operands, [](Element *x) { return x->kind != Element::Kind::Index; }))
    return nullptr;
  auto [low, high] =
      getRange(simplify(compared->operands[0]->indices[0] - compared->operands[1]->indices[0]));
  ArrayRef<Element *> choices = ArrayRef(element->operands).take_back(2);
  // A minimum or a maximum of equal numbers is either.
  if (high && *high < (isSelect ? 0 : 1))
    return choices[isMax ? 1 : 0];
  return low && *low >= 0 ? choices[isMax ? 0 : 1] : nullptr;
}

/// Folds integer arithmetic on indices if it neither wraps nor truncates.
Element *TensorExprs::fold(Element *element) {
  if (Element *chosen = findChosen(element))
    return chosen;
  if (element->kind != Element::Kind::Op || element->operands.empty() ||
      llvm::any_of(element->operands, [](Element *x) { return x->kind != Element::Kind::Index; }))
    return element;
  AffineExpr x = simplify(element->operands[0]->indices[0]);
  auto make = [&](AffineExpr expr) {
    expr = simplify(expr);
    return fits(expr, element->type) ? makeIndex(expr, element->type) : element;
  };
  auto low = getRange(x).first;
  bool isPositive = low && *low >= 0;
  if (element->operands.size() == 1) {
    bool keepsSign =
             llvm::is_contained({"arith.index_cast", "arith.extsi", "arith.trunci"}, element->name),
         isUnsigned = llvm::is_contained({"arith.extui", "arith.index_castui"}, element->name);
    bool keeps = keepsSign || (isUnsigned && isPositive);
    return keeps && !element->type.isInteger(1) ? make(x) : element;
  }
  if (element->operands.size() != 2)
    return element;
  AffineExpr y = simplify(element->operands[1]->indices[0]);
  if (element->name == "arith.addi")
    return make(x + y);
  if (element->name == "arith.subi")
    return make(x - y);
  int64_t value;
  if (element->name == "arith.muli") {
    if (isIntegerConstant(*this, element->operands[0], value))
      std::swap(x, y);
    else if (!isIntegerConstant(*this, element->operands[1], value))
      return element;
    // The affine expression must not wrap either.
    int64_t most = mostIndex / std::max<int64_t>(1, std::abs(value));
    auto [least, greatest] = getRange(x, /*unknown=*/1 << 24);
    bool isSmall = least && greatest && *least >= -most && *greatest <= most;
    return isSmall ? make(x * value) : element;
  }
  if (!isIntegerConstant(*this, element->operands[1], value) || value <= 0)
    return element;
  if (element->name == "arith.floordivsi" ||
      (isPositive && (element->name == "arith.divsi" || element->name == "arith.divui")))
    return make(x.floorDiv(value));
  if (isPositive && (element->name == "arith.remsi" || element->name == "arith.remui"))
    return make(x % value);
  return element;
}

void TensorExprs::touch(Element *element) {
  SmallVector<Element *> work = {element};
  while (!work.empty()) {
    Element *next = resolve(work.pop_back_val());
    if (touched.insert(next).second)
      work.append(next->operands.begin(), next->operands.end());
  }
}

Element *TensorExprs::force(Element *element) {
  auto found = forced.find(element);
  if (found != forced.end())
    return found->second;
  Element *result = resolve(element);
  if (result->kind == Element::Kind::Op) {
    SmallVector<Element *> operands;
    bool changed = false;
    for (Element *operand : result->operands) {
      operands.push_back(force(operand));
      changed |= operands.back() != operand;
    }
    if (changed)
      result = makeOp(result->name, result->type, operands, result->op);
    result = fold(result);
  } else {
    result = nameSymbol(result);
  }
  return forced[element] = result;
}

std::optional<double> TensorExprs::getConstant(Element *element) { return getConstant(element, 0); }

std::optional<double> TensorExprs::getConstant(Element *element, unsigned depth) {
  element = resolve(element);
  if (auto number = dyn_cast_or_null<FloatAttr>(element->constant))
    return number.getValueAsDouble();
  if (element->kind == Element::Kind::Index) {
    auto constant = dyn_cast<AffineConstantExpr>(simplify(element->indices[0]));
    return constant ? std::optional<double>(constant.getValue()) : std::nullopt;
  }
  if (element->kind != Element::Kind::Op || depth > 16)
    return std::nullopt;
  SmallVector<double, 2> x;
  for (Element *operand : element->operands) {
    auto number = getConstant(operand, depth + 1);
    if (!number)
      return std::nullopt;
    x.push_back(*number);
  }
  StringRef name = element->name;
  auto round = [&](std::optional<double> value) {
    return value && isa<FloatType>(element->type) ? roundTo(element->type, *value) : value;
  };
  if (x.size() == 1) {
    if (element->isFloatCast() || name == "arith.sitofp" || (name == "arith.uitofp" && x[0] >= 0) ||
        name == "arith.extsi" || name == "arith.index_cast")
      return round(x[0]);
    return round(llvm::StringSwitch<std::optional<double>>(name)
                     .Case("math.sqrt", std::sqrt(x[0]))
                     .Case("math.rsqrt", 1 / std::sqrt(x[0]))
                     .Case("math.exp", std::exp(x[0]))
                     .Case("math.log", std::log(x[0]))
                     .Case("arith.negf", -x[0])
                     .Default(std::nullopt));
  }
  if (x.size() != 2)
    return std::nullopt;
  return round(llvm::StringSwitch<std::optional<double>>(name)
                   .Case("arith.mulf", x[0] * x[1])
                   .Case("arith.divf", x[0] / x[1])
                   .Case("arith.addf", x[0] + x[1])
                   .Case("arith.subf", x[0] - x[1])
                   .Case("math.powf", std::pow(x[0], x[1]))
                   .Default(std::nullopt));
}

/// Whether the op that defines `a` comes after the op that defines `b`.
static bool isMadeLater(Element *a, Element *b) {
  Operation *x = a->value.getDefiningOp(), *y = b->value.getDefiningOp();
  return x && (!y || (x->getBlock() == y->getBlock() && y->isBeforeInBlock(x)));
}

bool TensorExprs::areEqual(Element *a, Element *b) {
  while (a->isFloatCast())
    a = a->operands[0];
  while (b->isFloatCast())
    b = b->operands[0];
  if (a == b || equal.contains({a, b}))
    return true;
  auto sameIndices = [&] {
    return llvm::all_of(llvm::zip(a->indices, b->indices), [&](auto pair) {
      return simplify(std::get<0>(pair) - std::get<1>(pair)) == getAffineConstantExpr(0, context);
    });
  };
  bool same = false;
  if (a->kind == Element::Kind::Load || b->kind == Element::Kind::Load) {
    if (a->kind == b->kind && a->value == b->value && sameIndices())
      return true;
    bool first = a->kind == Element::Kind::Load &&
                 (b->kind != Element::Kind::Load || !isMadeLater(b, a) || a->value == b->value);
    bool both = a->kind == b->kind && a->value == b->value;
    Element *x = first ? expand(a) : nullptr, *y = !first || both ? expand(b) : nullptr;
    // If one element cannot be expanded, the other element may be.
    if (!both && first && !x && b->kind == Element::Kind::Load)
      y = expand(b);
    if (!both && !first && !y && a->kind == Element::Kind::Load)
      x = expand(a);
    same = (x || y) && (!both || (x && y)) && areEqual(x ? x : a, y ? y : b);
  } else if (a->kind != b->kind || a->name != b->name) {
    return false;
  } else if (a->kind == Element::Kind::Reduce) {
    same = a->value == b->value && sameIndices();
    SmallVector<int64_t> sizes = getReducedSizes(a);
    if (!same && sizes == getReducedSizes(b)) {
      SmallVector<AffineExpr> loops;
      for (int64_t size : sizes)
        loops.push_back(makeVariable(size));
      Element *x = getReduced(a, loops), *y = getReduced(b, loops);
      same = x && y && areEqual(x, y);
    }
  } else if (a->kind == Element::Kind::Index) {
    same = sameIndices();
  } else if (a->kind == Element::Kind::Op) {
    // Integers of another type wrap elsewhere.
    same = (isa<FloatType>(a->type) || a->type == b->type) &&
           a->operands.size() == b->operands.size() &&
           (a->op ? a->op->getAttrDictionary() : DictionaryAttr()) ==
               (b->op ? b->op->getAttrDictionary() : DictionaryAttr()) &&
           llvm::all_of(llvm::zip(a->operands, b->operands),
                        [&](auto pair) { return areEqual(std::get<0>(pair), std::get<1>(pair)); });
  } else {
    same = a->value == b->value && a->constant == b->constant;
  }
  if (same)
    equal.insert({a, b});
  return same;
}

bool TensorExprs::dependsOn(Element *element, ArrayRef<AffineExpr> variables) {
  SmallVector<Element *> work = {element};
  llvm::SmallPtrSet<Element *, 16> seen;
  while (!work.empty()) {
    Element *next = work.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    if (next->kind == Element::Kind::Op) {
      work.append(next->operands.begin(), next->operands.end());
      continue;
    }
    // Collected each time, because expansion may have split variables.
    llvm::SmallSetVector<unsigned, 8> asked, present;
    for (AffineExpr variable : variables)
      collectVariables(variable, asked);
    for (AffineExpr index : next->indices)
      collectVariables(index, present);
    if (llvm::none_of(present, [&](unsigned variable) { return asked.contains(variable); }))
      continue;
    Element *inside = expand(next);
    if (!inside)
      return true;
    work.push_back(inside);
  }
  return false;
}
