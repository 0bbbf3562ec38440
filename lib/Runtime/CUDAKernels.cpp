//===- CUDAKernels.cpp - kernels of a GPU and their launches --------------===//

#include "CUDACard.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <new>
#include <utility>

using namespace mlir::flashattn;
using namespace mlir::flashattn::cuda;

/// Kernels may use this much shared memory, static and dynamic, without a raised limit.
static constexpr int64_t kDefaultSharedBytes = 48 * 1024;

Fault Card::checkPTX(const char *ptx) {
  PTXHeader header = parsePTXHeader(ptx);
  int maxVersion = getMaxPTXVersion(driver.version);
  if (header.version > maxVersion)
    return Fault::format("the CUDA driver is too old for the kernels: they are PTX %d.%d but the "
                         "driver (CUDA %d.%d) takes PTX up to %d.%d",
                         header.version / 10, header.version % 10, driver.version / 1000,
                         driver.version % 1000 / 10, maxVersion / 10, maxVersion % 10);
  if (runsOn(header.architecture, header.variant, info.getCapability()))
    return {};
  const char variant[] = {header.variant, 0};
  return Fault::format("wrong architecture: the kernels are for sm_%d%s but %s is sm_%d",
                       header.architecture, variant, getId().chars, info.getCapability());
}

/// Returns a copy of bytes with a zero after them; null if there is no memory.
static char *copyBytes(const char *bytes, size_t size) {
  auto *copy = static_cast<char *>(std::malloc(size + 1));
  if (copy) {
    std::memcpy(copy, bytes, size);
    copy[size] = 0;
  }
  return copy;
}

Fault Card::addKernels(const ImageKey &key, const char *image, LoadedModule *&found,
                       const char *cubin, size_t cubinBytes) {
  Lock lock(mutex);
  for (found = modules; found; found = found->next)
    if (found->key.low == key.low && found->key.high == key.high && found->key.bytes == key.bytes) {
      ++found->users;
      return {};
    }
  char *copy = nullptr;
  if (key.bytes) {
    copy = copyBytes(image, key.bytes);
    if (!copy)
      return Fault::format("out of memory on the CPU");
    image = copy;
  }
  constexpr char kELF[] = {0x7f, 'E', 'L', 'F'};
  Fault fault;
  if (std::strncmp(image, kELF, sizeof(kELF)) != 0)
    fault = checkPTX(image);
  void *memory = fault ? nullptr : std::malloc(sizeof(LoadedModule));
  if (!memory) {
    std::free(copy);
    return fault ? std::move(fault) : Fault::format("out of memory on the CPU");
  }
  // If there is no memory for the cubin, the driver compiles the PTX.
  char *ahead = cubinBytes ? copyBytes(cubin, cubinBytes) : nullptr;
  found = modules = new (memory)
      LoadedModule{key, image, copy, ahead, {}, nullptr, nullptr, /*users=*/1, {false}, modules};
  return {};
}

Fault Card::removeKernels(LoadedModule *module) {
  if (!module)
    return {};
  {
    Lock lock(mutex);
    if (--module->users || module->isCaptured)
      return {};
    LoadedModule **place = &modules;
    while (*place != module)
      place = &(*place)->next;
    *place = module->next;
  }
  Fault fault;
  if (module->module && !failed)
    fault = inContext("unload kernels", [&] {
      return outsideCaptures([&] { return driver.moduleUnload(module->module); });
    });
  for (Kernel *kernel = module->kernels; kernel;)
    std::free(std::exchange(kernel, kernel->next));
  std::free(module->copy);
  std::free(module->cubin);
  module->~LoadedModule();
  std::free(module);
  return fault;
}

Fault Card::load(LoadedModule &found) {
  char log[8192] = "";
  int options[] = {kErrorLogBuffer, kErrorLogBufferSizeBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  Module module = nullptr;
  Result result = kSuccess;
  auto tryToLoad = [&](const char *image) {
    return inContext("load kernels", [&] {
      return outsideCaptures([&] {
        result = driver.moduleLoadDataEx(&module, image, 2, options, values);
        return isFatal(result) ? result : kSuccess;
      });
    });
  };
  if (found.cubin) {
    Fault fault = tryToLoad(found.cubin);
    std::free(found.cubin);
    found.cubin = nullptr;
    if (fault)
      return fault;
  }
  // A driver older than the cubin, and a GPU of another architecture, reject the cubin.
  bool isLoaded = module && result == kSuccess;
  if (!isLoaded)
    if (Fault fault = tryToLoad(found.image))
      return fault;
  Text description = driver.describe(result);
  if (result == kUnsupportedPTXVersion) {
    PTXHeader header = parsePTXHeader(found.image);
    return Fault::format("the CUDA driver (CUDA %d.%d) is too old for PTX %d.%d: %s",
                         driver.version / 1000, driver.version % 1000 / 10, header.version / 10,
                         header.version % 10, description.chars);
  }
  if (result == kNoBinaryForGPU)
    return Fault::format("wrong architecture: the kernels do not run on %s, which is sm_%d: %s",
                         getId().chars, info.getCapability(), description.chars);
  if (result != kSuccess) {
    for (size_t end = std::strlen(log); end && std::isspace((unsigned char)log[end - 1]);)
      log[--end] = 0;
    return Fault::format("%s cannot load the kernels: %s%s%s", getId().chars, description.chars,
                         log[0] ? "; the driver's compiler says:\n" : "",
                         log + std::strspn(log, " \t\r\n"));
  }
  found.module = module;
  std::free(found.copy);
  found.copy = nullptr;
  return {};
}

/// Returns the kernel with that name in a list; null if there is none.
static Kernel *findKernel(Kernel *kernels, const char *name, size_t length) {
  for (Kernel *kernel = kernels; kernel; kernel = kernel->next)
    if (std::strncmp(kernel->name, name, length) == 0 && !kernel->name[length])
      return kernel;
  return nullptr;
}

Fault Card::getKernel(LoadedModule &module, const char *name, size_t length, Kernel *&kernel) {
  // Compiled code requests a kernel before each launch, usually one that was requested before. Then
  // no lock is taken.
  kernel = findKernel(module.kernels.load(std::memory_order_acquire), name, length);
  if (kernel)
    return {};
  Lock lock(module.mutex);
  kernel = findKernel(module.kernels.load(std::memory_order_relaxed), name, length);
  if (kernel)
    return {};
  if (!module.module)
    if (Fault fault = load(module))
      return fault;
  auto *memory = static_cast<char *>(std::malloc(sizeof(Kernel) + length + 1));
  if (!memory)
    return Fault::format("out of memory on the CPU");
  auto *made = new (memory) Kernel{};
  made->name = memory + sizeof(Kernel);
  made->module = &module;
  std::memcpy(made->name, name, length);
  made->name[length] = 0;
  Text what = Text::format("find kernel '%s'", made->name);
  if (Fault fault = inContext(what.chars, [&] {
        Result result = driver.moduleGetFunction(&made->function, module.module, made->name);
        auto get = [&](int &value, FunctionAttribute attribute) {
          result = result ? result : driver.funcGetAttribute(&value, attribute, made->function);
        };
        get(made->staticSharedBytes, kSharedSizeBytes);
        get(made->registers, kNumRegisters);
        get(made->maxThreads, kMaxThreadsPerBlock);
        return result;
      })) {
    std::free(memory);
    return fault;
  }
  made->dynamicSharedLimit = kDefaultSharedBytes - made->staticSharedBytes;
  made->next = module.kernels.load(std::memory_order_relaxed);
  module.kernels.store(made, std::memory_order_release);
  kernel = made;
  return {};
}

void Card::noteCapture(LoadedModule &module, Stream stream) const {
  // The driver may refuse to report the status of the legacy stream.
  int status = 0;
  if (!module.isCaptured && (driver.streamIsCapturing(stream, &status) || status))
    module.isCaptured = true;
}

bool Card::canOverlap(Stream stream) const {
  if (!driver.launchKernelEx)
    return false;
  if (driver.version >= kProgrammaticCaptureVersion)
    return true;
  // A launch that the driver rejects would end the capture.
  int status = 0;
  return !driver.streamIsCapturing(stream, &status) && status == 0;
}

static Text describeLaunch(const Kernel &kernel, const LaunchShape &shape) {
  const Dim3 &grid = shape.grid, &block = shape.block;
  return Text::format("launch kernel '%s' (grid %ldx%ldx%ld, block %ldx%ldx%ld, %ld bytes of "
                      "dynamic shared memory)",
                      kernel.name, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                      shape.dynamicSharedBytes);
}

Fault Card::checkLaunch(Kernel &kernel, const LaunchShape &shape) {
  int64_t dynamicBytes = shape.dynamicSharedBytes;
  int64_t sharedBytes = kernel.staticSharedBytes + dynamicBytes;
  if (sharedBytes > info.sharedMemoryPerBlock)
    return Fault::format("shared memory beyond the limit of %s: kernel '%s' needs %ld bytes (%d "
                         "static, %ld dynamic) but a block has %ld",
                         getId().chars, kernel.name, sharedBytes, kernel.staticSharedBytes,
                         dynamicBytes, info.sharedMemoryPerBlock);
  int64_t threads = shape.block.x * shape.block.y * shape.block.z;
  if (threads > kernel.maxThreads)
    return Fault::format("launch failure on %s: kernel '%s' is given %ld threads per block but its "
                         "%d registers per thread allow %d",
                         getId().chars, kernel.name, threads, kernel.registers, kernel.maxThreads);
  if (dynamicBytes > kernel.dynamicSharedLimit) {
    Text what = Text::format("raise the shared memory of kernel '%s'", kernel.name);
    if (Fault fault = inContext(what.chars, [&] {
          return driver.funcSetAttribute(kernel.function, kMaxDynamicSharedSizeBytes, dynamicBytes);
        }))
      return fault;
    kernel.dynamicSharedLimit = dynamicBytes;
  }
  // Larger grids would wrap around in the driver's 32 bits.
  if (shape.grid.x > INT32_MAX || shape.grid.y > 65535 || shape.grid.z > 65535)
    return Fault::format("%s cannot %s: expected a grid of at most %dx65535x65535", getId().chars,
                         describeLaunch(kernel, shape).chars, INT32_MAX);
  const Dim3 &cluster = shape.cluster;
  if (cluster.x * cluster.y * cluster.z != 1 && !driver.launchKernelEx)
    return Fault::format("%s cannot %s in clusters, because the CUDA driver is too old: expected "
                         "CUDA 11.8 or newer but got CUDA %d.%d",
                         getId().chars, describeLaunch(kernel, shape).chars, driver.version / 1000,
                         driver.version % 1000 / 10);
  return {};
}

Fault Card::launch(Kernel &kernel, const LaunchShape &shape, Stream stream, void **parameters) {
  const Dim3 &grid = shape.grid, &block = shape.block, &cluster = shape.cluster;
  // There is nothing to do, and the driver would reject the launch.
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    return {};
  if (Fault fault = checkLaunch(kernel, shape))
    return fault;
  LaunchAttribute attributes[2] = {};
  unsigned numAttributes = 0;
  if (cluster.x * cluster.y * cluster.z != 1) {
    LaunchAttribute &attribute = attributes[numAttributes++];
    attribute.id = LaunchAttribute::kClusterDimension;
    unsigned clusterDim[] = {unsigned(cluster.x), unsigned(cluster.y), unsigned(cluster.z)};
    std::copy_n(clusterDim, 3, attribute.value.clusterDim);
  }
  LaunchConfig config{{unsigned(grid.x), unsigned(grid.y), unsigned(grid.z)},
                      {unsigned(block.x), unsigned(block.y), unsigned(block.z)},
                      unsigned(shape.dynamicSharedBytes),
                      stream,
                      attributes,
                      0};
  Result result = kSuccess;
  if (Fault fault = inContext("launch a kernel", [&] {
        noteCapture(*kernel.module, stream);
        if (shape.programmatic && canOverlap(stream)) {
          LaunchAttribute &attribute = attributes[numAttributes++];
          attribute.id = LaunchAttribute::kProgrammaticStreamSerialization;
          attribute.value.programmaticStreamSerializationAllowed = 1;
        }
        config.numAttributes = numAttributes;
        result = numAttributes
                     ? driver.launchKernelEx(&config, kernel.function, parameters, nullptr)
                     : driver.launchKernel(kernel.function, grid.x, grid.y, grid.z, block.x,
                                           block.y, block.z, shape.dynamicSharedBytes, stream,
                                           parameters, nullptr);
        return kSuccess;
      }))
    return fault;
  // The description is formatted only after an error, because launches are frequent.
  return result ? check(result, describeLaunch(kernel, shape).chars) : Fault();
}
