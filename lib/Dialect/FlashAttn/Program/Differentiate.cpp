//===- Differentiate.cpp --------------------------------------------------===//
//
// Forward-mode differentiation: a score modification has a single active input, so that each value
// has one tangent and no value is saved for later.
//
//===----------------------------------------------------------------------===//

#include "Differentiate.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

namespace {

/// Builds the tangent of one op from its operands x, y, z, their tangents, and its result r.
struct Rules {
  OpBuilder &b;
  Operation *op;
  ArrayRef<Value> tangents;

  Value operand(unsigned i) const { return op->getOperand(i); }
  Value r() const { return op->getResult(0); }
  Value tangent(unsigned i) const { return tangents[i]; }

  template <typename Op, typename... Args> Value make(Args... args) const {
    return b.createOrFold<Op>(op->getLoc(), args...);
  }
  Value constant(double value) const {
    Type type = r().getType();
    TypedAttr attr = b.getFloatAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = DenseElementsAttr::get(vector, Attribute(attr));
    return make<arith::ConstantOp>(attr);
  }
  Value add(Value x, Value y) const { return !x ? y : !y ? x : make<arith::AddFOp>(x, y); }
  Value mul(Value x, Value y) const { return x && y ? make<arith::MulFOp>(x, y) : Value(); }
  Value mul(Value x, double y) const { return mul(x, constant(y)); }
  Value div(Value x, Value y) const { return x ? make<arith::DivFOp>(x, y) : Value(); }
  Value neg(Value x) const { return x ? make<arith::NegFOp>(x) : Value(); }
  Value orZero(Value x) const { return x ? x : constant(0); }
  Value select(Value condition, Value x, Value y) const {
    return make<arith::SelectOp>(condition, x, y);
  }
  Value compare(arith::CmpFPredicate predicate, Value x, Value y) const {
    return make<arith::CmpFOp>(predicate, x, y);
  }
  /// Returns the first tangent if x >= y, and otherwise the second.
  Value ofLarger(Value x, Value y) const {
    return select(compare(arith::CmpFPredicate::OGE, x, y), orZero(tangent(0)), orZero(tangent(1)));
  }
  /// x' / (1 + sign x^2)
  Value overOnePlusSquare(double sign) const {
    Value x = operand(0);
    return div(tangent(0), add(constant(1), mul(mul(x, x), sign)));
  }
  /// factor x' / sqrt(signOfOne + signOfSquare x^2)
  Value overRoot(double signOfOne, double signOfSquare, double factor) const {
    Value x = operand(0);
    Value root = make<math::SqrtOp>(add(constant(signOfOne), mul(mul(x, x), signOfSquare)));
    return div(mul(tangent(0), factor), root);
  }

  std::optional<Value> arithmetic() const;
  std::optional<Value> powers() const;
  std::optional<Value> trigonometry() const;
};

} // namespace

std::optional<Value> Rules::arithmetic() const {
  using Result = std::optional<Value>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](arith::AddFOp) { return add(tangent(0), tangent(1)); })
      .Case([&](arith::SubFOp) { return add(tangent(0), neg(tangent(1))); })
      .Case([&](arith::MulFOp) {
        return add(mul(tangent(0), operand(1)), mul(operand(0), tangent(1)));
      })
      .Case([&](arith::DivFOp) {
        return div(add(tangent(0), neg(mul(r(), tangent(1)))), operand(1));
      })
      .Case([&](arith::NegFOp) { return neg(tangent(0)); })
      .Case([&](math::FmaOp) {
        return add(add(mul(tangent(0), operand(1)), mul(operand(0), tangent(1))), tangent(2));
      })
      .Case<arith::MaximumFOp, arith::MaxNumFOp>(
          [&](Operation *) { return ofLarger(operand(0), operand(1)); })
      .Case<arith::MinimumFOp, arith::MinNumFOp>(
          [&](Operation *) { return ofLarger(operand(1), operand(0)); })
      .Case([&](arith::SelectOp) {
        return select(operand(0), orZero(tangent(1)), orZero(tangent(2)));
      })
      .Case([&](arith::ExtFOp) { return make<arith::ExtFOp>(r().getType(), tangent(0)); })
      .Case([&](arith::TruncFOp) { return make<arith::TruncFOp>(r().getType(), tangent(0)); })
      .Case([&](math::AbsFOp) {
        Value zero = constant(0), x = operand(0), dx = tangent(0);
        return select(compare(arith::CmpFPredicate::OGT, x, zero), dx,
                      select(compare(arith::CmpFPredicate::OLT, x, zero), neg(dx), zero));
      })
      .Case<math::CeilOp, math::FloorOp, math::RoundOp, math::RoundEvenOp, math::TruncOp>(
          [&](Operation *) { return Value(); })
      .Default([](Operation *) { return Result(); });
}

std::optional<Value> Rules::powers() const {
  using Result = std::optional<Value>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](math::SqrtOp) { return div(mul(tangent(0), 0.5), r()); })
      .Case([&](math::RsqrtOp) { return mul(mul(mul(r(), r()), r()), mul(tangent(0), -0.5)); })
      .Case([&](math::CbrtOp) { return div(tangent(0), mul(mul(r(), r()), 3)); })
      .Case([&](math::ExpOp) { return mul(tangent(0), r()); })
      .Case([&](math::Exp2Op) { return mul(mul(tangent(0), r()), M_LN2); })
      .Case([&](math::ExpM1Op) { return mul(tangent(0), add(r(), constant(1))); })
      .Case([&](math::LogOp) { return div(tangent(0), operand(0)); })
      .Case([&](math::Log2Op) { return div(mul(tangent(0), M_LOG2E), operand(0)); })
      .Case([&](math::Log10Op) { return div(mul(tangent(0), M_LOG10E), operand(0)); })
      .Case([&](math::Log1pOp) { return div(tangent(0), add(operand(0), constant(1))); })
      .Case([&](math::PowFOp) {
        // y x^(y-1) x' + ln(x) r y'
        Value x = operand(0), y = operand(1), ofBase, ofExponent;
        if (tangent(0))
          ofBase = mul(mul(y, make<math::PowFOp>(x, add(y, constant(-1)))), tangent(0));
        if (tangent(1))
          ofExponent = mul(mul(make<math::LogOp>(x), r()), tangent(1));
        return add(ofBase, ofExponent);
      })
      .Case([&](math::FPowIOp) {
        // n x^(n-1) x'
        Value n = operand(1);
        Type type = n.getType();
        TypedAttr one = b.getIntegerAttr(getElementTypeOrSelf(type), 1);
        if (auto vector = dyn_cast<VectorType>(type))
          one = DenseElementsAttr::get(vector, Attribute(one));
        Value less = make<arith::SubIOp>(n, make<arith::ConstantOp>(one));
        Value power = make<math::FPowIOp>(operand(0), less);
        return mul(mul(make<arith::SIToFPOp>(r().getType(), n), power), tangent(0));
      })
      .Case([&](math::ErfOp) {
        // 2 / sqrt(pi) exp(-x^2)
        Value bell = make<math::ExpOp>(neg(mul(operand(0), operand(0))));
        return mul(mul(tangent(0), bell), M_2_SQRTPI);
      })
      .Default([](Operation *) { return Result(); });
}

std::optional<Value> Rules::trigonometry() const {
  using Result = std::optional<Value>;
  // 1 + sign r^2
  auto ofSquare = [&](double sign) { return add(constant(1), mul(mul(r(), r()), sign)); };
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([&](math::SinOp) { return mul(tangent(0), make<math::CosOp>(operand(0))); })
      .Case([&](math::CosOp) { return neg(mul(tangent(0), make<math::SinOp>(operand(0)))); })
      .Case([&](math::TanOp) { return mul(tangent(0), ofSquare(1)); })
      .Case([&](math::SinhOp) { return mul(tangent(0), make<math::CoshOp>(operand(0))); })
      .Case([&](math::CoshOp) { return mul(tangent(0), make<math::SinhOp>(operand(0))); })
      .Case([&](math::TanhOp) { return mul(tangent(0), ofSquare(-1)); })
      .Case([&](math::AtanOp) { return overOnePlusSquare(1); })
      .Case([&](math::AtanhOp) { return overOnePlusSquare(-1); })
      .Case([&](math::AsinOp) { return overRoot(1, -1, 1); })
      .Case([&](math::AcosOp) { return overRoot(1, -1, -1); })
      .Case([&](math::AsinhOp) { return overRoot(1, 1, 1); })
      .Case([&](math::AcoshOp) { return overRoot(-1, 1, 1); })
      .Case([&](math::Atan2Op) {
        // (x y' - y x') / (x^2 + y^2) of atan2(y, x)
        Value y = operand(0), x = operand(1);
        return div(add(mul(x, tangent(0)), neg(mul(y, tangent(1)))), add(mul(x, x), mul(y, y)));
      })
      .Default([](Operation *) { return Result(); });
}

std::optional<Value> flashattn::buildTangent(OpBuilder &b, Operation *op,
                                             ArrayRef<Value> tangents) {
  bool isActive = llvm::any_of(tangents, [](Value tangent) { return bool(tangent); });
  if (!isActive)
    return Value();
  if (!isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType()))) {
    // Integers have no tangent, but the bits of a float may be converted back to a float.
    if (isa<arith::BitcastOp>(op))
      return std::nullopt;
    return Value();
  }
  Rules rules{b, op, tangents};
  for (auto rule : {&Rules::arithmetic, &Rules::powers, &Rules::trigonometry})
    if (std::optional<Value> tangent = (rules.*rule)())
      return tangent;
  return std::nullopt;
}
