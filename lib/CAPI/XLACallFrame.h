//===- XLACallFrame.h - XLA's foreign functions -----------------*- C++ -*-===//
//
// The interface of XLA's foreign functions, declared here so that no header of jaxlib is needed.
// Values and layouts are those of version 0.3 of XLA's binary interface, as in xla/ffi/api/c_api.h
// of OpenXLA, which jaxlib installs (jax.ffi.include_dir()). Unused fields are declared for their
// offsets. `size` is `struct_size` in XLA.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CAPI_XLACALLFRAME_H
#define FLASHATTN_LIB_CAPI_XLACALLFRAME_H

#include <cstddef>
#include <cstdint>

namespace mlir::flashattn::xla {

constexpr int kMajorVersion = 0, kMinorVersion = 3;

struct Error;            ///< created by Api::createError; owned by the receiver
struct ExecutionContext; ///< context of one call

struct Extension {
  size_t size;
  int type;
  Extension *next;
};

struct ApiVersion {
  size_t size;
  Extension *extensions;
  int major, minor;
};

/// Describes a function, which XLA queries instead of calling it.
struct Metadata {
  size_t size;
  ApiVersion version;
  uint32_t traits;
  int64_t stateType;
};

struct MetadataExtension {
  static constexpr int kType = 1;
  Extension base;
  Metadata *metadata;
};

enum ErrorCode : int {
  kInvalidArgument = 3,
  kUnimplemented = 12,
  kInternal = 13,
};

struct CreateErrorArgs {
  size_t size;
  Extension *extensions;
  const char *message;
  ErrorCode code;
};

struct GetStreamArgs {
  size_t size;
  Extension *extensions;
  ExecutionContext *context;
  void *stream; ///< out: on CUDA a CUstream
};

struct GetDeviceOrdinalArgs {
  size_t size;
  Extension *extensions;
  ExecutionContext *context;
  int32_t ordinal; ///< out
};

struct Api {
  size_t size;
  Extension *extensions;
  ApiVersion version;
  const void *internal;
  Error *(*createError)(CreateErrorArgs *args);
  void *getMessage;
  void (*destroyError)(void *args);
  void *registerHandler;
  Error *(*getStream)(GetStreamArgs *args);
  void *registerType, *getContext, *setState, *getState, *allocate, *deallocate, *schedule,
      *getNumThreads, *createFuture, *setAvailable, *setError, *getRunId;
  Error *(*getDeviceOrdinal)(GetDeviceOrdinalArgs *args);
};

/// Element type of buffers and scalars.
enum DataType : int {
  kPred = 1,
  kS8 = 2,
  kS32 = 4,
  kS64 = 5,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 16,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
};

/// A dense buffer, with the last dimension innermost.
struct Buffer {
  size_t size;
  Extension *extensions;
  DataType type;
  void *data;
  int64_t rank;
  const int64_t *sizes;
};

struct Span {
  const char *data;
  size_t size;
};

struct Scalar {
  DataType type;
  const void *value;
};

/// Arguments or results; an element whose type is kBuffer is a Buffer.
struct Buffers {
  static constexpr int kBuffer = 1;
  size_t size;
  Extension *extensions;
  int64_t count;
  const int *types;
  Buffer *const *buffers;
};

/// Sorted by name; each value is a Scalar or a Span, depending on its type.
struct Attributes {
  static constexpr int kScalar = 3, kString = 4;
  size_t size;
  Extension *extensions;
  int64_t count;
  const int *types;
  const Span *const *names;
  const void *const *values;
};

/// The requested stage; the stages before kExecute only prepare the call.
enum Stage : int { kInstantiate = 0, kExecute = 3 };

struct CallFrame {
  size_t size;
  Extension *extensions;
  const Api *api;
  ExecutionContext *context;
  Stage stage;
  Buffers arguments, results;
  Attributes attributes;
  void *future;
};

} // namespace mlir::flashattn::xla

#endif // FLASHATTN_LIB_CAPI_XLACALLFRAME_H
