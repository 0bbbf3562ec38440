//===- RuntimeSymbols.cpp - runtime functions of compiled code ------------===//
//
// The binary interface of upstream's lowering (gpu-to-llvm, translation of gpu.binary), over
// Device. Nothing here is exported: the JIT receives the addresses.
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "LibrarySymbols.h"
#include "Model/ModelSymbols.h"
#include "RuntimeContext.h"
#include "flashattn/Runtime/ParallelFor.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ExecutionEngine/Orc/Shared/ExecutorSymbolDef.h"

#include <cstring>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

RuntimeContext *mlir::flashattn::getRuntimeContext() {
  return static_cast<RuntimeContext *>(getThreadContext());
}
void mlir::flashattn::setRuntimeContext(RuntimeContext *context) { setThreadContext(context); }

void RuntimeContext::run(llvm::function_ref<Error(Device &)> call) {
  std::lock_guard<std::mutex> lock(mutex);
  if (failed)
    return;
  error = call(device);
  failed = bool(error);
}

Error RuntimeContext::takeError() {
  std::lock_guard<std::mutex> lock(mutex);
  for (void *buffer : buffers)
    if (Error late = device.releaseOn(*stream, buffer)) {
      if (failed)
        llvm::consumeError(std::move(late));
      else
        error = std::move(late);
      failed = true;
    }
  buffers.clear();
  failed = false;
  return std::move(error);
}

Expected<void *> RuntimeContext::allocate(size_t bytes) {
  if (!stream)
    return device.allocate(bytes);
  // An empty buffer needs no address. The driver would take time to allocate a byte.
  if (bytes == 0)
    return static_cast<void *>(nullptr);
  Expected<void *> buffer = device.allocateOn(*stream, bytes);
  if (buffer)
    buffers.push_back(*buffer);
  return buffer;
}

Error RuntimeContext::release(void *buffer) {
  if (!stream)
    return device.release(buffer);
  if (!buffer)
    return Error::success();
  auto found = llvm::find(buffers, buffer);
  if (found == buffers.end())
    return formatError("expected a function that frees only what it has allocated but it frees {0}",
                       buffer);
  buffers.erase(found);
  return device.releaseOn(*stream, buffer);
}

namespace {

void run(llvm::function_ref<Error(Device &)> call) {
  // Compiled code runs only in an executable.
  if (RuntimeContext *current = getRuntimeContext())
    current->run(call);
}

/// Returns the value of `call` to compiled code; null after an error, which the executable reports
/// when the code returns.
void *get(llvm::function_ref<Expected<void *>(Device &)> call) {
  void *result = nullptr;
  run([&](Device &device) -> Error {
    Expected<void *> value = call(device);
    if (!value)
      return value.takeError();
    result = *value;
    return Error::success();
  });
  return result;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Copies use the device's own stream, for which a caller's stream would not wait.
Error checkStream(Device &device) {
  if (!getRuntimeContext()->getStream() || !device.isCUDA())
    return Error::success();
  return formatError("expected a function that only launches kernels but it copies or fills device "
                     "memory");
}
void runMemory(llvm::function_ref<Error(Device &)> call) {
  run([&](Device &device) -> Error {
    if (Error error = checkStream(device))
      return error;
    return call(device);
  });
}

void *memrefAlloc(uint64_t bytes) {
  return get([&](Device &) { return getRuntimeContext()->allocate(bytes); });
}
void *memrefAlignedAlloc(uint64_t alignment, uint64_t bytes) {
  return get([&](Device &) -> Expected<void *> {
    constexpr uint64_t kDeviceAlignment = 256;
    if (alignment > kDeviceAlignment)
      return formatError("expected an alignment of at most {0} bytes but got {1}", kDeviceAlignment,
                         alignment);
    return getRuntimeContext()->allocate(bytes);
  });
}
void memrefFree(void *pointer) {
  run([&](Device &) { return getRuntimeContext()->release(pointer); });
}

void *mgpuMemAlloc(uint64_t bytes, void *stream, bool isHostShared) {
  return get([&](Device &) -> Expected<void *> {
    if (isHostShared)
      return formatError("gpu.alloc with host_shared is not supported");
    return getRuntimeContext()->allocate(bytes);
  });
}
void mgpuMemFree(void *pointer, void *stream) { memrefFree(pointer); }
void mgpuMemcpy(void *dst, void *src, size_t bytes, void *stream) {
  runMemory([&](Device &device) { return device.copyOnDevice(dst, src, bytes); });
}
/// Fills with a value of several bytes by doubling the filled range: device.fill supports only
/// bytes.
template <typename T> void fill(void *dst, T value, size_t count) {
  runMemory([&](Device &device) -> Error {
    auto *bytes = reinterpret_cast<uint8_t *>(&value);
    if (std::all_of(bytes, bytes + sizeof(T), [&](uint8_t byte) { return byte == bytes[0]; }))
      return device.fill(dst, bytes[0], count * sizeof(T));
    if (count == 0)
      return Error::success();
    if (Error error = device.copyToDevice(dst, &value, sizeof(T)))
      return error;
    for (size_t done = 1; done < count; done *= 2)
      if (Error error = device.copyOnDevice(static_cast<T *>(dst) + done, dst,
                                            std::min(done, count - done) * sizeof(T)))
        return error;
    return Error::success();
  });
}
void mgpuMemset32(void *dst, unsigned value, size_t count, void *stream) {
  fill<uint32_t>(dst, value, count);
}
void mgpuMemset16(void *dst, unsigned short value, size_t count, void *stream) {
  fill<uint16_t>(dst, value, count);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void *mgpuModuleLoad(void *image, size_t bytes) {
  return get([&](Device &device) {
    return device.addKernels(llvm::StringRef(static_cast<char *>(image), bytes));
  });
}
void *mgpuModuleLoadJIT(void *ptx, int optLevel) {
  return get([&](Device &device) { return device.addKernels(static_cast<char *>(ptx)); });
}
void mgpuModuleUnload(void *module) {
  run([&](Device &device) { return device.removeKernels(module); });
}
void *mgpuModuleGetFunction(void *module, const char *name) {
  return get([&](Device &device) { return device.getKernel(module, name); });
}
/// Launches nothing outside of an executable.
void launch(void *kernel, Dim3 grid, Dim3 block, Dim3 cluster, int32_t sharedBytes,
            void **parameters) {
  RuntimeContext *current = getRuntimeContext();
  if (!current)
    return;
  LaunchShape shape{grid, block, cluster, sharedBytes, current->getStream()};
  // Also after an error: the flags belong to this launch, not to the next one.
  shape.programmatic = current->takeLaunchFlags() & kLaunchProgrammatic;
  run([&](Device &device) { return device.launch(kernel, shape, parameters); });
}
void mgpuLaunchKernel(void *kernel, intptr_t gridX, intptr_t gridY, intptr_t gridZ, intptr_t blockX,
                      intptr_t blockY, intptr_t blockZ, int32_t sharedBytes, void *stream,
                      void **parameters, void **extra, size_t parameterCount) {
  launch(kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {1, 1, 1}, sharedBytes,
         parameters);
}
void mgpuLaunchClusterKernel(void *kernel, intptr_t clusterX, intptr_t clusterY, intptr_t clusterZ,
                             intptr_t gridX, intptr_t gridY, intptr_t gridZ, intptr_t blockX,
                             intptr_t blockY, intptr_t blockZ, int32_t sharedBytes, void *stream,
                             void **parameters, void **extra) {
  launch(kernel, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, {clusterX, clusterY, clusterZ},
         sharedBytes, parameters);
}

/// Errors: unknown flags.
void flashattnSetLaunchFlags(int32_t flags) {
  run([&](Device &) -> Error {
    if (flags & ~kAllLaunchFlags)
      return formatError("expected launch flags of at most {0} but got {1}", kAllLaunchFlags,
                         flags);
    getRuntimeContext()->setLaunchFlags(flags);
    return Error::success();
  });
}

/// Writes the CUtensorMap of a memref to `map` (128 bytes, aligned to 64). Sizes and strides are in
/// elements and in the memref's order; `element` is a TensorMapElement. After an error, the map is
/// not written and nothing is launched.
void flashattnEncodeTensorMap(void *map, void *alignedPointer, int64_t offset, int64_t rank,
                              const int64_t *sizes, const int64_t *strides, int32_t element,
                              int64_t rowDim, int64_t boxRows, int64_t outerDim, int64_t outerRows,
                              int64_t boxColumns) {
  run([&](Device &device) -> Error {
    if (element < 0 || element >= kNumTensorMapElements)
      return formatError("expected an element type of a tensor map below {0} but got {1}",
                         kNumTensorMapElements, element);
    TensorMapShape shape = makeTensorMapShape(alignedPointer, offset, rank, sizes, strides, element,
                                              rowDim, boxRows, outerDim, outerRows, boxColumns);
    return device.encodeTensorMap(map, shape);
  });
}

/// Returns the number of multiprocessors of the device; 1 after an error, when nothing is launched.
int64_t flashattnMultiprocessorCount() {
  int64_t count = 1;
  run([&](Device &device) {
    count = device.getMultiprocessorCount();
    return Error::success();
  });
  return count;
}

//===----------------------------------------------------------------------===//
// Streams and events: all work of a device is submitted to its one stream, in order
//===----------------------------------------------------------------------===//

void *mgpuStreamCreate() {
  return get([](Device &device) -> Expected<void *> { return device.getStream(); });
}
/// Launches are asynchronous: Device::synchronize waits, not the compiled code.
void mgpuStreamNothing(void *stream) {}
void mgpuStreamWaitEvent(void *stream, void *event) {}
void *mgpuEventCreate() { return nullptr; }
void mgpuEventDestroy(void *event) {}
void mgpuEventSynchronize(void *event) {
  run([](Device &device) { return device.synchronize(); });
}
void mgpuEventRecord(void *event, void *stream) {}
/// The executable selects the device, not the code.
void mgpuSetDefaultDevice(int32_t ordinal) {}

//===----------------------------------------------------------------------===//
// Conversions to and from narrow floats, for processors without instructions for them: the
// compiler's support library cannot be looked up at run time
//===----------------------------------------------------------------------===//

template <typename To, typename From> To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

uint16_t narrow(llvm::APFloat value, const llvm::fltSemantics &semantics) {
  bool losesInfo;
  value.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return value.bitcastToAPInt().getZExtValue();
}
_Float16 truncateToF16(float value) {
  return bits<_Float16>(narrow(llvm::APFloat(value), llvm::APFloat::IEEEhalf()));
}
_Float16 truncateF64ToF16(double value) {
  return bits<_Float16>(narrow(llvm::APFloat(value), llvm::APFloat::IEEEhalf()));
}
float extendF16(_Float16 value) {
  llvm::APFloat wide(llvm::APFloat::IEEEhalf(), llvm::APInt(16, bits<uint16_t>(value)));
  bool losesInfo;
  wide.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return wide.convertToFloat();
}
// A bf16 is returned in the same register as an f16.
_Float16 truncateToBF16(float value) {
  uint32_t word = bits<uint32_t>(value);
  // A NaN remains a NaN: rounding could carry it to infinity.
  uint16_t narrowed = (word & 0x7fffffff) > 0x7f800000 ? (word >> 16) | 0x40
                                                       : (word + 0x7fff + ((word >> 16) & 1)) >> 16;
  return bits<_Float16>(narrowed);
}
_Float16 truncateF64ToBF16(double value) {
  return bits<_Float16>(narrow(llvm::APFloat(value), llvm::APFloat::BFloat()));
}

struct Symbol {
  const char *name;
  void *address;
};

template <typename F> constexpr Symbol symbol(const char *name, F *function) {
  return {name, reinterpret_cast<void *>(function)};
}

/// The functions through which compiled code allocates memory.
const Symbol kAllocations[] = {
    symbol("_mlir_memref_to_llvm_alloc", memrefAlloc),
    symbol("_mlir_memref_to_llvm_aligned_alloc", memrefAlignedAlloc),
    symbol("mgpuMemAlloc", mgpuMemAlloc),
};

const Symbol kOthers[] = {
    symbol("_mlir_memref_to_llvm_free", memrefFree),
    symbol("_mlir_memref_to_llvm_aligned_free", memrefFree),
    symbol(abi::kEncodeTensorMap, flashattnEncodeTensorMap),
    symbol(abi::kMultiprocessorCount, flashattnMultiprocessorCount),
    symbol(abi::kParallelFor, flashattnParallelFor),
    symbol(abi::kSetLaunchFlags, flashattnSetLaunchFlags),
    symbol(abi::kThreadCount, flashattnThreadCount),
    symbol("mgpuMemFree", mgpuMemFree),
    symbol("mgpuMemcpy", mgpuMemcpy),
    symbol("mgpuMemset32", mgpuMemset32),
    symbol("mgpuMemset16", mgpuMemset16),
    symbol("mgpuModuleLoad", mgpuModuleLoad),
    symbol("mgpuModuleLoadJIT", mgpuModuleLoadJIT),
    symbol("mgpuModuleUnload", mgpuModuleUnload),
    symbol("mgpuModuleGetFunction", mgpuModuleGetFunction),
    symbol("mgpuLaunchKernel", mgpuLaunchKernel),
    symbol("mgpuLaunchClusterKernel", mgpuLaunchClusterKernel),
    symbol("mgpuStreamCreate", mgpuStreamCreate),
    symbol("mgpuStreamDestroy", mgpuStreamNothing),
    symbol("mgpuStreamSynchronize", mgpuStreamNothing),
    symbol("mgpuStreamWaitEvent", mgpuStreamWaitEvent),
    symbol("mgpuEventCreate", mgpuEventCreate),
    symbol("mgpuEventDestroy", mgpuEventDestroy),
    symbol("mgpuEventSynchronize", mgpuEventSynchronize),
    symbol("mgpuEventRecord", mgpuEventRecord),
    symbol("mgpuSetDefaultDevice", mgpuSetDefaultDevice),
    symbol("__truncsfhf2", truncateToF16),
    symbol("__truncdfhf2", truncateF64ToF16),
    symbol("__extendhfsf2", extendF16),
    symbol("__truncsfbf2", truncateToBF16),
    symbol("__truncdfbf2", truncateF64ToBF16),
};

bool hasName(llvm::ArrayRef<Symbol> symbols, llvm::StringRef name) {
  return llvm::any_of(symbols, [&](const Symbol &symbol) { return name == symbol.name; });
}

/// Visits all functions that compiled code may call.
void visitSymbols(llvm::function_ref<void(llvm::StringRef name, void *address)> visit) {
  for (const Symbol &symbol : llvm::concat<const Symbol>(kAllocations, kOthers))
    visit(symbol.name, symbol.address);
  model::visitSymbols(visit);
  visitLibrarySymbols(visit);
}

} // namespace

llvm::orc::SymbolMap mlir::flashattn::getRuntimeSymbols(llvm::orc::MangleAndInterner mangle) {
  llvm::orc::SymbolMap map;
  visitSymbols([&](llvm::StringRef name, void *address) {
    map[mangle(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  });
  return map;
}

bool mlir::flashattn::isRuntimeSymbol(llvm::StringRef name) {
  static const llvm::StringSet<> names = [] {
    llvm::StringSet<> names;
    visitSymbols([&](llvm::StringRef name, void *) { names.insert(name); });
    return names;
  }();
  return names.contains(name);
}

bool mlir::flashattn::isAllocationSymbol(llvm::StringRef name) {
  return hasName(kAllocations, name);
}
