//===- InitAll.cpp ---------------------------------------------------------===//

#include "flashattn/InitAll.h"
#include "flashattn/Analysis/Passes.h"
#include "flashattn/Conversion/HopperToNVVM/HopperToNVVM.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "flashattn/ToolContext.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Arith/Transforms/ShardingInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/Extensions/ShardingExtensions.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Linalg/TransformOps/DialectExtension.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Transforms/ShardingInterfaceImpl.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/TransformOps/SCFTransformOps.h"
#include "mlir/Dialect/SCF/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/Transforms/Passes.h"
#include "mlir/Dialect/Tensor/Extensions/ShardingExtensions.h"
#include "mlir/Dialect/Tensor/IR/TensorTilingInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Transform/IR/TransformDialect.h"
#include "mlir/Dialect/Transform/Transforms/Passes.h"
#include "mlir/Dialect/Vector/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Target/LLVM/NVVM/Target.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/TargetSelect.h"

using namespace mlir;

void flashattn::registerAllFlashAttnDialects(DialectRegistry &registry) {
  registry.insert<FlashAttnDialect, affine::AffineDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, cf::ControlFlowDialect, func::FuncDialect,
                  gpu::GPUDialect, hopper::HopperDialect, linalg::LinalgDialect, LLVM::LLVMDialect,
                  math::MathDialect, memref::MemRefDialect, nvgpu::NVGPUDialect, NVVM::NVVMDialect,
                  scf::SCFDialect, shard::ShardDialect, tensor::TensorDialect,
                  transform::TransformDialect, vector::VectorDialect>();
}

void flashattn::registerAllFlashAttnExtensions(DialectRegistry &registry) {
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  // convert-gpu-to-nvvm takes the patterns of the dialects that say they have some.
  arith::registerConvertArithToLLVMInterface(registry);
  cf::registerConvertControlFlowToLLVMInterface(registry);
  registerConvertMemRefToLLVMInterface(registry);
  hopper::registerConvertTensorMapToLLVMInterface(registry);
  // Kernels to PTX, host code to LLVM IR.
  NVVM::registerNVVMTargetInterfaceExternalModels(registry);
  gpu::registerOffloadingLLVMTranslationInterfaceExternalModels(registry);
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(registry);
  registerBufferizableOpInterfaceExternalModels(registry);
  linalg::registerTransformDialectExtension(registry); // the tiling ops, transform.structured
  linalg::registerBufferizableOpInterfaceExternalModels(registry);
  scf::registerBufferizableOpInterfaceExternalModels(registry);
  scf::registerTransformDialectExtension(registry);
  // Ops on a grid of processes, and what stands beside them.
  registerShardingInterfaceExternalModels(registry);
  arith::registerShardingInterfaceExternalModels(registry);
  func::registerShardingInterfaceExternalModels(registry);
  linalg::registerShardingInterfaceExternalModels(registry);
  tensor::registerShardingInterfaceExternalModels(registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
  tensor::registerTilingInterfaceExternalModels(registry);
  vector::registerBufferizableOpInterfaceExternalModels(registry);
}

void flashattn::registerAllFlashAttnPasses() {
  registerFlashAttnTransformsPasses();
  registerFlashAttnAnalysisPasses();
  registerFlashAttnPipelines();
  registerFlashAttnConversionPasses();
  // What the pipelines are made of beside them, so that each step can be run alone.
  registerLowerAffinePass();
  registerArithToLLVMConversionPass();
  registerConvertControlFlowToLLVMPass();
  registerConvertFuncToLLVMPass();
  registerConvertGpuOpsToNVVMOps();
  registerConvertIndexToLLVMPass();
  registerConvertLinalgToLoopsPass();
  registerConvertMathToLLVMPass();
  registerConvertMathToLibmPass();
  registerConvertNVGPUToNVVMPass();
  registerConvertNVVMToLLVMPass();
  registerConvertVectorToLLVMPass();
  registerConvertVectorToSCFPass();
  registerFinalizeMemRefToLLVMConversionPass();
  registerGpuToLLVMConversionPass();
  registerReconcileUnrealizedCastsPass();
  registerSCFToControlFlowPass();
  registerUBToLLVMConversionPass();
  registerGpuKernelOutliningPass();
  registerGpuLaunchSinkIndexComputationsPass();
  registerGpuModuleToBinaryPass();
  registerGpuNVVMAttachTarget();
  LLVM::registerLLVMRequestCWrappersPass();
  memref::registerExpandStridedMetadataPass();
  registerCanonicalizerPass();
  registerCSEPass();
  bufferization::registerBufferizationPasses();
  transform::registerTransformPasses();
  shard::registerShardPasses();
}

void flashattn::registerVersionPrinter() {
  llvm::cl::SetVersionPrinter([](raw_ostream &os) {
    os << "flash-mlir " FLASHATTN_VERSION " (LLVM " LLVM_VERSION_STRING ")\n";
  });
}

void flashattn::initializeBackEnds() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  flashattn::registerAllFlashAttnDialects(registry);
  flashattn::registerAllFlashAttnExtensions(registry);
  return registry;
}

flashattn::ToolContext::ToolContext() : context(makeRegistry()), diagnostics(sources, &context) {
  context.printOpOnDiagnostic(false);
}
