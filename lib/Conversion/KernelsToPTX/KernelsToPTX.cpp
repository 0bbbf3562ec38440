//===- KernelsToPTX.cpp - parallel compilation of kernels to PTX ----------===//

#include "flashattn/Conversion/KernelsToPTX/KernelsToPTX.h"
#include "flashattn/Conversion/Passes.h"
#include "flashattn/Runtime/Worker.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Target/LLVM/NVVM/Utils.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace mlir::flashattn {
#define GEN_PASS_DEF_CONVERTFLASHATTNKERNELSTOPTX
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

/// Compiles one `gpu.module`. Work that reads the module's MLIR context runs in `start`; LLVM's
/// work, which does not, runs on a thread.
class KernelsToPTX::Group final : public NVVM::SerializeGPUModuleBase {
public:
  Group(gpu::GPUModuleOp kernels, NVVM::NVVMTargetAttr target)
      : SerializeGPUModuleBase(*kernels, target, getOptions()), kernels(kernels) {}

  static gpu::TargetOptions getOptions() {
    return gpu::TargetOptions({}, {}, {}, {}, gpu::CompilationTarget::Assembly);
  }

  /// Returns failure after a diagnostic.
  LogicalResult start() {
    context = std::make_unique<llvm::LLVMContext>();
    code = translateToLLVMIR(*context);
    if (!code)
      return getOperation().emitError("the kernels cannot be translated to LLVM IR");
    setDataLayoutAndTriple(*code);
    auto libraries = loadBitcodeFiles(*code);
    if (!libraries || (!libraries->empty() && failed(linkFiles(*code, std::move(*libraries)))))
      return failure();
    worker.start([this] { makePTX(); });
    return success();
  }

  void replace(StringRef text) {
    SmallVector<char, 0> bytes(text.begin(), text.end());
    Attribute object =
        cast<gpu::TargetAttrInterface>(getTarget()).createObject(kernels, bytes, getOptions());
    OpBuilder builder(kernels);
    gpu::BinaryOp::create(builder, kernels.getLoc(), kernels.getName(),
                          kernels.getOffloadingHandlerAttr(), builder.getArrayAttr(object));
    // A diagnostic from the thread may still refer to the op.
    kernels->remove();
    removed = kernels;
  }

  /// Returns whether PTX was generated.
  bool join() {
    worker.join();
    return hasCode;
  }

  StringRef getName() const { return kernels.getName(); }
  const std::string &getPTX() const { return ptx; }

  /// The same pipeline as MLIR's, without the SLP vectorizer, which finds next to nothing in the
  /// scalar code of a kernel and whose time grows with the size of masks.
  LogicalResult optimizeModule(llvm::Module &llvmModule, int level) override {
    FailureOr<llvm::TargetMachine *> machine = getOrCreateTargetMachine();
    if (failed(machine))
      return failure();
    (*machine)->setOptLevel(static_cast<llvm::CodeGenOptLevel>(level));
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager graphs;
    llvm::ModuleAnalysisManager modules;
    llvm::PipelineTuningOptions tuning;
    tuning.LoopUnrolling = true;
    tuning.LoopInterleaving = true;
    tuning.LoopVectorization = true;
    tuning.SLPVectorization = false;
    llvm::PassBuilder passes(*machine, tuning);
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(graphs);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, graphs, modules);
    llvm::OptimizationLevel levels[] = {llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
                                        llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
    passes.buildPerModuleDefaultPipeline(levels[level]).run(llvmModule, modules);
    return success();
  }

private:
  void makePTX() {
    hasCode = succeeded(generate());
    // Destroyed on this thread, because it takes milliseconds.
    code.reset();
    context.reset();
  }

  LogicalResult generate() {
    if (failed(optimizeModule(*code, optLevel)))
      return failure();
    FailureOr<llvm::TargetMachine *> machine = getOrCreateTargetMachine();
    if (failed(machine))
      return failure();
    FailureOr<SmallString<0>> text =
        translateModuleToISA(*code, **machine, [&] { return getOperation().emitError(); });
    if (failed(text))
      return failure();
    ptx = text->str().str();
    return success();
  }

  mutable gpu::GPUModuleOp kernels;
  OwningOpRef<gpu::GPUModuleOp> removed;
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> code; ///< destroyed before its context
  std::string ptx;
  bool hasCode = false;
  Worker worker; ///< destroyed first, because it uses the members above
};

KernelsToPTX::KernelsToPTX() = default;
KernelsToPTX::~KernelsToPTX() = default;

LogicalResult KernelsToPTX::start(ModuleOp module) {
  NVVM::SerializeGPUModuleBase::init();
  for (auto kernels : module.getOps<gpu::GPUModuleOp>()) {
    ArrayAttr targets = kernels.getTargetsAttr();
    auto target = targets && targets.size() == 1 ? dyn_cast<NVVM::NVVMTargetAttr>(targets[0])
                                                 : NVVM::NVVMTargetAttr();
    if (!target) {
      InFlightDiagnostic error = kernels.emitOpError("expected one #nvvm.target but got ");
      return targets ? error << targets : error << "none";
    }
    groups.push_back(std::make_unique<Group>(kernels, target));
    if (failed(groups.back()->start()))
      return failure();
  }
  return success();
}

void KernelsToPTX::replace() {
  for (auto &group : groups)
    group->replace(isFinished ? group->getPTX() : "");
}

LogicalResult KernelsToPTX::finish() {
  isFinished = true;
  for (auto &group : groups)
    isFinished &= group->join();
  return success(isFinished);
}

std::vector<std::pair<std::string, std::string>> KernelsToPTX::getPTX() const {
  std::vector<std::pair<std::string, std::string>> texts;
  for (auto &group : groups)
    texts.emplace_back(group->getName().str(), group->getPTX());
  return texts;
}

namespace {
struct KernelsToPTXPass final
    : flashattn::impl::ConvertFlashAttnKernelsToPTXBase<KernelsToPTXPass> {
  void runOnOperation() override {
    KernelsToPTX kernels;
    if (failed(kernels.start(getOperation())) || failed(kernels.finish()))
      return signalPassFailure();
    kernels.replace();
  }
};
} // namespace
