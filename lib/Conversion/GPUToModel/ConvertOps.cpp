//===- ConvertOps.cpp - ops of all GPUs as calls of the model -------------===//

#include "ConvertHopper.h"
#include "flashattn/Runtime/ModelABI.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

static Value constant(OpBuilder &b, Location loc, int64_t value, unsigned bits = 32) {
  return LLVM::ConstantOp::create(b, loc, b.getIntegerAttr(b.getIntegerType(bits), value));
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

/// Whether `memref` is private to the thread. Such accesses are not checked.
static bool isPrivate(Value memref) {
  while (auto view = memref.getDefiningOp<ViewLikeOpInterface>())
    memref = view.getViewSource();
  return memref.getDefiningOp<memref::AllocaOp>() != nullptr;
}

static int64_t getBytes(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return llvm::divideCeil(vector.getNumElements() * vector.getElementTypeBitWidth(), 8);
  return type.isIndex() ? 8 : llvm::divideCeil(type.getIntOrFloatBitWidth(), 8);
}

/// Reports an access to the model. `flags` excludes kShared, which `isShared` sets.
static void callAccess(Operation *op, ModelKernel &kernel, Value address, Type type,
                       int64_t alignment, bool isShared, int32_t flags) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  kernel.call(b, op, "Access",
              {address, constant(b, loc, getBytes(type), 64), constant(b, loc, alignment, 64),
               constant(b, loc, flags | (isShared ? kShared : 0))});
}

/// Reports an access to `type` at `indices` to the model: a store of `stored`, or a load if null.
static LogicalResult showAccess(Operation *op, ModelKernel &kernel, Value memref,
                                ValueRange indices, Type type, Value stored, int64_t alignment) {
  if (isPrivate(memref))
    return success();
  OpBuilder b(op);
  Location loc = op->getLoc();
  auto memrefType = cast<MemRefType>(memref.getType());
  bool isShared = gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(memrefType);
  if (!alignment)
    alignment = getBytes(memrefType.getElementType());
  // The model performs the store itself, because it inspects the previous contents.
  if (isShared && stored && !type.isIndex()) {
    kernel.call(b, op, "StoreShared",
                {kernel.getPointer(b, loc, memref, indices), kernel.spill(b, loc, stored),
                 constant(b, loc, getBytes(type), 64), constant(b, loc, alignment, 64)});
    op->erase();
    return success();
  }
  callAccess(op, kernel, kernel.getPointer(b, loc, memref, indices), type, alignment, isShared,
             stored ? kWrites : kReads);
  return success();
}

/// The host performs the access atomically too.
static LogicalResult showAtomic(Operation *op, ModelKernel &kernel, Value memref,
                                ValueRange indices) {
  if (isPrivate(memref))
    return success();
  OpBuilder b(op);
  auto type = cast<MemRefType>(memref.getType());
  callAccess(op, kernel, kernel.getPointer(b, op->getLoc(), memref, indices), type.getElementType(),
             getBytes(type.getElementType()), gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type),
             kWrites | kAtomic);
  return success();
}

static bool isSharedPointer(Type type) {
  auto pointer = dyn_cast<LLVM::LLVMPointerType>(type);
  return pointer && pointer.getAddressSpace() == unsigned(NVVM::NVVMMemorySpace::Shared);
}

/// Casts an address in any memory space to a host address.
static Value getPlain(OpBuilder &b, Location loc, Value address) {
  return LLVM::AddrSpaceCastOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), address);
}

/// As showAccess, for an access by address.
static LogicalResult showLLVMAccess(Operation *op, ModelKernel &kernel, Value address, Type type,
                                    Value stored, std::optional<uint64_t> alignment) {
  Type element = isa<VectorType>(type) ? cast<VectorType>(type).getElementType() : type;
  if (!element.isIntOrIndexOrFloat())
    return op->emitOpError("expected an access to integers, indices or floats, which the GPU model "
                           "supports, but got ")
           << type;
  OpBuilder b(op);
  Location loc = op->getLoc();
  bool isShared = isSharedPointer(address.getType());
  Value plain = getPlain(b, loc, address);
  int64_t atMultiple = alignment.value_or(getBytes(element));
  if (isShared && stored) {
    kernel.call(b, op, "StoreShared",
                {plain, kernel.spill(b, loc, stored), constant(b, loc, getBytes(type), 64),
                 constant(b, loc, atMultiple, 64)});
    op->erase();
    return success();
  }
  callAccess(op, kernel, plain, type, atMultiple, isShared, stored ? kWrites : kReads);
  return success();
}

//===----------------------------------------------------------------------===//
// Threads and warps
//===----------------------------------------------------------------------===//

/// Replaces `op` by the field of the thread's view for its dimension, counted from field `first`.
template <typename Op>
static LogicalResult convertNumber(Op op, ModelKernel &kernel, int64_t first) {
  OpBuilder b(op);
  Value number = kernel.getField(b, op.getLoc(), first + int64_t(op.getDimension()));
  op.replaceAllUsesWith(
      arith::IndexCastUIOp::create(b, op.getLoc(), b.getIndexType(), number).getResult());
  op.erase();
  return success();
}

static LogicalResult convert(gpu::LaneIdOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Value thread = kernel.getField(b, op.getLoc(), 0);
  Value lane = LLVM::AndOp::create(b, op.getLoc(), thread, constant(b, op.getLoc(), 31));
  op.replaceAllUsesWith(
      arith::IndexCastUIOp::create(b, op.getLoc(), b.getIndexType(), lane).getResult());
  op.erase();
  return success();
}

static LogicalResult convert(gpu::DynamicSharedMemoryOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Type pointer = LLVM::LLVMPointerType::get(b.getContext()), i64 = b.getI64Type();
  auto type = LLVM::LLVMStructType::getLiteral(
      b.getContext(),
      {pointer, pointer, i64, LLVM::LLVMArrayType::get(i64, 1), LLVM::LLVMArrayType::get(i64, 1)});
  Value descriptor = LLVM::PoisonOp::create(b, loc, type);
  Value base = kernel.getWideField(b, loc, 0, pointer);
  auto insert = [&](Value value, ArrayRef<int64_t> position) {
    descriptor = LLVM::InsertValueOp::create(b, loc, descriptor, value, position);
  };
  insert(base, 0);
  insert(base, 1);
  insert(constant(b, loc, 0, 64), 2);
  insert(kernel.getWideField(b, loc, 1, i64), {3, 0});
  insert(constant(b, loc, 1, 64), {4, 0});
  op.replaceAllUsesWith(
      UnrealizedConversionCastOp::create(b, loc, op.getType(), descriptor).getResult(0));
  op.erase();
  return success();
}

static LogicalResult convert(gpu::ShuffleOp op, ModelKernel &kernel) {
  Type type = op.getValue().getType();
  if (getBytes(type) != 4)
    return op.emitOpError("expected a 32-bit shuffle, the only width of the GPU model, but got ")
           << type;
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto getMode = [&] {
    switch (op.getMode()) {
    case gpu::ShuffleMode::XOR:
      return ShuffleMode::Xor;
    case gpu::ShuffleMode::UP:
      return ShuffleMode::Up;
    case gpu::ShuffleMode::DOWN:
      return ShuffleMode::Down;
    case gpu::ShuffleMode::IDX:
      return ShuffleMode::Idx;
    }
    llvm_unreachable("unknown mode of a shuffle");
  };
  Value bits = op.getValue();
  if (type != b.getI32Type())
    bits = LLVM::BitcastOp::create(b, loc, b.getI32Type(), bits);
  Value both = kernel.call(
      b, op, "Shuffle", {constant(b, loc, int64_t(getMode())), bits, op.getOffset(), op.getWidth()},
      b.getI64Type());
  Value result = LLVM::TruncOp::create(b, loc, b.getI32Type(), both);
  if (type != b.getI32Type())
    result = LLVM::BitcastOp::create(b, loc, type, result);
  Value valid = LLVM::LShrOp::create(b, loc, both, constant(b, loc, 32, 64));
  op.getShuffleResult().replaceAllUsesWith(result);
  op.getValid().replaceAllUsesWith(LLVM::TruncOp::create(b, loc, b.getI1Type(), valid));
  op.erase();
  return success();
}

static LogicalResult convert(VoteOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto kind = op.getKind() == VoteKind::Any   ? Vote::Any
              : op.getKind() == VoteKind::All ? Vote::All
                                              : Vote::Ballot;
  Value condition = LLVM::ZExtOp::create(b, loc, b.getI32Type(), op.getCondition());
  Value answer =
      kernel.call(b, op, "Vote", {constant(b, loc, int64_t(kind)), condition}, b.getI32Type());
  if (op.getAnswer().getType() != answer.getType())
    answer = LLVM::TruncOp::create(b, loc, op.getAnswer().getType(), answer);
  op.replaceAllUsesWith(answer);
  op.erase();
  return success();
}

/// Replaces an op without operands by a call without arguments.
static LogicalResult convertPlain(Operation *op, ModelKernel &kernel, StringRef name) {
  OpBuilder b(op);
  kernel.call(b, op, name, {});
  op->erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Warp-level copies and products
//===----------------------------------------------------------------------===//

static LogicalResult convert(nvgpu::DeviceAsyncCopyOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  int64_t element = getBytes(cast<MemRefType>(op.getDst().getType()).getElementType());
  int64_t bytes = op.getDstElements().getSExtValue() * element;
  Value fromBytes = constant(b, loc, bytes, 64);
  if (Value elements = op.getSrcElements()) {
    Value size = arith::ConstantIndexOp::create(b, loc, element);
    fromBytes = arith::IndexCastOp::create(b, loc, b.getI64Type(),
                                           arith::MulIOp::create(b, loc, elements, size));
  }
  kernel.call(b, op, "CopyAsync",
              {kernel.getPointer(b, loc, op.getDst(), op.getDstIndices()),
               kernel.getPointer(b, loc, op.getSrc(), op.getSrcIndices()),
               constant(b, loc, bytes, 64), fromBytes});
  op.replaceAllUsesWith(
      UnrealizedConversionCastOp::create(b, loc, op.getType(), ValueRange()).getResult(0));
  op.erase();
  return success();
}

static LogicalResult convert(nvgpu::DeviceAsyncCreateGroupOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "CommitCopies", {});
  op.replaceAllUsesWith(
      UnrealizedConversionCastOp::create(b, op.getLoc(), op.getType(), ValueRange()).getResult(0));
  op.erase();
  return success();
}

static LogicalResult convert(nvgpu::DeviceAsyncWaitOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  kernel.call(b, op, "WaitCopies", {constant(b, op.getLoc(), op.getNumGroups().value_or(0))});
  op.erase();
  return success();
}

static LogicalResult convert(NVVM::LdMatrixOp op, ModelKernel &kernel) {
  if (op.getEltType() != NVVM::LdStMatrixEltType::B16)
    return op.emitOpError("expected elements of 16 bits, which the GPU model supports, but got '")
           << NVVM::stringifyLdStMatrixEltType(op.getEltType()) << "'";
  OpBuilder b(op);
  Location loc = op.getLoc();
  constexpr int64_t kRegister = 4;
  int64_t count = op.getNum();
  Value result = kernel.getScratch(b, loc, kRegister * count);
  kernel.call(b, op, "LoadMatrix",
              {getPlain(b, loc, op.getPtr()), constant(b, loc, count),
               constant(b, loc, op.getLayout() == NVVM::MMALayout::col), result});
  op.replaceAllUsesWith(LLVM::LoadOp::create(b, loc, op.getType(), result, kRegister).getResult());
  op.erase();
  return success();
}

/// A shared-memory address has 32 bits. Its host address has more, and the upper bits are those of
/// the block's first byte.
static LogicalResult convert(LLVM::IntToPtrOp op, ModelKernel &kernel) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  if (!isSharedPointer(op.getType()) || op.getArg().getType() != i32)
    return success();
  Value base = LLVM::PtrToIntOp::create(
      b, loc, i64, kernel.getWideField(b, loc, 0, LLVM::LLVMPointerType::get(b.getContext())));
  Value offset = LLVM::SubOp::create(b, loc, op.getArg(), LLVM::TruncOp::create(b, loc, i32, base));
  op.getArgMutable().assign(
      LLVM::AddOp::create(b, loc, base, LLVM::ZExtOp::create(b, loc, i64, offset)));
  return success();
}

/// Reports an atomic op by address. The host only supports the scope of all its threads.
template <typename Op> static LogicalResult convertAtomic(Op op, ModelKernel &kernel, Type type) {
  op.removeSyncscopeAttr();
  OpBuilder b(op);
  callAccess(op, kernel, getPlain(b, op.getLoc(), op.getPtr()), type,
             op.getAlignment().value_or(getBytes(type)), isSharedPointer(op.getPtr().getType()),
             kWrites | kAtomic);
  return success();
}

/// Returns the element type of a product's operands; nullopt if the model does not support it.
static std::optional<ProductElement> getElement(NVVM::MmaOp op) {
  NVVM::MMAShapeAttr shape = op.getShape();
  if (shape.getM() != 16 || shape.getN() != 8)
    return std::nullopt;
  std::optional<NVVM::MMATypes> type = op.getMultiplicandAPtxType();
  if (shape.getK() == 8)
    return type == NVVM::MMATypes::tf32 ? std::optional(ProductElement::TF32) : std::nullopt;
  if (shape.getK() != 16)
    return std::nullopt;
  if (!type || type == NVVM::MMATypes::f16)
    return ProductElement::F16;
  return type == NVVM::MMATypes::bf16 ? std::optional(ProductElement::BF16) : std::nullopt;
}

static LogicalResult convert(NVVM::MmaOp op, ModelKernel &kernel) {
  std::optional<ProductElement> element = getElement(op);
  auto results = dyn_cast<LLVM::LLVMStructType>(op.getType());
  if (!element || !results || results.getBody().size() != 4 || !results.getBody().front().isF32())
    return op.emitOpError(
        "expected a product m16n8k16 of f16 or bf16, or m16n8k8 of tf32, with sums "
        "in f32, which the GPU model supports, but got another product");
  OpBuilder b(op);
  Location loc = op.getLoc();
  constexpr int64_t kRegister = 4;
  int64_t offset = 0;
  SmallVector<Value> places;
  for (ValueRange operand : {op.getOperandA(), op.getOperandB(), op.getOperandC()}) {
    places.push_back(kernel.getScratch(b, loc, kRegister * operand.size(), offset));
    for (Value value : operand) {
      kernel.spill(b, loc, value, offset);
      offset += kRegister;
    }
  }
  SmallVector<Value> arguments{constant(b, loc, int64_t(*element))};
  llvm::append_range(arguments, places);
  kernel.call(b, op, "MultiplyWarp", arguments);
  Value result = LLVM::PoisonOp::create(b, loc, results);
  int64_t sums = offset - 4 * kRegister;
  for (int64_t i = 0; i < 4; ++i) {
    Value at = kernel.getScratch(b, loc, kRegister, sums + i * kRegister);
    result = LLVM::InsertValueOp::create(b, loc, result,
                                         LLVM::LoadOp::create(b, loc, b.getF32Type(), at), i);
  }
  op.replaceAllUsesWith(result);
  op.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

/// Whether an op only computes its results or only transfers control.
static bool isPlain(Operation *op) {
  if (isa<memref::CopyOp, LLVM::InlineAsmOp, NVVM::InlinePtxOp>(op))
    return false;
  if (isa<LLVM::AllocaOp, memref::AllocaOp, UnrealizedConversionCastOp>(op) ||
      isa<cf::ControlFlowDialect, func::FuncDialect>(op->getDialect()))
    return true;
  return isa<arith::ArithDialect, math::MathDialect, vector::VectorDialect, memref::MemRefDialect,
             LLVM::LLVMDialect, ub::UBDialect>(op->getDialect()) &&
         isMemoryEffectFree(op);
}

static int64_t getAlignment(std::optional<uint64_t> alignment) { return alignment.value_or(0); }

static LogicalResult convertAccess(Operation *op, ModelKernel &kernel) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](memref::LoadOp op) {
        return showAccess(op, kernel, op.getMemRef(), op.getIndices(), op.getType(), Value(),
                          getAlignment(op.getAlignment()));
      })
      .Case([&](memref::StoreOp op) {
        return showAccess(op, kernel, op.getMemRef(), op.getIndices(), op.getValue().getType(),
                          op.getValue(), getAlignment(op.getAlignment()));
      })
      .Case([&](vector::LoadOp op) {
        return showAccess(op, kernel, op.getBase(), op.getIndices(), op.getType(), Value(),
                          getAlignment(op.getAlignment()));
      })
      .Case([&](vector::StoreOp op) {
        return showAccess(op, kernel, op.getBase(), op.getIndices(), op.getValueToStore().getType(),
                          op.getValueToStore(), getAlignment(op.getAlignment()));
      })
      .Case([&](LLVM::LoadOp op) {
        return showLLVMAccess(op, kernel, op.getAddr(), op.getType(), Value(), op.getAlignment());
      })
      .Case([&](LLVM::StoreOp op) {
        return showLLVMAccess(op, kernel, op.getAddr(), op.getValue().getType(), op.getValue(),
                              op.getAlignment());
      })
      .Case([&](LLVM::AtomicRMWOp op) { return convertAtomic(op, kernel, op.getType()); })
      .Case([&](LLVM::AtomicCmpXchgOp op) {
        return convertAtomic(op, kernel, op.getVal().getType());
      })
      .Case([&](memref::AtomicRMWOp op) {
        return showAtomic(op, kernel, op.getMemref(), op.getIndices());
      })
      .Case([&](memref::GenericAtomicRMWOp op) {
        return showAtomic(op, kernel, op.getMemref(), op.getIndices());
      })
      .Default([](Operation *op) {
        return op->emitOpError("expected an op that the GPU model supports but got '")
               << op->getName() << "'";
      });
}

LogicalResult mlir::flashattn::model::convertOp(Operation *op, ModelKernel &kernel) {
  if (auto address = dyn_cast<LLVM::IntToPtrOp>(op))
    return convert(address, kernel);
  if (isPlain(op)) {
    kernel.addWork(op);
    return success();
  }
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](gpu::ThreadIdOp op) { return convertNumber(op, kernel, 0); })
      .Case([&](gpu::BlockIdOp op) { return convertNumber(op, kernel, 3); })
      .Case([&](gpu::BlockDimOp op) { return convertNumber(op, kernel, 6); })
      .Case([&](gpu::GridDimOp op) { return convertNumber(op, kernel, 9); })
      .Case<gpu::LaneIdOp, gpu::DynamicSharedMemoryOp, gpu::ShuffleOp, VoteOp,
            nvgpu::DeviceAsyncCopyOp, nvgpu::DeviceAsyncCreateGroupOp, nvgpu::DeviceAsyncWaitOp,
            NVVM::LdMatrixOp, NVVM::MmaOp>([&](auto op) { return convert(op, kernel); })
      .Case([&](gpu::BarrierOp op) { return convertPlain(op, kernel, "BlockBarrier"); })
      .Case([&](NVVM::CpAsyncCommitGroupOp op) { return convertPlain(op, kernel, "CommitCopies"); })
      .Case([&](LaunchDependentsOp op) { return convertPlain(op, kernel, "LaunchDependents"); })
      .Case([&](WaitPrerequisiteGridsOp op) {
        return convertPlain(op, kernel, "WaitPrerequisiteGrids");
      })
      .Case([&](gpu::ReturnOp op) {
        OpBuilder b(op);
        func::ReturnOp::create(b, op.getLoc());
        op.erase();
        return success();
      })
      .Default([&](Operation *op) {
        if (isa<hopper::HopperDialect>(op->getDialect()))
          return convertHopperOp(op, kernel);
        return convertAccess(op, kernel);
      });
}
