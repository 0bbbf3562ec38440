//===- Status.h - codes and messages of the C API ---------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_STATUS_H
#define FLASHATTN_LIB_CAPI_STATUS_H

#include "flashattn-c/FlashAttn.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cstring>

namespace mlir::flashattn::capi {

/// Stores the message for flashattnGetLastError and returns the status.
int32_t fail(FlashAttnStatus status, std::string message);
int32_t fail(FlashAttnStatus status, llvm::Error error);
template <typename... Args>
int32_t failWith(FlashAttnStatus status, const char *format, Args &&...args) {
  return fail(status, llvm::formatv(format, std::forward<Args>(args)...).str());
}

/// Checks the size that a caller's structure states. In an older caller it is smaller than in the
/// library, but not smaller than `oldest`, the size in version 0.1.
template <typename T>
int32_t checkStruct(const T *given, const char *name, size_t oldest = sizeof(T)) {
  if (!given)
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT, "expected a {0} but got null", name);
  if (given->size < oldest || given->size > sizeof(T))
    return failWith(FLASHATTN_ERROR_INVALID_ARGUMENT,
                    "expected a {0} of {1} to {2} bytes but got {3} in its field 'size'", name,
                    oldest, sizeof(T), given->size);
  return FLASHATTN_OK;
}

/// Fills a caller's structure up to its own size.
template <typename T> void fillStruct(T *given, T value) {
  value.size = given->size;
  std::memcpy(given, &value, std::min(given->size, sizeof(T)));
}

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_STATUS_H
