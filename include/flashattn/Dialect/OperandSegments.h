//===- OperandSegments.h - verification of operand segments -----*- C++ -*-===//
//
// Generic IR specifies the number of values of each operand in `operandSegmentSizes`. The accessor
// of a required operand assumes that there is exactly one value, so any other number must be
// reported before anything else is verified.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_OPERANDSEGMENTS_H
#define FLASHATTN_DIALECT_OPERANDSEGMENTS_H

#include "mlir/IR/OpDefinition.h"

namespace mlir::flashattn {

/// Emits an error for a segment that has a nonempty name in `required` and does not have exactly
/// one value.
inline LogicalResult verifyOperandSegments(Operation *op, ArrayRef<int32_t> sizes,
                                           ArrayRef<llvm::StringLiteral> required) {
  for (auto [size, name] : llvm::zip_equal(sizes, required))
    if (size != 1 && !name.empty())
      return op->emitOpError() << "expected 1 operand '" << name
                               << "' in 'operandSegmentSizes' but got " << size;
  return success();
}

/// The C++ class of the trait in OperandSegments.td.
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
