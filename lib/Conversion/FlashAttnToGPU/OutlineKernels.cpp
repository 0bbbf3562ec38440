//===- OutlineKernels.cpp -------------------------------------------------===//

#include "flashattn/Conversion/Passes.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/GPU/Transforms/Passes.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace mlir::flashattn {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "flashattn/Conversion/Passes.h.inc"
} // namespace mlir::flashattn

using namespace mlir;

/// Returns `name` in characters that PTX and ptxas accept, truncated to a length that they support.
static std::string makeName(StringRef name) {
  constexpr size_t kMostCharacters = 512;
  std::string made;
  for (char c : name.take_front(kMostCharacters))
    made += llvm::isAlnum(c) || c == '_' || c == '$' ? c : '_';
  // A name must not start with a digit or be a lone sign.
  return llvm::isDigit(made[0]) || (made.size() == 1 && !llvm::isAlpha(made[0])) ? "_" + made
                                                                                 : made;
}

/// Renames symbols that are invalid in PTX: back ends abort the process at such names.
static LogicalResult renameForPTX(ModuleOp module) {
  llvm::StringSet<> containers, inside; // names in use
  for (auto symbol : module.getOps<SymbolOpInterface>())
    containers.insert(symbol.getName());
  SmallVector<SymbolOpInterface> renamed;
  for (auto kernels : module.getOps<gpu::GPUModuleOp>())
    kernels->walk([&](SymbolOpInterface symbol) {
      if (makeName(symbol.getName()) != symbol.getName())
        renamed.push_back(symbol);
      else
        inside.insert(symbol.getName());
    });
  for (SymbolOpInterface symbol : renamed) {
    llvm::StringSet<> &taken = isa<gpu::GPUModuleOp>(*symbol) ? containers : inside;
    std::string base = makeName(symbol.getName()), name = base;
    for (unsigned i = 0; !taken.insert(name).second; ++i)
      name = base + "_" + std::to_string(i);
    // Launches are next to the kernels' module.
    auto attribute = StringAttr::get(module.getContext(), name);
    if (failed(SymbolTable::replaceAllSymbolUses(symbol, attribute, module)))
      return symbol.emitError() << "expected a symbol that can be renamed to the PTX name '" << name
                                << "' but got one with unknown uses";
    symbol.setName(attribute);
  }
  return success();
}

namespace {
struct OutlineKernelsPass : flashattn::impl::OutlineKernelsBase<OutlineKernelsPass> {
  void runOnOperation() override {
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addPass(createGpuLaunchSinkIndexComputationsPass());
    pm.addPass(createGpuKernelOutliningPass());
    // Nested modules first: each launch finds its kernel in its own module.
    WalkResult result = getOperation()->walk([&](ModuleOp module) {
      return failed(runPipeline(pm, module)) || failed(renameForPTX(module))
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
