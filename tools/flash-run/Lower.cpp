//===- Lower.cpp - runs the pipelines, keeps what they make ----------------===//

#include "Program.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Pipelines/Pipelines.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;

/// Writes a text file of the dump directory.
static Error writeText(StringRef directory, const llvm::Twine &name,
                       llvm::function_ref<void(raw_ostream &)> write) {
  SmallString<256> path(directory);
  llvm::sys::path::append(path, name);
  std::error_code code;
  llvm::ToolOutputFile file(path, code, llvm::sys::fs::OF_Text);
  if (!code) {
    write(file.os());
    file.os().flush();
    code = file.os().error();
  }
  if (code) {
    file.os().clear_error();
    return llvm::createStringError("cannot write '" + path.str() + "': " + code.message());
  }
  file.keep();
  return Error::success();
}

namespace {

/// Writes the module after each pass that changed it: NN-pass-name.mlir.
class DumpInstrumentation : public PassInstrumentation {
public:
  /// `error` receives the first file that cannot be written.
  DumpInstrumentation(ModuleOp module, StringRef directory, Error &error)
      : module(module), directory(directory), error(error), last(print()) {
    write("input");
  }

  void runAfterPass(Pass *pass, Operation *op) override {
    // Adaptors only hold other passes.
    if (!pass->getArgument().empty())
      writeChanged(pass->getArgument());
  }
  void runAfterPassFailed(Pass *pass, Operation *op) override {
    writeChanged((pass->getArgument() + "-failed").str());
  }

private:
  std::string print() {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, OpPrintingFlags().assumeVerified());
    return text;
  }
  void writeChanged(StringRef name) {
    std::string text = print();
    if (text == last)
      return;
    last = std::move(text);
    write(name);
  }
  void write(StringRef name) {
    if (error)
      return;
    std::string file =
        ((number < 10 ? "0" : "") + llvm::Twine(number) + "-" + name + ".mlir").str();
    ++number;
    error = writeText(directory, file, [&](raw_ostream &os) { os << last << "\n"; });
  }

  ModuleOp module;
  StringRef directory;
  Error &error;
  std::string last;
  unsigned number = 0;
};

} // namespace

/// The kernels' PTX, and what ptxas says of it where there is one.
static Error dumpKernels(ModuleOp module, StringRef directory) {
  auto ptxas = llvm::sys::findProgramByName("ptxas");
  for (auto binary : module.getOps<gpu::BinaryOp>()) {
    for (auto object : binary.getObjects().getAsRange<gpu::ObjectAttr>()) {
      if (object.getFormat() != gpu::CompilationTarget::Assembly)
        continue;
      StringRef ptx = object.getObject().getValue().rtrim('\0');
      std::string name = (binary.getName() + ".ptx").str();
      if (Error error = writeText(directory, name, [&](raw_ostream &os) { os << ptx; }))
        return error;
      if (!ptxas)
        continue;
      StringRef chip = ptx.split(".target ").second;
      chip = chip.take_until([](char c) { return c == ',' || isspace(c); });
      SmallString<256> in(directory), report(directory);
      llvm::sys::path::append(in, name);
      llvm::sys::path::append(report, binary.getName() + ".ptxas.txt");
      std::string arch = ("-arch=" + chip).str();
      std::optional<StringRef> redirects[] = {StringRef(), StringRef(report), StringRef(report)};
      // A report of errors is a report too: the driver has the last word on the PTX.
      llvm::sys::ExecuteAndWait(*ptxas, {*ptxas, "-v", arch, "-o", "/dev/null", in}, std::nullopt,
                                redirects);
    }
  }
  return Error::success();
}

/// f32 lanes of the host's vector registers.
static int64_t getHostVectorWidth() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx512f") ? 16 : features.lookup("avx2") ? 8 : 4;
}

/// Drops what `function` does not need: it would only take time, or not compile.
static LogicalResult keepOnly(ModuleOp module, StringRef function) {
  for (auto other : module.getOps<func::FuncOp>())
    if (other.getName() != function)
      other.setPrivate();
  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  pm.addPass(createSymbolDCEPass());
  return pm.run(module);
}

Error flashattn::lower(ModuleOp module, const LoweringOptions &options) {
  bool isCPU = options.chip == "cpu";
  if (!options.function.empty() && failed(keepOnly(module, options.function)))
    return llvm::createStringError("cannot take function '" + options.function +
                                   "' out of the module");
  if (isCPU) {
    WalkResult result = module.walk([](Operation *op) -> WalkResult {
      if (!isa<gpu::LaunchOp, gpu::LaunchFuncOp, gpu::GPUModuleOp>(op))
        return WalkResult::advance();
      return op->emitOpError("needs a GPU: expected a CUDA device but got the CPU");
    });
    if (result.wasInterrupted())
      return llvm::createStringError("the module cannot run on the CPU");
  }

  PassManager pm(module.getContext(), ModuleOp::getOperationName());
  Error dumpError = Error::success();
  if (!options.dumpDir.empty()) {
    if (std::error_code code = llvm::sys::fs::create_directories(options.dumpDir))
      return llvm::joinErrors(std::move(dumpError),
                              llvm::createStringError("cannot make directory '" + options.dumpDir +
                                                      "': " + code.message()));
    // The whole module is printed, which nobody may change meanwhile.
    module.getContext()->disableMultithreading();
    pm.addInstrumentation(
        std::make_unique<DumpInstrumentation>(module, options.dumpDir, dumpError));
  }
  if (isCPU) {
    FlashAttnToCPUOptions pipeline;
    pipeline.vectorWidth = getHostVectorWidth();
    pipeline.schedule = options.schedule;
    buildFlashAttnToCPUPipeline(pm, pipeline);
  } else {
    FlashAttnToNVVMOptions pipeline;
    pipeline.chip = options.chip;
    pipeline.schedule = options.schedule;
    buildFlashAttnToNVVMPipeline(pm, pipeline);
  }
  bool failed = mlir::failed(pm.run(module));
  if (dumpError)
    return dumpError;
  if (failed)
    return llvm::createStringError("the module cannot be compiled for " + options.chip);
  if (!options.dumpDir.empty())
    return dumpKernels(module, options.dumpDir);
  return Error::success();
}
