//===- Exp2.h - 2^x on vectors of f32 ---------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H

#include "mlir/IR/Builders.h"

namespace mlir::flashattn::cpu {

/// Builds 2^x for a vector of f32, without a call. The relative error of normal results is below
/// 2e-7. The result is exactly 0 below -126 and at -inf, +inf from 128 on, and NaN for NaN.
Value buildExp2(OpBuilder &b, Location loc, Value x);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_EXP2_H
