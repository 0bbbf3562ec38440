//===- Status.cpp ----------------------------------------------------------===//

#include "Status.h"

using namespace mlir::flashattn::capi;

static thread_local std::string lastError;

int32_t mlir::flashattn::capi::fail(FlashAttnStatus status, std::string message) {
  lastError = std::move(message);
  return status;
}

int32_t mlir::flashattn::capi::fail(FlashAttnStatus status, llvm::Error error) {
  return fail(status, llvm::toString(std::move(error)));
}

extern "C" const char *flashattnGetLastError() { return lastError.c_str(); }

extern "C" const char *flashattnGetVersion() { return FLASHATTN_VERSION; }
