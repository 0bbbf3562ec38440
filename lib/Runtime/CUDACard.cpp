//===- CUDACard.cpp - context and memory of a GPU -------------------------===//

#include "CUDACard.h"

#include <algorithm>
#include <new>

using namespace mlir::flashattn;
using namespace mlir::flashattn::cuda;

bool cuda::isFatal(Result result) {
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

static Text formatBytes(uint64_t bytes) {
  if (bytes < (1u << 20))
    return Text::format("%llu bytes", (unsigned long long)bytes);
  return Text::format("%llu bytes (%.1f MiB)", (unsigned long long)bytes,
                      double(bytes) / (1 << 20));
}

CardInfo cuda::getInfo(const Driver &driver, int ordinal) {
  CardInfo info{};
  info.ordinal = ordinal;
  Device device = 0;
  if (driver.deviceGet(&device, ordinal))
    return info;
  driver.deviceGetName(info.name, sizeof(info.name) - 1, device);
  size_t bytes = 0;
  driver.deviceTotalMem(&bytes, device);
  info.memoryBytes = bytes;
  auto get = [&](DeviceAttribute attribute) {
    int value = 0;
    driver.deviceGetAttribute(&value, attribute, device);
    return value;
  };
  info.computeMajor = get(kComputeMajor);
  info.computeMinor = get(kComputeMinor);
  info.multiprocessors = get(kMultiprocessorCount);
  info.sharedMemoryPerBlock = get(kMaxSharedMemoryPerBlockOptin);
  return info;
}

bool cuda::runsOn(int architecture, char variant, int capability) {
  if (variant == 'a')
    return capability == architecture;
  if (variant == 'f' && capability / 10 != architecture / 10)
    return false;
  return capability >= architecture;
}

static DevicePtr address(const void *pointer) { return reinterpret_cast<DevicePtr>(pointer); }

Fault Card::get(int ordinal, Card *&card) {
  const Driver *driver;
  if (Fault fault = cuda::getDriver(driver))
    return fault;
  if (ordinal < 0 || ordinal >= driver->deviceCount)
    return Fault::format("expected a CUDA device number below %d but got %d", driver->deviceCount,
                         ordinal);
  static Mutex mutex;
  // Never freed: the driver may already be unloaded when destructors run.
  static Card *cards = nullptr;
  {
    Lock lock(mutex);
    for (card = cards; card && card->info.ordinal != ordinal;)
      card = card->next;
    if (!card) {
      void *memory = std::malloc(sizeof(Card));
      if (!memory)
        return Fault::format("out of memory on the CPU");
      card = new (memory) Card(*driver, ordinal);
      card->next = std::exchange(cards, card);
    }
  }
  Lock lock(card->mutex);
  if (card->context)
    return {};
  Device device = 0;
  if (Result result = driver->deviceGet(&device, ordinal))
    return card->check(result, "open the device");
  if (Result result = driver->primaryCtxRetain(&card->context, device)) {
    card->context = nullptr;
    return card->check(result, "make a context");
  }
  return {};
}

Fault Card::check(Result result, const char *what) {
  if (result == kSuccess)
    return {};
  Text description = driver.describe(result);
  if (!isFatal(result))
    return Fault::format("%s cannot %s: %s", getId().chars, what, description.chars);
  {
    Lock lock(failing);
    if (!failed)
      fatal = description;
    failed = true;
  }
  return Fault::format("fatal error on %s: cannot %s: %s; the device refuses all further work of "
                       "this process, which must be restarted",
                       getId().chars, what, description.chars);
}

Fault Card::enter() {
  if (!failed)
    return {};
  return Fault::format("%s had a fatal error before (%s) and refuses all further work of this "
                       "process, which must be restarted",
                       getId().chars, fatal.chars);
}

Fault Card::refuseMemory(size_t bytes) {
  size_t free = 0, total = 0;
  if (Fault fault =
          inContext("ask for free memory", [&] { return driver.memGetInfo(&free, &total); }))
    return fault;
  return Fault::format("out of memory on %s: needed %s but %s are free", getId().chars,
                       formatBytes(bytes).chars, formatBytes(free).chars);
}

template <typename AllocateFn>
Fault Card::allocateBy(size_t bytes, void *&buffer, AllocateFn allocate) {
  DevicePtr pointer = 0;
  Result result = kSuccess;
  if (Fault fault = inContext("allocate memory", [&] {
        // The driver rejects a size of zero.
        result = allocate(&pointer, std::max<size_t>(bytes, 1));
        return result == kOutOfMemory ? kSuccess : result;
      }))
    return fault;
  if (result == kOutOfMemory)
    return refuseMemory(bytes);
  buffer = reinterpret_cast<void *>(pointer);
  return {};
}

Fault Card::allocate(size_t bytes, void *&buffer) {
  return allocateBy(bytes, buffer, driver.memAlloc);
}

Fault Card::release(void *buffer) {
  if (!buffer)
    return {};
  return inContext("free memory", [&] { return driver.memFree(address(buffer)); });
}

Fault Card::makePool() {
  Lock lock(mutex);
  if (pool)
    return {};
  MemPoolProps props{};
  props.allocationType = MemPoolProps::kPinned;
  props.locationType = MemPoolProps::kOnDevice;
  props.locationId = info.ordinal;
  // By default, free memory is returned to the system whenever the host waits for the device.
  uint64_t keepAll = UINT64_MAX;
  // Memory that a capture allocates from the pool belongs to its graph; the pool itself does not.
  return inContext("make a pool of memory", [&] {
    return outsideCaptures([&] {
      Result result = driver.memPoolCreate(&pool, &props);
      return result ? result : driver.memPoolSetAttribute(pool, kMemPoolReleaseThreshold, &keepAll);
    });
  });
}

Fault Card::getZeros(void *&memory) {
  Lock lock(mutex);
  if (!zeros) {
    DevicePtr fresh = 0;
    Fault fault = inContext("allocate memory", [&] {
      return outsideCaptures([&] {
        Stream stream = nullptr;
        Result result = driver.memAlloc(&fresh, kZeroBytes);
        if (result)
          return result;
        result = driver.streamCreate(&stream, kStreamNonBlocking);
        if (!result) {
          result = driver.memsetD8Async(fresh, 0, kZeroBytes, stream);
          if (!result)
            result = driver.streamSynchronize(stream);
          driver.streamDestroy(stream);
        }
        if (result)
          driver.memFree(fresh);
        return result;
      });
    });
    if (fault)
      return fault;
    zeros = fresh;
  }
  memory = reinterpret_cast<void *>(zeros);
  return {};
}

Fault Card::allocateOn(Stream stream, size_t bytes, void *&buffer) {
  if (!driver.memPoolCreate || !driver.memPoolSetAttribute || !driver.memAllocFromPoolAsync ||
      !driver.memFreeAsync)
    return Fault::format("%s cannot allocate memory in a stream's order, because the CUDA driver "
                         "is too old: expected CUDA 11.2 or newer but got CUDA %d.%d",
                         getId().chars, driver.version / 1000, driver.version % 1000 / 10);
  if (Fault fault = makePool())
    return fault;
  return allocateBy(bytes, buffer, [&](DevicePtr *pointer, size_t size) {
    return driver.memAllocFromPoolAsync(pointer, size, pool, stream);
  });
}

Fault Card::releaseOn(Stream stream, void *buffer) {
  return inContext("free memory", [&] { return driver.memFreeAsync(address(buffer), stream); });
}

Fault Card::copyToDevice(void *dst, const void *src, size_t bytes, Stream stream) {
  if (bytes == 0)
    return {};
  return inContext("copy to the device", [&] {
    Result result = driver.memcpyHtoDAsync(address(dst), src, bytes, stream);
    return result ? result : driver.streamSynchronize(stream);
  });
}

Fault Card::copyToHost(void *dst, const void *src, size_t bytes, Stream stream) {
  if (bytes == 0)
    return {};
  return inContext("copy to the host", [&] {
    Result result = driver.memcpyDtoHAsync(dst, address(src), bytes, stream);
    return result ? result : driver.streamSynchronize(stream);
  });
}

Fault Card::copyOnDevice(void *dst, const void *src, size_t bytes, Stream stream) {
  if (bytes == 0)
    return {};
  return inContext("copy on the device",
                   [&] { return driver.memcpyAsync(address(dst), address(src), bytes, stream); });
}

Fault Card::fill(void *dst, uint8_t value, size_t bytes, Stream stream) {
  if (bytes == 0)
    return {};
  return inContext("fill memory",
                   [&] { return driver.memsetD8Async(address(dst), value, bytes, stream); });
}

Fault Card::synchronize(Stream stream) {
  return inContext("finish the submitted work", [&] { return driver.streamSynchronize(stream); });
}
