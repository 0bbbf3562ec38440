//===- flash-opt.cpp - runs passes on .mlir files --------------------------===//

#include "flashattn/InitAll.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

using namespace mlir;
namespace cl = llvm::cl;

/// Leaves the options of LLVM's own libraries, which register hundreds before `main`, to
/// --help-hidden. What MlirOptMain registers later, its own options and passes, stays in --help.
static void hideLibraryOptions() {
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (name != "help" && name != "version" && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
}

int main(int argc, char **argv) {
  hideLibraryOptions();
  DialectRegistry registry;
  flashattn::registerAllFlashAttnDialects(registry);
  flashattn::registerAllFlashAttnExtensions(registry);
  flashattn::registerAllFlashAttnPasses();
  return asMainReturnCode(MlirOptMain(argc, argv, "flash-mlir optimizer driver\n", registry));
}
