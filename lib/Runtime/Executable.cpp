//===- Executable.cpp - JIT of a lowered module ---------------------------===//

#include "flashattn/Runtime/Executable.h"
#include "Errors.h"
#include "RuntimeContext.h"
#include "flashattn/Runtime/HostCode.h"
#include "flashattn/Runtime/StageTimer.h"
#include "flashattn/Runtime/Worker.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/RTDyldObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/SectionMemoryManager.h"
#include "llvm/Support/Memory.h"
#include "llvm/Support/TargetSelect.h"

#include <functional>
#include <mutex>
#include <set>
#include <vector>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

/// Allocates pages for the JIT and counts them.
class CountingMapper final : public llvm::SectionMemoryManager::MemoryMapper {
public:
  int64_t getBytes() const { return bytes; }

  llvm::sys::MemoryBlock allocateMappedMemory(llvm::SectionMemoryManager::AllocationPurpose,
                                              size_t size, const llvm::sys::MemoryBlock *near,
                                              unsigned flags, std::error_code &error) override {
    llvm::sys::MemoryBlock block =
        llvm::sys::Memory::allocateMappedMemory(size, near, flags, error);
    bytes += block.allocatedSize();
    return block;
  }
  std::error_code protectMappedMemory(const llvm::sys::MemoryBlock &block,
                                      unsigned flags) override {
    return llvm::sys::Memory::protectMappedMemory(block, flags);
  }
  std::error_code releaseMappedMemory(llvm::sys::MemoryBlock &block) override {
    bytes -= block.allocatedSize();
    return llvm::sys::Memory::releaseMappedMemory(block);
  }

private:
  int64_t bytes = 0;
};

class JITExecutable final : public Executable {
public:
  explicit JITExecutable(Device &device) : device(device) {}

  ~JITExecutable() override {
    // Unloading calls functions of the runtime.
    RuntimeContext context(device);
    RuntimeContextScope scope(context);
    if (finish)
      finish();
    llvm::consumeError(context.takeError());
  }

  Error initialize(const HostImage &image, ArrayRef<Symbol> symbols);
  Error invoke(StringRef function, ArrayRef<void *> arguments) override;
  Expected<Entry> lookup(StringRef function) const override;
  Error launch(Entry entry, void **addresses, void *stream) override;
  int64_t getCodeBytes() const override { return mapper.getBytes(); }
  Expected<int64_t> measureWorkspace(Entry entry, void **addresses) override;

private:
  /// Looks up a function of the code.
  template <typename F> Error find(const llvm::Twine &name, F *&function);
  /// Loads the kernels of a launch, in parallel.
  void loadKernels(Entry entry, void **addresses);

  Device &device;
  CountingMapper mapper; ///< destroyed after the code
  std::unique_ptr<llvm::orc::LLJIT> jit;
  void (*finish)() = nullptr;
  /// The entry of each callable function, by its name in the module.
  llvm::StringMap<Entry> entries;
  std::once_flag hasLaunched;
};

} // namespace

template <typename F> Error JITExecutable::find(const llvm::Twine &name, F *&function) {
  Expected<llvm::orc::ExecutorAddr> address = jit->lookup(name.str());
  if (!address)
    return address.takeError();
  function = address->toPtr<F *>();
  return Error::success();
}

Error JITExecutable::initialize(const HostImage &image, ArrayRef<Symbol> symbols) {
  static const bool hasTarget = llvm::InitializeNativeTarget();
  (void)hasTarget;
  auto made = llvm::orc::LLJITBuilder()
                  // The code itself has a function that calls its constructors.
                  .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                  // The code finds the runtime's symbols, and no others of the process.
                  .setLinkProcessSymbolsByDefault(false)
                  .setObjectLinkingLayerCreator([this](llvm::orc::ExecutionSession &session) {
                    return std::make_unique<llvm::orc::RTDyldObjectLinkingLayer>(
                        session, [this](const llvm::MemoryBuffer &) {
                          // All sections in one allocation: relocations between them reach 2 GB,
                          // and in a process with many mappings the next free range may be further
                          // away.
                          return std::make_unique<llvm::SectionMemoryManager>(
                              &mapper, /*ReserveAlloc=*/true);
                        });
                  })
                  .create();
  if (!made)
    return made.takeError();
  jit = std::move(*made);
  llvm::orc::MangleAndInterner mangle(jit->getExecutionSession(), jit->getDataLayout());
  llvm::orc::SymbolMap map = getRuntimeSymbols(mangle);
  for (const auto &[name, address] : symbols)
    map[mangle(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
  // The device copies what it keeps of an image.
  for (const auto &[symbol, kernels] : image.kernels)
    map[mangle(symbol)] = {llvm::orc::ExecutorAddr::fromPtr(kernels.c_str()),
                           llvm::JITSymbolFlags::Exported};
  llvm::orc::JITDylib &library = jit->getMainJITDylib();
  if (Error error = library.define(llvm::orc::absoluteSymbols(std::move(map))))
    return error;
  if (Error error = jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(image.object)))
    return error;
  for (const std::string &function : image.functions)
    if (Error error = find(function + ".entry", entries[function]))
      return error;
  void (*start)();
  if (Error error = find(kInitializeName, start))
    return error;
  if (Error error = find(kFinishName, finish))
    return error;

  RuntimeContext context(device);
  RuntimeContextScope scope(context);
  // Passes the kernels to the device, which loads those that are launched.
  start();
  return context.takeError();
}

Expected<Executable::Entry> JITExecutable::lookup(StringRef function) const {
  auto entry = entries.find(function);
  if (entry == entries.end())
    return formatError("the module has no function '{0}' that can be called", function);
  return entry->second;
}

Error JITExecutable::launch(Entry entry, void **addresses, void *stream) {
  std::call_once(hasLaunched, [&] { loadKernels(entry, addresses); });
  RuntimeContext context(device, stream);
  RuntimeContextScope scope(context);
  entry(addresses);
  return context.takeError();
}

namespace {
/// A device that only counts memory and lists requested kernels, in place of a device on which host
/// code could run. That code does not access device memory itself.
class DryDevice final : public Device {
public:
  explicit DryDevice(Device &device) : device(device) {}

  /// Returns the maximum number of bytes at any time.
  int64_t getPeak() const { return peak; }
  /// The arguments of a getKernel call.
  using Request = std::pair<void *, std::string>;
  ArrayRef<Request> getRequests() const { return requests.getArrayRef(); }

  std::string getId() const override { return device.getId(); }
  std::string getDescription() const override { return device.getDescription(); }
  std::string getChip() const override { return device.getChip(); }
  bool isModel() const override { return device.isModel(); }
  int64_t getMultiprocessorCount() const override { return device.getMultiprocessorCount(); }

  Expected<void *> allocate(size_t bytes) override {
    peak = std::max<int64_t>(peak, live += bytes);
    // Any address is valid that is unique and not null.
    constexpr uintptr_t kAlignment = 256;
    void *buffer = reinterpret_cast<void *>(kAlignment * ++count);
    sizes[buffer] = bytes;
    return buffer;
  }
  Error release(void *buffer) override {
    live -= sizes.lookup(buffer);
    sizes.erase(buffer);
    return Error::success();
  }
  Error copyToDevice(void *, const void *, size_t) override { return Error::success(); }
  Error copyToHost(void *, const void *, size_t) override { return Error::success(); }
  Error copyOnDevice(void *, const void *, size_t) override { return Error::success(); }
  Error fill(void *, uint8_t, size_t) override { return Error::success(); }
  Error synchronize() override { return Error::success(); }
  Expected<double> time(llvm::function_ref<Error()>, unsigned) override { return 0; }
  Expected<void *> getKernel(void *kernels, StringRef name) override {
    requests.insert({kernels, name.str()});
    return nullptr;
  }
  Error launch(void *, const LaunchShape &, void **) override { return Error::success(); }
  Error encodeTensorMap(void *, const TensorMapShape &) override { return Error::success(); }

private:
  Device &device;
  llvm::SmallDenseMap<void *, int64_t> sizes;
  int64_t live = 0, peak = 0;
  uintptr_t count = 0;
  llvm::SetVector<Request, std::vector<Request>, std::set<Request>> requests;
};
} // namespace

void JITExecutable::loadKernels(Entry entry, void **addresses) {
  if (!device.isCUDA())
    return;
  StageTimer timer("load kernels");
  DryDevice dry(device);
  RuntimeContext context(dry, /*stream=*/nullptr);
  {
    RuntimeContextScope scope(context);
    entry(addresses);
  }
  // The launch encounters the same errors, and reports them.
  llvm::consumeError(context.takeError());
  auto load = [this](const DryDevice::Request &request) {
    llvm::consumeError(device.getKernel(request.first, request.second).takeError());
  };
  ArrayRef<DryDevice::Request> requests = dry.getRequests();
  std::vector<Worker> workers(requests.empty() ? 0 : requests.size() - 1);
  for (auto [worker, request] : llvm::zip(workers, requests.drop_front(!requests.empty())))
    worker.start([&load, request = &request] { load(*request); });
  if (!requests.empty())
    load(requests.front());
  workers.clear();
  timer.end("driver");
}

Expected<int64_t> JITExecutable::measureWorkspace(Entry entry, void **addresses) {
  if (!device.isCUDA() && !device.isModel())
    return formatError("expected a GPU for a workspace but got {0}", device.getId());
  DryDevice meter(device);
  // With a stream, as in a launch, which has the same restrictions.
  RuntimeContext context(meter, /*stream=*/nullptr);
  RuntimeContextScope scope(context);
  entry(addresses);
  if (Error error = context.takeError())
    return error;
  return meter.getPeak();
}

bool mlir::flashattn::allocatesMemory(ModuleOp lowered) {
  return lowered
      .walk([](LLVM::CallOp call) {
        std::optional<StringRef> callee = call.getCallee();
        return callee && isAllocationSymbol(*callee) ? WalkResult::interrupt()
                                                     : WalkResult::advance();
      })
      .wasInterrupted();
}

Error JITExecutable::invoke(StringRef function, ArrayRef<void *> arguments) {
  Expected<Entry> entry = lookup(function);
  if (!entry)
    return entry.takeError();
  // The entry expects the address of each argument's value.
  SmallVector<void *> values(arguments);
  SmallVector<void *> addresses;
  for (void *&value : values)
    addresses.push_back(&value);
  RuntimeContext context(device);
  RuntimeContextScope scope(context);
  (*entry)(addresses.data());
  return context.takeError();
}

Expected<std::unique_ptr<Executable>> Executable::load(const HostImage &image, Device &device,
                                                       ArrayRef<Symbol> symbols) {
  auto executable = std::make_unique<JITExecutable>(device);
  if (Error error = executable->initialize(image, symbols))
    return error;
  return executable;
}

Expected<std::unique_ptr<Executable>> Executable::create(ModuleOp lowered, Device &device,
                                                         ArrayRef<Symbol> symbols) {
  SmallVector<StringRef> names(llvm::make_first_range(symbols));
  Expected<HostImage> image =
      compileHostCode(lowered, device.isModel() ? HostTarget::Model : HostTarget::Native, names);
  if (!image)
    return image.takeError();
  return load(*image, device, symbols);
}
