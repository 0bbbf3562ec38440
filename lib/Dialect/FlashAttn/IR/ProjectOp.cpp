//===- ProjectOp.cpp - the output projection -------------------------------===//

#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult ProjectOp::verify() {
  bool onTensors = isa<RankedTensorType>(getO().getType());
  struct Operand {
    StringRef name;
    Value value;
    SmallVector<StringRef> dims; ///< what each dimension counts
  };
  StringRef batch = "batch size", heads = "head count", length = "length", row = "head dimension";
  SmallVector<StringRef> oDims = {batch, heads, length, row};
  if (getLayout() == Layout::BSHD)
    std::swap(oDims[1], oDims[2]);
  const Operand operands[] = {{"o", getO(), oDims},
                              {"w", getW(), {heads, row, "width"}},
                              {"p", getPInit(), {batch, length, "width"}}};
  Type element = getO().getType().getElementType();
  struct Size {
    int64_t size;
    StringRef of;
  };
  DenseMap<StringRef, Size> known;
  for (const Operand &operand : operands) {
    auto type = cast<ShapedType>(operand.value.getType());
    if (isa<RankedTensorType>(type) != onTensors)
      return emitOpError() << "expected all operands to be " << (onTensors ? "tensors" : "memrefs")
                           << " like 'o' but got '" << operand.name << "' of type " << type;
    if (type.getRank() != int64_t(operand.dims.size()))
      return emitOpError() << "expected '" << operand.name << "' of rank " << operand.dims.size()
                           << " but got rank " << type.getRank();
    Type found = type.getElementType();
    if (operand.value == getO() && !found.isF16() && !found.isBF16() && !found.isF32())
      return emitOpError() << "expected element type f16, bf16 or f32 of 'o' but got " << found;
    bool isOutput = operand.value == getPInit();
    if (found != element && !(isOutput && found.isF32()))
      return emitOpError() << "expected '" << operand.name << "' of element type " << element
                           << ", that of 'o'," << (isOutput && !element.isF32() ? " or f32" : "")
                           << " but got " << found;
    if (failed(verifyMemory(*this, operand.name, type)))
      return failure();
    for (auto [dim, size] : llvm::zip_equal(operand.dims, type.getShape())) {
      if (ShapedType::isDynamic(size))
        continue;
      auto [it, isNew] = known.try_emplace(dim, Size{size, operand.name});
      if (!isNew && it->second.size != size)
        return emitOpError() << "expected " << dim << " of '" << operand.name << "' to be "
                             << it->second.size << " as in '" << it->second.of << "' but got "
                             << size;
    }
  }
  if (int64_t dv = getDv(); ShapedType::isDynamic(dv) || dv <= 0 || dv % 8 != 0)
    return emitOpError() << "expected a static head dimension of 'o', a multiple of 8, but got "
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
