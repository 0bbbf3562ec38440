//===- Cache.h - what is kept of compilations -------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_CACHE_H
#define FLASHATTN_LIB_CAPI_CACHE_H

#include "flashattn/Runtime/DiskCache.h"

namespace mlir::flashattn::capi {

/// The user's cache of KernelCode, as the environment says at this time.
DiskCache getDiskCache();

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_CACHE_H
