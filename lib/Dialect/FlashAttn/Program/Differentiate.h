//===- Differentiate.h - derivatives of elementwise ops ---------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H

#include "mlir/IR/Builders.h"

#include <optional>

namespace mlir::flashattn {

/// Returns the tangent of the result of `op`, an elementwise op of arith or math on scalars or
/// vectors, for the `tangents` of its operands. A tangent has the type of its value, or is null if
/// the value does not change, which is the case for every integer. Returns nullopt if there is no
/// rule for the op, as for a bitcast of a float. At 0, `absf` has the mean of both one-sided
/// derivatives. A maximum or minimum of equal operands has the tangent of the first.
std::optional<Value> buildTangent(OpBuilder &b, Operation *op, ArrayRef<Value> tangents);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_DIFFERENTIATE_H
