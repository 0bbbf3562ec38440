//===- flash-opt.cpp - runs passes on .mlir files --------------------------===//

#include "flashattn/Dialect/FlashAttn/IR/OptionErrors.h"
#include "flashattn/InitAll.h"
#include "flashattn/Pipelines/Compile.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
namespace cl = llvm::cl;

namespace {
enum class Emit { Module, PTX };
cl::opt<Emit> emitFlag("emit", cl::desc("What to print when the passes have run"),
                       cl::values(clEnumValN(Emit::Module, "mlir", "the module (default)"),
                                  clEnumValN(Emit::PTX, "ptx", "the PTX of its kernels alone")));

/// The last pass of --emit=ptx.
struct TakePTXPass : PassWrapper<TakePTXPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TakePTXPass)
  explicit TakePTXPass(std::string &text) : text(text) {}
  void runOnOperation() override {
    std::string ptx = flashattn::getPTX(getOperation());
    if (ptx.empty()) {
      flashattn::emitOptionError(getOperation())
          << "--emit=ptx: expected kernels as -flashattn-to-nvvm makes them but got none";
      return signalPassFailure();
    }
    text += ptx;
  }
  std::string &text;
};
} // namespace

/// Leaves all options but `shown` to --help-hidden: LLVM's libraries register hundreds.
static void hideOthers(ArrayRef<StringRef> shown) {
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (!llvm::is_contained(shown, name) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
}

/// The project's own passes or pipelines, with their options.
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

/// Two screens: what the tool is mostly used with.
static void printHelp(char *tool, StringRef header) {
  parseCLIOptions(1, &tool, header); // registers more
  hideOthers({"o", "allow-unregistered-dialect", "dump-pass-pipeline", "emit", "help",
              "help-hidden", "load-dialect-plugin", "load-pass-plugin", "mlir-print-ir-after-all",
              "mlir-print-ir-after-failure", "mlir-timing", "pass-pipeline", "split-input-file",
              "verify-diagnostics", "version"});
  cl::PrintHelpMessage();
  printOwn<PassPipelineInfo>("Pipelines, as -flashattn-to-nvvm=\"chip=sm_90a\"");
  printOwn<PassInfo>("Passes (upstream's are in --list-passes)");
}

/// The module goes nowhere, the PTX of its kernels to `output`, whole or not at all.
static LogicalResult emitPTX(StringRef input, StringRef output, DialectRegistry &registry) {
  std::string text, message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &message);
  if (!file) {
    llvm::errs() << message << "\n";
    return failure();
  }
  MlirOptMainConfig given = MlirOptMainConfig::createFromCLOptions(), config = given;
  config.setPassPipelineSetupFn([&](PassManager &pm) {
    if (failed(given.setupPassPipeline(pm)))
      return failure();
    pm.addPass(std::make_unique<TakePTXPass>(text));
    return success();
  });
  if (failed(MlirOptMain(llvm::nulls(), std::move(file), registry, config)))
    return failure();
  llvm::Error error = llvm::writeToOutput(output, [&](raw_ostream &os) {
    os << text;
    return llvm::Error::success();
  });
  if (error) {
    llvm::errs() << "cannot write '" << output << "': " << llvm::toString(std::move(error)) << "\n";
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
  return asMainReturnCode(emitFlag == Emit::PTX ? emitPTX(input, output, registry)
                                                : MlirOptMain(argc, argv, input, output, registry));
}
