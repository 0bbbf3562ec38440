//===- CombineOp.cpp - merging attention over parts of the keys -----------===//

#include "Verify.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

using namespace mlir;
using namespace mlir::flashattn;

LogicalResult CombineOp::verify() {
  auto oParts = getOParts().getType(), o = getOInit().getType();
  bool onTensors = isa<RankedTensorType>(oParts);
  struct Operand {
    StringRef name;
    Value value;
    int64_t rank;
    SmallVector<StringRef> dims; ///< what each dimension counts; the same as that of another's name
  };
  SmallVector<StringRef> row = {"batch size", "head count", "length"}, oDims = row;
  oDims.push_back("head dimension");
  if (getLayout() == Layout::BSHD)
    std::swap(oDims[1], oDims[2]);
  const Operand operands[] = {
      {"o_parts", getOParts(), 5, {"part count", row[0], row[1], row[2], "head dimension"}},
      {"lse_parts", getLseParts(), 4, {"part count", row[0], row[1], row[2]}},
      {"sink_logits", getSinkLogits(), 1, {"head count"}},
      {"o", getOInit(), 4, oDims},
      {"lse", getLseInit(), 3, row}};
  for (const Operand &operand : operands) {
    if (!operand.value)
      continue;
    auto type = cast<ShapedType>(operand.value.getType());
    if (isa<RankedTensorType>(type) != onTensors)
      return emitOpError() << "expected all operands to be " << (onTensors ? "tensors" : "memrefs")
                           << " like 'o_parts' but got '" << operand.name << "' of type " << type;
    if (type.getRank() != operand.rank)
      return emitOpError() << "expected '" << operand.name << "' of rank " << operand.rank
                           << " but got rank " << type.getRank();
    Type element = type.getElementType();
    bool isOutput = operand.value == getOInit();
    if (!element.isF32() && !(isOutput && (element.isF16() || element.isBF16())))
      return emitOpError() << "expected element type " << (isOutput ? "f16, bf16 or f32" : "f32")
                           << " of '" << operand.name << "' but got " << element;
    if (failed(verifyMemory(*this, operand.name, type)))
      return failure();
    for (auto [i, dim] : llvm::enumerate(operand.dims)) {
      const Operand &parts = operands[0];
      int64_t found = type.getDimSize(i),
              expected = oParts.getDimSize(llvm::find(parts.dims, dim) - parts.dims.begin());
      if (!ShapedType::isDynamic(found) && !ShapedType::isDynamic(expected) && found != expected)
        return emitOpError() << "expected " << dim << " of '" << operand.name << "' to be "
                             << expected << " as in 'o_parts' but got " << found;
    }
  }
  for (auto [name, type] : {std::pair<StringRef, ShapedType>("o_parts", oParts), {"o", o}})
    if (ShapedType::isDynamic(type.getShape().back()))
      return emitOpError() << "expected a static last dimension of '" << name << "' but got "
                           << type;
  if (oParts.getDimSize(0) == 0)
    return emitOpError() << "expected at least 1 part but got 0";

  return verifyResults(*this);
}
