//===- ElementEvaluator.cpp - evaluation of elements ----------------------===//

#include "ElementEvaluator.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

enum class ElementEvaluator::Code : uint8_t {
  // Leaves.
  Given,
  Constant,
  Index,
  Load,
  // Ops on integers. Unsigned ops read their operands as unsigned.
  AddI,
  SubI,
  MulI,
  DivSI,
  DivUI,
  FloorDivSI,
  RemSI,
  RemUI,
  AndI,
  OrI,
  XOrI,
  MinSI,
  MaxSI,
  MinUI,
  MaxUI,
  CmpI,
  Cast,
  CastUnsigned,
  // Ops on floats.
  AddF,
  SubF,
  MulF,
  DivF,
  NegF,
  AbsF,
  Minimum,
  Maximum,
  CmpF,
  Round,
  FromInteger,
  FromUnsigned,
  ToInteger,
  Select,
  Unknown
};

ElementEvaluator::Code ElementEvaluator::getCode(StringRef name) {
  return llvm::StringSwitch<Code>(name)
      .Case("arith.addi", Code::AddI)
      .Case("arith.subi", Code::SubI)
      .Case("arith.muli", Code::MulI)
      .Case("arith.divsi", Code::DivSI)
      .Case("arith.divui", Code::DivUI)
      .Case("arith.floordivsi", Code::FloorDivSI)
      .Case("arith.remsi", Code::RemSI)
      .Case("arith.remui", Code::RemUI)
      .Case("arith.andi", Code::AndI)
      .Case("arith.ori", Code::OrI)
      .Case("arith.xori", Code::XOrI)
      .Case("arith.minsi", Code::MinSI)
      .Case("arith.maxsi", Code::MaxSI)
      .Case("arith.minui", Code::MinUI)
      .Case("arith.maxui", Code::MaxUI)
      .Case("arith.cmpi", Code::CmpI)
      .Cases({"arith.extsi", "arith.trunci", "arith.index_cast"}, Code::Cast)
      .Cases({"arith.extui", "arith.index_castui"}, Code::CastUnsigned)
      .Case("arith.addf", Code::AddF)
      .Case("arith.subf", Code::SubF)
      .Case("arith.mulf", Code::MulF)
      .Case("arith.divf", Code::DivF)
      .Case("arith.negf", Code::NegF)
      .Case("math.absf", Code::AbsF)
      .Cases({"arith.minimumf", "arith.minnumf"}, Code::Minimum)
      .Cases({"arith.maximumf", "arith.maxnumf"}, Code::Maximum)
      .Case("arith.cmpf", Code::CmpF)
      .Cases({"arith.extf", "arith.truncf"}, Code::Round)
      .Case("arith.sitofp", Code::FromInteger)
      .Case("arith.uitofp", Code::FromUnsigned)
      .Case("arith.fptosi", Code::ToInteger)
      .Case("arith.select", Code::Select)
      .Default(Code::Unknown);
}

static unsigned getWidth(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

/// Truncates `value` to the bits of `type` and sign-extends the result.
static int64_t wrap(Type type, int64_t value) { return llvm::SignExtend64(value, getWidth(type)); }

static uint64_t dropSign(Type type, int64_t value) {
  return uint64_t(value) & llvm::maskTrailingOnes<uint64_t>(getWidth(type));
}

double mlir::flashattn::roundTo(Type type, double x) {
  if (type.isF64())
    return x;
  if (type.isF32())
    return float(x);
  llvm::APFloat number(x);
  bool losesInfo;
  number.convert(cast<FloatType>(type).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                 &losesInfo);
  return number.convertToDouble();
}

double mlir::flashattn::toDouble(Number number, Type type) {
  return isa<FloatType>(type) ? number.real : double(number.integer);
}

Number ElementEvaluator::compute(const Part &part, Number a, Number b, Number c) {
  auto integer = [&](uint64_t value) { return Number{wrap(part.type, int64_t(value))}; };
  auto real = [&](double value) {
    Number number;
    number.real = roundTo(part.type, value);
    return number;
  };
  uint64_t x = a.integer, y = b.integer;
  uint64_t unsignedA = 0, unsignedB = 0;
  if (!isa<FloatType>(part.source)) {
    unsignedA = dropSign(part.source, a.integer);
    unsignedB = dropSign(part.source, b.integer);
  }
  bool divides = b.integer != 0 && b.integer != -1;
  switch (part.code) {
  case Code::AddI:
    return integer(x + y);
  case Code::SubI:
    return integer(x - y);
  case Code::MulI:
    return integer(x * y);
  // Division by 0 is undefined. Division by -1 is `x * y`, which cannot trap.
  case Code::DivSI:
    return integer(divides ? a.integer / b.integer : x * y);
  case Code::FloorDivSI:
    return integer(divides ? llvm::divideFloorSigned(a.integer, b.integer) : x * y);
  case Code::RemSI:
    return integer(divides ? a.integer % b.integer : 0);
  case Code::DivUI:
    return integer(unsignedB ? unsignedA / unsignedB : 0);
  case Code::RemUI:
    return integer(unsignedB ? unsignedA % unsignedB : 0);
  case Code::AndI:
    return integer(x & y);
  case Code::OrI:
    return integer(x | y);
  case Code::XOrI:
    return integer(x ^ y);
  case Code::MinSI:
    return a.integer < b.integer ? a : b;
  case Code::MaxSI:
    return a.integer < b.integer ? b : a;
  case Code::MinUI:
    return unsignedA < unsignedB ? a : b;
  case Code::MaxUI:
    return unsignedA < unsignedB ? b : a;
  case Code::CmpI: {
    unsigned width = getWidth(part.source);
    return integer(arith::applyCmpPredicate(arith::CmpIPredicate(part.immediate),
                                            llvm::APInt(width, unsignedA),
                                            llvm::APInt(width, unsignedB)));
  }
  case Code::Cast:
    return integer(x);
  case Code::CastUnsigned:
    return integer(unsignedA);
  case Code::AddF:
    return real(a.real + b.real);
  case Code::SubF:
    return real(a.real - b.real);
  case Code::MulF:
    return real(a.real * b.real);
  case Code::DivF:
    return real(a.real / b.real);
  case Code::NegF:
    return real(-a.real);
  case Code::AbsF:
    return real(std::abs(a.real));
  case Code::Minimum:
    return real(std::fmin(a.real, b.real));
  case Code::Maximum:
    return real(std::fmax(a.real, b.real));
  case Code::CmpF:
    return integer(arith::applyCmpPredicate(arith::CmpFPredicate(part.immediate),
                                            llvm::APFloat(a.real), llvm::APFloat(b.real)));
  case Code::Round:
    return real(a.real);
  case Code::FromInteger:
    return real(double(a.integer));
  case Code::FromUnsigned:
    return real(double(unsignedA));
  case Code::ToInteger:
    return integer(int64_t(std::abs(a.real) < 0x1p62 ? a.real : 0));
  case Code::Select:
    return a.integer ? b : c;
  default:
    llvm_unreachable("expected an op that prepare took");
  }
}

std::vector<Number> mlir::flashattn::readNumbers(Attribute constant) {
  std::vector<Number> numbers;
  auto elements = dyn_cast<ElementsAttr>(constant);
  if (!elements || !elements.getElementType().isIntOrIndexOrFloat())
    return numbers;
  if (auto floats = dyn_cast<DenseFPElementsAttr>(constant)) {
    numbers.reserve(floats.getNumElements());
    for (const APFloat &value : floats.getValues<APFloat>()) {
      numbers.emplace_back();
      numbers.back().real = value.convertToDouble();
    }
    return numbers;
  }
  auto resource = dyn_cast<DenseResourceElementsAttr>(constant);
  auto type = dyn_cast<FloatType>(elements.getElementType());
  if (!resource || !type) {
    for (int64_t value : readIntegers(constant))
      numbers.push_back(Number{value});
    return numbers;
  }
  AsmResourceBlob *blob = resource.getRawHandle().getBlob();
  unsigned bytes = type.getWidth() / 8;
  if (!blob || blob->getData().size() != size_t(resource.getNumElements()) * bytes)
    return numbers;
  const auto *data = reinterpret_cast<const uint8_t *>(blob->getData().data());
  for (int64_t i = 0, e = resource.getNumElements(); i < e; ++i) {
    llvm::APInt bits(type.getWidth(), 0);
    llvm::LoadIntFromMemory(bits, data + i * bytes, bytes);
    numbers.emplace_back();
    numbers.back().real = llvm::APFloat(type.getFloatSemantics(), bits).convertToDouble();
  }
  return numbers;
}

bool ElementEvaluator::addConstants(TensorExprs &exprs, Element *load, Part &part) {
  Attribute constant;
  if (!matchPattern(load->value, m_Constant(&constant)))
    return false;
  part.code = Code::Load;
  part.numbers = readNumbers(constant);
  part.strides = computeStrides(cast<RankedTensorType>(load->value.getType()).getShape());
  for (AffineExpr index : load->indices)
    part.indices.push_back(exprs.simplify(index));
  return !part.numbers.empty();
}

static bool hasSymbol(AffineExpr expr) {
  bool found = false;
  expr.walk([&](AffineExpr part) { found |= isa<AffineSymbolExpr>(part); });
  return found;
}

std::optional<unsigned> ElementEvaluator::add(TensorExprs &exprs, Element *element) {
  constexpr unsigned mostParts = 256;
  if (auto found = known.find(element); found != known.end())
    return found->second;
  Part part;
  part.type = part.source = element->type;
  switch (element->kind) {
  case Element::Kind::Const: {
    part.code = Code::Constant;
    part.numbers.emplace_back();
    if (auto number = dyn_cast<FloatAttr>(element->constant))
      part.numbers[0].real = number.getValueAsDouble();
    else if (auto number = dyn_cast<IntegerAttr>(element->constant))
      part.numbers[0].integer = number.getValue().getSExtValue();
    else
      return std::nullopt;
    break;
  }
  case Element::Kind::Index:
    part.code = Code::Index;
    part.indices.push_back(exprs.simplify(element->indices[0]));
    break;
  case Element::Kind::Load:
    if (!addConstants(exprs, element, part))
      return std::nullopt;
    break;
  case Element::Kind::Op: {
    part.code = getCode(element->name);
    if (part.code == Code::Unknown || element->operands.empty() || element->operands.size() > 3)
      return std::nullopt;
    for (auto [i, operand] : llvm::enumerate(element->operands)) {
      std::optional<unsigned> number = add(exprs, operand);
      if (!number)
        return std::nullopt;
      part.operands[i] = *number;
    }
    part.source = element->operands[0]->type;
    if (auto compare = dyn_cast_or_null<arith::CmpIOp>(element->op))
      part.immediate = int64_t(compare.getPredicate());
    else if (auto compare = dyn_cast_or_null<arith::CmpFOp>(element->op))
      part.immediate = int64_t(compare.getPredicate());
    break;
  }
  default:
    return std::nullopt;
  }
  if (llvm::any_of(part.indices, hasSymbol) || parts.size() >= mostParts ||
      !(isa<FloatType>(part.type) || part.type.isIntOrIndex()) ||
      (!part.type.isIndex() && part.type.getIntOrFloatBitWidth() > 64))
    return std::nullopt;
  parts.push_back(std::move(part));
  return known[element] = parts.size() - 1;
}

bool ElementEvaluator::prepare(TensorExprs &exprs, Element *root, ArrayRef<Element *> given) {
  for (auto [i, element] : llvm::enumerate(given)) {
    parts.emplace_back();
    parts.back().code = Code::Given;
    parts.back().immediate = i;
    known[element] = parts.size() - 1;
  }
  if (!add(exprs, exprs.force(root)))
    return false;
  values.resize(parts.size());
  return true;
}

static int64_t evaluate(AffineExpr expr, ArrayRef<int64_t> variables) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return variables[dim.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t a = evaluate(binary.getLHS(), variables), b = evaluate(binary.getRHS(), variables);
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return a + b;
  case AffineExprKind::Mul:
    return a * b;
  case AffineExprKind::Mod:
    return llvm::mod(a, b);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(a, b);
  default:
    return llvm::divideCeilSigned(a, b);
  }
}

Number ElementEvaluator::run(ArrayRef<int64_t> variables, ArrayRef<Number> given) {
  for (auto [part, value] : llvm::zip_equal(parts, values)) {
    switch (part.code) {
    case Code::Given:
      value = given[part.immediate];
      break;
    case Code::Constant:
      value = part.numbers[0];
      break;
    case Code::Index:
      value.integer = evaluate(part.indices[0], variables);
      break;
    case Code::Load: {
      int64_t at = 0;
      for (auto [index, stride] : llvm::zip_equal(part.indices, part.strides))
        at += evaluate(index, variables) * stride;
      value = size_t(at) < part.numbers.size() ? part.numbers[at] : Number{0};
      break;
    }
    default:
      value = compute(part, values[part.operands[0]], values[part.operands[1]],
                      values[part.operands[2]]);
    }
  }
  return values.back();
}

/// Returns the at most two values in a constant tensor; nullopt if there are more.
static std::optional<std::array<double, 2>> findTwoValues(Element *load) {
  Attribute constant;
  if (!matchPattern(load->value, m_Constant(&constant)))
    return std::nullopt;
  std::vector<Number> numbers = readNumbers(constant);
  if (numbers.empty())
    return std::nullopt;
  double first = toDouble(numbers[0], load->type), second = first;
  for (Number number : numbers) {
    double value = toDouble(number, load->type);
    if (value != first && second == first)
      second = value;
    if (value != first && value != second)
      return std::nullopt;
  }
  return std::array<double, 2>{first, second};
}

std::optional<ValueTable> mlir::flashattn::tabulate(TensorExprs &exprs, Element *element) {
  constexpr unsigned mostLeaves = 4;
  ValueTable table;
  Element *root = exprs.force(element);
  SmallVector<Element *> work = {root};
  SmallVector<Element *, 4> leaves;
  llvm::SmallPtrSet<Element *, 16> seen;
  while (!work.empty()) {
    Element *part = work.pop_back_val();
    if (!seen.insert(part).second || part->kind == Element::Kind::Const)
      continue;
    bool isBool = part->type.isInteger(1) && part != root;
    if (part->kind == Element::Kind::Index) {
      if (!isa<AffineConstantExpr>(exprs.simplify(part->indices[0])))
        return std::nullopt;
      continue;
    }
    if (part->kind == Element::Kind::Op && !isBool) {
      llvm::append_range(work, part->operands);
      continue;
    }
    std::optional<std::array<double, 2>> values;
    if (isBool)
      values = {0, 1};
    else if (part->kind == Element::Kind::Load)
      values = findTwoValues(part);
    if (!values || leaves.size() == mostLeaves)
      return std::nullopt;
    leaves.push_back(part);
    table.leaves.push_back({part, *values});
  }
  ElementEvaluator evaluator;
  if (!evaluator.prepare(exprs, root, leaves))
    return std::nullopt;
  for (unsigned choice = 0; choice < 1u << leaves.size(); ++choice) {
    SmallVector<Number, 4> given(leaves.size());
    for (auto [i, leaf] : llvm::enumerate(table.leaves)) {
      double value = leaf.values[choice >> i & 1];
      if (isa<FloatType>(leaf.element->type))
        given[i].real = value;
      else
        given[i].integer = wrap(leaf.element->type, int64_t(value));
    }
    table.values.push_back(toDouble(evaluator.run({}, given), root->type));
  }
  return table;
}
