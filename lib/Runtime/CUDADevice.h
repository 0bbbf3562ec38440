//===- CUDADevice.h - a device behind the CUDA driver -----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_CUDADEVICE_H
#define FLASHATTN_RUNTIME_CUDADEVICE_H

#include "CUDACard.h"
#include "Errors.h"
#include "flashattn/Runtime/Device.h"

namespace mlir::flashattn {

/// A GPU of this process with its own stream, or with the legacy default stream.
class CUDADevice final : public Device {
public:
  explicit CUDADevice(cuda::Card &card) : card(card), driver(card.getDriver()) {}
  ~CUDADevice() override;

  /// Creates this device's stream.
  llvm::Error makeStream();

  std::string getId() const override { return card.getId().chars; }
  std::string getDescription() const override;
  std::string getChip() const override { return getInfo().getChip(); }
  int64_t getMultiprocessorCount() const override { return card.getInfo().multiprocessors; }

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

  llvm::Expected<void *> addKernels(llvm::StringRef image) override;
  llvm::Error removeKernels(void *kernels) override;
  llvm::Expected<void *> getKernel(void *kernels, llvm::StringRef name) override;
  llvm::Error launch(void *kernel, const LaunchShape &shape, void **parameters) override;
  llvm::Error encodeTensorMap(void *map, const TensorMapShape &shape) override;

private:
  CUDADeviceInfo getInfo() const;

  cuda::Card &card;
  const cuda::Driver &driver;
  cuda::Stream stream = nullptr;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_CUDADEVICE_H
