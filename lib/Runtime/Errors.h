//===- Errors.h - messages of the runtime -----------------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_ERRORS_H
#define FLASHATTN_RUNTIME_ERRORS_H

#include "Fault.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::flashattn {

inline llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Returns an error with a message in the style of llvm::formatv.
template <typename... Args> llvm::Error formatError(const char *format, Args &&...args) {
  return makeError(llvm::formatv(format, std::forward<Args>(args)...).str());
}

inline llvm::Error toError(Fault fault) {
  return fault ? makeError(fault.getText()) : llvm::Error::success();
}

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_ERRORS_H
