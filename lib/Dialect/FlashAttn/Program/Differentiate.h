//===- Differentiate.h - derivatives of elementwise ops ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H

#include "mlir/IR/Builders.h"

#include <optional>

namespace mlir::flashattn {

/// What the result of `op`, an elementwise op of arith or math on scalars or vectors, changes by
/// where its operands change by `tangents`: of the operand's type each, or null where it does not
/// change. Null where the result does not change either, as no integer does; nothing where there is
/// no rule for the op, as for the bits of a number. At its kink `absf` has the mean of both sides,
/// and a maximum or minimum what its first operand has.
std::optional<Value> buildTangent(OpBuilder &b, Operation *op, ArrayRef<Value> tangents);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H
