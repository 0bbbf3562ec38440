//===- Verify.h - what every op of the dialect is held to --------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// R1: types and sizes of the operands are as their roles say. `sizes` takes what is known of them.
LogicalResult verifyOperands(KernelOpInterface op, OperandSizes &sizes);

/// The lowerings walk the last dimension of a memref with unit stride, in memory that every thread
/// and the host address alike. Errors, at the op: operand `name` of any other memref type.
LogicalResult verifyMemory(Operation *op, StringRef name, ShapedType type);

/// On tensors an op has a result of the type of each destination, on memrefs none.
LogicalResult verifyResults(DestinationStyleOpInterface op);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H
