//===- Compile.cpp --------------------------------------------------------===//

#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Tuned.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Expected;

FailureOr<int64_t> flashattn::raiseAttention(ModuleOp module) {
  auto count = [&] {
    int64_t ops = 0;
    module.walk([&](AttentionOp) { ++ops; });
    return ops;
  };
  int64_t before = count();
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.addPass(createRaiseAttention());
  if (failed(pm.run(module)))
    return failure();
  return count() - before;
}

LogicalResult flashattn::raiseLinalg(ModuleOp module) {
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.addPass(createPrepareTensors());
  pm.addPass(createRaiseLinalg());
  return pm.run(module);
}

Expected<func::FuncOp> flashattn::findFunction(ModuleOp module, StringRef name, StringRef option) {
  SmallVector<func::FuncOp> candidates;
  SmallVector<std::string> names;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || !function.isPublic())
      continue;
    if (function.getName() == name)
      return function;
    candidates.push_back(function);
    names.push_back(("'" + function.getName() + "'").str());
  }
  if (candidates.empty()) {
    for (auto lowered : module.getOps<LLVM::LLVMFuncOp>())
      if (!lowered.isExternal())
        return llvm::createStringError("expected a module with a func.func but got a module that "
                                       "is already lowered, with llvm.func '" +
                                       lowered.getName() + "'");
    return llvm::createStringError("the module has no public function with a body");
  }
  std::string expected = ("expected " + option + " to be one of " + llvm::join(names, ", ")).str();
  if (!name.empty())
    return llvm::createStringError(expected + " but got '" + name + "'");
  if (candidates.size() > 1)
    return llvm::createStringError("the module has several functions: " + expected);
  return candidates.front();
}

std::optional<unsigned> flashattn::getArgumentIndex(Value value, func::FuncOp function) {
  while (value && isa_and_present<tensor::CastOp, memref::CastOp, bufferization::ToTensorOp>(
                      value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  auto argument = dyn_cast_if_present<BlockArgument>(value);
  if (!argument || argument.getOwner() != &function.front())
    return std::nullopt;
  return argument.getArgNumber();
}

int64_t flashattn::getHostVectorWidth() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx512f") ? 16 : features.lookup("avx2") ? 8 : 4;
}

/// Removes what `function` does not need, which would only take time or fail to compile.
static LogicalResult keepOnly(ModuleOp module, StringRef function) {
  for (auto other : module.getOps<func::FuncOp>())
    if (other.getName() != function)
      other.setPrivate();
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.addPass(createSymbolDCEPass());
  return pm.run(module);
}

LogicalResult flashattn::compile(ModuleOp module, const CompileOptions &options,
                                 function_ref<void(PassManager &)> instrument) {
  if (!options.function.empty() && failed(keepOnly(module, options.function)))
    return failure();
  int64_t vectorWidth = options.vectorWidth ? options.vectorWidth : getHostVectorWidth();
  Expected<Machine> machine = Machine::get(options.chip, vectorWidth);
  if (!machine)
    return emitOptionError(module) << llvm::toString(machine.takeError());
  if (options.schedule.empty() && !options.tunedFile.empty())
    applyTunedSchedules(module, *machine, options.tunedFile);
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.enableVerifier(options.verifyEach);
  if (instrument)
    instrument(pm);
  if (!machine->isCPU()) {
    if (options.fuseProjection)
      return emitOptionError(module)
             << "expected chip cpu for option fuse-projection but got " << options.chip;
    if (options.scheduleOnly) {
      buildFlashAttnSchedulePipeline(pm, options.chip, /*vectorWidth=*/1, options.schedule,
                                     options.visitStage);
      return pm.run(module);
    }
    FlashAttnToNVVMOptions pipeline;
    pipeline.chip = options.chip;
    pipeline.schedule = options.schedule;
    if (options.forModel)
      buildFlashAttnToModelPipeline(pm, pipeline, options.visitStage);
    else
      buildFlashAttnToNVVMPipeline(pm, pipeline, options.visitStage, options.background);
    return pm.run(module);
  }
  WalkResult result = module.walk([](Operation *op) -> WalkResult {
    if (!isa<gpu::LaunchOp, gpu::LaunchFuncOp, gpu::GPUModuleOp>(op))
      return WalkResult::advance();
    return op->emitOpError("needs a GPU: expected a CUDA device but got the CPU");
  });
  if (result.wasInterrupted())
    return failure();
  if (options.scheduleOnly) {
    buildFlashAttnSchedulePipeline(pm, options.chip, vectorWidth, options.schedule,
                                   options.visitStage);
    return pm.run(module);
  }
  FlashAttnToCPUOptions pipeline;
  pipeline.fuseProjection = options.fuseProjection;
  pipeline.vectorWidth = vectorWidth;
  pipeline.schedule = options.schedule;
  buildFlashAttnToCPUPipeline(pm, pipeline, options.visitStage);
  return pm.run(module);
}

void flashattn::visitPTX(ModuleOp compiled,
                         function_ref<void(StringRef name, StringRef ptx)> visit) {
  for (auto binary : compiled.getOps<gpu::BinaryOp>())
    for (auto object : binary.getObjects().getAsRange<gpu::ObjectAttr>())
      if (object.getFormat() == gpu::CompilationTarget::Assembly)
        visit(binary.getName(), object.getObject().getValue().rtrim('\0'));
}

std::string flashattn::getPTX(ModuleOp compiled) {
  std::string text;
  visitPTX(compiled, [&](StringRef name, StringRef ptx) {
    text += ("// kernels: " + name + "\n" + ptx.trim() + "\n").str();
  });
  return text;
}
