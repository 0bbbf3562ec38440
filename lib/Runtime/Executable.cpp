//===- Executable.cpp - JIT of a lowered module ----------------------------===//

#include "flashattn/Runtime/Executable.h"
#include "Errors.h"
#include "RuntimeContext.h"
#include "flashattn/Runtime/HostCode.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/ExecutionEngine/SectionMemoryManager.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/DynamicLibrary.h"
#include "llvm/Support/Memory.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>
#include <thread>
#include <vector>

using namespace mlir;
using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;

namespace {

/// Gives the JIT pages and counts them.
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
    // Unloading calls back into the runtime.
    RuntimeContext context(device);
    RuntimeContextScope scope(context);
    engine.reset();
    llvm::consumeError(context.takeError());
  }

  Error initialize(ModuleOp lowered, ArrayRef<Symbol> symbols);
  Error invoke(StringRef function, ArrayRef<void *> arguments) override;
  Expected<Entry> lookup(StringRef function) const override;
  Error launch(Entry entry, void **addresses, void *stream) override;
  int64_t getCodeBytes() const override { return mapper.getBytes(); }
  Expected<int64_t> measureWorkspace(Entry entry, void **addresses) override;

private:
  Device &device;
  CountingMapper mapper; ///< goes after the engine
  std::unique_ptr<ExecutionEngine> engine;
  /// Entry of each callable function, by its name in the module.
  llvm::StringMap<Entry> entries;
};

} // namespace

/// The functions that the module calls and nobody has, `symbols` included. The engine's own check
/// comes too late: it aborts the process.
static SmallVector<std::string> findUnresolved(const llvm::Module &module,
                                               ArrayRef<Executable::Symbol> symbols) {
  SmallVector<std::string> names;
  for (const llvm::Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic() && !function.use_empty() &&
        !isRuntimeSymbol(function.getName()) &&
        !llvm::is_contained(llvm::make_first_range(symbols), function.getName()) &&
        !llvm::sys::DynamicLibrary::SearchForAddressOfSymbol(function.getName().str()))
      names.push_back(function.getName().str());
  return names;
}

static Expected<std::unique_ptr<llvm::TargetMachine>>
createHostMachine(llvm::CodeGenOptLevel level) {
  static const bool initialized = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::sys::DynamicLibrary::LoadLibraryPermanently(nullptr);
    return true;
  }();
  (void)initialized;
  auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!builder)
    return builder.takeError();
  builder->setCodeGenOptLevel(level);
  return builder->createTargetMachine();
}

namespace {
/// Has the driver compile all kernels of a module side by side, and beside the host code. The
/// module's constructors then find them loaded, and launches the kernels, which are asked for here.
class KernelLoader {
public:
  KernelLoader(ModuleOp lowered, Device &device) {
    llvm::MapVector<StringAttr, llvm::SetVector<StringRef>> launched;
    lowered.walk([&](gpu::LaunchFuncOp launch) {
      launched[launch.getKernelModuleName()].insert(launch.getKernelName().getValue());
    });
    for (auto binary : lowered.getOps<gpu::BinaryOp>())
      for (auto object : binary.getObjects().getAsRange<gpu::ObjectAttr>())
        threads.emplace_back([this, &device, names = launched.lookup(binary.getSymNameAttr()),
                              image = object.getObject().getValue().rtrim('\0')] {
          keep(load(device, image, names.getArrayRef()));
        });
  }
  ~KernelLoader() { llvm::consumeError(wait()); }

  /// What failed, of all that was loaded.
  Error wait() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
    return std::move(error);
  }

private:
  static Error load(Device &device, StringRef image, ArrayRef<StringRef> names) {
    Expected<void *> kernels = device.loadKernels(image);
    if (!kernels)
      return kernels.takeError();
    for (StringRef name : names)
      if (Expected<void *> kernel = device.getKernel(*kernels, name); !kernel)
        return kernel.takeError();
    return Error::success();
  }
  /// Of several errors one is enough.
  void keep(Error found) {
    std::lock_guard<std::mutex> lock(mutex);
    if (error)
      llvm::consumeError(std::move(found));
    else
      error = std::move(found);
  }

  std::vector<std::thread> threads;
  std::mutex mutex;
  Error error = Error::success();
};
} // namespace

Error JITExecutable::initialize(ModuleOp lowered, ArrayRef<Symbol> symbols) {
  prepareTranslation(lowered);
  KernelLoader loader(lowered, device);
  // Kernels on a model spend their time in it, and are long: passes over them cost more than they
  // bring.
  const unsigned optLevel = device.isModel() ? 0 : 3;
  auto codeLevel =
      device.isModel() ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::Aggressive;
  Expected<std::unique_ptr<llvm::TargetMachine>> machine = createHostMachine(codeLevel);
  if (!machine)
    return machine.takeError();

  auto optimize = makeOptimizingTransformer(optLevel, /*sizeLevel=*/0, machine->get());
  SmallVector<std::string> unresolved;
  auto transform = [&](llvm::Module *module) -> Error {
    if (Error error = optimize(module))
      return error;
    unresolved = findUnresolved(*module, symbols);
    return Error::success();
  };
  ExecutionEngineOptions options;
  options.transformer = transform;
  // Listeners look for debuggers and profilers; a run of a kernel has neither.
  options.enableGDBNotificationListener = false;
  options.enablePerfNotificationListener = false;
  options.jitCodeGenOptLevel = codeLevel;
  options.sectionMemoryMapper = &mapper;
  Expected<std::unique_ptr<ExecutionEngine>> made =
      ExecutionEngine::create(lowered, options, std::move(*machine));
  if (!made)
    return made.takeError();
  if (!unresolved.empty())
    return formatError("the module calls functions that nobody defines: {0}",
                       llvm::join(unresolved, ", "));
  engine = std::move(*made);
  engine->registerSymbols([&](llvm::orc::MangleAndInterner mangle) {
    llvm::orc::SymbolMap map = getRuntimeSymbols(mangle);
    for (const auto &[name, address] : symbols)
      map[mangle(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                           llvm::JITSymbolFlags::Exported};
    return map;
  });

  if (Error error = loader.wait())
    return error;
  RuntimeContext context(device);
  RuntimeContextScope scope(context);
  // Runs the constructors, which load the kernels.
  engine->initialize();
  if (Error error = context.takeError())
    return error;

  for (auto function : lowered.getOps<LLVM::LLVMFuncOp>()) {
    StringRef name = function.getName();
    if (function.isExternal() || !name.consume_front(kCInterfacePrefix))
      continue;
    auto entry = engine->lookupPacked(function.getName());
    if (!entry)
      return entry.takeError();
    entries[name] = *entry;
  }
  return Error::success();
}

Expected<Executable::Entry> JITExecutable::lookup(StringRef function) const {
  auto entry = entries.find(function);
  if (entry == entries.end())
    return formatError("the module has no function '{0}' that can be called", function);
  return entry->second;
}

Error JITExecutable::launch(Entry entry, void **addresses, void *stream) {
  RuntimeContext context(device, stream);
  RuntimeContextScope scope(context);
  entry(addresses);
  return context.takeError();
}

namespace {
/// A device that counts the memory that it is asked for and does nothing else, in the place of
/// one that host code could run on. That code touches no memory of a device itself.
class WorkspaceMeter final : public Device {
public:
  explicit WorkspaceMeter(Device &device) : device(device) {}

  /// The most bytes at any time.
  int64_t getPeak() const { return peak; }

  std::string getId() const override { return device.getId(); }
  std::string getDescription() const override { return device.getDescription(); }
  std::string getChip() const override { return device.getChip(); }
  bool isModel() const override { return device.isModel(); }
  int64_t getMultiprocessorCount() const override { return device.getMultiprocessorCount(); }

  Expected<void *> allocate(size_t bytes) override {
    peak = std::max<int64_t>(peak, live += bytes);
    // Any address but null will do that is not given twice.
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
  Expected<void *> getKernel(void *, StringRef) override { return nullptr; }
  Error launch(void *, const LaunchShape &, void **) override { return Error::success(); }
  Error encodeTensorMap(void *, const TensorMapShape &) override { return Error::success(); }

private:
  Device &device;
  llvm::SmallDenseMap<void *, int64_t> sizes;
  int64_t live = 0, peak = 0;
  uintptr_t count = 0;
};
} // namespace

Expected<int64_t> JITExecutable::measureWorkspace(Entry entry, void **addresses) {
  if (!device.isCUDA() && !device.isModel())
    return formatError("expected a GPU for a workspace but got {0}", device.getId());
  WorkspaceMeter meter(device);
  // With a stream, as in a launch, whose limits are the same.
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
  // The entry wants the address of each argument's value.
  SmallVector<void *> values(arguments);
  SmallVector<void *> addresses;
  for (void *&value : values)
    addresses.push_back(&value);
  RuntimeContext context(device);
  RuntimeContextScope scope(context);
  (*entry)(addresses.data());
  return context.takeError();
}

Expected<std::unique_ptr<Executable>> Executable::create(ModuleOp lowered, Device &device,
                                                         ArrayRef<Symbol> symbols) {
  auto executable = std::make_unique<JITExecutable>(device);
  if (Error error = executable->initialize(lowered, symbols))
    return error;
  return executable;
}
