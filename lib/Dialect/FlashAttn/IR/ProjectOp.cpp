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

int64_t ProjectOp::getStepDepth(ScheduleAttr schedule) {
  bool onCPU = !schedule.getMapping().isOnGPU();
  // As many columns as pay for loading the accumulators. On a GPU, these are a multiple of the 16
  // that mma.sync processes at a time, and fewer in f32, whose operands are kept as two halves and
  // whose sums mma.sync rounds toward zero (A9).
  int64_t unit = onCPU ? 8 : 16, most = onCPU ? 128 : schedule.getDotType().isF32() ? 16 : 80;
  int64_t padded = llvm::alignTo(getDv(), unit);
  return llvm::alignTo(llvm::divideCeil(padded, llvm::divideCeil(padded, most)), unit);
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
