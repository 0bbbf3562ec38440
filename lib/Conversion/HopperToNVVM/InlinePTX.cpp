//===- InlinePTX.cpp ------------------------------------------------------===//

#include "InlinePTX.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace mlir::flashattn;

/// Returns the NVPTX inline assembly constraint for a register of `type`.
static StringRef getConstraint(Type type) {
  if (type.isF32())
    return "f";
  return type.isInteger(32) ? "r" : "l";
}

SmallVector<Value> hopper::createInlinePTX(OpBuilder &builder, Location loc, StringRef text,
                                           TypeRange results, ValueRange inputs, ValueRange tied) {
  SmallVector<std::string> constraints;
  for (Type type : results)
    constraints.push_back("=" + getConstraint(type).str());
  for (Value input : inputs)
    constraints.push_back(getConstraint(input.getType()).str());
  for (size_t i = 0; i < tied.size(); ++i)
    constraints.push_back(std::to_string(i));
  SmallVector<Value> operands(inputs);
  llvm::append_range(operands, tied);

  Type result;
  if (results.size() == 1)
    result = results.front();
  else if (!results.empty())
    result = LLVM::LLVMStructType::getLiteral(builder.getContext(), llvm::to_vector(results));
  auto call = LLVM::InlineAsmOp::create(
      builder, loc, result ? TypeRange(result) : TypeRange(), operands, text,
      llvm::join(constraints, ","), /*has_side_effects=*/true, /*is_align_stack=*/false,
      LLVM::TailCallKind::None, /*asm_dialect=*/LLVM::AsmDialectAttr(),
      /*operand_attrs=*/ArrayAttr());
  if (results.size() < 2)
    return SmallVector<Value>(call->getResults());
  SmallVector<Value> values;
  for (size_t i = 0; i < results.size(); ++i)
    values.push_back(LLVM::ExtractValueOp::create(builder, loc, call.getRes(), i));
  return values;
}

Value hopper::createSharedAddress(OpBuilder &builder, Location loc,
                                  const LLVMTypeConverter &converter, Value memref,
                                  Value descriptor, ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  Type i32 = builder.getI32Type();
  if (indices.size() > 1)
    return LLVM::PtrToIntOp::create(
        builder, loc, i32,
        LLVM::getStridedElementPtr(builder, loc, converter, type, descriptor, indices));
  // 32-bit arithmetic: LLVM computes pointer offsets in 64 bits.
  MemRefDescriptor buffer(descriptor);
  Value first = LLVM::PtrToIntOp::create(builder, loc, i32, buffer.alignedPtr(builder, loc));
  Value bytes = LLVM::ConstantOp::create(
      builder, loc, builder.getI32IntegerAttr(type.getElementTypeBitWidth() / 8));
  Value element = LLVM::TruncOp::create(builder, loc, i32, buffer.offset(builder, loc));
  if (!indices.empty())
    element = LLVM::AddOp::create(builder, loc, element,
                                  LLVM::TruncOp::create(builder, loc, i32, indices.front()));
  return LLVM::AddOp::create(builder, loc, first,
                             LLVM::MulOp::create(builder, loc, element, bytes));
}

Value hopper::constantI32(OpBuilder &b, Location loc, int64_t value) {
  return LLVM::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
}

Value hopper::createLane(OpBuilder &b, Location loc) {
  Value thread = NVVM::ThreadIdXOp::create(b, loc, b.getI32Type());
  return LLVM::AndOp::create(b, loc, thread, constantI32(b, loc, 31));
}
