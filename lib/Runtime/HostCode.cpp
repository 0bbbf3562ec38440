//===- HostCode.cpp --------------------------------------------------------===//

#include "flashattn/Runtime/HostCode.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

using namespace mlir;

/// Removes what functions' arguments promised to passes, of which LLVM would warn as unknown.
static void dropPromises(ModuleOp lowered) {
  for (auto function : lowered.getOps<FunctionOpInterface>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      SmallVector<NamedAttribute> known;
      for (NamedAttribute attribute : function.getArgAttrs(i))
        if (isa_and_nonnull<LLVM::LLVMDialect>(attribute.getNameDialect()))
          known.push_back(attribute);
      function.setArgAttrs(i, known);
    }
}

void flashattn::prepareTranslation(ModuleOp lowered) {
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  gpu::registerOffloadingLLVMTranslationInterfaceExternalModels(registry);
  lowered.getContext()->appendDialectRegistry(registry);
  dropPromises(lowered);
}
