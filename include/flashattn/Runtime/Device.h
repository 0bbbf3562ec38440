//===- Device.h - where a compiled module runs -------------------*- C++ -*-===//
//
// One interface over the CPU and a CUDA device. The CUDA driver API is opened at
// run time; nothing here needs a toolkit.
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

/// What is known of a CUDA device before a context is made on it.
struct CUDADeviceInfo {
  int ordinal;
  std::string name;
  int computeMajor, computeMinor; ///< compute capability, 9.0 for Hopper
  int64_t memoryBytes;            ///< total global memory
  int64_t sharedMemoryPerBlock;   ///< opt-in maximum, bytes
  int multiprocessors;

  /// The `chip` of the pipelines: "sm_80"; "sm_90a" for Hopper, whose own instructions are
  /// behind the suffix.
  std::string getChip() const;
};

/// A place with memory of its own and work that may run asynchronously. Buffers
/// are plain addresses of the device's memory. Not thread-safe, one thread at a time, but
/// for getKernel, launch, allocateOn and releaseOn.
class Device {
public:
  virtual ~Device() = default;

  /// "cpu", "cuda:N" or "model:sm_XX".
  virtual std::string getId() const = 0;
  /// For people: processor or card, threads or memory.
  virtual std::string getDescription() const = 0;
  /// The `chip` of the pipelines: "cpu", or "sm_80" and the like.
  virtual std::string getChip() const = 0;
  /// A model of a GPU, on the host: runs what is compiled for the model of its chip.
  virtual bool isModel() const { return false; }
  bool isCUDA() const { return getChip() != "cpu" && !isModel(); }
  /// Multiprocessors of a CUDA device, or of what a model is of; 1 on the CPU.
  virtual int64_t getMultiprocessorCount() const { return 1; }

  /// `bytes` of device memory aligned to 256 bytes. Errors: out of memory (needed, free).
  virtual llvm::Expected<void *> allocate(size_t bytes) = 0;
  virtual llvm::Error release(void *buffer) = 0;
  /// Kernels shall touch no more of a buffer than `bytes` bytes from `begin` on. Only a model sees to
  /// it.
  virtual void limit(void *buffer, void *begin, size_t bytes) {}
  /// The same for work on `stream`, a CUstream, in its order: nothing waits, and a capture of the
  /// stream makes nodes of its graph of them. What is released is kept for the next such call.
  /// Errors: out of memory; a driver without stream-ordered allocation.
  virtual llvm::Expected<void *> allocateOn(void *stream, size_t bytes) { return allocate(bytes); }
  virtual llvm::Error releaseOn(void *stream, void *buffer) { return release(buffer); }
  virtual llvm::Error copyToDevice(void *dst, const void *src, size_t bytes) = 0;
  virtual llvm::Error copyToHost(void *dst, const void *src, size_t bytes) = 0;
  virtual llvm::Error copyOnDevice(void *dst, const void *src, size_t bytes) = 0;
  /// Sets `bytes` bytes at `dst` to `value`.
  virtual llvm::Error fill(void *dst, uint8_t value, size_t bytes) = 0;
  /// Waits for all work given so far; reports what went wrong in it.
  virtual llvm::Error synchronize() = 0;
  /// Average milliseconds of one `body` over `repeats` runs given back to back
  /// (device events on CUDA, the steady clock on the CPU).
  virtual llvm::Expected<double> time(llvm::function_ref<llvm::Error()> body, unsigned repeats) = 0;

  /// Takes PTX text or a cubin, a copy of it, which is loaded when a kernel of it is first asked
  /// for; what was taken before in this process is reused. Errors: driver too old for the PTX
  /// version (both), wrong architecture; on the CPU always.
  virtual llvm::Expected<void *> addKernels(llvm::StringRef image);
  /// Takes back one addKernels. With the last of an image the driver unloads its kernels, once all
  /// work that the process has given to the device is done; those that a capture of a stream has
  /// made part of a graph stay until the process ends, for the graph may be launched again.
  virtual llvm::Error removeKernels(void *kernels) { return llvm::Error::success(); }
  /// The kernel `name` of what addKernels returned. The first time that one of an image is asked
  /// for, the driver loads the image, which may take it as long as a compiler: ask before a launch
  /// that must be quick. A capture of a stream takes no notice of it. Errors: the log of the
  /// driver's compiler; no such kernel.
  virtual llvm::Expected<void *> getKernel(void *kernels, llvm::StringRef name);
  /// Starts a kernel; `parameters` are addresses of its parameters. Waits for nothing and
  /// allocates nothing, so that a launch may be captured into a graph.
  /// Errors: shared memory beyond the limit (needed, available), launch failure.
  virtual llvm::Error launch(void *kernel, const LaunchShape &shape, void **parameters);
  /// Writes the CUtensorMap of `shape`, 128 bytes, to `map`, which is aligned to 64 bytes. What
  /// lies outside of the tensor reads as zeros. The stride of a dimension of one element
  /// does not matter; a tensor without elements has a valid map that nothing may load from.
  /// Allocates nothing. Errors, each with the dimension, the value and what TMA takes: base not
  /// aligned to 16 bytes, last dimension not contiguous, stride no multiple of 16 bytes or not in
  /// [0, 2^40), more than 2^32 elements along a dimension, row of the box of another width; a
  /// driver without tensor maps; on the CPU always.
  virtual llvm::Error encodeTensorMap(void *map, const TensorMapShape &shape);
  /// The stream (CUstream) that launches, copies and fills go to; null on the CPU.
  virtual void *getStream() { return nullptr; }
};

llvm::Expected<std::unique_ptr<Device>> createCPUDevice();
/// Errors, each with its own message: driver library missing, driver too old, no
/// device, no device of that number. With `ownStream` false the device's own stream is the
/// legacy default one: for who brings a stream to each launch.
llvm::Expected<std::unique_ptr<Device>> createCUDADevice(int ordinal, bool ownStream = true);
/// The CUDA devices of this machine. The same errors as createCUDADevice.
llvm::Expected<llvm::SmallVector<CUDADeviceInfo>> listCUDADevices();

/// What the CUDA driver takes.
struct CUDADriverInfo {
  int version;       ///< of CUDA, 1000 * major + 10 * minor
  int maxPTXVersion; ///< 10 * major + minor
};
/// The same errors as createCUDADevice.
llvm::Expected<CUDADriverInfo> getCUDADriverInfo();

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_DEVICE_H
