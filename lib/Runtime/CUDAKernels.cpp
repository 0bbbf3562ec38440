//===- CUDAKernels.cpp - kernels of a CUDA device and their launches -------===//

#include "CUDADevice.h"
#include "TensorMaps.h"
#include "llvm/Support/xxhash.h"

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

/// Kernels may have this much shared memory, static and dynamic, without asking.
static constexpr int64_t kDefaultSharedBytes = 48 * 1024;

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

Expected<cuda::LoadedModule *> CUDADevice::loadModule(StringRef image) {
  bool isPTX = !image.starts_with("\x7f"
                                  "ELF");
  if (isPTX)
    if (Error error = checkPTX(image))
      return error;

  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(
      llvm::ArrayRef(reinterpret_cast<const uint8_t *>(image.data()), image.size()));
  auto key = std::make_tuple(hash.low64, hash.high64, image.size());
  cuda::LoadedModule &loaded = [&]() -> cuda::LoadedModule & {
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
        return cuda::isFatal(result) ? result : cuda::kSuccess;
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
  return &loaded;
}

Expected<void *> CUDADevice::loadKernels(StringRef image) {
  Expected<cuda::LoadedModule *> loaded = loadModule(image);
  if (!loaded)
    return loaded.takeError();
  return *loaded;
}

Expected<void *> CUDADevice::getKernel(void *kernels, StringRef name) {
  auto *loaded = static_cast<cuda::LoadedModule *>(kernels);
  // Compiled code asks before each launch, mostly for what it asked for before: no lock then.
  static thread_local std::pair<cuda::LoadedModule *, cuda::Kernel *> last;
  if (last.first == loaded && last.second->name == name)
    return last.second;
  std::lock_guard<std::mutex> lock(card.mutex);
  std::unique_ptr<cuda::Kernel> &kernel = loaded->kernels[name];
  if (kernel) {
    last = {loaded, kernel.get()};
    return kernel.get();
  }
  auto made = std::make_unique<cuda::Kernel>();
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
  made->dynamicSharedLimit = kDefaultSharedBytes - made->staticSharedBytes;
  kernel = std::move(made);
  return kernel.get();
}

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
  auto &kernel = *static_cast<cuda::Kernel *>(opaque);
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
        if (shape.programmatic && canOverlap(launchStream)) {
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
  constexpr int64_t kMaxRank = 5, kAlignment = 16;
  const int64_t elementBytes = getElementBytes(shape.element);
  if (!driver.tensorMapEncodeTiled)
    return formatError("{0} cannot make a tensor map: the CUDA driver (CUDA {1}.{2}) has none, "
                       "they came with CUDA 12.0",
                       getId(), driver.version / 1000, driver.version % 1000 / 10);
  if (Error error = checkTensorMap(*this, shape))
    return error;
  const int64_t rank = shape.sizes.size(), last = rank - 1;
  const int64_t rowBytes = shape.boxColumns * elementBytes;
  const bool empty = llvm::is_contained(shape.sizes, 0);
  uint64_t sizes[kMaxRank], strides[kMaxRank];
  uint32_t box[kMaxRank], elementStrides[kMaxRank];
  // What a dimension whose stride does not matter gets: as if it were the next one inwards.
  int64_t validStride = kAlignment;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t dim = last - i, size = shape.sizes[dim];
    sizes[i] = std::max<int64_t>(size, 1);
    box[i] = dim == last             ? shape.boxColumns
             : dim == shape.rowDim   ? shape.boxRows
             : dim == shape.outerDim ? shape.outerRows
                                     : 1;
    elementStrides[i] = 1;
    if (i == 0)
      continue;
    if (!empty && size > 1)
      validStride = shape.strides[dim] * elementBytes;
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
