//===- CUDADevice.cpp - a device behind the CUDA driver --------------------===//

#include "CUDADriver.h"
#include "Errors.h"
#include "flashattn/Runtime/Device.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/xxhash.h"

#include <atomic>
#include <map>
#include <mutex>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

namespace {

/// Kernels may have this much shared memory, static and dynamic, without asking.
constexpr int64_t kDefaultSharedBytes = 48 * 1024;

struct Kernel {
  std::string name;
  cuda::Function function;
  int staticSharedBytes, registers, maxThreads;
  /// Its own code waits for the kernel before it, so that it may start beside that one's end.
  bool waits = false;
  /// What the driver allows at present. Threads may raise it at once: to the same value.
  std::atomic<int64_t> dynamicSharedLimit{0};
};

struct LoadedModule {
  /// Held while the driver compiles it.
  std::mutex mutex;
  cuda::Module module = nullptr; ///< null until then
  /// Of each kernel that it has as PTX: Kernel::waits.
  llvm::StringMap<bool> waits;
  llvm::StringMap<std::unique_ptr<Kernel>> kernels;
};

/// What all users of one card in this process share, until the process ends.
struct Card {
  std::mutex mutex;
  cuda::Context context = nullptr;
  /// Of allocateOn; made when it is first called.
  cuda::MemPool pool = nullptr;
  /// The first error that the context does not survive; never changes once `failed` is set.
  std::string fatal;
  std::atomic<bool> failed{false};
  std::mutex failing;
  /// By hash of content (128 bits) and length.
  std::map<std::tuple<uint64_t, uint64_t, size_t>, LoadedModule> modules;
};

} // namespace

static Card &getCard(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: the driver may be gone by the time that destructors run.
  static auto *cards = new std::map<int, std::unique_ptr<Card>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Card> &card = (*cards)[ordinal];
  if (!card)
    card = std::make_unique<Card>();
  return *card;
}

/// Errors after which every call in the context fails until the process ends.
static bool isFatal(cuda::Result result) {
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

namespace {

class CUDADevice final : public Device {
public:
  CUDADevice(const cuda::Driver &driver, CUDADeviceInfo info, Card &card)
      : driver(driver), info(std::move(info)), card(card) {}

  ~CUDADevice() override {
    if (!stream || card.failed)
      return;
    // A destructor has nobody to report to; what failed before was reported then.
    llvm::consumeError(inContext("finish", [&] { return driver.streamSynchronize(stream); }));
    llvm::consumeError(inContext("finish", [&] { return driver.streamDestroy(stream); }));
  }

  /// Makes the card's context and, where asked to, this device's stream.
  Error initialize(bool ownStream) {
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

  std::string getId() const override { return llvm::formatv("cuda:{0}", info.ordinal).str(); }
  std::string getDescription() const override {
    return llvm::formatv("{0}, compute capability {1}.{2}, {3:F1} GiB", info.name,
                         info.computeMajor, info.computeMinor, double(info.memoryBytes) / (1 << 30))
        .str();
  }
  std::string getChip() const override { return info.getChip(); }
  int64_t getMultiprocessorCount() const override { return info.multiprocessors; }

  Expected<void *> allocate(size_t bytes) override {
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
  Expected<void *> allocateOn(void *stream, size_t bytes) override;
  Error releaseOn(void *stream, void *buffer) override {
    return inContext("free memory", [&] { return driver.memFreeAsync(address(buffer), stream); });
  }
  Error release(void *buffer) override {
    if (!buffer)
      return Error::success();
    return inContext("free memory", [&] { return driver.memFree(address(buffer)); });
  }
  Error copyToDevice(void *dst, const void *src, size_t bytes) override {
    if (bytes == 0)
      return Error::success();
    return inContext("copy to the device", [&] {
      cuda::Result result = driver.memcpyHtoDAsync(address(dst), src, bytes, stream);
      return result ? result : driver.streamSynchronize(stream);
    });
  }
  Error copyToHost(void *dst, const void *src, size_t bytes) override {
    if (bytes == 0)
      return Error::success();
    return inContext("copy to the host", [&] {
      cuda::Result result = driver.memcpyDtoHAsync(dst, address(src), bytes, stream);
      return result ? result : driver.streamSynchronize(stream);
    });
  }
  Error copyOnDevice(void *dst, const void *src, size_t bytes) override {
    if (bytes == 0)
      return Error::success();
    return inContext("copy on the device",
                     [&] { return driver.memcpyAsync(address(dst), address(src), bytes, stream); });
  }
  Error fill(void *dst, uint8_t value, size_t bytes) override {
    if (bytes == 0)
      return Error::success();
    return inContext("fill memory",
                     [&] { return driver.memsetD8Async(address(dst), value, bytes, stream); });
  }
  Error synchronize() override {
    return inContext("finish the work given to it",
                     [&] { return driver.streamSynchronize(stream); });
  }

  Expected<double> time(llvm::function_ref<Error()> body, unsigned repeats) override {
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

  void *getStream() override { return stream; }
  Expected<void *> loadKernels(StringRef image) override;
  Expected<void *> getKernel(void *kernels, StringRef name) override;
  Error launch(void *kernel, const LaunchShape &shape, void **parameters) override;
  Error encodeTensorMap(void *map, const TensorMapShape &shape) override;

private:
  static cuda::DevicePtr address(const void *pointer) {
    return reinterpret_cast<cuda::DevicePtr>(pointer);
  }

  /// Turns a result into an error and remembers those that the context does not survive.
  Error check(cuda::Result result, const llvm::Twine &what) {
    if (result == cuda::kSuccess)
      return Error::success();
    std::string description = driver.describe(result);
    if (!isFatal(result))
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

  /// Runs `call` with the card's context current.
  Error inContext(const llvm::Twine &what, llvm::function_ref<cuda::Result()> call) {
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

  Error refuseMemory(size_t bytes) {
    size_t free = 0, total = 0;
    if (Error error =
            inContext("ask for free memory", [&] { return driver.memGetInfo(&free, &total); }))
      return error;
    return formatError("out of memory on {0}: needed {1} but {2} are free", getId(),
                       formatBytes(bytes), formatBytes(free));
  }

  Error checkPTX(StringRef ptx) const;
  Expected<LoadedModule *> loadModule(StringRef image);
  bool canOverlap(cuda::Stream stream) const;

  const cuda::Driver &driver;
  CUDADeviceInfo info;
  Card &card;
  cuda::Stream stream = nullptr;
};

} // namespace

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

/// Refuses PTX that the driver or the card cannot take, with both numbers.
Error CUDADevice::checkPTX(StringRef ptx) const {
  cuda::PTXHeader header = cuda::parsePTXHeader(ptx);
  int maxVersion = cuda::getMaxPTXVersion(driver.version);
  if (header.version > maxVersion)
    return formatError("the CUDA driver is too old for the kernels: they are PTX {0}.{1} but the "
                       "driver (CUDA {2}.{3}) takes PTX up to {4}.{5}",
                       header.version / 10, header.version % 10, driver.version / 1000,
                       driver.version % 1000 / 10, maxVersion / 10, maxVersion % 10);
  int capability = info.computeMajor * 10 + info.computeMinor;
  // Plain PTX runs on every later architecture, `f` on later ones of its family, `a` on its own.
  bool runs = header.variant == 'a' ? capability == header.architecture
              : header.variant == 'f'
                  ? capability / 10 == header.architecture / 10 && capability >= header.architecture
                  : capability >= header.architecture;
  if (!runs)
    return formatError(
        "wrong architecture: the kernels are for sm_{0}{1} but {2} is sm_{3}", header.architecture,
        header.variant ? std::string(1, header.variant) : std::string(), getId(), capability);
  return Error::success();
}

Expected<LoadedModule *> CUDADevice::loadModule(StringRef image) {
  bool isPTX = !image.starts_with("\x7f"
                                  "ELF");
  if (isPTX)
    if (Error error = checkPTX(image))
      return error;

  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(
      llvm::ArrayRef(reinterpret_cast<const uint8_t *>(image.data()), image.size()));
  auto key = std::make_tuple(hash.low64, hash.high64, image.size());
  LoadedModule &loaded = [&]() -> LoadedModule & {
    std::lock_guard<std::mutex> lock(card.mutex);
    return card.modules[key];
  }();
  // Others are compiled at the same time.
  std::lock_guard<std::mutex> lock(loaded.mutex);
  if (loaded.module)
    return &loaded;

  // PTX ends with a zero, which the caller's text need not have.
  std::string terminated = image.str();
  char log[8192] = "";
  int options[] = {cuda::kErrorLogBuffer, cuda::kErrorLogBufferSizeBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  cuda::Module module = nullptr;
  cuda::Result result = cuda::kSuccess;
  if (Error error = inContext("load kernels", [&] {
        result = driver.moduleLoadDataEx(&module, terminated.c_str(), 2, options, values);
        return isFatal(result) ? result : cuda::kSuccess;
      }))
    return error;
  if (result == cuda::kUnsupportedPTXVersion) {
    cuda::PTXHeader header = cuda::parsePTXHeader(image);
    return formatError("the CUDA driver (CUDA {0}.{1}) is too old for PTX {2}.{3}: {4}",
                       driver.version / 1000, driver.version % 1000 / 10, header.version / 10,
                       header.version % 10, driver.describe(result));
  }
  if (result == cuda::kNoBinaryForGPU)
    return formatError("wrong architecture: the kernels do not run on {0}, which is {1}: {2}",
                       getId(), StringRef(getChip()).rtrim('a'), driver.describe(result));
  if (result != cuda::kSuccess)
    return formatError("{0} cannot load the kernels: {1}{2}{3}", getId(), driver.describe(result),
                       log[0] ? "; the driver's compiler says:\n" : "", StringRef(log).trim());
  loaded.module = module;
  for (const cuda::PTXKernel &kernel : cuda::findPTXKernels(isPTX ? image : ""))
    loaded.waits[kernel.name] = kernel.waits;
  return &loaded;
}

Expected<void *> CUDADevice::loadKernels(StringRef image) {
  Expected<LoadedModule *> loaded = loadModule(image);
  if (!loaded)
    return loaded.takeError();
  // Drivers load a kernel when it is first asked for, which would otherwise be at its first
  // launch: that may be inside a graph capture, and must be quick.
  for (const auto &entry : (*loaded)->waits)
    if (Expected<void *> kernel = getKernel(*loaded, entry.getKey()); !kernel)
      return kernel.takeError();
  return *loaded;
}

Expected<void *> CUDADevice::getKernel(void *kernels, StringRef name) {
  auto *loaded = static_cast<LoadedModule *>(kernels);
  // Compiled code asks before each launch, mostly for what it asked for before: no lock then.
  static thread_local std::pair<LoadedModule *, Kernel *> last;
  if (last.first == loaded && last.second->name == name)
    return last.second;
  std::lock_guard<std::mutex> lock(card.mutex);
  std::unique_ptr<Kernel> &kernel = loaded->kernels[name];
  if (kernel) {
    last = {loaded, kernel.get()};
    return kernel.get();
  }
  auto made = std::make_unique<Kernel>();
  made->name = name.str();
  if (Error error = inContext("find kernel '" + name + "'", [&] {
        cuda::Result result =
            driver.moduleGetFunction(&made->function, loaded->module, made->name.c_str());
        auto get = [&](int &value, cuda::FunctionAttribute attribute) {
          result = result ? result : driver.funcGetAttribute(&value, attribute, made->function);
        };
        get(made->staticSharedBytes, cuda::kSharedSizeBytes);
        get(made->registers, cuda::kNumRegisters);
        get(made->maxThreads, cuda::kMaxThreadsPerBlock);
        return result;
      }))
    return error;
  made->waits = loaded->waits.lookup(name);
  made->dynamicSharedLimit = kDefaultSharedBytes - made->staticSharedBytes;
  kernel = std::move(made);
  return kernel.get();
}

/// Whether a kernel that waits for the one before it can be started beside that one's end. Where it
/// cannot, it starts behind it, and its wait returns at once.
bool CUDADevice::canOverlap(cuda::Stream stream) const {
  if (!driver.launchKernelEx)
    return false;
  if (driver.version >= cuda::kProgrammaticCaptureVersion)
    return true;
  // A launch that the driver refuses would end the capture.
  int status = 0;
  return !driver.streamIsCapturing(stream, &status) && status == 0;
}

Error CUDADevice::launch(void *opaque, const LaunchShape &shape, void **parameters) {
  auto &kernel = *static_cast<Kernel *>(opaque);
  const Dim3 &grid = shape.grid, &block = shape.block, &cluster = shape.cluster;
  int64_t dynamicBytes = shape.dynamicSharedBytes;
  // Nothing to do, which the driver would refuse.
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    return Error::success();

  int64_t sharedBytes = kernel.staticSharedBytes + dynamicBytes;
  if (sharedBytes > info.sharedMemoryPerBlock)
    return formatError("shared memory beyond the limit of {0}: kernel '{1}' needs {2} bytes ({3} "
                       "static, {4} dynamic) but a block has {5}",
                       getId(), kernel.name, sharedBytes, kernel.staticSharedBytes, dynamicBytes,
                       info.sharedMemoryPerBlock);
  int64_t threads = block.x * block.y * block.z;
  if (threads > kernel.maxThreads)
    return formatError("launch failure on {0}: kernel '{1}' is given {2} threads a block but its "
                       "{3} registers a thread allow {4}",
                       getId(), kernel.name, threads, kernel.registers, kernel.maxThreads);
  if (dynamicBytes > kernel.dynamicSharedLimit) {
    if (Error error = inContext("raise the shared memory of kernel '" + kernel.name + "'", [&] {
          return driver.funcSetAttribute(kernel.function, cuda::kMaxDynamicSharedSizeBytes,
                                         dynamicBytes);
        }))
      return error;
    kernel.dynamicSharedLimit = dynamicBytes;
  }

  auto describe = [&] {
    return llvm::formatv("launch kernel '{0}' (grid {1}x{2}x{3}, block {4}x{5}x{6}, {7} bytes of "
                         "dynamic shared memory)",
                         kernel.name, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                         dynamicBytes)
        .str();
  };
  // Larger ones would wrap in the driver's 32 bits.
  if (grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535)
    return formatError("{0} cannot {1}: expected a grid of at most {2}x65535x65535", getId(),
                       describe(), INT32_MAX);
  bool clustered = cluster.x * cluster.y * cluster.z != 1;
  if (clustered && !driver.launchKernelEx)
    return formatError("{0} cannot {1}: the CUDA driver (CUDA {2}.{3}) has no clusters, which came "
                       "with CUDA 11.8",
                       getId(), describe(), driver.version / 1000, driver.version % 1000 / 10);
  auto launchStream = static_cast<cuda::Stream>(shape.stream.value_or(stream));
  cuda::LaunchAttribute attributes[2] = {};
  unsigned numAttributes = 0;
  if (clustered) {
    cuda::LaunchAttribute &attribute = attributes[numAttributes++];
    attribute.id = cuda::LaunchAttribute::kClusterDimension;
    unsigned clusterDim[] = {unsigned(cluster.x), unsigned(cluster.y), unsigned(cluster.z)};
    std::copy_n(clusterDim, 3, attribute.value.clusterDim);
  }
  cuda::LaunchConfig config{{unsigned(grid.x), unsigned(grid.y), unsigned(grid.z)},
                            {unsigned(block.x), unsigned(block.y), unsigned(block.z)},
                            unsigned(dynamicBytes),
                            launchStream,
                            attributes,
                            0};
  cuda::Result result = cuda::kSuccess;
  if (Error error = inContext("launch a kernel", [&] {
        if (kernel.waits && canOverlap(launchStream)) {
          cuda::LaunchAttribute &attribute = attributes[numAttributes++];
          attribute.id = cuda::LaunchAttribute::kProgrammaticStreamSerialization;
          attribute.value.programmaticStreamSerializationAllowed = 1;
        }
        config.numAttributes = numAttributes;
        result =
            numAttributes
                ? driver.launchKernelEx(&config, kernel.function, parameters, nullptr)
                : driver.launchKernel(kernel.function, grid.x, grid.y, grid.z, block.x, block.y,
                                      block.z, dynamicBytes, launchStream, parameters, nullptr);
        return cuda::kSuccess;
      }))
    return error;
  // The description is made only where it is needed: launches are often.
  return result ? check(result, describe()) : Error::success();
}

Error CUDADevice::encodeTensorMap(void *map, const TensorMapShape &shape) {
  constexpr int64_t kMaxRank = 5, kMaxSize = int64_t(1) << 32;
  constexpr int64_t kAlignment = 16, kStrideLimit = int64_t(1) << 40;
  constexpr int64_t kElementBytes = 2;
  if (!driver.tensorMapEncodeTiled)
    return formatError("{0} cannot make a tensor map: the CUDA driver (CUDA {1}.{2}) has none, "
                       "they came with CUDA 12.0",
                       getId(), driver.version / 1000, driver.version % 1000 / 10);
  int64_t rank = shape.sizes.size(), last = rank - 1;
  if (rank < 1 || rank > kMaxRank)
    return formatError("{0} cannot make a tensor map: expected 1 to {1} dimensions but got {2}",
                       getId(), kMaxRank, rank);
  int64_t rowBytes = shape.boxColumns * kElementBytes;
  if (rowBytes != 32 && rowBytes != 64 && rowBytes != 128)
    return formatError("{0} cannot make a tensor map: expected rows of the box of 32, 64 or 128 "
                       "bytes but got {1}",
                       getId(), rowBytes);
  bool empty = llvm::is_contained(shape.sizes, 0);
  if (!empty && reinterpret_cast<uintptr_t>(shape.base) % kAlignment != 0)
    return formatError("{0} cannot make a tensor map: expected the tensor's first element at a "
                       "multiple of {1} bytes but got address {2}",
                       getId(), kAlignment, shape.base);
  if (!empty && shape.sizes[last] > 1 && shape.strides[last] != 1)
    return formatError("{0} cannot make a tensor map: expected stride 1 of dimension {1}, the "
                       "last, but got {2}",
                       getId(), last, shape.strides[last]);

  uint64_t sizes[kMaxRank], strides[kMaxRank];
  uint32_t box[kMaxRank], elementStrides[kMaxRank];
  // What a dimension whose stride does not matter gets: as if it were the next one inwards.
  int64_t validStride = kAlignment;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t dim = last - i, size = shape.sizes[dim];
    if (size < 0 || size > kMaxSize)
      return formatError("{0} cannot make a tensor map: expected at most {1} elements along "
                         "dimension {2} but got {3}",
                         getId(), kMaxSize, dim, size);
    sizes[i] = std::max<int64_t>(size, 1);
    box[i] = dim == last             ? shape.boxColumns
             : dim == shape.rowDim   ? shape.boxRows
             : dim == shape.outerDim ? shape.outerRows
                                     : 1;
    elementStrides[i] = 1;
    if (i == 0)
      continue;
    if (!empty && size > 1) {
      int64_t stride = shape.strides[dim];
      if (stride < 0 || stride >= kStrideLimit / kElementBytes ||
          stride * kElementBytes % kAlignment != 0)
        return formatError("{0} cannot make a tensor map: expected a stride of dimension {1} that "
                           "is a multiple of {2} elements from 0 to below 2^39 but got {3}",
                           getId(), dim, kAlignment / kElementBytes, stride);
      validStride = stride * kElementBytes;
    }
    strides[i - 1] = validStride;
  }
  // Nothing is loaded from a tensor without elements, whose address may be null: any other will do.
  void *base = empty ? map : shape.base;
  return inContext("make a tensor map", [&] {
    return driver.tensorMapEncodeTiled(
        map,
        shape.element == TensorMapElement::F16 ? cuda::kTensorMapFloat16 : cuda::kTensorMapBFloat16,
        rank, base, sizes, strides, box, elementStrides, cuda::kInterleaveNone,
        rowBytes == 32   ? cuda::kSwizzle32B
        : rowBytes == 64 ? cuda::kSwizzle64B
                         : cuda::kSwizzle128B,
        cuda::kL2Promotion256B, cuda::kFillZeros);
  });
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
