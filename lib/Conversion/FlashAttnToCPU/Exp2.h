//===- Exp2.h - 2^x on vectors of f32 ----------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H

#include "mlir/IR/Builders.h"

namespace mlir::flashattn::cpu {

/// 2^x for x a vector of f32, without a call: relative error below 2e-7 where the result
/// is a normal number; below -126, and at -inf, exactly 0; 128 and above, +inf; NaN is NaN.
Value buildExp2(OpBuilder &b, Location loc, Value x);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H
