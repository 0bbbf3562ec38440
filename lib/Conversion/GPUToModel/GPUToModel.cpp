//===- GPUToModel.cpp - convert-flashattn-gpu-to-model --------------------===//

#include "ConvertHopper.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/Program/NarrowElements.h"
#include "flashattn/Runtime/ModelABI.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTGPUTOMODEL
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;
using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

/// Returns the bytes that a buffer takes in shared memory; kTooManyBytes if it exceeds the range of
/// a shared-memory address.
constexpr int64_t kTooManyBytes = int64_t(1) << 32;
static int64_t getSharedBytes(MemRefType type) {
  uint64_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8);
  for (int64_t size : type.getShape())
    bytes = llvm::SaturatingMultiply(bytes, static_cast<uint64_t>(size));
  constexpr uint64_t kAlignment = 16;
  return bytes < kTooManyBytes ? llvm::alignTo(bytes, kAlignment) : kTooManyBytes;
}

/// Returns the bytes of a kernel's static shared memory, which follows the dynamic shared memory.
static int64_t getStaticBytes(gpu::GPUFuncOp kernel) {
  int64_t bytes = 0;
  for (BlockArgument memory : kernel.getWorkgroupAttributions())
    bytes += getSharedBytes(cast<MemRefType>(memory.getType()));
  return bytes;
}

/// The host has a single memory space.
static Type dropMemorySpace(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return type;
  return MemRefType::get(memref.getShape(), memref.getElementType(), memref.getLayout());
}

static void dropMemorySpaces(func::FuncOp function) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](MemRefType type) -> std::optional<Type> {
    return type.getMemorySpace() ? dropMemorySpace(type) : Type(type);
  });
  replacer.recursivelyReplaceElementsIn(function, /*replaceAttrs=*/true, /*replaceLocs=*/false,
                                        /*replaceTypes=*/true);
}

namespace {
/// The struct that passes a kernel's arguments: a field of LLVM type for each.
struct Frame {
  static FailureOr<Frame> get(gpu::GPUFuncOp kernel) {
    MLIRContext *context = kernel.getContext();
    LLVMTypeConverter converter(context);
    SmallVector<Type> fields;
    for (Type type : kernel.getFunctionType().getInputs()) {
      auto map = LLVM::LLVMArrayType::get(IntegerType::get(context, 64),
                                          hopper::kTensorMapBytes / sizeof(int64_t));
      fields.push_back(isa<hopper::TensorMapType>(type) ? Type(map) : converter.convertType(type));
      if (!fields.back())
        return kernel.emitOpError("expected arguments of types known to LLVM but got ") << type;
    }
    return Frame{LLVM::LLVMStructType::getLiteral(context, fields)};
  }

  Value getAddress(OpBuilder &b, Location loc, Value frame, unsigned i) const {
    return LLVM::GEPOp::create(b, loc, frame.getType(), type, frame,
                               ArrayRef<LLVM::GEPArg>{0, static_cast<int32_t>(i)});
  }
  Type getField(unsigned i) const { return type.getBody()[i]; }

  LLVM::LLVMStructType type;
};

/// A converted kernel.
struct Converted {
  func::FuncOp function;
  LLVM::GlobalOp description;
  Frame frame;
  int64_t staticBytes;
};

class Converter {
public:
  explicit Converter(ModuleOp module) : module(module), symbols(module) {}

  LogicalResult run();

private:
  LogicalResult convert(gpu::GPUFuncOp kernel);
  void takeArguments(func::FuncOp function, gpu::GPUFuncOp kernel, const Frame &frame,
                     unsigned numArguments, int64_t staticBytes);
  LogicalResult convert(gpu::LaunchFuncOp launch);

  ModuleOp module;
  SymbolTable symbols;
  llvm::StringMap<LLVM::LLVMFuncOp> functions;
  llvm::DenseMap<Attribute, Converted> kernels; ///< by the kernel symbol of a launch
};
} // namespace

/// Replaces the kernel's arguments, which follow two arguments of `function`, by loads of the
/// frame.
void Converter::takeArguments(func::FuncOp function, gpu::GPUFuncOp kernel, const Frame &frame,
                              unsigned numArguments, int64_t staticBytes) {
  Block &entry = function.front();
  auto b = OpBuilder::atBlockBegin(&entry);
  Location loc = function.getLoc();
  LLVMTypeConverter converter(b.getContext());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value arguments = entry.getArgument(0), thread = entry.getArgument(1);
  auto load = [&](Value view, int64_t offset, Type type) -> Value {
    Value at = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), view,
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
    return LLVM::LoadOp::create(b, loc, type, at);
  };
  Value shared;
  for (unsigned i = 2; i < entry.getNumArguments(); ++i) {
    BlockArgument argument = entry.getArgument(i);
    Value value;
    if (unsigned field = i - 2; field < numArguments) {
      value = frame.getAddress(b, loc, arguments, field);
      // A tensor map is passed by its address.
      if (!isa<hopper::TensorMapType>(argument.getType()))
        value = LLVM::LoadOp::create(b, loc, frame.getField(field), value);
    } else {
      auto type = cast<MemRefType>(argument.getType());
      if (!shared) {
        Value base = load(thread, offsetof(ThreadView, shared), pointer);
        Value end = load(thread, offsetof(ThreadView, sharedBytes), b.getI64Type());
        Value size = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(staticBytes));
        Value begin = LLVM::SubOp::create(b, loc, end, size);
        shared = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), base, begin);
      }
      value = MemRefDescriptor::fromStaticShape(b, loc, converter,
                                                cast<MemRefType>(dropMemorySpace(type)), shared);
      auto bytes = static_cast<int32_t>(getSharedBytes(type));
      shared = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), shared,
                                   ArrayRef<LLVM::GEPArg>{bytes});
    }
    argument.replaceAllUsesWith(
        UnrealizedConversionCastOp::create(b, loc, argument.getType(), value).getResult(0));
  }
  entry.eraseArguments(2, entry.getNumArguments() - 2);
}

LogicalResult Converter::convert(gpu::GPUFuncOp kernel) {
  int64_t staticBytes = getStaticBytes(kernel);
  constexpr int64_t kMostBytes = std::numeric_limits<int32_t>::max();
  if (staticBytes > kMostBytes)
    return kernel.emitOpError() << "expected workgroup attributions of at most " << kMostBytes
                                << " bytes but got more";
  FailureOr<Frame> frame = Frame::get(kernel);
  if (failed(frame))
    return failure();
  MLIRContext *context = module.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context);
  auto container = kernel->getParentOfType<gpu::GPUModuleOp>();
  auto symbol =
      SymbolRefAttr::get(container.getNameAttr(), {FlatSymbolRefAttr::get(kernel.getNameAttr())});
  auto function = func::FuncOp::create(kernel.getLoc(), kernel.getName(),
                                       FunctionType::get(context, {pointer, pointer}, {}));
  function.setPrivate();
  symbols.insert(function);
  unsigned numArguments = kernel.getFunctionType().getNumInputs();
  function.getBody().takeBody(kernel.getBody());
  // The ops of the kernel itself.
  SmallVector<Operation *> ops;
  function.getBody().walk([&](Operation *op) { ops.push_back(op); });
  Block &entry = function.front();
  entry.insertArgument(0u, pointer, kernel.getLoc());
  entry.insertArgument(1u, pointer, kernel.getLoc());
  takeArguments(function, kernel, *frame, numArguments, staticBytes);

  ModelKernel converted(function, entry.getArgument(1), functions);
  checkProductUses(converted);
  for (Operation *op : ops)
    if (failed(convertOp(op, converted)))
      return failure();
  dropMemorySpaces(function);

  std::string text = (kernel.getName() + converted.getPlaces() + StringRef("\0", 1)).str();
  auto b = OpBuilder::atBlockEnd(module.getBody());
  auto description = LLVM::GlobalOp::create(
      b, kernel.getLoc(), LLVM::LLVMArrayType::get(b.getI8Type(), text.size()), /*isConstant=*/true,
      LLVM::Linkage::Internal, (function.getName() + "_places").str(), b.getStringAttr(text));
  symbols.insert(description);
  kernels.try_emplace(symbol, Converted{function, description, *frame, staticBytes});
  return success();
}

LogicalResult Converter::convert(gpu::LaunchFuncOp launch) {
  auto found = kernels.find(launch.getKernel());
  if (found == kernels.end())
    return launch.emitOpError("expected a kernel of this module but got ") << launch.getKernel();
  if (launch.getAsyncToken() || !launch.getAsyncDependencies().empty() || launch.hasClusterSize())
    return launch.emitOpError(
        "expected a launch without tokens and clusters, which the GPU model does not support");
  Converted &kernel = found->second;
  Location loc = launch.getLoc();
  MLIRContext *context = launch.getContext();
  Type pointer = LLVM::LLVMPointerType::get(context), i64 = IntegerType::get(context, 64);
  auto parent = launch->getParentOfType<func::FuncOp>();
  auto b = OpBuilder::atBlockBegin(&parent.getBody().front());
  Value one = LLVM::ConstantOp::create(b, loc, b.getI64IntegerAttr(1));
  Value frame =
      LLVM::AllocaOp::create(b, loc, pointer, kernel.frame.type, one, hopper::kTensorMapAlignment);
  b.setInsertionPoint(launch);
  for (auto [i, operand] : llvm::enumerate(launch.getKernelOperands())) {
    auto lowered = UnrealizedConversionCastOp::create(b, loc, kernel.frame.getField(i), operand);
    LLVM::StoreOp::create(b, loc, lowered.getResult(0), kernel.frame.getAddress(b, loc, frame, i));
  }
  Value body = func::ConstantOp::create(b, loc, kernel.function.getFunctionType(),
                                        FlatSymbolRefAttr::get(kernel.function));
  SmallVector<Value> arguments{
      LLVM::AddressOfOp::create(b, loc, pointer, kernel.description.getSymName()),
      UnrealizedConversionCastOp::create(b, loc, pointer, body).getResult(0)};
  for (gpu::KernelDim3 sizes :
       {launch.getGridSizeOperandValues(), launch.getBlockSizeOperandValues()})
    for (Value size : {sizes.x, sizes.y, sizes.z})
      arguments.push_back(size.getType().isIndex()
                              ? arith::IndexCastOp::create(b, loc, i64, size).getResult()
                              : size);
  Value shared = launch.getDynamicSharedMemorySize();
  if (!shared)
    shared = LLVM::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  Value more = LLVM::ConstantOp::create(b, loc, b.getI32IntegerAttr(kernel.staticBytes));
  arguments.push_back(LLVM::AddOp::create(b, loc, shared, more));
  arguments.push_back(frame);
  LLVM::LLVMFuncOp &callee = functions[kLaunch];
  if (!callee) {
    auto atEnd = OpBuilder::atBlockEnd(module.getBody());
    callee = LLVM::LLVMFuncOp::create(
        atEnd, module.getLoc(), kLaunch,
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context),
                                    llvm::to_vector(ValueRange(arguments).getTypes())));
  }
  LLVM::CallOp::create(b, loc, callee, arguments);
  launch.erase();
  return success();
}

LogicalResult Converter::run() {
  for (auto container : llvm::make_early_inc_range(module.getOps<gpu::GPUModuleOp>())) {
    prepareKernels(container);
    for (auto kernel : llvm::make_early_inc_range(container.getOps<gpu::GPUFuncOp>()))
      if (failed(convert(kernel)))
        return failure();
  }
  SmallVector<gpu::LaunchFuncOp> launches;
  module.walk([&](gpu::LaunchFuncOp launch) { launches.push_back(launch); });
  for (gpu::LaunchFuncOp launch : launches)
    if (failed(convert(launch)))
      return failure();
  for (auto container : llvm::make_early_inc_range(module.getOps<gpu::GPUModuleOp>()))
    container.erase();
  module->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
  return success();
}

namespace {
struct ConvertGPUToModelPass : flashattn::impl::ConvertGPUToModelBase<ConvertGPUToModelPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    getOperation()->walk([&](ConvertElementsOp op) { expandConversion(rewriter, op); });
    getOperation()->walk([&](arith::TruncFOp op) { expandTruncation(rewriter, op); });
    getOperation()->walk([&](hopper::TransposeOp op) { expandTranspose(rewriter, op); });
    WalkResult result =
        getOperation()->walk([](ModuleOp module) { return WalkResult(Converter(module).run()); });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
