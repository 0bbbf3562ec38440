//===- OperandSegments.h - what generic text says of operands ---*- C++ -*-===//
//
// Text in generic form says how many values each operand of an op has, in `operandSegmentSizes`.
// Accessors of an operand that is required read its only value, so that one with none, or with two,
// is an error before all else that is verified.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_OPERANDSEGMENTS_H
#define FLASHATTN_DIALECT_OPERANDSEGMENTS_H

#include "mlir/IR/OpDefinition.h"

namespace mlir::flashattn {

/// Errors: segments whose name in `required` is not empty, of more or less than one value.
inline LogicalResult verifyOperandSegments(Operation *op, ArrayRef<int32_t> sizes,
                                           ArrayRef<llvm::StringLiteral> required) {
  for (auto [size, name] : llvm::zip_equal(sizes, required))
    if (size != 1 && !name.empty())
      return op->emitOpError() << "expected 1 operand '" << name
                               << "' in 'operandSegmentSizes' but got " << size;
  return success();
}

/// The trait, for OperandSegments.td.
template <typename OpT>
class CheckedOperandSegments : public OpTrait::TraitBase<OpT, CheckedOperandSegments> {
public:
  static LogicalResult verifyTrait(Operation *op) {
    return verifyOperandSegments(op, cast<OpT>(op).getProperties().operandSegmentSizes,
                                 OpT::requiredOperands);
  }
};

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_OPERANDSEGMENTS_H
