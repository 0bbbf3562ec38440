//===- Pipelines.cpp ------------------------------------------------------===//

#include "flashattn/Pipelines/Pipelines.h"
#include "ExpandGroupOps.h"
#include "flashattn/Conversion/KernelsToPTX/KernelsToPTX.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/Target/Machine.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/Transforms/RequestCWrappers.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace {
/// Passes the module to a visitor.
struct VisitStagePass : PassWrapper<VisitStagePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VisitStagePass)

  VisitStagePass(flashattn::PipelineStage stage, flashattn::StageVisitor visit)
      : stage(stage), visit(std::move(visit)) {}
  StringRef getName() const override { return "VisitStage"; }
  void runOnOperation() override {
    // Clients that only compile do not verify after each pass.
    if (failed(verify(getOperation())))
      return signalPassFailure();
    visit(stage, getOperation());
    markAllAnalysesPreserved();
  }

  flashattn::PipelineStage stage;
  flashattn::StageVisitor visit;
};
} // namespace

static void addStage(OpPassManager &pm, flashattn::PipelineStage stage,
                     const flashattn::StageVisitor &visit) {
  if (visit)
    pm.addPass(std::make_unique<VisitStagePass>(stage, visit));
}

/// Tensors become memrefs with identity layout at function boundaries, as callers of the C
/// interface expect. Loops may carry buffers, and free those that they no longer need; on a GPU,
/// all other buffers exist until the call ends.
static void addBufferization(OpPassManager &pm, bool onGPU) {
  if (onGPU)
    pm.addPass(flashattn::createInlinePrivate());
  pm.addPass(flashattn::createPrepareTensors());
  pm.addPass(flashattn::createRaiseLinalg());
  pm.addPass(flashattn::createVerifyTensors());
  bufferization::OneShotBufferizePassOptions options;
  options.bufferizeFunctionBoundaries = true;
  options.functionBoundaryTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  options.allowReturnAllocsFromLoops = true;
  pm.addPass(bufferization::createOneShotBufferizePass(options));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  if (onGPU)
    pm.addPass(flashattn::createFoldCopies());
  pm.addPass(flashattn::createFreeLoopBuffers());
  flashattn::ExpandCopiesOptions copies;
  copies.onGPU = onGPU;
  pm.addPass(flashattn::createExpandCopies(copies));
  if (onGPU)
    pm.addPass(flashattn::createVerifyHost());
  pm.addPass(createConvertLinalgToLoopsPass()); // on GPUs, only in kernels
  if (!onGPU)
    pm.addPass(flashattn::createKeepLoops());
}

/// Lowers structured ops and addresses to arithmetic and branches, for host and kernels alike.
static void addLowerToBranches(OpPassManager &pm) {
  pm.addPass(createConvertVectorToSCFPass());
  pm.addPass(flashattn::createReinterpretExpandShape());
  pm.addPass(memref::createExpandStridedMetadataPass());
  // Merges the addresses of a tile.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createSCFToControlFlowPass());
}

/// Lowers the remaining host code to the LLVM dialect. The runtime allocates memory.
static void addLowerHostToLLVM(OpPassManager &pm) {
  FinalizeMemRefToLLVMConversionPassOptions memrefOptions;
  memrefOptions.useGenericFunctions = true;
  pm.addPass(createConvertMathToLLVMPass());
  // Splits vectors into scalars.
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertIndexToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass(memrefOptions));
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createUBToLLVMConversionPass());
}

namespace {
/// convert-flashattn-kernels-to-ptx in two passes, for clients that wait for the PTX later.
struct StartKernelsPass : PassWrapper<StartKernelsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(StartKernelsPass)
  explicit StartKernelsPass(flashattn::KernelsToPTX &kernels) : kernels(kernels) {}
  StringRef getName() const override { return "StartKernels"; }
  void runOnOperation() override {
    if (failed(kernels.start(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
  flashattn::KernelsToPTX &kernels;
};
struct ReplaceKernelsPass : PassWrapper<ReplaceKernelsPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReplaceKernelsPass)
  explicit ReplaceKernelsPass(flashattn::KernelsToPTX &kernels) : kernels(kernels) {}
  StringRef getName() const override { return "ReplaceKernels"; }
  void runOnOperation() override { kernels.replace(); }
  flashattn::KernelsToPTX &kernels;
};

struct ExpandGroupOpsPass : PassWrapper<ExpandGroupOpsPass, OperationPass<gpu::GPUModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandGroupOpsPass)
  StringRef getName() const override { return "ExpandGroupOps"; }
  StringRef getArgument() const override { return "flashattn-expand-group-ops"; }
  StringRef getDescription() const override {
    return "reductions and shuffles of a user's own kernels in the ops that every GPU has";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, cf::ControlFlowDialect, memref::MemRefDialect,
                    vector::VectorDialect>();
  }
  void runOnOperation() override {
    if (failed(flashattn::expandGroupOps(getOperation())))
      signalPassFailure();
  }
};

/// A whole pipeline for an unsupported chip: an error at the module.
struct RefuseChipPass : PassWrapper<RefuseChipPass, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RefuseChipPass)
  explicit RefuseChipPass(std::string message) : message(std::move(message)) {}
  void runOnOperation() override {
    flashattn::emitOptionError(getOperation()) << message;
    signalPassFailure();
  }
  std::string message;
};
} // namespace

void flashattn::buildFlashAttnSchedulePipeline(OpPassManager &pm, StringRef chip,
                                               int64_t vectorWidth, StringRef schedule,
                                               const StageVisitor &visit) {
  pm.addPass(createVerifyModule());
  pm.addNestedPass<func::FuncOp>(LLVM::createLLVMRequestCWrappersPass());
  addBufferization(pm, /*onGPU=*/chip != Machine::kCPU);
  // Pinned fields are for one kernel.
  if (chip != Machine::kCPU && schedule.empty())
    pm.addPass(createSeparateDecode());
  SelectScheduleOptions options;
  options.chip = chip.str();
  options.vectorWidth = vectorWidth;
  options.schedule = schedule.str();
  pm.addPass(createSelectSchedule(options));
  addStage(pm, PipelineStage::Scheduled, visit);
}

/// Converts attention ops with schedules to tile programs, and the other ops to kernels or loops.
static void addTilePrograms(OpPassManager &pm, bool onGPU, bool fuseProjection,
                            const flashattn::StageVisitor &visit) {
  // With fusion, each projection must stay with its own attention.
  if (!fuseProjection)
    pm.addPass(flashattn::createShareKernels());
  pm.addPass(flashattn::createTile());
  if (fuseProjection)
    pm.addPass(flashattn::createFuseProjection());
  pm.addPass(flashattn::createTileProject());
  addStage(pm, flashattn::PipelineStage::Tiled, visit);
  pm.addPass(onGPU ? flashattn::createConvertFlashAttnKernelsToGPU()
                   : flashattn::createConvertFlashAttnKernelsToCPU());
}

void flashattn::buildFlashAttnToCPUPipeline(OpPassManager &pm, const FlashAttnToCPUOptions &options,
                                            const StageVisitor &visit) {
  if (options.raise)
    pm.addPass(createRaiseAttention());
  buildFlashAttnSchedulePipeline(pm, Machine::kCPU, options.vectorWidth, options.schedule, visit);
  addTilePrograms(pm, /*onGPU=*/false, options.fuseProjection, visit);
  // After the passes that move programs towards the readers of their results.
  pm.addPass(createFreeTemporaries());
  pm.addPass(createExpandLoops());
  pm.addPass(createExpandRescale());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  ConvertFlashAttnToCPUOptions registers;
  registers.vectorWidth = options.vectorWidth;
  pm.addPass(createConvertFlashAttnToCPU(registers));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  addLowerToBranches(pm);
  addLowerHostToLLVM(pm);
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createVerifyLowered());
  addStage(pm, PipelineStage::Lowered, visit);
}

/// Adds all passes up to kernels of threads with branches. Returns nullopt if the chip is no GPU.
static std::optional<flashattn::Machine>
addKernels(OpPassManager &pm, const flashattn::FlashAttnToNVVMOptions &options,
           const flashattn::StageVisitor &visit) {
  using namespace flashattn;
  llvm::Expected<Machine> machine = Machine::getGPU(options.chip);
  if (!machine) {
    pm.addPass(std::make_unique<RefuseChipPass>(llvm::toString(machine.takeError())));
    return std::nullopt;
  }
  if (options.raise)
    pm.addPass(createRaiseAttention());
  buildFlashAttnSchedulePipeline(pm, options.chip, /*vectorWidth=*/1, options.schedule, visit);
  addTilePrograms(pm, /*onGPU=*/true, /*fuseProjection=*/false, visit);
  pm.addPass(createSpecializeWarps());
  pm.addPass(createMapToGPU());
  if (!machine->hasDependentLaunch())
    pm.addPass(createDropDependentLaunch());
  pm.addPass(createStageShared());
  // Constants then show which runs of an interval are empty.
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createExpandLoops());
  pm.addPass(createExpandRescale());
  pm.addPass(createExpandRings());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createContractToWgmma());
  pm.addPass(createDistribute());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createOutlineKernels());
  pm.addPass(createFlagLaunches());
  addLowerToBranches(pm);
  pm.addNestedPass<gpu::GPUModuleOp>(std::make_unique<ExpandGroupOpsPass>());
  return *machine;
}

void flashattn::buildFlashAttnToNVVMPipeline(OpPassManager &pm,
                                             const FlashAttnToNVVMOptions &options,
                                             const StageVisitor &visit, KernelsToPTX *background) {
  std::optional<Machine> machine = addKernels(pm, options, visit);
  if (!machine)
    return;
  GpuNVVMAttachTargetOptions target;
  target.chip = options.chip;
  target.features = llvm::formatv("+ptx{0}", machine->getPTXVersion()).str();
  target.optLevel = 3;
  pm.addPass(createGpuNVVMAttachTarget(target));
  OpPassManager &kernels = pm.nest<gpu::GPUModuleOp>();
  kernels.addPass(createConvertMathToNVVM());
  kernels.addPass(createConvertNVGPUToNVVMPass());
  kernels.addPass(createConvertVectorToLLVMPass());
  // Before gpu-to-nvvm, which would call libdevice for math.fma and arith.maxnumf.
  kernels.addPass(createConvertMathToLLVMPass());
  kernels.addPass(createArithToLLVMConversionPass());
  kernels.addPass(createConvertGpuOpsToNVVMOps());
  kernels.addPass(createDeclareDynamicSharedMemory());
  kernels.addPass(createConvertFlashAttnDeviceToNVVM());
  kernels.addPass(createConvertHopperToNVVM());
  kernels.addPass(createConvertNVVMToLLVMPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
  if (background)
    pm.addPass(std::make_unique<StartKernelsPass>(*background));
  addStage(pm, PipelineStage::Lowered, visit);
  // Before the host code is lowered, so that no pass on that code visits the kernels.
  if (background)
    pm.addPass(std::make_unique<ReplaceKernelsPass>(*background));
  else
    pm.addPass(createConvertFlashAttnKernelsToPTX());
  pm.addPass(createConvertHopperHostToLLVM());

  addLowerHostToLLVM(pm);
  pm.addPass(createGpuToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createVerifyLowered());
}

void flashattn::buildFlashAttnToModelPipeline(OpPassManager &pm,
                                              const FlashAttnToNVVMOptions &options,
                                              const StageVisitor &visit) {
  if (!addKernels(pm, options, visit))
    return;
  pm.addPass(createConvertGPUToModel());
  pm.addPass(createConvertHopperHostToLLVM());
  addLowerHostToLLVM(pm);
  // Lowers fills and copies on the host.
  pm.addPass(createGpuToLLVMConversionPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createVerifyLowered());
  addStage(pm, PipelineStage::Lowered, visit);
}

void flashattn::registerFlashAttnPipelines() {
  PassRegistration<ExpandGroupOpsPass>();
  PassPipelineRegistration<FlashAttnToCPUOptions>(
      "flashattn-to-cpu", "attention ops to code for the host",
      [](OpPassManager &pm, const FlashAttnToCPUOptions &options) {
        buildFlashAttnToCPUPipeline(pm, options);
      });
  PassPipelineRegistration<FlashAttnToNVVMOptions>(
      "flashattn-to-nvvm", "attention ops to PTX kernels and host code",
      [](OpPassManager &pm, const FlashAttnToNVVMOptions &options) {
        buildFlashAttnToNVVMPipeline(pm, options);
      });
  PassPipelineRegistration<FlashAttnToNVVMOptions>(
      "flashattn-to-model", "attention ops to kernels for a model of a GPU, on the host",
      [](OpPassManager &pm, const FlashAttnToNVVMOptions &options) {
        buildFlashAttnToModelPipeline(pm, options);
      });
}
