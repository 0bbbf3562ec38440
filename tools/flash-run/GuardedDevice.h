//===- GuardedDevice.h - a device with guarded buffers ----------*- C++ -*-===//
//
// Every buffer, including those that compiled code allocates, is filled with NaN (bytes 0xFF) and
// lies between margins whose pattern is checked later.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_GUARDEDDEVICE_H
#define FLASH_RUN_GUARDEDDEVICE_H

#include "flashattn/Runtime/Device.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::flashattn {

class GuardedDevice final : public Device {
public:
  /// NaN in every float type: values that are read outside a buffer, or before they are written,
  /// become visible in the results (rule A7).
  static constexpr uint8_t kPoison = 0xff, kGuard = 0xff;
  static constexpr size_t kMargin = 4096;
  /// The maximum size of released buffers, including margins, that are held until their margins are
  /// checked.
  static constexpr size_t kMostHeldBytes = size_t(1) << 28;

  explicit GuardedDevice(Device &inner) : inner(inner) {}
  ~GuardedDevice() override;

  /// Checks the margins of every buffer that is not yet freed. Errors: the first byte written
  /// outside a buffer.
  llvm::Error checkMargins();

  /// Stops filling and checking buffers, for timing. Released buffers are then reused for
  /// allocations of the same size.
  void stopGuarding() { guarding = false; }

  /// Returns a mark for releaseSince, which frees the buffers that are allocated later.
  size_t mark() const { return sequence; }
  /// Frees the buffers that compiled code has allocated since `mark` and not freed.
  llvm::Error releaseSince(size_t mark);

  std::string getId() const override { return inner.getId(); }
  std::string getDescription() const override { return inner.getDescription(); }
  std::string getChip() const override { return inner.getChip(); }
  bool isModel() const override { return inner.isModel(); }
  int64_t getMultiprocessorCount() const override { return inner.getMultiprocessorCount(); }
  llvm::Expected<void *> allocate(size_t bytes) override;
  llvm::Error release(void *buffer) override;
  llvm::Error copyToDevice(void *dst, const void *src, size_t bytes) override {
    return inner.copyToDevice(dst, src, bytes);
  }
  llvm::Error copyToHost(void *dst, const void *src, size_t bytes) override {
    return inner.copyToHost(dst, src, bytes);
  }
  llvm::Error copyOnDevice(void *dst, const void *src, size_t bytes) override {
    return inner.copyOnDevice(dst, src, bytes);
  }
  llvm::Error fill(void *dst, uint8_t value, size_t bytes) override {
    return inner.fill(dst, value, bytes);
  }
  llvm::Error synchronize() override { return inner.synchronize(); }
  llvm::Expected<double> time(llvm::function_ref<llvm::Error()> body, unsigned repeats) override {
    return inner.time(body, repeats);
  }
  llvm::Expected<void *> addKernels(llvm::StringRef image) override {
    return inner.addKernels(image);
  }
  llvm::Error removeKernels(void *kernels) override { return inner.removeKernels(kernels); }
  llvm::Expected<void *> getKernel(void *kernels, llvm::StringRef name) override {
    return inner.getKernel(kernels, name);
  }
  llvm::Error launch(void *kernel, const LaunchShape &shape, void **parameters) override {
    return inner.launch(kernel, shape, parameters);
  }
  llvm::Error encodeTensorMap(void *map, const TensorMapShape &shape) override {
    return inner.encodeTensorMap(map, shape);
  }
  void *getStream() override { return inner.getStream(); }

private:
  struct Buffer {
    void *base; ///< start of the first margin
    size_t bytes;
    size_t sequence;
    bool isGuarded;
    bool isReleased;
  };
  llvm::Error checkMargin(const Buffer &buffer, size_t begin, const char *side);
  /// Checks all margins and frees the guarded buffers that were released.
  llvm::Error freeHeld();

  Device &inner;
  bool guarding = true;
  size_t sequence = 0, heldBytes = 0;
  llvm::MapVector<void *, Buffer> buffers;
  /// Released buffers for reuse, by size.
  llvm::DenseMap<size_t, llvm::SmallVector<void *>> spare;
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_GUARDEDDEVICE_H
