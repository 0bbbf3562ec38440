//===- Cache.h - disk cache of the C API ------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_CACHE_H
#define FLASHATTN_LIB_CAPI_CACHE_H

#include "flashattn/Runtime/DiskCache.h"

namespace mlir::flashattn::capi {

/// Returns the user's cache of KernelCode, according to the current environment variables.
DiskCache getDiskCache();

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_CACHE_H
