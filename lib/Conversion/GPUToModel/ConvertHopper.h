//===- ConvertHopper.h - what Hopper has, as calls of the model --*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H
#define FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H

#include "ModelKernel.h"

namespace mlir::flashattn::model {

/// convertOp of the hopper dialect's ops.
LogicalResult convertHopperOp(Operation *op, ModelKernel &kernel);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_CONVERSION_GPUTOMODEL_CONVERTHOPPER_H
