//===- CUDADevice.cpp - a GPU as a device ---------------------------------===//

#include "CUDADevice.h"
#include "flashattn/Runtime/KernelArchive.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/xxhash.h"

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

static CUDADeviceInfo convert(const cuda::CardInfo &card) {
  CUDADeviceInfo info{};
  info.ordinal = card.ordinal;
  info.name = card.name;
  info.computeMajor = card.computeMajor;
  info.computeMinor = card.computeMinor;
  info.memoryBytes = card.memoryBytes;
  info.sharedMemoryPerBlock = card.sharedMemoryPerBlock;
  info.multiprocessors = card.multiprocessors;
  return info;
}

CUDADeviceInfo CUDADevice::getInfo() const { return convert(card.getInfo()); }

/// Returns the pointer that `call` writes to its argument.
static Expected<void *> takePointer(llvm::function_ref<Fault(void *&)> call) {
  void *value = nullptr;
  if (Fault fault = call(value))
    return toError(std::move(fault));
  return value;
}

CUDADevice::~CUDADevice() {
  if (!stream || card.hasFailed())
    return;
  // A destructor cannot report errors; earlier errors were reported when they occurred.
  (void)card.synchronize(stream);
  (void)card.inContext("finish", [&] { return driver.streamDestroy(stream); });
}

Error CUDADevice::makeStream() {
  return toError(card.inContext(
      "make a stream", [&] { return driver.streamCreate(&stream, cuda::kStreamNonBlocking); }));
}

std::string CUDADevice::getDescription() const {
  const cuda::CardInfo &info = card.getInfo();
  return llvm::formatv("{0}, compute capability {1}.{2}, {3:F1} GiB", info.name, info.computeMajor,
                       info.computeMinor, double(info.memoryBytes) / (1 << 30))
      .str();
}

Expected<void *> CUDADevice::allocate(size_t bytes) {
  return takePointer([&](void *&buffer) { return card.allocate(bytes, buffer); });
}

Expected<void *> CUDADevice::allocateOn(void *callersStream, size_t bytes) {
  return takePointer([&](void *&buffer) { return card.allocateOn(callersStream, bytes, buffer); });
}

Error CUDADevice::release(void *buffer) { return toError(card.release(buffer)); }

Error CUDADevice::releaseOn(void *callersStream, void *buffer) {
  return toError(card.releaseOn(callersStream, buffer));
}

Error CUDADevice::copyToDevice(void *dst, const void *src, size_t bytes) {
  return toError(card.copyToDevice(dst, src, bytes, stream));
}

Error CUDADevice::copyToHost(void *dst, const void *src, size_t bytes) {
  return toError(card.copyToHost(dst, src, bytes, stream));
}

Error CUDADevice::copyOnDevice(void *dst, const void *src, size_t bytes) {
  return toError(card.copyOnDevice(dst, src, bytes, stream));
}

Error CUDADevice::fill(void *dst, uint8_t value, size_t bytes) {
  return toError(card.fill(dst, value, bytes, stream));
}

Error CUDADevice::synchronize() { return toError(card.synchronize(stream)); }

Expected<double> CUDADevice::time(llvm::function_ref<Error()> body, unsigned repeats) {
  cuda::Event start = nullptr, end = nullptr;
  llvm::scope_exit destroyEvents([&] {
    (void)card.inContext("free events", [&] {
      if (start)
        driver.eventDestroy(start);
      return end ? driver.eventDestroy(end) : cuda::kSuccess;
    });
  });
  if (Error error = toError(card.inContext("make events", [&] {
        cuda::Result result = driver.eventCreate(&start, 0);
        result = result ? result : driver.eventCreate(&end, 0);
        return result ? result : driver.eventRecord(start, stream);
      })))
    return error;
  for (unsigned i = 0; i < repeats; ++i)
    if (Error error = body())
      return error;
  float milliseconds = 0;
  if (Error error = toError(card.inContext("finish the submitted work", [&] {
        cuda::Result result = driver.eventRecord(end, stream);
        result = result ? result : driver.eventSynchronize(end);
        return result ? result : driver.eventElapsedTime(&milliseconds, start, end);
      })))
    return error;
  return double(milliseconds) / std::max(repeats, 1u);
}

Expected<void *> CUDADevice::addKernels(StringRef image) {
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(
      llvm::ArrayRef(reinterpret_cast<const uint8_t *>(image.data()), image.size()));
  StringRef cubin = KernelArchive::get().findCubin(image);
  return takePointer([&](void *&kernels) {
    cuda::LoadedModule *module = nullptr;
    Fault fault = card.addKernels({hash.low64, hash.high64, image.size()}, image.data(), module,
                                  cubin.data(), cubin.size());
    kernels = module;
    return fault;
  });
}

Error CUDADevice::removeKernels(void *kernels) {
  return toError(card.removeKernels(static_cast<cuda::LoadedModule *>(kernels)));
}

Expected<void *> CUDADevice::getKernel(void *kernels, StringRef name) {
  return takePointer([&](void *&result) {
    cuda::Kernel *kernel = nullptr;
    Fault fault = card.getKernel(*static_cast<cuda::LoadedModule *>(kernels), name.data(),
                                 name.size(), kernel);
    result = kernel;
    return fault;
  });
}

Error CUDADevice::launch(void *kernel, const LaunchShape &shape, void **parameters) {
  return toError(card.launch(*static_cast<cuda::Kernel *>(kernel), shape,
                             shape.stream.value_or(stream), parameters));
}

Error CUDADevice::encodeTensorMap(void *map, const TensorMapShape &shape) {
  return toError(card.encodeTensorMap(map, shape));
}

std::string CUDADeviceInfo::getChip() const {
  bool isHopper = computeMajor == 9 && computeMinor == 0;
  return llvm::formatv("sm_{0}{1}{2}", computeMajor, computeMinor, isHopper ? "a" : "").str();
}

Expected<std::unique_ptr<Device>> mlir::flashattn::createCUDADevice(int ordinal, bool ownStream) {
  cuda::Card *card;
  if (Fault fault = cuda::Card::get(ordinal, card))
    return toError(std::move(fault));
  auto device = std::make_unique<CUDADevice>(*card);
  if (ownStream)
    if (Error error = device->makeStream())
      return error;
  return device;
}

Expected<CUDADriverInfo> mlir::flashattn::getCUDADriverInfo() {
  const cuda::Driver *driver;
  if (Fault fault = cuda::getDriver(driver))
    return toError(std::move(fault));
  return CUDADriverInfo{driver->version, cuda::getMaxPTXVersion(driver->version)};
}

Expected<llvm::SmallVector<CUDADeviceInfo>> mlir::flashattn::listCUDADevices() {
  const cuda::Driver *driver;
  if (Fault fault = cuda::getDriver(driver))
    return toError(std::move(fault));
  llvm::SmallVector<CUDADeviceInfo> devices;
  for (int i = 0; i < driver->deviceCount; ++i)
    devices.push_back(convert(cuda::getInfo(*driver, i)));
  return devices;
}
