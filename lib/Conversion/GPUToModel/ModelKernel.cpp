//===- ModelKernel.cpp ----------------------------------------------------===//

#include "ModelKernel.h"
#include "flashattn/Runtime/ModelABI.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn::model;

ModelKernel::ModelKernel(func::FuncOp function, Value thread,
                         llvm::StringMap<LLVM::LLVMFuncOp> &functions)
    : function(function), thread(thread), functions(functions) {
  auto b = OpBuilder::atBlockBegin(&function.front());
  Location loc = function.getLoc();
  scratchBytes = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(mostScratch));
  constexpr unsigned kAlignment = 64;
  scratch = LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()),
                                   b.getI8Type(), scratchBytes, kAlignment);
}

/// Returns the first file position in a location.
static std::string formatLocation(Location loc) {
  std::string text;
  loc->walk([&](Location part) {
    auto file = dyn_cast<FileLineColLoc>(part);
    if (!file)
      return WalkResult::advance();
    text = llvm::formatv("{0}:{1}:{2}", file.getFilename().getValue(), file.getLine(),
                         file.getColumn());
    return WalkResult::interrupt();
  });
  return text.empty() ? "an unknown location" : text;
}

int32_t ModelKernel::getPlace(Operation *op) {
  auto [found, isNew] = placeOf.try_emplace(op, numPlaces);
  if (isNew) {
    places += llvm::formatv("\n{0} ({1}, op {2} of {3})", op->getName(),
                            formatLocation(op->getLoc()), numPlaces, function.getName());
    ++numPlaces;
  }
  return found->second;
}

void ModelKernel::addWork(Operation *op) {
  if (!isa<arith::ArithDialect, math::MathDialect>(op->getDialect()) ||
      op->hasTrait<OpTrait::ConstantLike>())
    return;
  auto vector = dyn_cast<VectorType>(op->getResult(0).getType());
  int64_t count = vector ? vector.getNumElements() : 1;
  // A multiprocessor executes these at a quarter of the rate.
  constexpr int64_t kSpecial = 4;
  elements += isa<math::Exp2Op, math::ExpOp, math::LogOp, math::Log2Op, math::TanhOp>(op)
                  ? kSpecial * count
                  : count;
}

Value ModelKernel::call(OpBuilder &builder, Operation *op, StringRef name, ValueRange arguments,
                        Type result) {
  if (elements) {
    Value count = LLVM::ConstantOp::create(builder, op->getLoc(),
                                           builder.getI64IntegerAttr(std::exchange(elements, 0)));
    emit(builder, op, "Work", count, Type());
  }
  return emit(builder, op, name, arguments, result);
}

Value ModelKernel::emit(OpBuilder &builder, Operation *op, StringRef name, ValueRange arguments,
                        Type result) {
  Location loc = op->getLoc();
  int32_t place = getPlace(op);
  // ProductUse and Work calls may belong to any kind of op.
  if (name == "ProductUse" || name == "Work" || !called.insert(op).second)
    place |= kSameOp;
  SmallVector<Value> all{thread,
                         LLVM::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(place))};
  llvm::append_range(all, arguments);
  LLVM::LLVMFuncOp &callee = functions[name];
  if (!callee) {
    auto module = function->getParentOfType<ModuleOp>();
    auto atEnd = OpBuilder::atBlockEnd(module.getBody());
    callee = LLVM::LLVMFuncOp::create(
        atEnd, module.getLoc(), (kPrefix + name).str(),
        LLVM::LLVMFunctionType::get(result ? result : LLVM::LLVMVoidType::get(op->getContext()),
                                    llvm::to_vector(ValueRange(all).getTypes())));
  }
  auto called = LLVM::CallOp::create(builder, loc, callee, all);
  return result ? called.getResult() : Value();
}

Value ModelKernel::getPointer(OpBuilder &b, Location loc, Value memref, ValueRange indices) {
  auto type = cast<MemRefType>(memref.getType());
  auto [strides, offset] = type.getStridesAndOffset();
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, memref);
  Value elements;
  auto add = [&](Value value) {
    elements = elements ? arith::AddIOp::create(b, loc, elements, value).getResult() : value;
  };
  memref::ExtractStridedMetadataOp metadata;
  bool isDynamic = ShapedType::isDynamic(offset) ||
                   (!indices.empty() && llvm::any_of(strides, ShapedType::isDynamic));
  if (isDynamic)
    metadata = memref::ExtractStridedMetadataOp::create(b, loc, memref);
  if (ShapedType::isDynamic(offset))
    add(metadata.getOffset());
  else if (offset)
    add(arith::ConstantIndexOp::create(b, loc, offset));
  for (auto [i, index] : llvm::enumerate(indices)) {
    Value stride = ShapedType::isDynamic(strides[i])
                       ? metadata.getStrides()[i]
                       : arith::ConstantIndexOp::create(b, loc, strides[i]).getResult();
    add(arith::MulIOp::create(b, loc, index, stride));
  }
  if (elements) {
    Type element = type.getElementType();
    int64_t count = 1;
    if (auto vector = dyn_cast<VectorType>(element)) {
      count = vector.getNumElements();
      element = vector.getElementType();
    }
    int64_t bytes = count * llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
    Value size = arith::ConstantIndexOp::create(b, loc, bytes);
    address = arith::AddIOp::create(b, loc, address, arith::MulIOp::create(b, loc, elements, size));
  }
  address = arith::IndexCastOp::create(b, loc, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), address);
}

Value ModelKernel::getScratch(OpBuilder &b, Location loc, int64_t bytes, int64_t offset) {
  if (offset + bytes > mostScratch) {
    mostScratch = offset + bytes;
    scratchBytes.setValueAttr(b.getI64IntegerAttr(mostScratch));
  }
  if (!offset)
    return scratch;
  return LLVM::GEPOp::create(b, loc, scratch.getType(), b.getI8Type(), scratch,
                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
}

Value ModelKernel::spill(OpBuilder &b, Location loc, Value value, int64_t offset) {
  Type type = value.getType();
  int64_t bits = isa<VectorType>(type) ? cast<VectorType>(type).getNumElements() *
                                             cast<VectorType>(type).getElementTypeBitWidth()
                                       : type.getIntOrFloatBitWidth();
  Value address = getScratch(b, loc, llvm::divideCeil(bits, 8), offset);
  // LLVM has no floats of 8 bits.
  if (isF8(getElementTypeOrSelf(type))) {
    auto vector = dyn_cast<VectorType>(type);
    Type bytes = vector ? Type(vector.clone(b.getI8Type())) : b.getI8Type();
    value = arith::BitcastOp::create(b, loc, bytes, value);
  }
  constexpr unsigned kAlignment = 4;
  LLVM::StoreOp::create(b, loc, value, address, kAlignment);
  return address;
}

static Value loadField(OpBuilder &b, Location loc, Value view, int64_t bytes, Type type) {
  Value address = LLVM::GEPOp::create(b, loc, view.getType(), b.getI8Type(), view,
                                      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
  // Constant while the kernel runs.
  return LLVM::LoadOp::create(b, loc, type, address, /*alignment=*/4, /*isVolatile=*/false,
                              /*isNonTemporal=*/false, /*isInvariant=*/true);
}

Value ModelKernel::getField(OpBuilder &b, Location loc, int64_t field) {
  return loadField(b, loc, thread, field * sizeof(int32_t), b.getI32Type());
}

Value ModelKernel::getWideField(OpBuilder &b, Location loc, int64_t field, Type type) {
  return loadField(b, loc, thread, offsetof(ThreadView, shared) + field * sizeof(int64_t), type);
}
