//===- HostToLLVM.cpp - convert-hopper-host-to-llvm -----------------------===//
//
// The runtime encodes tensor maps on the host at each launch (flashattnEncodeTensorMap) and passes
// them to kernels by value. It also returns the number of multiprocessors.
//
//===----------------------------------------------------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "flashattn/Runtime/ABI.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTHOPPERHOSTTOLLVM
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;

/// Allocates `count` i64 in the frame of `function`, outside all loops.
static Value createBuffer(OpBuilder &builder, Location loc, func::FuncOp function, int64_t count,
                          int64_t alignment) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  Value one = LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(1));
  return LLVM::AllocaOp::create(builder, loc, LLVM::LLVMPointerType::get(builder.getContext()),
                                LLVM::LLVMArrayType::get(builder.getI64Type(), count), one,
                                alignment);
}

/// Replaces the map by its 128 bytes, encoded by the runtime. As a value it is copied by the launch
/// to the kernel's parameters.
static LogicalResult lower(hopper::MakeTensorMapOp op, func::FuncOp parent) {
  for (Operation *user : op->getUsers())
    // In launches converted by convert-flashattn-gpu-to-model, the map is cast to its bytes.
    if (!isa<gpu::LaunchFuncOp, UnrealizedConversionCastOp>(user))
      return op.emitOpError("expected only kernel launches to use the map but got '")
             << user->getName() << "'";
  auto type = cast<MemRefType>(op.getMemref().getType());
  hopper::TensorMapType mapType = op.getMapType();

  OpBuilder builder(op);
  Location loc = op.getLoc();
  Type i64 = builder.getI64Type(), pointer = LLVM::LLVMPointerType::get(builder.getContext());
  auto constant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, builder.getI64IntegerAttr(value));
  };
  auto toI64 = [&](Value index) -> Value {
    return arith::IndexCastOp::create(builder, loc, i64, index);
  };
  /// Returns the address of an array of `values`.
  auto store = [&](ValueRange values) {
    Value array = createBuffer(builder, loc, parent, values.size(), /*alignment=*/8);
    for (auto [i, value] : llvm::enumerate(values)) {
      Value element =
          LLVM::GEPOp::create(builder, loc, pointer, i64, array, LLVM::GEPArg(int32_t(i)));
      LLVM::StoreOp::create(builder, loc, toI64(value), element);
    }
    return array;
  };

  constexpr int64_t kWords = hopper::kTensorMapBytes / sizeof(int64_t);
  Value map = createBuffer(builder, loc, parent, kWords, hopper::kTensorMapAlignment);
  Value address = LLVM::IntToPtrOp::create(
      builder, loc, pointer,
      toI64(memref::ExtractAlignedPointerAsIndexOp::create(builder, loc, op.getMemref())));
  auto metadata = memref::ExtractStridedMetadataOp::create(builder, loc, op.getMemref());
  Value sizes = store(metadata.getSizes()), strides = store(metadata.getStrides());
  auto element = mapType.getElementType().isF16()    ? TensorMapElement::F16
                 : mapType.getElementType().isBF16() ? TensorMapElement::BF16
                                                     : TensorMapElement::Byte;
  Value elementType = LLVM::ConstantOp::create(
      builder, loc, builder.getI32IntegerAttr(static_cast<int32_t>(element)));
  int64_t outerRows = op.getOuterRows().value_or(1);
  Value arguments[] = {map,
                       address,
                       toI64(metadata.getOffset()),
                       constant(type.getRank()),
                       sizes,
                       strides,
                       elementType,
                       constant(op.getRowDim()),
                       constant(mapType.getRows() / outerRows),
                       constant(op.getOuterDim().value_or(0)),
                       constant(outerRows),
                       constant(mapType.getColumns())};
  FailureOr<LLVM::LLVMFuncOp> function = LLVM::lookupOrCreateFn(
      builder, parent->getParentOfType<ModuleOp>(), abi::kEncodeTensorMap,
      llvm::to_vector(ValueRange(arguments).getTypes()), LLVM::LLVMVoidType::get(op.getContext()));
  if (failed(function))
    return failure();
  LLVM::CallOp::create(builder, loc, *function, arguments);
  Value bytes = LLVM::LoadOp::create(builder, loc, LLVM::LLVMArrayType::get(i64, kWords), map);
  op->replaceAllUsesWith(ValueRange{bytes});
  op->erase();
  return success();
}

/// Replaces the op by a call of the runtime.
static LogicalResult lower(MultiprocessorCountOp op, func::FuncOp parent) {
  OpBuilder builder(op);
  FailureOr<LLVM::LLVMFuncOp> function =
      LLVM::lookupOrCreateFn(builder, parent->getParentOfType<ModuleOp>(),
                             abi::kMultiprocessorCount, {}, builder.getI64Type());
  if (failed(function))
    return failure();
  auto call = LLVM::CallOp::create(builder, op.getLoc(), *function, ValueRange());
  Value count =
      arith::IndexCastOp::create(builder, op.getLoc(), builder.getIndexType(), call.getResult());
  op->replaceAllUsesWith(ValueRange{count});
  op->erase();
  return success();
}

namespace {
struct ConvertHopperHostToLLVMPass
    : flashattn::impl::ConvertHopperHostToLLVMBase<ConvertHopperHostToLLVMPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      WalkResult result = function.walk([&](Operation *op) {
        LogicalResult lowered = llvm::TypeSwitch<Operation *, LogicalResult>(op)
                                    .Case<hopper::MakeTensorMapOp, MultiprocessorCountOp>(
                                        [&](auto op) { return lower(op, function); })
                                    .Default(success());
        return failed(lowered) ? WalkResult::interrupt() : WalkResult::advance();
      });
      if (result.wasInterrupted())
        return signalPassFailure();
    }
  }
};
} // namespace
