// Parses a file with an attention op and runs one of the project's passes on it.
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h"
#include "flashattn/InitAll.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::flashattn::registerAllFlashAttnDialects(registry);
  mlir::flashattn::registerAllFlashAttnExtensions(registry);
  mlir::flashattn::registerAllFlashAttnPasses();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  if (!module)
    return 1;
  mlir::PassManager manager(&context);
  if (failed(mlir::parsePassPipeline("any(flashattn-select-schedule)", manager)) ||
      failed(manager.run(*module)))
    return 1;
  module->print(llvm::outs());
  return 0;
}
