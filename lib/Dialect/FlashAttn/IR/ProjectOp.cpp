//===- ProjectOp.cpp - the output projection ------------------------------===//

#include "Verify.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult ProjectOp::verify() {
  OperandSizes sizes;
  if (failed(verifyOperands(*this, sizes)))
    return failure();
  if (int64_t dv = getDv(); dv <= 0 || dv % 8 != 0)
    return emitOpError() << "expected a head dimension of 'o' that is a multiple of 8 but got "
                         << getO().getType();
  return verifyResults(*this);
}

void ProjectOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (hasPureTensorSemantics())
    return;
  for (OpOperand *input : getDpsInputOperands())
    effects.emplace_back(MemoryEffects::Read::get(), input, SideEffects::DefaultResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), &getPInitMutable(),
                       SideEffects::DefaultResource::get());
}

LogicalResult ProjectOp::reifyResultShapes(OpBuilder &builder,
                                           ReifiedRankedShapedTypeDims &shapes) {
  if (getNumResults() != 0)
    shapes.push_back(tensor::getMixedSizes(builder, getLoc(), getPInit()));
  return success();
}
