//===- Device.h - devices that run compiled modules -------------*- C++ -*-===//
//
// One interface for the CPU and CUDA devices. The CUDA driver API is loaded at run time; no CUDA
// toolkit is needed.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_DEVICE_H
#define FLASHATTN_RUNTIME_DEVICE_H

#include "flashattn/Runtime/LaunchShape.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <string>

namespace mlir::flashattn {

/// Properties of a CUDA device that are known before a context is created on it.
struct CUDADeviceInfo {
  int ordinal;
  std::string name;
  int computeMajor, computeMinor; ///< compute capability, 9.0 for Hopper
  int64_t memoryBytes;            ///< total global memory
  int64_t sharedMemoryPerBlock;   ///< opt-in maximum, bytes
  int multiprocessors;

  /// Returns the `chip` option of the pipelines, such as "sm_80", or "sm_90a" for Hopper, whose
  /// architecture-specific instructions require the suffix.
  std::string getChip() const;
};

/// A device with its own memory, which may run work asynchronously. Buffers are raw addresses in
/// the device's memory. Only getKernel, launch, allocateOn and releaseOn are thread-safe; only one
/// thread at a time may call the other functions.
class Device {
public:
  virtual ~Device() = default;

  /// Returns "cpu", "cuda:N" or "model:sm_XX".
  virtual std::string getId() const = 0;
  /// Returns a human-readable description: processor and threads, or GPU and memory.
  virtual std::string getDescription() const = 0;
  /// Returns the `chip` option of the pipelines: "cpu", or for example "sm_80".
  virtual std::string getChip() const = 0;
  /// Whether this is a model of a GPU on the host, which runs code that was compiled for the model.
  virtual bool isModel() const { return false; }
  bool isCUDA() const { return getChip() != "cpu" && !isModel(); }
  /// Returns the number of multiprocessors of a CUDA device or of the modeled GPU; 1 on the CPU.
  virtual int64_t getMultiprocessorCount() const { return 1; }

  /// Allocates `bytes` of device memory, aligned to 256 bytes. Errors: out of memory, with the
  /// needed and the free bytes.
  virtual llvm::Expected<void *> allocate(size_t bytes) = 0;
  virtual llvm::Error release(void *buffer) = 0;
  /// Restricts the accesses of kernels to `bytes` bytes of `buffer` from `begin` on. Only a model
  /// checks the restriction.
  virtual void limit(void *buffer, void *begin, size_t bytes) {}
  /// Allocates and releases memory in stream order, for work on `stream`, a CUstream, without
  /// waiting. A stream capture records the calls as nodes of its graph. Released memory is kept for
  /// later calls of allocateOn. Errors: out of memory; a driver without stream-ordered allocation.
  virtual llvm::Expected<void *> allocateOn(void *stream, size_t bytes) { return allocate(bytes); }
  virtual llvm::Error releaseOn(void *stream, void *buffer) { return release(buffer); }
  virtual llvm::Error copyToDevice(void *dst, const void *src, size_t bytes) = 0;
  virtual llvm::Error copyToHost(void *dst, const void *src, size_t bytes) = 0;
  virtual llvm::Error copyOnDevice(void *dst, const void *src, size_t bytes) = 0;
  /// Sets `bytes` bytes at `dst` to `value`.
  virtual llvm::Error fill(void *dst, uint8_t value, size_t bytes) = 0;
  /// Waits for all work submitted so far, and reports its errors.
  virtual llvm::Error synchronize() = 0;
  /// Returns the average time of one `body` in milliseconds, over `repeats` consecutive runs,
  /// measured by events on CUDA and by the steady clock on the CPU.
  virtual llvm::Expected<double> time(llvm::function_ref<llvm::Error()> body, unsigned repeats) = 0;

  /// Adds a copy of PTX text or of a cubin, and returns a handle of the image. If this process has
  /// added an equal image before, it is reused. Errors: the driver is too old for the PTX version
  /// (with both versions), wrong architecture; always on the CPU.
  virtual llvm::Expected<void *> addKernels(llvm::StringRef image);
  /// Reverts one addKernels. When the last reference to an image is removed, the driver unloads its
  /// kernels after all work that the process has submitted to the device is done. Kernels that a
  /// stream capture has recorded in a graph stay loaded until the process ends, because the graph
  /// may be launched again.
  virtual llvm::Error removeKernels(void *kernels) { return llvm::Error::success(); }
  /// Returns the kernel `name` of an image that addKernels returned. The driver loads an image when
  /// one of its kernels is first requested, which may take as long as compiling it: request kernels
  /// before a launch that must be fast. The call does not affect a stream capture. Errors: the log
  /// of the driver's compiler; no such kernel.
  virtual llvm::Expected<void *> getKernel(void *kernels, llvm::StringRef name);
  /// Launches a kernel; `parameters` holds the addresses of its parameters. Does not wait or
  /// allocate, so that a launch may be captured into a graph. Errors: shared memory beyond the
  /// limit, with the needed and the available bytes; launch failure.
  virtual llvm::Error launch(void *kernel, const LaunchShape &shape, void **parameters);
  /// Writes the CUtensorMap of `shape`, 128 bytes, to `map`, which must be aligned to 64 bytes.
  /// Elements outside the tensor are loaded as zeros. The stride of a dimension of size 1 is
  /// ignored. A tensor without elements has a map that loads zeros, and its base may be null. Does
  /// not allocate, except 256 bytes once, for the first such map.
  /// Errors, each with the dimension, the value and the values that TMA supports: base not aligned
  /// to 16 bytes, last dimension not contiguous, stride not a multiple of 16 bytes or not in [0,
  /// 2^40), more than 2^32 elements along a dimension, a box row of unsupported size; a driver
  /// without tensor maps; always on the CPU.
  virtual llvm::Error encodeTensorMap(void *map, const TensorMapShape &shape);
  /// Returns the stream (CUstream) of launches, copies and fills; null on the CPU.
  virtual void *getStream() { return nullptr; }
};

llvm::Expected<std::unique_ptr<Device>> createCPUDevice();
/// Creates CUDA device `ordinal`. If `ownStream` is true, a stream is created for the device;
/// otherwise getStream is the legacy default stream, for callers that pass a stream to each launch.
/// Errors, each with its own message: driver library missing, driver too old, no device, no device
/// with that number.
llvm::Expected<std::unique_ptr<Device>> createCUDADevice(int ordinal, bool ownStream = true);
/// Returns the CUDA devices of this machine. Errors: those of createCUDADevice.
llvm::Expected<llvm::SmallVector<CUDADeviceInfo>> listCUDADevices();

/// Versions that the CUDA driver supports.
struct CUDADriverInfo {
  int version;       ///< CUDA version, 1000 * major + 10 * minor
  int maxPTXVersion; ///< 10 * major + minor
};
/// Returns the versions that the driver supports. Errors: those of createCUDADevice.
llvm::Expected<CUDADriverInfo> getCUDADriverInfo();

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_DEVICE_H
