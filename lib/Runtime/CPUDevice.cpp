//===- CPUDevice.cpp - the host as a device -------------------------------===//

#include "Errors.h"
#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/ParallelFor.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

Expected<void *> Device::addKernels(llvm::StringRef image) {
  return formatError("expected a CUDA device for kernels but got {0}", getId());
}
Expected<void *> Device::getKernel(void *kernels, llvm::StringRef name) {
  return formatError("expected a CUDA device for kernel '{0}' but got {1}", name, getId());
}
Error Device::launch(void *kernel, const LaunchShape &shape, void **parameters) {
  return formatError("expected a CUDA device to launch a kernel but got {0}", getId());
}
Error Device::encodeTensorMap(void *map, const TensorMapShape &shape) {
  return formatError("expected a CUDA device for a tensor map but got {0}", getId());
}

/// Returns the bytes that the system can provide without swapping; nullopt if it is unknown.
static std::optional<uint64_t> getAvailableMemory() {
  auto file = llvm::MemoryBuffer::getFileAsStream("/proc/meminfo");
  if (!file)
    return std::nullopt;
  llvm::StringRef text = (*file)->getBuffer();
  size_t at = text.find("MemAvailable:");
  if (at == llvm::StringRef::npos)
    return std::nullopt;
  text = text.drop_front(at + llvm::StringRef("MemAvailable:").size()).ltrim();
  uint64_t kilobytes;
  if (text.consumeInteger(10, kilobytes))
    return std::nullopt;
  return kilobytes * 1024;
}

namespace {

class CPUDevice final : public Device {
public:
  std::string getId() const override { return "cpu"; }
  std::string getDescription() const override {
    return llvm::formatv("{0}, {1} threads", llvm::sys::getHostCPUName(), flashattnThreadCount())
        .str();
  }
  std::string getChip() const override { return "cpu"; }

  Expected<void *> allocate(size_t bytes) override {
    constexpr size_t kAlignment = 256;
    // Linux promises more memory than it has, and kills a process that then uses it. So the
    // available memory is checked before large allocations.
    constexpr size_t kLarge = size_t(1) << 28;
    std::optional<uint64_t> available;
    if (bytes >= kLarge)
      available = getAvailableMemory();
    void *pointer = nullptr;
    if (bytes <= std::numeric_limits<size_t>::max() - kAlignment &&
        (!available || bytes <= *available))
      pointer = std::aligned_alloc(kAlignment, (std::max<size_t>(bytes, 1) + kAlignment - 1) &
                                                   ~(kAlignment - 1));
    if (!pointer)
      return formatError("out of memory on the CPU: needed {0} bytes but {1} are free", bytes,
                         available ? std::to_string(*available) : "fewer");
    return pointer;
  }
  Error release(void *buffer) override {
    std::free(buffer);
    return Error::success();
  }
  Error copyToDevice(void *dst, const void *src, size_t bytes) override {
    return copyOnDevice(dst, src, bytes);
  }
  Error copyToHost(void *dst, const void *src, size_t bytes) override {
    return copyOnDevice(dst, src, bytes);
  }
  Error copyOnDevice(void *dst, const void *src, size_t bytes) override {
    if (bytes)
      std::memcpy(dst, src, bytes);
    return Error::success();
  }
  Error fill(void *dst, uint8_t value, size_t bytes) override {
    if (bytes)
      std::memset(dst, value, bytes);
    return Error::success();
  }
  Error synchronize() override { return Error::success(); }
  Expected<double> time(llvm::function_ref<Error()> body, unsigned repeats) override {
    auto start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < repeats; ++i)
      if (Error error = body())
        return error;
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / std::max(repeats, 1u);
  }
};

} // namespace

Expected<std::unique_ptr<Device>> mlir::flashattn::createCPUDevice() {
  return std::make_unique<CPUDevice>();
}
