//===- Exp2.cpp -----------------------------------------------------------===//

#include "Exp2.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

/// 2^x = 2^n p(f), where n = round(x) and f = x - n in [-1/2, 1/2]. Multiplying by 2^n adds n to
/// the exponent bits of p(f).
Value mlir::flashattn::cpu::buildExp2(OpBuilder &b, Location loc, Value x) {
  auto type = cast<VectorType>(x.getType());
  auto intType = cast<VectorType>(type.clone(b.getI32Type()));
  auto real = [&](double value) -> Value {
    return arith::ConstantOp::create(b, loc,
                                     DenseElementsAttr::get(type, static_cast<float>(value)));
  };
  auto integer = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(intType, value));
  };
  auto choose = [&](arith::CmpFPredicate p, Value lhs, Value rhs, Value then,
                    Value otherwise) -> Value {
    Value cond = arith::CmpFOp::create(b, loc, p, lhs, rhs);
    return arith::SelectOp::create(b, loc, cond, then, otherwise);
  };

  // At 128, f = 0 and the exponent bits become those of +inf. NaN is unchanged.
  Value limit = real(128);
  Value clamped = choose(arith::CmpFPredicate::OLT, limit, x, limit, x);
  // At 1.5 * 2^23 the last mantissa bit has the value 1, so adding it rounds to an integer and
  // leaves that integer in the low bits. A conversion to an integer would lose NaN.
  Value magic = real(12582912.0);
  Value shifted = arith::AddFOp::create(b, loc, clamped, magic);
  Value f = arith::SubFOp::create(b, loc, clamped, arith::SubFOp::create(b, loc, shifted, magic));

  // Minimax polynomial for the relative error (2e-9) on [-1/2, 1/2], with p(0) = 1.
  constexpr double coefficients[] = {0.0001535335914,
                                     0.001339887544,
                                     0.009618437377,
                                     0.05550332468,
                                     0.2402264791,
                                     0.6931472029,
                                     1.0};
  Value p = real(coefficients[0]);
  for (double c : llvm::drop_begin(coefficients))
    p = vector::FMAOp::create(b, loc, p, f, real(c));

  Value n = arith::BitcastOp::create(b, loc, intType, shifted);
  Value exponent = arith::ShLIOp::create(b, loc, n, integer(23));
  Value bits =
      arith::AddIOp::create(b, loc, arith::BitcastOp::create(b, loc, intType, p), exponent);
  Value scaled = arith::BitcastOp::create(b, loc, type, bits);

  // Below -126 the bits are wrong. The result is 0, or NaN for NaN.
  Value zero = real(0);
  Value zeroOrNaN = choose(arith::CmpFPredicate::OGT, zero, x, zero, x);
  return choose(arith::CmpFPredicate::OGE, x, real(-126), scaled, zeroOrNaN);
}
