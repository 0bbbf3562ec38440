//===- ConvertHopper.h - Hopper ops as calls of the model -------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H
#define FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H

#include "ModelKernel.h"

namespace mlir::flashattn::model {

/// Replaces the op by loads and stores of elements.
void expandTranspose(RewriterBase &rewriter, hopper::TransposeOp op);

/// Implements convertOp for ops of the hopper dialect.
LogicalResult convertHopperOp(Operation *op, ModelKernel &kernel);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H
