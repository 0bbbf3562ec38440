//===- flash-opt.cpp - runs passes on .mlir files -------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Support/OutputFile.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
namespace cl = llvm::cl;

namespace {
enum class Emit { Module, PTX };
cl::opt<Emit> emitFlag("emit", cl::desc("What to print when the passes have run"),
                       cl::values(clEnumValN(Emit::Module, "mlir", "the module (default)"),
                                  clEnumValN(Emit::PTX, "ptx", "the PTX of its kernels alone")));

/// The last pass of --emit=ptx: appends the PTX of the module's kernels to `text`.
struct TakePTXPass : PassWrapper<TakePTXPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TakePTXPass)
  explicit TakePTXPass(std::string &text) : text(text) {}
  void runOnOperation() override {
    std::string ptx = flashattn::getPTX(getOperation());
    if (ptx.empty()) {
      flashattn::emitOptionError(getOperation())
          << "--emit=ptx: expected kernels, as -flashattn-to-nvvm generates them, but got none";
      return signalPassFailure();
    }
    text += ptx;
  }
  std::string &text;
};
} // namespace

/// Hides all options except `shown` from --help, because LLVM's libraries register hundreds.
static void hideOthers(ArrayRef<StringRef> shown) {
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (!llvm::is_contained(shown, name) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
}

/// Prints the project's own passes or pipelines, with their options.
template <typename InfoT> static void printOwn(const char *title) {
  SmallVector<const InfoT *> own;
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (name.contains("flashattn") || name.contains("hopper"))
      if (const auto *info = InfoT::lookup(name))
        own.push_back(info);
  llvm::sort(own, [](const InfoT *a, const InfoT *b) {
    return a->getPassArgument() < b->getPassArgument();
  });
  llvm::outs() << "\n" << title << ":\n";
  constexpr size_t kIndent = 2, kDescription = 46;
  for (const InfoT *info : own)
    info->printHelpStr(kIndent, kDescription);
}

/// Prints the most common options, the pipelines and the passes, which fit two screens.
static void printHelp(char *tool, StringRef header) {
  parseCLIOptions(1, &tool, header); // registers more options
  hideOthers({"o", "allow-unregistered-dialect", "dump-pass-pipeline", "emit", "help",
              "help-hidden", "load-dialect-plugin", "load-pass-plugin", "mlir-print-ir-after-all",
              "mlir-print-ir-after-failure", "mlir-timing", "pass-pipeline", "split-input-file",
              "verify-diagnostics", "version"});
  cl::PrintHelpMessage();
  printOwn<PassPipelineInfo>("Pipelines, as -flashattn-to-nvvm=\"chip=sm_90a\"");
  printOwn<PassInfo>("Passes (upstream's are in --list-passes)");
}

/// Runs the passes. If all succeed, writes the module, or the PTX of its kernels.
static LogicalResult run(StringRef input, StringRef output, DialectRegistry &registry,
                         const MlirOptMainConfig &given) {
  std::string module, ptx, message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &message);
  if (!file) {
    llvm::errs() << message << "\n";
    return failure();
  }
  MlirOptMainConfig config = given;
  if (emitFlag == Emit::PTX)
    config.setPassPipelineSetupFn([&](PassManager &pm) {
      if (failed(given.setupPassPipeline(pm)))
        return failure();
      pm.addPass(std::make_unique<TakePTXPass>(ptx));
      return success();
    });
  llvm::raw_string_ostream os(module);
  if (failed(MlirOptMain(os, std::move(file), registry, config)))
    return failure();
  llvm::Error error = flashattn::writeOutputFile(
      output, [&](raw_ostream &os) { os << (emitFlag == Emit::PTX ? ptx : module); });
  if (error) {
    llvm::errs() << llvm::toString(std::move(error)) << "\n";
    return failure();
  }
  return success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  hideOthers({"emit", "help", "version"});
  DialectRegistry registry;
  flashattn::registerAllFlashAttnDialects(registry);
  flashattn::registerAllFlashAttnExtensions(registry);
  flashattn::registerAllFlashAttnPasses();
  flashattn::registerVersionPrinter();
  std::string header = registerCLIOptions("flash-mlir optimizer driver", registry);
  if (llvm::any_of(ArrayRef(argv + 1, argc - 1), [](const char *argument) {
        return llvm::is_contained({"--help", "-help", "-h"}, StringRef(argument));
      })) {
    printHelp(argv[0], header);
    return 0;
  }
  auto [input, output] = parseCLIOptions(argc, argv, header);
  if (llvm::Error error = flashattn::checkInputFile(input)) {
    llvm::errs() << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  // Upstream's driver prints each split of the input file even if a later one fails; `run` prints
  // nothing then.
  bool isUpstreams = config.shouldShowDialects() || config.shouldListPasses() ||
                     (output == "-" && emitFlag == Emit::Module);
  return asMainReturnCode(isUpstreams ? MlirOptMain(argc, argv, input, output, registry)
                                      : run(input, output, registry, config));
}
