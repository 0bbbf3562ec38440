//===- CUDADevice.cpp - memory and streams of a CUDA device ----------------===//

#include "CUDADevice.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

static cuda::Card &getCard(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: the driver may be gone by the time that destructors run.
  static auto *cards = new std::map<int, std::unique_ptr<cuda::Card>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<cuda::Card> &card = (*cards)[ordinal];
  if (!card)
    card = std::make_unique<cuda::Card>();
  return *card;
}

bool cuda::isFatal(cuda::Result result) {
  switch (result) {
  case 214: // uncorrectable ECC error
  case 220: // uncorrectable NVLink error
  case 700: // illegal address
  case 702: // launch timed out
  case 710: // device-side assertion
  case 714: // hardware stack error
  case 715: // illegal instruction
  case 716: // misaligned address
  case 717: // invalid address space
  case 718: // invalid program counter
  case 719: // launch failed
    return true;
  default:
    return false;
  }
}

static std::string formatBytes(uint64_t bytes) {
  if (bytes < (1u << 20))
    return llvm::formatv("{0} bytes", bytes).str();
  return llvm::formatv("{0} bytes ({1:F1} MiB)", bytes, double(bytes) / (1 << 20)).str();
}

static CUDADeviceInfo getInfo(const cuda::Driver &driver, int ordinal) {
  CUDADeviceInfo info{};
  info.ordinal = ordinal;
  cuda::Device device = 0;
  if (driver.deviceGet(&device, ordinal))
    return info;
  char name[256] = "";
  driver.deviceGetName(name, sizeof(name) - 1, device);
  info.name = name;
  size_t bytes = 0;
  driver.deviceTotalMem(&bytes, device);
  info.memoryBytes = bytes;
  auto get = [&](cuda::DeviceAttribute attribute) {
    int value = 0;
    driver.deviceGetAttribute(&value, attribute, device);
    return value;
  };
  info.computeMajor = get(cuda::kComputeMajor);
  info.computeMinor = get(cuda::kComputeMinor);
  info.multiprocessors = get(cuda::kMultiprocessorCount);
  info.sharedMemoryPerBlock = get(cuda::kMaxSharedMemoryPerBlockOptin);
  return info;
}

static cuda::DevicePtr address(const void *pointer) {
  return reinterpret_cast<cuda::DevicePtr>(pointer);
}

CUDADevice::~CUDADevice() {
  if (!stream || card.failed)
    return;
  // A destructor has nobody to report to; what failed before was reported then.
  llvm::consumeError(inContext("finish", [&] { return driver.streamSynchronize(stream); }));
  llvm::consumeError(inContext("finish", [&] { return driver.streamDestroy(stream); }));
}

Error CUDADevice::initialize(bool ownStream) {
  {
    std::lock_guard<std::mutex> lock(card.mutex);
    if (!card.context) {
      cuda::Device device = 0;
      if (cuda::Result result = driver.deviceGet(&device, info.ordinal))
        return check(result, "open the device");
      if (cuda::Result result = driver.primaryCtxRetain(&card.context, device)) {
        card.context = nullptr;
        return check(result, "make a context");
      }
    }
  }
  if (!ownStream)
    return Error::success();
  constexpr unsigned kNonBlocking = 1;
  return inContext("make a stream", [&] { return driver.streamCreate(&stream, kNonBlocking); });
}

std::string CUDADevice::getDescription() const {
  return llvm::formatv("{0}, compute capability {1}.{2}, {3:F1} GiB", info.name, info.computeMajor,
                       info.computeMinor, double(info.memoryBytes) / (1 << 30))
      .str();
}

Expected<void *> CUDADevice::allocate(size_t bytes) {
  cuda::DevicePtr pointer = 0;
  // The driver refuses a size of zero.
  cuda::Result result = cuda::kSuccess;
  if (Error error = inContext("allocate memory", [&] {
        result = driver.memAlloc(&pointer, std::max<size_t>(bytes, 1));
        return result == cuda::kOutOfMemory ? cuda::kSuccess : result;
      }))
    return error;
  if (result == cuda::kOutOfMemory)
    return refuseMemory(bytes);
  return reinterpret_cast<void *>(pointer);
}

Error CUDADevice::releaseOn(void *stream, void *buffer) {
  return inContext("free memory", [&] { return driver.memFreeAsync(address(buffer), stream); });
}

Error CUDADevice::release(void *buffer) {
  if (!buffer)
    return Error::success();
  return inContext("free memory", [&] { return driver.memFree(address(buffer)); });
}

Error CUDADevice::copyToDevice(void *dst, const void *src, size_t bytes) {
  if (bytes == 0)
    return Error::success();
  return inContext("copy to the device", [&] {
    cuda::Result result = driver.memcpyHtoDAsync(address(dst), src, bytes, stream);
    return result ? result : driver.streamSynchronize(stream);
  });
}

Error CUDADevice::copyToHost(void *dst, const void *src, size_t bytes) {
  if (bytes == 0)
    return Error::success();
  return inContext("copy to the host", [&] {
    cuda::Result result = driver.memcpyDtoHAsync(dst, address(src), bytes, stream);
    return result ? result : driver.streamSynchronize(stream);
  });
}

Error CUDADevice::copyOnDevice(void *dst, const void *src, size_t bytes) {
  if (bytes == 0)
    return Error::success();
  return inContext("copy on the device",
                   [&] { return driver.memcpyAsync(address(dst), address(src), bytes, stream); });
}

Error CUDADevice::fill(void *dst, uint8_t value, size_t bytes) {
  if (bytes == 0)
    return Error::success();
  return inContext("fill memory",
                   [&] { return driver.memsetD8Async(address(dst), value, bytes, stream); });
}

Error CUDADevice::synchronize() {
  return inContext("finish the work given to it", [&] { return driver.streamSynchronize(stream); });
}

Expected<double> CUDADevice::time(llvm::function_ref<Error()> body, unsigned repeats) {
  cuda::Event start = nullptr, end = nullptr;
  llvm::scope_exit destroyEvents([&] {
    llvm::consumeError(inContext("free events", [&] {
      if (start)
        driver.eventDestroy(start);
      return end ? driver.eventDestroy(end) : cuda::kSuccess;
    }));
  });
  if (Error error = inContext("make events", [&] {
        cuda::Result result = driver.eventCreate(&start, 0);
        result = result ? result : driver.eventCreate(&end, 0);
        return result ? result : driver.eventRecord(start, stream);
      }))
    return error;
  for (unsigned i = 0; i < repeats; ++i)
    if (Error error = body())
      return error;
  float milliseconds = 0;
  if (Error error = inContext("finish the work given to it", [&] {
        cuda::Result result = driver.eventRecord(end, stream);
        result = result ? result : driver.eventSynchronize(end);
        return result ? result : driver.eventElapsedTime(&milliseconds, start, end);
      }))
    return error;
  return double(milliseconds) / std::max(repeats, 1u);
}

Error CUDADevice::check(cuda::Result result, const llvm::Twine &what) {
  if (result == cuda::kSuccess)
    return Error::success();
  std::string description = driver.describe(result);
  if (!cuda::isFatal(result))
    return formatError("{0} cannot {1}: {2}", getId(), what.str(), description);
  {
    std::lock_guard<std::mutex> lock(card.failing);
    if (!card.failed)
      card.fatal = description;
    card.failed = true;
  }
  return formatError("fatal error on {0}: cannot {1}: {2}; the device refuses all further work "
                     "of this process, which must be restarted",
                     getId(), what.str(), description);
}

Error CUDADevice::inContext(const llvm::Twine &what, llvm::function_ref<cuda::Result()> call) {
  if (card.failed)
    return formatError("{0} had a fatal error before ({1}) and refuses all further work of this "
                       "process, which must be restarted",
                       getId(), card.fatal);
  // Mostly it is: the CUDA runtime uses the same primary context.
  cuda::Context current = nullptr;
  bool isCurrent = !driver.ctxGetCurrent(&current) && current == card.context;
  if (!isCurrent)
    if (cuda::Result result = driver.ctxPushCurrent(card.context))
      return check(result, "use the context");
  cuda::Result result = call();
  cuda::Context popped = nullptr;
  if (!isCurrent)
    driver.ctxPopCurrent(&popped);
  return result ? check(result, what) : Error::success();
}

Error CUDADevice::refuseMemory(size_t bytes) {
  size_t free = 0, total = 0;
  if (Error error =
          inContext("ask for free memory", [&] { return driver.memGetInfo(&free, &total); }))
    return error;
  return formatError("out of memory on {0}: needed {1} but {2} are free", getId(),
                     formatBytes(bytes), formatBytes(free));
}

Expected<void *> CUDADevice::allocateOn(void *callersStream, size_t bytes) {
  if (!driver.memPoolCreate || !driver.memPoolSetAttribute || !driver.memAllocFromPoolAsync ||
      !driver.memFreeAsync)
    return formatError("{0} cannot allocate memory in a stream's order: the CUDA driver (CUDA "
                       "{1}.{2}) has none, which came with CUDA 11.2",
                       getId(), driver.version / 1000, driver.version % 1000 / 10);
  {
    std::lock_guard<std::mutex> lock(card.mutex);
    if (!card.pool) {
      cuda::MemPoolProps props{};
      props.allocationType = cuda::MemPoolProps::kPinned;
      props.locationType = cuda::MemPoolProps::kOnDevice;
      props.locationId = info.ordinal;
      // By default what is free goes back to the system whenever the host waits for the device.
      uint64_t keepAll = UINT64_MAX;
      if (Error error = inContext("make a pool of memory", [&] {
            cuda::Result result = driver.memPoolCreate(&card.pool, &props);
            return result ? result
                          : driver.memPoolSetAttribute(card.pool, cuda::kMemPoolReleaseThreshold,
                                                       &keepAll);
          }))
        return error;
    }
  }
  cuda::DevicePtr pointer = 0;
  cuda::Result result = cuda::kSuccess;
  if (Error error = inContext("allocate memory", [&] {
        result = driver.memAllocFromPoolAsync(&pointer, std::max<size_t>(bytes, 1), card.pool,
                                              callersStream);
        return result == cuda::kOutOfMemory ? cuda::kSuccess : result;
      }))
    return error;
  if (result == cuda::kOutOfMemory)
    return refuseMemory(bytes);
  return reinterpret_cast<void *>(pointer);
}
std::string CUDADeviceInfo::getChip() const {
  bool isHopper = computeMajor == 9 && computeMinor == 0;
  return llvm::formatv("sm_{0}{1}{2}", computeMajor, computeMinor, isHopper ? "a" : "").str();
}

Expected<std::unique_ptr<Device>> mlir::flashattn::createCUDADevice(int ordinal, bool ownStream) {
  Expected<const cuda::Driver &> driver = cuda::getDriver();
  if (!driver)
    return driver.takeError();
  if (ordinal < 0 || ordinal >= driver->deviceCount)
    return formatError("expected a CUDA device number below {0} but got {1}", driver->deviceCount,
                       ordinal);
  auto device = std::make_unique<CUDADevice>(*driver, getInfo(*driver, ordinal), getCard(ordinal));
  if (Error error = device->initialize(ownStream))
    return error;
  return device;
}

Expected<CUDADriverInfo> mlir::flashattn::getCUDADriverInfo() {
  Expected<const cuda::Driver &> driver = cuda::getDriver();
  if (!driver)
    return driver.takeError();
  return CUDADriverInfo{driver->version, cuda::getMaxPTXVersion(driver->version)};
}

Expected<llvm::SmallVector<CUDADeviceInfo>> mlir::flashattn::listCUDADevices() {
  Expected<const cuda::Driver &> driver = cuda::getDriver();
  if (!driver)
    return driver.takeError();
  llvm::SmallVector<CUDADeviceInfo> devices;
  for (int i = 0; i < driver->deviceCount; ++i)
    devices.push_back(getInfo(*driver, i));
  return devices;
}
