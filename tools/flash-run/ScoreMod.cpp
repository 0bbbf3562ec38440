//===- ScoreMod.cpp -------------------------------------------------------===//

#include "ScoreMod.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::flashattn;

// Lists and tables.
// clang-format off

namespace {
enum Kind : int {
  Unknown, Constant, Tensor, Load, Copy, IntToFloat, FloatToInt, Select, CmpF, CmpI,
  AddF, SubF, MulF, DivF, RemF, NegF, Max, Min, Fma, AbsF, Exp, Exp2, ExpM1, Log, Log2, Log1P,
  Tanh, Sin, Cos, Sqrt, RSqrt, Pow, Erf, Floor, Ceil,
  AddI, SubI, MulI, DivSI, DivUI, RemSI, RemUI, FloorDivSI, CeilDivSI, AndI, OrI, XOrI, ShLI,
  ShRSI, ShRUI, MaxSI, MinSI, MaxUI, MinUI, AbsI,
};
} // namespace

struct ScoreMod::Slot {
  double f = 0;
  int64_t i = 0;
  double slope = 0; ///< derivative of a float with respect to the score
};

static Kind getKind(StringRef name) {
  return llvm::StringSwitch<Kind>(name)
      .Case("arith.constant", Constant)
      .Cases({"tensor.extract", "memref.load"}, Load)
      .Cases({"arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui",
              "arith.trunci", "arith.extf", "arith.truncf"},
             Copy)
      .Cases({"arith.sitofp", "arith.uitofp"}, IntToFloat)
      .Cases({"arith.fptosi", "arith.fptoui"}, FloatToInt)
      .Case("arith.select", Select)
      .Case("arith.cmpf", CmpF)
      .Case("arith.cmpi", CmpI)
      .Case("arith.addf", AddF)
      .Case("arith.subf", SubF)
      .Case("arith.mulf", MulF)
      .Case("arith.divf", DivF)
      .Case("arith.remf", RemF)
      .Case("arith.negf", NegF)
      .Cases({"arith.maximumf", "arith.maxnumf"}, Max)
      .Cases({"arith.minimumf", "arith.minnumf"}, Min)
      .Case("math.fma", Fma)
      .Case("math.absf", AbsF)
      .Case("math.exp", Exp)
      .Case("math.exp2", Exp2)
      .Case("math.expm1", ExpM1)
      .Case("math.log", Log)
      .Case("math.log2", Log2)
      .Case("math.log1p", Log1P)
      .Case("math.tanh", Tanh)
      .Case("math.sin", Sin)
      .Case("math.cos", Cos)
      .Case("math.sqrt", Sqrt)
      .Case("math.rsqrt", RSqrt)
      .Case("math.powf", Pow)
      .Case("math.erf", Erf)
      .Case("math.floor", Floor)
      .Case("math.ceil", Ceil)
      .Case("arith.addi", AddI)
      .Case("arith.subi", SubI)
      .Case("arith.muli", MulI)
      .Case("arith.divsi", DivSI)
      .Case("arith.divui", DivUI)
      .Case("arith.remsi", RemSI)
      .Case("arith.remui", RemUI)
      .Case("arith.floordivsi", FloorDivSI)
      .Case("arith.ceildivsi", CeilDivSI)
      .Case("arith.andi", AndI)
      .Case("arith.ori", OrI)
      .Case("arith.xori", XOrI)
      .Case("arith.shli", ShLI)
      .Case("arith.shrsi", ShRSI)
      .Case("arith.shrui", ShRUI)
      .Case("arith.maxsi", MaxSI)
      .Case("arith.minsi", MinSI)
      .Case("arith.maxui", MaxUI)
      .Case("arith.minui", MinUI)
      .Case("math.absi", AbsI)
      .Default(Unknown);
}

llvm::Expected<ScoreMod> ScoreMod::create(Region &region) {
  ScoreMod mod;
  DenseMap<Value, unsigned> numbers;
  Block &body = region.front();
  unsigned numArguments = body.getNumArguments();
  for (BlockArgument argument : body.getArguments())
    numbers[argument] = argument.getArgNumber();
  auto setConstant = [](Step &step, Attribute value) {
    step.kind = Constant;
    if (auto real = dyn_cast<FloatAttr>(value))
      step.constant = real.getValueAsDouble();
    else if (auto integer = dyn_cast<IntegerAttr>(value))
      step.integer = integer.getType().isInteger(1) ? integer.getValue().getZExtValue()
                                                    : integer.getValue().getSExtValue();
  };
  auto getNumber = [&](Value value) -> llvm::Expected<unsigned> {
    if (auto found = numbers.find(value); found != numbers.end())
      return found->second;
    Step &step = mod.steps.emplace_back();
    step.kind = Constant;
    Attribute constant;
    if (auto type = dyn_cast<ShapedType>(value.getType())) {
      if (!getScalar(type.getElementType()))
        return llvm::createStringError(
            llvm::formatv("the reference does not know elements of {0} in score_mod",
                          type.getElementType())
                .str());
      step.kind = Tensor;
      mod.captured.push_back(value);
      mod.capturedSteps.push_back(mod.steps.size() - 1);
    } else if (matchPattern(value, m_Constant(&constant))) {
      setConstant(step, constant);
    } else {
      mod.captured.push_back(value);
      mod.capturedSteps.push_back(mod.steps.size() - 1);
    }
    return numbers[value] = numArguments + mod.steps.size() - 1;
  };
  for (Operation &op : body) {
    Step step;
    for (Value operand : op.getOperands()) {
      llvm::Expected<unsigned> number = getNumber(operand);
      if (!number)
        return number.takeError();
      step.operands.push_back(*number);
    }
    if (&op == body.getTerminator()) {
      mod.result = step.operands.front();
      break;
    }
    step.kind = getKind(op.getName().getStringRef());
    if (step.kind == Unknown)
      return llvm::createStringError("the reference does not know '" +
                                     op.getName().getStringRef() + "' in score_mod");
    if (auto type = dyn_cast<IntegerType>(op.getResult(0).getType()))
      step.bits = type.getWidth();
    if (auto constant = dyn_cast<arith::ConstantOp>(op))
      setConstant(step, constant.getValue());
    if (auto compare = dyn_cast<arith::CmpFOp>(op))
      step.predicate = int64_t(compare.getPredicate());
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      step.predicate = int64_t(compare.getPredicate());
    mod.steps.push_back(step);
    numbers[op.getResult(0)] = numArguments + mod.steps.size() - 1;
  }
  return mod;
}

void ScoreMod::setCaptured(unsigned index, double real, int64_t integer) {
  steps[capturedSteps[index]].constant = real;
  steps[capturedSteps[index]].integer = integer;
}

void ScoreMod::setCaptured(unsigned index, const HostTensor &tensor) {
  steps[capturedSteps[index]].tensor = &tensor;
}

static bool compare(arith::CmpFPredicate predicate, double x, double y) {
  bool unordered = std::isnan(x) || std::isnan(y);
  switch (predicate) {
  case arith::CmpFPredicate::AlwaysFalse: return false;
  case arith::CmpFPredicate::OEQ: return !unordered && x == y;
  case arith::CmpFPredicate::OGT: return !unordered && x > y;
  case arith::CmpFPredicate::OGE: return !unordered && x >= y;
  case arith::CmpFPredicate::OLT: return !unordered && x < y;
  case arith::CmpFPredicate::OLE: return !unordered && x <= y;
  case arith::CmpFPredicate::ONE: return !unordered && x != y;
  case arith::CmpFPredicate::ORD: return !unordered;
  case arith::CmpFPredicate::UEQ: return unordered || x == y;
  case arith::CmpFPredicate::UGT: return unordered || x > y;
  case arith::CmpFPredicate::UGE: return unordered || x >= y;
  case arith::CmpFPredicate::ULT: return unordered || x < y;
  case arith::CmpFPredicate::ULE: return unordered || x <= y;
  case arith::CmpFPredicate::UNE: return unordered || x != y;
  case arith::CmpFPredicate::UNO: return unordered;
  case arith::CmpFPredicate::AlwaysTrue: return true;
  }
  llvm_unreachable("unknown predicate");
}

static bool compare(arith::CmpIPredicate predicate, int64_t x, int64_t y) {
  uint64_t a = x, b = y;
  switch (predicate) {
  case arith::CmpIPredicate::eq: return x == y;
  case arith::CmpIPredicate::ne: return x != y;
  case arith::CmpIPredicate::slt: return x < y;
  case arith::CmpIPredicate::sle: return x <= y;
  case arith::CmpIPredicate::sgt: return x > y;
  case arith::CmpIPredicate::sge: return x >= y;
  case arith::CmpIPredicate::ult: return a < b;
  case arith::CmpIPredicate::ule: return a <= b;
  case arith::CmpIPredicate::ugt: return a > b;
  case arith::CmpIPredicate::uge: return a >= b;
  }
  llvm_unreachable("unknown predicate");
}

ScoreMod::Slot ScoreMod::load(const Step &step, ArrayRef<Slot> slots) const {
  constexpr unsigned kArguments = 5;
  const HostTensor *tensor = steps[step.operands.front() - kArguments].tensor;
  int64_t element = 0;
  for (auto [number, size] :
       llvm::zip_equal(ArrayRef(step.operands).drop_front(), tensor->getShape())) {
    int64_t index = slots[number].i;
    // A10: the caller keeps the indices in range.
    if (index < 0 || index >= size)
      return {std::numeric_limits<double>::quiet_NaN(), 0, 0};
    element = element * size + index;
  }
  double value = tensor->get(element);
  return {value, isFloat(tensor->getScalar()) ? 0 : int64_t(value), 0};
}

template <typename T>
T ScoreMod::getSlope(const Step &step, ArrayRef<Slot> slots, T value) {
  auto f = [&](unsigned i) { return T(slots[step.operands[i]].f); };
  auto d = [&](unsigned i) { return T(slots[step.operands[i]].slope); };
  // The slope is 0 if no operand depends on the score, even if a factor such as 1 / f(0) is
  // infinite.
  if (llvm::all_of(step.operands, [&](unsigned i) { return slots[i].slope == 0; }))
    return 0;
  constexpr double kLn2 = 0.693147180559945309417, kTwoBySqrtPi = 1.12837916709551257390;
  switch (step.kind) {
  case Copy: return d(0);
  case AddF: return d(0) + d(1);
  case SubF: return d(0) - d(1);
  case MulF: return d(0) * f(1) + f(0) * d(1);
  case DivF: return (d(0) - value * d(1)) / f(1);
  case RemF: return d(0) - std::trunc(f(0) / f(1)) * d(1);
  case NegF: return -d(0);
  case Max: return f(0) >= f(1) || std::isnan(f(1)) ? d(0) : d(1);
  case Min: return f(0) <= f(1) || std::isnan(f(1)) ? d(0) : d(1);
  case Fma: return d(0) * f(1) + f(0) * d(1) + d(2);
  case AbsF: return f(0) < 0 ? -d(0) : d(0);
  case Exp: return value * d(0);
  case Exp2: return value * T(kLn2) * d(0);
  case ExpM1: return std::exp(f(0)) * d(0);
  case Log: return d(0) / f(0);
  case Log2: return d(0) / (f(0) * T(kLn2));
  case Log1P: return d(0) / (1 + f(0));
  case Tanh: return (1 - value * value) * d(0);
  case Sin: return std::cos(f(0)) * d(0);
  case Cos: return -std::sin(f(0)) * d(0);
  case Sqrt: return d(0) / (2 * value);
  case RSqrt: return -value / (2 * f(0)) * d(0);
  case Pow: {
    // With a constant exponent, the base may be negative, which has no logarithm.
    T slope = d(0) == 0 ? 0 : f(1) * std::pow(f(0), f(1) - 1) * d(0);
    return d(1) == 0 ? slope : slope + value * std::log(f(0)) * d(1);
  }
  case Erf: return T(kTwoBySqrtPi) * std::exp(-f(0) * f(0)) * d(0);
  default: return 0; // step functions, and ops with integer results
  }
}

template <typename T, bool WithSlopes>
ScoreMod::Slot ScoreMod::run(T score, int64_t b, int64_t h, int64_t p, int64_t k) const {
  SmallVector<Slot, 32> slots = {{double(score), 0, 1}, {0, b}, {0, h}, {0, p}, {0, k}};
  slots.reserve(slots.size() + steps.size());
  for (const Step &step : steps) {
    auto f = [&](unsigned i) { return T(slots[step.operands[i]].f); };
    auto n = [&](unsigned i) { return slots[step.operands[i]].i; };
    auto u = [&](unsigned i) { return uint64_t(n(i)); };
    Slot slot;
    switch (step.kind) {
    case Constant: slot = {double(T(step.constant)), step.integer, 0}; break;
    case Load: slot = load(step, slots); break;
    case Copy: slot = slots[step.operands[0]]; break;
    case IntToFloat: slot.f = T(n(0)); break;
    case FloatToInt: slot.i = int64_t(f(0)); break;
    case Select: slot = slots[step.operands[n(0) ? 1 : 2]]; break;
    case CmpF: slot.i = compare(arith::CmpFPredicate(step.predicate), f(0), f(1)); break;
    case CmpI: slot.i = compare(arith::CmpIPredicate(step.predicate), n(0), n(1)); break;
    case AddF: slot.f = f(0) + f(1); break;
    case SubF: slot.f = f(0) - f(1); break;
    case MulF: slot.f = f(0) * f(1); break;
    case DivF: slot.f = f(0) / f(1); break;
    case RemF: slot.f = std::fmod(f(0), f(1)); break;
    case NegF: slot.f = -f(0); break;
    case Max: slot.f = std::fmax(f(0), f(1)); break;
    case Min: slot.f = std::fmin(f(0), f(1)); break;
    case Fma: slot.f = f(0) * f(1) + f(2); break;
    case AbsF: slot.f = std::abs(f(0)); break;
    case Exp: slot.f = std::exp(f(0)); break;
    case Exp2: slot.f = std::exp2(f(0)); break;
    case ExpM1: slot.f = std::expm1(f(0)); break;
    case Log: slot.f = std::log(f(0)); break;
    case Log2: slot.f = std::log2(f(0)); break;
    case Log1P: slot.f = std::log1p(f(0)); break;
    case Tanh: slot.f = std::tanh(f(0)); break;
    case Sin: slot.f = std::sin(f(0)); break;
    case Cos: slot.f = std::cos(f(0)); break;
    case Sqrt: slot.f = std::sqrt(f(0)); break;
    case RSqrt: slot.f = T(1) / std::sqrt(f(0)); break;
    case Pow: slot.f = std::pow(f(0), f(1)); break;
    case Erf: slot.f = std::erf(f(0)); break;
    case Floor: slot.f = std::floor(f(0)); break;
    case Ceil: slot.f = std::ceil(f(0)); break;
    case AddI: slot.i = u(0) + u(1); break;
    case SubI: slot.i = u(0) - u(1); break;
    case MulI: slot.i = u(0) * u(1); break;
    case DivSI: slot.i = n(1) ? n(0) / n(1) : 0; break;
    case DivUI: slot.i = n(1) ? u(0) / u(1) : 0; break;
    case RemSI: slot.i = n(1) ? n(0) % n(1) : 0; break;
    case RemUI: slot.i = n(1) ? u(0) % u(1) : 0; break;
    case FloorDivSI: slot.i = n(1) ? llvm::divideFloorSigned(n(0), n(1)) : 0; break;
    case CeilDivSI: slot.i = n(1) ? llvm::divideCeilSigned(n(0), n(1)) : 0; break;
    case AndI: slot.i = n(0) & n(1); break;
    case OrI: slot.i = n(0) | n(1); break;
    case XOrI: slot.i = n(0) ^ n(1); break;
    case ShLI: slot.i = u(0) << (n(1) & 63); break;
    case ShRSI: slot.i = n(0) >> (n(1) & 63); break;
    case ShRUI: slot.i = u(0) >> (n(1) & 63); break;
    case MaxSI: slot.i = std::max(n(0), n(1)); break;
    case MinSI: slot.i = std::min(n(0), n(1)); break;
    case MaxUI: slot.i = std::max(u(0), u(1)); break;
    case MinUI: slot.i = std::min(u(0), u(1)); break;
    case AbsI: slot.i = std::abs(n(0)); break;
    }
    if (step.bits == 1)
      slot.i &= 1;
    else if (step.bits < 64)
      slot.i = llvm::SignExtend64(slot.i, step.bits);
    // The slope of a select is that of the chosen operand.
    if (WithSlopes && step.kind != Select)
      slot.slope = getSlope<T>(step, slots, slot.f);
    slots.push_back(slot);
  }
  return slots[result];
}

template <typename T>
T ScoreMod::evaluate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const {
  return run<T, false>(score, b, h, p, k).f;
}

template <typename T>
std::pair<T, T> ScoreMod::differentiate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const {
  Slot slot = run<T, true>(score, b, h, p, k);
  return {slot.f, slot.slope};
}

template float ScoreMod::evaluate(float, int64_t, int64_t, int64_t, int64_t) const;
template double ScoreMod::evaluate(double, int64_t, int64_t, int64_t, int64_t) const;
template std::pair<float, float> ScoreMod::differentiate(float, int64_t, int64_t, int64_t,
                                                         int64_t) const;
template std::pair<double, double> ScoreMod::differentiate(double, int64_t, int64_t, int64_t,
                                                           int64_t) const;
