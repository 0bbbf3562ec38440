//===- CUDACard.h - a GPU behind the CUDA driver ----------------*- C++ -*-===//
//
// The functions of a GPU that kernels and their memory require. Does not use LLVM (Fault.h),
// because it is part of programs that were compiled ahead of time. All objects exist until the
// process ends, except for kernels that are removed.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_CUDACARD_H
#define FLASHATTN_RUNTIME_CUDACARD_H

#include "CUDADriver.h"
#include "flashattn/Runtime/LaunchShape.h"

#include <atomic>

namespace mlir::flashattn::cuda {

/// Whether every further call in the context fails, until the process ends.
bool isFatal(Result result);

/// Properties of a GPU that are known before a context is created on it.
struct CardInfo {
  int ordinal;
  char name[256];
  int computeMajor, computeMinor; ///< compute capability, 9.0 for Hopper
  int64_t memoryBytes;            ///< total global memory
  int64_t sharedMemoryPerBlock;   ///< opt-in maximum, bytes
  int multiprocessors;

  int getCapability() const { return computeMajor * 10 + computeMinor; }
};
CardInfo getInfo(const Driver &driver, int ordinal);

struct LoadedModule;

struct Kernel {
  char *name;
  LoadedModule *module;
  Function function;
  int staticSharedBytes, registers, maxThreads;
  /// The limit that is set in the driver. Threads that raise it concurrently set the same value.
  std::atomic<int64_t> dynamicSharedLimit;
  Kernel *next;
};

/// Identifies an image.
struct ImageKey {
  uint64_t low, high;
  /// The length of an image that must be copied; 0 for an image that exists as long as the process.
  size_t bytes;
};

/// An image, which the driver loads when one of its kernels is first requested.
struct LoadedModule {
  ImageKey key;
  const char *image; ///< read until the module is loaded
  char *copy;        ///< the copy of the image, if any, until the module is loaded
  char *cubin;       ///< compiled ahead of time, or null, until the module is loaded
  /// Held while the driver compiles the module.
  Mutex mutex;
  Module module; ///< null until it is loaded
  std::atomic<Kernel *> kernels;
  /// Number of times it was added and not removed; guarded by the mutex of the Card.
  int64_t users;
  /// Whether a graph may contain one of its kernels.
  std::atomic<bool> isCaptured;
  LoadedModule *next;
};

/// Whether code for an architecture (90 for sm_90a) and its variant ('a', 'f' or 0) runs on a GPU
/// of that compute capability. Code without a variant runs on all later ones, `f` on later ones of
/// the same family, `a` only on its own.
bool runsOn(int architecture, char variant, int capability);

/// The state that all users of a GPU in this process share. Thread-safe.
class Card {
public:
  /// Opens the driver and creates the GPU's context, unless this was done before. Errors: those of
  /// getDriver; no GPU with that number; no context.
  static Fault get(int ordinal, Card *&card);

  const CardInfo &getInfo() const { return info; }
  const Driver &getDriver() const { return driver; }
  /// Returns "cuda:0" for GPU 0.
  Text getId() const { return Text::format("cuda:%d", info.ordinal); }
  /// Whether an error has occurred after which the context cannot be used.
  bool hasFailed() const { return failed; }

  /// Runs `call` with the GPU's context current. In messages, `what` follows "cannot".
  template <typename F> Fault inContext(const char *what, F call) {
    if (Fault fault = enter())
      return fault;
    // It usually is, because the CUDA runtime uses the same primary context.
    Context current = nullptr, popped = nullptr;
    bool isCurrent = !driver.ctxGetCurrent(&current) && current == context;
    if (!isCurrent)
      if (Result result = driver.ctxPushCurrent(context))
        return check(result, "use the context");
    Result result = call();
    if (!isCurrent)
      driver.ctxPopCurrent(&popped);
    return check(result, what);
  }
  /// Runs `call`, in the context, outside of all stream captures, on this and on other threads.
  /// During a capture, the driver rejects calls that are not submitted to a stream, and invalidates
  /// the capture. Returns the result of `call`, or the reason why captures cannot be excluded.
  template <typename F> Result outsideCaptures(F call) const {
    int mode = kCaptureModeRelaxed;
    if (Result failed = driver.threadExchangeStreamCaptureMode(&mode))
      return failed;
    Result result = call();
    driver.threadExchangeStreamCaptureMode(&mode);
    return result;
  }
  /// Converts a result to a fault, and remembers an error after which the context cannot be used.
  Fault check(Result result, const char *what);

  /// Allocates `bytes` of the GPU's memory. Errors: out of memory (needed, free).
  Fault allocate(size_t bytes, void *&buffer);
  Fault release(void *buffer);
  /// Same in stream order; see Device.
  Fault allocateOn(Stream stream, size_t bytes, void *&buffer);
  Fault releaseOn(Stream stream, void *buffer);
  /// Copies in stream order. Copies from and to the host wait until they are done.
  Fault copyToDevice(void *dst, const void *src, size_t bytes, Stream stream);
  Fault copyToHost(void *dst, const void *src, size_t bytes, Stream stream);
  Fault copyOnDevice(void *dst, const void *src, size_t bytes, Stream stream);
  /// Sets `bytes` bytes at `dst` to `value`.
  Fault fill(void *dst, uint8_t value, size_t bytes, Stream stream);
  Fault synchronize(Stream stream);

  /// Adds PTX, which ends with a zero unless the key has its length, or a cubin. An image with the
  /// same key is reused. `cubin`, of `cubinBytes` bytes, was compiled from the PTX; it is copied,
  /// and loaded instead of the PTX if the driver and the GPU support it. Errors: see Device.
  Fault addKernels(const ImageKey &key, const char *image, LoadedModule *&module,
                   const char *cubin = nullptr, size_t cubinBytes = 0);
  /// Reverts one addKernels of the module. After the last one, the driver unloads the module, which
  /// waits for all work submitted to the context, because a kernel of it may still run. A module
  /// that a graph may contain stays loaded, because a graph may be launched at any time. Null is
  /// allowed.
  Fault removeKernels(LoadedModule *module);
  /// Returns the kernel with that name. Loads its module if needed, in a stream capture too.
  /// Errors: see Device.
  Fault getKernel(LoadedModule &module, const char *name, size_t nameLength, Kernel *&kernel);
  /// Starts a kernel on `stream`; the stream of `shape` is ignored. Errors: see Device.
  Fault launch(Kernel &kernel, const LaunchShape &shape, Stream stream, void **parameters);
  /// Writes a CUtensorMap. Errors: see Device.
  Fault encodeTensorMap(void *map, const TensorMapShape &shape);

private:
  Card(const Driver &driver, int ordinal) : driver(driver), info(cuda::getInfo(driver, ordinal)) {}
  /// Returns a fault after a fatal error.
  Fault enter();
  /// Allocates memory by `allocate(&pointer, bytes)`.
  template <typename AllocateFn> Fault allocateBy(size_t bytes, void *&buffer, AllocateFn allocate);
  Fault refuseMemory(size_t bytes);
  Fault makePool();
  /// Returns `kZeroBytes` bytes of the GPU's memory that hold zeros.
  Fault getZeros(void *&memory);
  /// Rejects PTX that the driver or the GPU does not support, and states both versions.
  Fault checkPTX(const char *ptx);
  /// Loads the module in the driver; its mutex must be held.
  Fault load(LoadedModule &module);
  Fault checkLaunch(Kernel &kernel, const LaunchShape &shape);
  /// Records if a launch on the stream becomes part of a graph.
  void noteCapture(LoadedModule &module, Stream stream) const;
  /// Whether a programmatic launch can overlap with the end of the previous kernel. If not, the
  /// kernel starts after it, and its wait returns at once.
  bool canOverlap(Stream stream) const;

  const Driver &driver;
  CardInfo info;
  Mutex mutex;
  Context context = nullptr;
  /// The pool of allocateOn, created when that is first called.
  MemPool pool = nullptr;
  /// The memory of getZeros, allocated when that is first called.
  static constexpr size_t kZeroBytes = 256;
  DevicePtr zeros = 0;
  /// The first error after which the context cannot be used; constant once `failed` is set.
  Text fatal;
  std::atomic<bool> failed{false};
  Mutex failing;
  LoadedModule *modules = nullptr;
  Card *next = nullptr;
};

/// Checks the conditions of Device::encodeTensorMap that are limits of TMA; `id` names the device.
Fault checkTensorMap(const char *id, const TensorMapShape &shape);

} // namespace mlir::flashattn::cuda

#endif // FLASHATTN_RUNTIME_CUDACARD_H
