//===- CUDACard.h - a card behind the CUDA driver ---------------*- C++ -*-===//
//
// What kernels and their memory need of a card. Needs no LLVM (Fault.h): programs that were
// compiled ahead of time have it too. What is made here lives until the process ends, but for
// kernels that are removed.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_CUDACARD_H
#define FLASHATTN_RUNTIME_CUDACARD_H

#include "CUDADriver.h"
#include "flashattn/Runtime/LaunchShape.h"

#include <atomic>

namespace mlir::flashattn::cuda {

/// Whether every call in the context fails from now on, until the process ends.
bool isFatal(Result result);

/// What is known of a card before a context is made on it.
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
  /// What the driver allows at present. Threads may raise it at once: to the same value.
  std::atomic<int64_t> dynamicSharedLimit;
  Kernel *next;
};

/// What tells an image from all others.
struct ImageKey {
  uint64_t low, high;
  /// Its length where it is to be copied; 0 for an image that stays as long as the process.
  size_t bytes;
};

/// An image, which the driver loads when a kernel of it is first asked for.
struct LoadedModule {
  ImageKey key;
  const char *image; ///< read until it is loaded
  char *copy;        ///< the image where it is one, and not loaded yet
  char *cubin;       ///< made ahead of the image, or null; not loaded yet
  /// Held while the driver compiles it.
  Mutex mutex;
  Module module; ///< null until then
  std::atomic<Kernel *> kernels;
  /// How often it was added and not removed; belongs to the card's mutex.
  int64_t users;
  /// Whether a graph may hold a kernel of it.
  std::atomic<bool> isCaptured;
  LoadedModule *next;
};

/// Whether code for an architecture (90 of sm_90a) and its variant ('a', 'f' or 0) runs on a card
/// of that compute capability: plain code on every later one, `f` on later ones of its family, `a`
/// on its own.
bool runsOn(int architecture, char variant, int capability);

/// What all users of one card in this process share. Any number of threads may use it at once.
class Card {
public:
  /// Opens the driver and makes the card's context, where nobody has. Errors: those of getDriver;
  /// no card of that number; no context.
  static Fault get(int ordinal, Card *&card);

  const CardInfo &getInfo() const { return info; }
  const Driver &getDriver() const { return driver; }
  /// "cuda:0".
  Text getId() const { return Text::format("cuda:%d", info.ordinal); }
  /// Whether an error came that the context does not survive.
  bool hasFailed() const { return failed; }

  /// Runs `call` with the card's context current. `what` says what it does, behind "cannot".
  template <typename F> Fault inContext(const char *what, F call) {
    if (Fault fault = enter())
      return fault;
    // Mostly it is: the CUDA runtime uses the same primary context.
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
  /// Has `call`, which runs in the context, belong to no capture of a stream, of this thread or of
  /// another one. While one is under way the driver refuses whatever is not given to a stream, and
  /// makes the capture invalid. Returns what `call` does, or why captures cannot be kept out.
  template <typename F> Result outsideCaptures(F call) const {
    int mode = kCaptureModeRelaxed;
    if (Result failed = driver.threadExchangeStreamCaptureMode(&mode))
      return failed;
    Result result = call();
    driver.threadExchangeStreamCaptureMode(&mode);
    return result;
  }
  /// Turns a result into a fault and remembers those that the context does not survive.
  Fault check(Result result, const char *what);

  /// `bytes` of the card's memory. Errors: out of memory (needed, free).
  Fault allocate(size_t bytes, void *&buffer);
  Fault release(void *buffer);
  /// The same in the order of a stream; see Device.
  Fault allocateOn(Stream stream, size_t bytes, void *&buffer);
  Fault releaseOn(Stream stream, void *buffer);
  /// Copies in the order of a stream; those from and to the host wait for it.
  Fault copyToDevice(void *dst, const void *src, size_t bytes, Stream stream);
  Fault copyToHost(void *dst, const void *src, size_t bytes, Stream stream);
  Fault copyOnDevice(void *dst, const void *src, size_t bytes, Stream stream);
  /// Sets `bytes` bytes to `value`.
  Fault fill(void *dst, uint8_t value, size_t bytes, Stream stream);
  Fault synchronize(Stream stream);

  /// Takes PTX, which ends with a zero unless the key has its length, or a cubin. What came with
  /// the same key is reused. `cubin`, of `cubinBytes` bytes, was made of the PTX before and is
  /// loaded in its place where driver and card take it; it is copied. Errors: see Device.
  Fault addKernels(const ImageKey &key, const char *image, LoadedModule *&module,
                   const char *cubin = nullptr, size_t cubinBytes = 0);
  /// Takes back one addKernels of it. With the last the driver unloads it, which waits for all work
  /// of the context that was given before: no kernel of it may still run. What a graph may hold
  /// stays, for a graph may be launched at any time. Null is nothing.
  Fault removeKernels(LoadedModule *module);
  /// The kernel of that name. Loads its module where nobody has, in the capture of a stream too.
  /// Errors: see Device.
  Fault getKernel(LoadedModule &module, const char *name, size_t nameLength, Kernel *&kernel);
  /// Starts a kernel on `stream`, whatever the shape says of it. Errors: see Device.
  Fault launch(Kernel &kernel, const LaunchShape &shape, Stream stream, void **parameters);
  /// Writes a CUtensorMap. Errors: see Device.
  Fault encodeTensorMap(void *map, const TensorMapShape &shape);

private:
  Card(const Driver &driver, int ordinal) : driver(driver), info(cuda::getInfo(driver, ordinal)) {}
  /// Refuses work after a fatal error.
  Fault enter();
  /// Memory that the driver gives by `allocate(&pointer, bytes)`.
  template <typename AllocateFn> Fault allocateBy(size_t bytes, void *&buffer, AllocateFn allocate);
  Fault refuseMemory(size_t bytes);
  Fault makePool();
  /// Refuses PTX that the driver or the card cannot take, with both numbers.
  Fault checkPTX(const char *ptx);
  /// Has the driver load it; the module's mutex is held.
  Fault load(LoadedModule &module);
  Fault checkLaunch(Kernel &kernel, const LaunchShape &shape);
  /// Notes it where a launch on the stream becomes part of a graph.
  void noteCapture(LoadedModule &module, Stream stream) const;
  /// Whether a programmatic launch can start beside the end of the kernel before it. Where it
  /// cannot, the kernel starts behind that one, and its wait returns at once.
  bool canOverlap(Stream stream) const;

  const Driver &driver;
  CardInfo info;
  Mutex mutex;
  Context context = nullptr;
  /// Of allocateOn; made when it is first called.
  MemPool pool = nullptr;
  /// The first error that the context does not survive; never changes once `failed` is set.
  Text fatal;
  std::atomic<bool> failed{false};
  Mutex failing;
  LoadedModule *modules = nullptr;
  Card *next = nullptr;
};

/// The errors of Device::encodeTensorMap that are those of TMA; `id` names the device.
Fault checkTensorMap(const char *id, const TensorMapShape &shape);

} // namespace mlir::flashattn::cuda

#endif // FLASHATTN_RUNTIME_CUDACARD_H
