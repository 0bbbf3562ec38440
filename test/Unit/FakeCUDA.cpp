//===- FakeCUDA.cpp - a CUDA driver without a GPU -------------------------===//
//
// Implements the functions of libcuda that the runtime uses, on host memory, so that every error of
// a device can be simulated. Kernels do nothing. The environment controls the behavior and is read
// at each call:
//
//   FAKE_CUDA_FAIL            NAME=CODE[,NAME=CODE…]: the call NAME (without _v2) returns CODE; if
//                             real drivers do not recover from CODE, all later calls return it too
//   FAKE_CUDA_DEVICES         number of devices (1)
//   FAKE_CUDA_DRIVER_VERSION  version that cuDriverGetVersion returns (12040)
//   FAKE_CUDA_CAPABILITY      compute capability, two digits (90)
//   FAKE_CUDA_MEMORY          bytes of memory of a device (4 GiB)
//   FAKE_CUDA_STATIC_SHARED   bytes of static shared memory of every kernel (0)
//   FAKE_CUDA_MAX_THREADS     maximum number of threads in a block of every kernel (1024)
//   FAKE_CUDA_CAPTURING       status that cuStreamIsCapturing returns (0). If it is not 0, calls
//                             without a stream, such as loading kernels, fail on threads that are
//                             not in the relaxed capture mode
//   FAKE_CUDA_CUBINS          0: cuModuleLoadDataEx rejects cubins, like a driver that is older
//                             than the cubins (1)
//   FAKE_CUDA_LOG             message of the PTX compiler if cuModuleLoadDataEx fails
//
//===----------------------------------------------------------------------===//

#include "FakeTensorMap.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using Result = int;
using DevicePtr = unsigned long long;

namespace {

long getNumber(const char *name, long otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::atol(text) : otherwise;
}

long getTotalMemory() { return getNumber("FAKE_CUDA_MEMORY", 4l << 30); }

std::mutex mutex;
std::map<void *, size_t> allocations;
size_t allocated = 0;
/// Peak of `allocated` since the last call of fakeCUDAPeakMemory.
size_t peak = 0;
int numAllocations = 0;
std::atomic<Result> sticky{0};
std::atomic<int> loads{0}, cubinLoads{0}, unloads{0};
/// The context stack of this thread.
thread_local std::vector<void *> contexts;
/// The capture mode of this thread, initially global.
thread_local int captureMode = 0;
/// The number of launches of this thread, and the stream of the last one.
thread_local int launches = 0;
thread_local void *launchStream = nullptr;
/// The attributes of this thread's last launch, by number.
thread_local std::map<int, int> launchAttributes;
/// The number of this thread's launches with programmatic dependent launch.
thread_local int programmaticLaunches = 0;
/// The stream of this thread's last allocation on a stream.
thread_local void *memoryStream = nullptr;
/// See fakeCUDAWatch.
thread_local int watched = -1;
thread_local std::vector<char> watchedBytes;
/// See fakeCUDATensorMap.
thread_local FakeTensorMap tensorMap;
/// The last value of each function attribute that was set.
thread_local std::map<int, int> functionAttributes;

/// Returns the status with which call `name` must fail, or 0.
Result begin(const char *name) {
  if (sticky)
    return sticky;
  const char *failing = std::getenv("FAKE_CUDA_FAIL");
  // Tests measure the overhead of launches on this driver, so this must be fast.
  if (!failing)
    return 0;
  std::string list = failing;
  std::string key = std::string(name) + "=";
  for (size_t at = 0; at < list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    if (list.compare(at, key.size(), key) == 0) {
      Result code = std::atoi(list.c_str() + at + key.size());
      // Errors of captures, from 900 on, do not affect the context.
      if (code >= 700 && code < 800 && code != 701)
        sticky = code;
      return code;
    }
    at = end + 1;
  }
  return 0;
}

/// Same, for a call that a capture cannot record. The driver rejects it while any thread captures a
/// stream in the global mode.
Result beginUnsafe(const char *name) {
  constexpr int kRelaxed = 2, kCaptureUnsupported = 900;
  if (getNumber("FAKE_CUDA_CAPTURING", 0) && captureMode != kRelaxed)
    return kCaptureUnsupported;
  return begin(name);
}

Result allocate(DevicePtr *pointer, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  ++numAllocations;
  if (bytes > size_t(getTotalMemory()) - allocated)
    return 2;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!memory)
    return 2;
  allocations[memory] = bytes;
  allocated += bytes;
  peak = std::max(peak, allocated);
  *pointer = reinterpret_cast<DevicePtr>(memory);
  return 0;
}

Result release(DevicePtr pointer) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = allocations.find(reinterpret_cast<void *>(pointer));
  if (found == allocations.end())
    return 1;
  allocated -= found->second;
  std::free(found->first);
  allocations.erase(found);
  return 0;
}

} // namespace

#define BEGIN(name)                                                                                \
  if (Result failure = begin(name))                                                                \
  return failure
#define BEGIN_UNSAFE(name)                                                                         \
  if (Result failure = beginUnsafe(name))                                                          \
  return failure

EXPORT Result cuInit(unsigned) {
  BEGIN("cuInit");
  return 0;
}
EXPORT Result cuDriverGetVersion(int *version) {
  BEGIN("cuDriverGetVersion");
  *version = getNumber("FAKE_CUDA_DRIVER_VERSION", 12040);
  return 0;
}
EXPORT Result cuGetErrorName(Result error, const char **name) {
  switch (error) {
  case 1:
    *name = "CUDA_ERROR_INVALID_VALUE";
    return 0;
  case 2:
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return 0;
  case 209:
    *name = "CUDA_ERROR_NO_BINARY_FOR_GPU";
    return 0;
  case 218:
    *name = "CUDA_ERROR_INVALID_PTX";
    return 0;
  case 222:
    *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
    return 0;
  case 500:
    *name = "CUDA_ERROR_NOT_FOUND";
    return 0;
  case 700:
    *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
    return 0;
  case 701:
    *name = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    return 0;
  case 719:
    *name = "CUDA_ERROR_LAUNCH_FAILED";
    return 0;
  case 900:
    *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    return 0;
  default:
    *name = nullptr;
    return 1;
  }
}
EXPORT Result cuGetErrorString(Result error, const char **text) {
  *text = "as the fake driver was told";
  return 0;
}
EXPORT Result cuDeviceGetCount(int *count) {
  BEGIN("cuDeviceGetCount");
  *count = getNumber("FAKE_CUDA_DEVICES", 1);
  return 0;
}
EXPORT Result cuDeviceGet(int *device, int ordinal) {
  BEGIN("cuDeviceGet");
  *device = ordinal;
  return 0;
}
EXPORT Result cuDeviceGetName(char *name, int length, int device) {
  std::snprintf(name, length, "Fake GPU");
  return 0;
}
EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = getTotalMemory();
  return 0;
}
EXPORT Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  long capability = getNumber("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
  case 16:
    *value = 132;
    break;
  case 75:
    *value = capability / 10;
    break;
  case 76:
    *value = capability % 10;
    break;
  case 97:
    *value = capability >= 90 ? 232448 : 166912;
    break;
  default:
    return 1;
  }
  return 0;
}
EXPORT Result cuDevicePrimaryCtxRetain(void **context, int device) {
  BEGIN("cuDevicePrimaryCtxRetain");
  *context = &mutex;
  return 0;
}
EXPORT Result cuCtxGetCurrent(void **context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return 0;
}
EXPORT Result cuCtxPushCurrent_v2(void *context) {
  BEGIN("cuCtxPushCurrent");
  contexts.push_back(context);
  return 0;
}
EXPORT Result cuCtxPopCurrent_v2(void **context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  if (contexts.empty())
    return 201;
  contexts.pop_back();
  return 0;
}
EXPORT Result cuStreamCreate(void **stream, unsigned flags) {
  BEGIN("cuStreamCreate");
  *stream = &mutex;
  return 0;
}
EXPORT Result cuStreamDestroy_v2(void *stream) { return 0; }
EXPORT Result cuStreamSynchronize(void *stream) {
  BEGIN("cuStreamSynchronize");
  return 0;
}
EXPORT Result cuEventCreate(void **event, unsigned flags) {
  BEGIN("cuEventCreate");
  *event = new std::chrono::steady_clock::time_point;
  return 0;
}
EXPORT Result cuEventDestroy_v2(void *event) {
  delete static_cast<std::chrono::steady_clock::time_point *>(event);
  return 0;
}
EXPORT Result cuEventRecord(void *event, void *stream) {
  *static_cast<std::chrono::steady_clock::time_point *>(event) = std::chrono::steady_clock::now();
  return 0;
}
EXPORT Result cuEventSynchronize(void *event) { return begin("cuEventSynchronize"); }
EXPORT Result cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  using Point = std::chrono::steady_clock::time_point;
  std::chrono::duration<float, std::milli> spent =
      *static_cast<Point *>(end) - *static_cast<Point *>(start);
  *milliseconds = spent.count();
  return 0;
}
EXPORT Result cuMemAlloc_v2(DevicePtr *pointer, size_t bytes) {
  BEGIN_UNSAFE("cuMemAlloc");
  return allocate(pointer, bytes);
}
EXPORT Result cuMemFree_v2(DevicePtr pointer) {
  BEGIN_UNSAFE("cuMemFree");
  return release(pointer);
}
EXPORT Result cuMemPoolCreate(void **pool, const void *props) {
  BEGIN_UNSAFE("cuMemPoolCreate");
  // Pinned memory on device 0.
  const int expected[] = {1, 0, 1, 0};
  if (std::memcmp(props, expected, sizeof(expected)))
    return 1;
  *pool = &allocations;
  return 0;
}
EXPORT Result cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
  BEGIN_UNSAFE("cuMemPoolSetAttribute");
  return pool == &allocations && attribute == 4 ? 0 : 1;
}
EXPORT Result cuMemAllocFromPoolAsync(DevicePtr *pointer, size_t bytes, void *pool, void *stream) {
  BEGIN("cuMemAllocFromPoolAsync");
  memoryStream = stream;
  return pool == &allocations ? allocate(pointer, bytes) : 1;
}
EXPORT Result cuMemFreeAsync(DevicePtr pointer, void *stream) {
  BEGIN("cuMemFreeAsync");
  return stream == memoryStream ? release(pointer) : 1;
}
/// Returns the number of allocated bytes. Sets `stream` to that of this thread's last allocation on
/// a stream.
EXPORT size_t fakeCUDAMemory(void **stream) {
  std::lock_guard<std::mutex> lock(mutex);
  *stream = memoryStream;
  return allocated;
}
/// Returns the peak of allocated bytes since the last call.
EXPORT size_t fakeCUDAPeakMemory() {
  std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(peak, allocated);
}

/// Returns the number of allocations so far, including freed and failed ones.
EXPORT int fakeCUDAAllocations() {
  std::lock_guard<std::mutex> lock(mutex);
  return numAllocations;
}
EXPORT Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  BEGIN("cuMemGetInfo");
  std::lock_guard<std::mutex> lock(mutex);
  *total = getTotalMemory();
  *free = *total - allocated;
  return 0;
}
EXPORT Result cuMemcpyHtoDAsync_v2(DevicePtr dst, const void *src, size_t bytes, void *stream) {
  BEGIN("cuMemcpyHtoDAsync");
  std::memcpy(reinterpret_cast<void *>(dst), src, bytes);
  return 0;
}
EXPORT Result cuMemcpyDtoHAsync_v2(void *dst, DevicePtr src, size_t bytes, void *stream) {
  BEGIN("cuMemcpyDtoHAsync");
  std::memcpy(dst, reinterpret_cast<void *>(src), bytes);
  return 0;
}
EXPORT Result cuMemcpyAsync(DevicePtr dst, DevicePtr src, size_t bytes, void *stream) {
  BEGIN("cuMemcpyAsync");
  std::memcpy(reinterpret_cast<void *>(dst), reinterpret_cast<void *>(src), bytes);
  return 0;
}
EXPORT Result cuMemsetD8Async(DevicePtr dst, unsigned char value, size_t count, void *stream) {
  BEGIN("cuMemsetD8Async");
  std::memset(reinterpret_cast<void *>(dst), value, count);
  return 0;
}
/// Returns how often kernels were loaded.
EXPORT int fakeCUDALoads() { return loads; }
/// Returns how often cubins were loaded.
EXPORT int fakeCUDACubinLoads() { return cubinLoads; }
EXPORT Result cuThreadExchangeStreamCaptureMode(int *mode) {
  BEGIN("cuThreadExchangeStreamCaptureMode");
  std::swap(captureMode, *mode);
  return 0;
}
EXPORT Result cuModuleLoadDataEx(void **module, const void *image, unsigned numOptions,
                                 int *options, void **values) {
  if (Result failure = beginUnsafe("cuModuleLoadDataEx")) {
    constexpr int kErrorLogBuffer = 5, kErrorLogBufferSize = 6;
    char *log = nullptr;
    size_t size = 0;
    for (unsigned i = 0; i < numOptions; ++i) {
      if (options[i] == kErrorLogBuffer)
        log = static_cast<char *>(values[i]);
      if (options[i] == kErrorLogBufferSize)
        size = reinterpret_cast<size_t>(values[i]);
    }
    const char *text = std::getenv("FAKE_CUDA_LOG");
    if (log && text)
      std::snprintf(log, size, "%s", text);
    return failure;
  }
  // The driver's compiler rejects PTX without a target.
  constexpr int kInvalidPTX = 218, kNoBinary = 209;
  auto *text = static_cast<const char *>(image);
  bool isCubin = text[0] == 0x7f;
  if (!isCubin && !std::strstr(text, ".target "))
    return kInvalidPTX;
  if (isCubin && !getNumber("FAKE_CUDA_CUBINS", 1))
    return kNoBinary;
  ++loads;
  cubinLoads += isCubin;
  *module = &mutex;
  return 0;
}
EXPORT Result cuModuleUnload(void *module) {
  if (Result failure = beginUnsafe("cuModuleUnload"))
    return failure;
  ++unloads;
  return 0;
}
/// Returns how often kernels were unloaded.
EXPORT int fakeCUDAUnloads() { return unloads; }
EXPORT Result cuModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN("cuModuleGetFunction");
  *function = &mutex;
  return 0;
}
EXPORT Result cuFuncGetAttribute(int *value, int attribute, void *function) {
  BEGIN("cuFuncGetAttribute");
  *value = attribute == 0   ? getNumber("FAKE_CUDA_MAX_THREADS", 1024)
           : attribute == 1 ? getNumber("FAKE_CUDA_STATIC_SHARED", 0)
                            : 32;
  return 0;
}
EXPORT Result cuFuncSetAttribute(void *function, int attribute, int value) {
  BEGIN("cuFuncSetAttribute");
  functionAttributes[attribute] = value;
  return 0;
}
/// Returns the value to which this thread last set `attribute`, of any function.
EXPORT int fakeCUDAFunctionAttribute(int attribute) { return functionAttributes[attribute]; }
/// Makes this thread's launches copy the first `bytes` bytes of parameter `index`. Returns the
/// copy, which each launch overwrites.
EXPORT const void *fakeCUDAWatch(int index, size_t bytes) {
  watched = index;
  watchedBytes.resize(bytes);
  return watchedBytes.data();
}
EXPORT Result cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, unsigned sharedBytes, void *stream, void **parameters,
                             void **extra) {
  BEGIN("cuLaunchKernel");
  if (contexts.empty())
    return 201;
  ++launches;
  launchStream = stream;
  launchAttributes.clear();
  if (watched >= 0)
    std::memcpy(watchedBytes.data(), parameters[watched], watchedBytes.size());
  return 0;
}
/// Fills the map with 16 copies of its number; this thread's tensor maps are numbered from 1.
EXPORT Result cuTensorMapEncodeTiled(void *map, int dataType, uint32_t rank, void *base,
                                     const uint64_t *sizes, const uint64_t *strides,
                                     const uint32_t *box, const uint32_t *elementStrides,
                                     int interleave, int swizzle, int l2Promotion, int fill) {
  BEGIN("cuTensorMapEncodeTiled");
  if (contexts.empty())
    return 201;
  if (rank > 5 || reinterpret_cast<uintptr_t>(map) % 64 != 0)
    return 1;
  tensorMap = {dataType, int(rank), base, {}, {}, {}, {}, interleave, swizzle, l2Promotion, fill};
  std::copy_n(sizes, rank, tensorMap.sizes);
  std::copy_n(strides, rank - 1, tensorMap.strides);
  std::copy_n(box, rank, tensorMap.box);
  std::copy_n(elementStrides, rank, tensorMap.elementStrides);
  static thread_local uint64_t count = 0;
  std::fill_n(static_cast<uint64_t *>(map), 16, ++count);
  return 0;
}
EXPORT const FakeTensorMap *fakeCUDATensorMap() { return &tensorMap; }
/// Returns the number of this thread's launches. Sets `stream` to that of the last one.
EXPORT int fakeCUDALaunches(void **stream) {
  *stream = launchStream;
  return launches;
}
EXPORT int fakeCUDAContexts() { return contexts.size(); }

struct LaunchAttribute {
  int id, padding;
  int value[16];
};
struct LaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  void *stream;
  const LaunchAttribute *attributes;
  unsigned numAttributes;
};
EXPORT Result cuLaunchKernelEx(const LaunchConfig *config, void *function, void **parameters,
                               void **extra) {
  BEGIN("cuLaunchKernelEx");
  if (Result failure = cuLaunchKernel(function, config->grid[0], config->grid[1], config->grid[2],
                                      config->block[0], config->block[1], config->block[2],
                                      config->sharedBytes, config->stream, parameters, extra))
    return failure;
  for (unsigned i = 0; i < config->numAttributes; ++i)
    launchAttributes[config->attributes[i].id] = config->attributes[i].value[0];
  constexpr int kProgrammaticStreamSerialization = 6;
  programmaticLaunches += launchAttributes.count(kProgrammaticStreamSerialization);
  return 0;
}
EXPORT int fakeCUDAProgrammaticLaunches() { return programmaticLaunches; }
/// Returns the first word of attribute `id` of this thread's last launch; 0 if it was not set.
EXPORT int fakeCUDALaunchAttribute(int id) {
  auto found = launchAttributes.find(id);
  return found == launchAttributes.end() ? 0 : found->second;
}
EXPORT Result cuStreamIsCapturing(void *stream, int *status) {
  BEGIN("cuStreamIsCapturing");
  *status = getNumber("FAKE_CUDA_CAPTURING", 0);
  return 0;
}
