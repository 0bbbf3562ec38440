//===- CUDADevice.h - a device behind the CUDA driver ------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_CUDADEVICE_H
#define FLASHATTN_RUNTIME_CUDADEVICE_H

#include "CUDADriver.h"
#include "Errors.h"
#include "flashattn/Runtime/Device.h"
#include "llvm/ADT/StringMap.h"

#include <atomic>
#include <map>
#include <mutex>

namespace mlir::flashattn {
namespace cuda {

struct Kernel {
  std::string name;
  Function function;
  int staticSharedBytes, registers, maxThreads;
  /// What the driver allows at present. Threads may raise it at once: to the same value.
  std::atomic<int64_t> dynamicSharedLimit{0};
};

struct LoadedModule {
  /// Held while the driver compiles it.
  std::mutex mutex;
  Module module = nullptr; ///< null until then
  llvm::StringMap<std::unique_ptr<Kernel>> kernels;
};

/// What all users of one card in this process share, until the process ends.
struct Card {
  std::mutex mutex;
  Context context = nullptr;
  /// Of allocateOn; made when it is first called.
  MemPool pool = nullptr;
  /// The first error that the context does not survive; never changes once `failed` is set.
  std::string fatal;
  std::atomic<bool> failed{false};
  std::mutex failing;
  /// By hash of content (128 bits) and length.
  std::map<std::tuple<uint64_t, uint64_t, size_t>, LoadedModule> modules;
};

/// Whether every call in the context fails from now on, until the process ends.
bool isFatal(Result result);

} // namespace cuda

class CUDADevice final : public Device {
public:
  CUDADevice(const cuda::Driver &driver, CUDADeviceInfo info, cuda::Card &card)
      : driver(driver), info(std::move(info)), card(card) {}
  ~CUDADevice() override;

  /// Makes the card's context and, where asked to, this device's stream.
  llvm::Error initialize(bool ownStream);

  std::string getId() const override { return llvm::formatv("cuda:{0}", info.ordinal).str(); }
  std::string getDescription() const override;
  std::string getChip() const override { return info.getChip(); }
  int64_t getMultiprocessorCount() const override { return info.multiprocessors; }

  llvm::Expected<void *> allocate(size_t bytes) override;
  llvm::Error release(void *buffer) override;
  llvm::Expected<void *> allocateOn(void *stream, size_t bytes) override;
  llvm::Error releaseOn(void *stream, void *buffer) override;
  llvm::Error copyToDevice(void *dst, const void *src, size_t bytes) override;
  llvm::Error copyToHost(void *dst, const void *src, size_t bytes) override;
  llvm::Error copyOnDevice(void *dst, const void *src, size_t bytes) override;
  llvm::Error fill(void *dst, uint8_t value, size_t bytes) override;
  llvm::Error synchronize() override;
  llvm::Expected<double> time(llvm::function_ref<llvm::Error()> body, unsigned repeats) override;
  void *getStream() override { return stream; }

  llvm::Expected<void *> loadKernels(llvm::StringRef image) override;
  llvm::Expected<void *> getKernel(void *kernels, llvm::StringRef name) override;
  llvm::Error launch(void *kernel, const LaunchShape &shape, void **parameters) override;
  llvm::Error encodeTensorMap(void *map, const TensorMapShape &shape) override;

private:
  /// Turns a result into an error and remembers those that the context does not survive.
  llvm::Error check(cuda::Result result, const llvm::Twine &what);
  /// Runs `call` with the card's context current.
  llvm::Error inContext(const llvm::Twine &what, llvm::function_ref<cuda::Result()> call);
  /// The error that `bytes` of memory are not to be had.
  llvm::Error refuseMemory(size_t bytes);
  /// Refuses PTX that the driver or the card cannot take, with both numbers.
  llvm::Error checkPTX(llvm::StringRef ptx) const;
  llvm::Expected<cuda::LoadedModule *> loadModule(llvm::StringRef image);
  /// Whether a programmatic launch can start beside the end of the kernel before it. Where it
  /// cannot, the kernel starts behind that one, and its wait returns at once.
  bool canOverlap(cuda::Stream stream) const;

  const cuda::Driver &driver;
  CUDADeviceInfo info;
  cuda::Card &card;
  cuda::Stream stream = nullptr;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_CUDADEVICE_H
