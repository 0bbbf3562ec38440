//===- Functions.h - functions of kernels on the model ----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_FUNCTIONS_H
#define FLASHATTN_RUNTIME_MODEL_FUNCTIONS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace mlir::flashattn::model {

/// The name of a function after kPrefix, and its address.
struct Function {
  llvm::StringLiteral name;
  void *address;
};

template <typename F> Function makeFunction(llvm::StringLiteral name, F *function) {
  return {name, reinterpret_cast<void *>(function)};
}

llvm::ArrayRef<Function> getBarrierFunctions();
llvm::ArrayRef<Function> getCopyFunctions();
llvm::ArrayRef<Function> getProductFunctions();
llvm::ArrayRef<Function> getWarpFunctions();

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_FUNCTIONS_H
