//===- CUDADriver.h - the CUDA driver API, opened at run time ---*- C++ -*-===//
//
// The types and the few functions of libcuda that the runtime uses, declared here so that neither
// headers nor libraries of a toolkit are needed. Names, values and layouts are those of the
// driver's binary interface. Does not use LLVM (Fault.h).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_CUDADRIVER_H
#define FLASHATTN_RUNTIME_CUDADRIVER_H

#include "Fault.h"

#include <cstddef>
#include <cstdint>

namespace mlir::flashattn::cuda {

using Result = int;
using Device = int;
using Context = void *;
using Module = void *;
using Function = void *;
using Stream = void *;
using Event = void *;
using MemPool = void *;
using DevicePtr = unsigned long long;

enum : Result {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoBinaryForGPU = 209,
  kInvalidPTX = 218,
  kUnsupportedPTXVersion = 222,
  kNotFound = 500,
};

/// CUdevice_attribute.
enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kComputeMajor = 75,
  kComputeMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

/// CUfunction_attribute.
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1,
  kNumRegisters = 4,
  kMaxDynamicSharedSizeBytes = 8,
};

/// CUjit_option.
enum JITOption : int {
  kErrorLogBuffer = 5,
  kErrorLogBufferSizeBytes = 6,
};

/// CUlaunchAttribute, with the values that are used.
struct LaunchAttribute {
  static constexpr int kClusterDimension = 4, kProgrammaticStreamSerialization = 6;
  int id;
  char padding[4];
  union {
    unsigned clusterDim[3];
    int programmaticStreamSerializationAllowed;
    char bytes[64];
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72, "layout of the driver's CUlaunchAttribute");

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned numAttributes;
};

/// CUtensorMapDataType.
enum TensorMapDataType : int {
  kTensorMapUInt8 = 0,
  kTensorMapFloat16 = 6,
  kTensorMapBFloat16 = 9,
};

/// CUtensorMapSwizzle.
enum TensorMapSwizzle : int {
  kSwizzle32B = 1,
  kSwizzle64B = 2,
  kSwizzle128B = 3,
};

/// The only values used of CUtensorMapInterleave, CUtensorMapL2promotion and
/// CUtensorMapFloatOOBfill.
constexpr int kInterleaveNone = 0, kL2Promotion256B = 3, kFillZeros = 0;

/// CUmemPoolProps.
struct MemPoolProps {
  static constexpr int kPinned = 1, kOnDevice = 1;
  int allocationType, handleTypes, locationType, locationId;
  void *securityAttributes;
  char reserved[64];
};
static_assert(sizeof(MemPoolProps) == 88, "layout of the driver's CUmemPoolProps");

/// The only flag used of cuStreamCreate.
constexpr unsigned kStreamNonBlocking = 1;

/// The only value used of CUstreamCaptureMode: calls on the thread do not affect any capture.
constexpr int kCaptureModeRelaxed = 2;

/// The first driver that can capture launches that overlap with the previous kernel.
constexpr int kProgrammaticCaptureVersion = 12030;

/// The only value used of CUmemPool_attribute.
constexpr int kMemPoolReleaseThreshold = 4;

/// X(member, exported name, parameters). The exported name includes the version of the declaration.
#define FLASHATTN_CUDA_FUNCTIONS(X)                                                                \
  X(init, "cuInit", (unsigned flags))                                                              \
  X(driverGetVersion, "cuDriverGetVersion", (int *version))                                        \
  X(getErrorName, "cuGetErrorName", (Result error, const char **name))                             \
  X(getErrorString, "cuGetErrorString", (Result error, const char **text))                         \
  X(deviceGetCount, "cuDeviceGetCount", (int *count))                                              \
  X(deviceGet, "cuDeviceGet", (Device * device, int ordinal))                                      \
  X(deviceGetName, "cuDeviceGetName", (char *name, int length, Device device))                     \
  X(deviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, Device device))                        \
  X(deviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, Device device))        \
  X(primaryCtxRetain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))              \
  X(ctxGetCurrent, "cuCtxGetCurrent", (Context * context))                                         \
  X(ctxPushCurrent, "cuCtxPushCurrent_v2", (Context context))                                      \
  X(ctxPopCurrent, "cuCtxPopCurrent_v2", (Context * context))                                      \
  X(streamCreate, "cuStreamCreate", (Stream * stream, unsigned flags))                             \
  X(streamDestroy, "cuStreamDestroy_v2", (Stream stream))                                          \
  X(streamSynchronize, "cuStreamSynchronize", (Stream stream))                                     \
  X(streamIsCapturing, "cuStreamIsCapturing", (Stream stream, int *status))                        \
  X(threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *mode))             \
  X(eventCreate, "cuEventCreate", (Event * event, unsigned flags))                                 \
  X(eventDestroy, "cuEventDestroy_v2", (Event event))                                              \
  X(eventRecord, "cuEventRecord", (Event event, Stream stream))                                    \
  X(eventSynchronize, "cuEventSynchronize", (Event event))                                         \
  X(eventElapsedTime, "cuEventElapsedTime", (float *milliseconds, Event start, Event end))         \
  X(memAlloc, "cuMemAlloc_v2", (DevicePtr * pointer, size_t bytes))                                \
  X(memFree, "cuMemFree_v2", (DevicePtr pointer))                                                  \
  X(memGetInfo, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                \
  X(memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                       \
    (DevicePtr dst, const void *src, size_t bytes, Stream stream))                                 \
  X(memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                       \
    (void *dst, DevicePtr src, size_t bytes, Stream stream))                                       \
  X(memcpyAsync, "cuMemcpyAsync", (DevicePtr dst, DevicePtr src, size_t bytes, Stream stream))     \
  X(memsetD8Async, "cuMemsetD8Async",                                                              \
    (DevicePtr dst, unsigned char value, size_t count, Stream stream))                             \
  X(moduleLoadDataEx, "cuModuleLoadDataEx",                                                        \
    (Module * module, const void *image, unsigned numOptions, int *options, void **values))        \
  X(moduleUnload, "cuModuleUnload", (Module module))                                               \
  X(moduleGetFunction, "cuModuleGetFunction",                                                      \
    (Function * function, Module module, const char *name))                                        \
  X(funcGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, Function function))        \
  X(funcSetAttribute, "cuFuncSetAttribute", (Function function, int attribute, int value))         \
  X(launchKernel, "cuLaunchKernel",                                                                \
    (Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,           \
     unsigned blockY, unsigned blockZ, unsigned sharedBytes, Stream stream, void **parameters,     \
     void **extra))

/// The driver's functions. There is one table for the process, and it is never unloaded.
struct Driver {
#define X(member, name, parameters) Result(*member) parameters;
  FLASHATTN_CUDA_FUNCTIONS(X)
#undef X
  /// Since CUDA 11.8; null before.
  Result (*launchKernelEx)(const LaunchConfig *config, Function function, void **parameters,
                           void **extra);
  /// Since CUDA 11.2; null before.
  Result (*memPoolCreate)(MemPool *pool, const MemPoolProps *props);
  Result (*memPoolSetAttribute)(MemPool pool, int attribute, void *value);
  Result (*memAllocFromPoolAsync)(DevicePtr *pointer, size_t bytes, MemPool pool, Stream stream);
  Result (*memFreeAsync)(DevicePtr pointer, Stream stream);
  /// Since CUDA 12.0; null before. The innermost dimension is first; strides are in bytes, without
  /// that of the innermost dimension. The enumerations are ints here.
  Result (*tensorMapEncodeTiled)(void *map, int dataType, uint32_t rank, void *base,
                                 const uint64_t *sizes, const uint64_t *strides,
                                 const uint32_t *box, const uint32_t *elementStrides,
                                 int interleave, int swizzle, int l2Promotion, int fill);

  /// Returns text such as "CUDA_ERROR_X (its description)".
  Text describe(Result result) const;
  /// The result of cuDriverGetVersion: 1000 * major + 10 * minor.
  int version = 0;
  int deviceCount = 0;
};

/// Opens `libcuda.so.1`, or the library that the environment variable FLASHATTN_CUDA_DRIVER names,
/// once, and initializes it. Errors: library missing, symbol missing, driver too old, no device.
Fault getDriver(const Driver *&driver);

/// Returns the highest PTX version, 10 * major + minor, that a driver of CUDA `version` supports.
int getMaxPTXVersion(int version);

/// The directives of PTX text.
struct PTXHeader {
  int version = 0;      ///< 10 * major + minor; 0 if there is no `.version`
  int architecture = 0; ///< 90 for `sm_90a`; 0 if there is no `.target`
  char variant = 0;     ///< 'a' or 'f' after the number, or 0
};
/// Parses PTX text that ends with a zero.
PTXHeader parsePTXHeader(const char *ptx);

} // namespace mlir::flashattn::cuda

#endif // FLASHATTN_RUNTIME_CUDADRIVER_H
