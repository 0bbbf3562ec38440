//===- RuntimeContext.h - whom compiled code talks to ------------*- C++ -*-===//
//
// The functions that compiled code calls have no parameter for the device that they
// act on: the executable that runs says so for the thread.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_RUNTIMECONTEXT_H
#define FLASHATTN_RUNTIME_RUNTIMECONTEXT_H

#include "flashattn/Runtime/Device.h"
#include "llvm/ExecutionEngine/Orc/CoreContainers.h"
#include "llvm/ExecutionEngine/Orc/Mangling.h"

#include <mutex>
#include <utility>

namespace mlir::flashattn {

/// The device of a call under way and its first error.
class RuntimeContext {
public:
  /// Kernels go to `stream`, or to the device's own where there is none.
  explicit RuntimeContext(Device &device, std::optional<void *> stream = std::nullopt)
      : device(device), stream(stream) {}

  /// Runs `call` on the device unless an error came before: what follows a failed
  /// call would only fail for its sake. Programs on other threads may come here too.
  void run(llvm::function_ref<llvm::Error(Device &)> call);
  /// The first error of the call, which is over: what it has allocated on a caller's stream and not
  /// freed is freed then, behind all of its work.
  llvm::Error takeError();
  std::optional<void *> getStream() const { return stream; }

  /// LaunchFlags of the next launch. Taken once: launches behind it have none.
  void setLaunchFlags(int32_t flags) { launchFlags = flags; }
  int32_t takeLaunchFlags() { return std::exchange(launchFlags, 0); }

  /// Memory for compiled code: in the order of the caller's stream, where there is one.
  llvm::Expected<void *> allocate(size_t bytes);
  llvm::Error release(void *buffer);

private:
  Device &device;
  const std::optional<void *> stream;
  /// Allocated on `stream` and not freed yet.
  llvm::SmallVector<void *, 4> buffers;
  int32_t launchFlags = 0;
  std::mutex mutex;
  llvm::Error error = llvm::Error::success();
  bool failed = false;
};

/// The context of the code that runs on this thread; null outside of any.
RuntimeContext *getRuntimeContext();
void setRuntimeContext(RuntimeContext *context);

/// Makes a context current for a scope.
class RuntimeContextScope {
public:
  explicit RuntimeContextScope(RuntimeContext &context) : outer(getRuntimeContext()) {
    setRuntimeContext(&context);
  }
  ~RuntimeContextScope() { setRuntimeContext(outer); }

private:
  RuntimeContext *outer;
};

/// The functions that compiled code may call, and no others: memory, parallel loops, the `mgpu*` of
/// upstream's gpu lowering, the models', and of the C library what LLVM makes of operations.
llvm::orc::SymbolMap getRuntimeSymbols(llvm::orc::MangleAndInterner mangle);
bool isRuntimeSymbol(llvm::StringRef name);
/// Whether `name` is one of them that allocates memory.
bool isAllocationSymbol(llvm::StringRef name);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_RUNTIMECONTEXT_H
