//===- Verify.h - verifiers that ops of the dialect share -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Rule R1: verifies types and sizes of the operands by their roles, and adds known sizes to
/// `sizes`.
LogicalResult verifyOperands(KernelOpInterface op, OperandSizes &sizes);

/// Verifies that a memref operand `name` is supported: unit stride in the last dimension, and
/// memory that every thread and the host address alike. Emits errors at the op.
LogicalResult verifyMemory(Operation *op, StringRef name, ShapedType type);

/// Verifies that there is a result of the type of each destination on tensors, and none on memrefs.
LogicalResult verifyResults(DestinationStyleOpInterface op);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_VERIFY_H
