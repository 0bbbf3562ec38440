//===- ModelSymbols.h - the model's functions, by name ----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_MODELSYMBOLS_H
#define FLASHATTN_RUNTIME_MODEL_MODELSYMBOLS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace mlir::flashattn::model {

/// Visits all functions that code for the model calls.
void visitSymbols(llvm::function_ref<void(llvm::StringRef name, void *address)> visit);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_MODELSYMBOLS_H
