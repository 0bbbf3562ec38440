//===- RuntimeContext.h - context of compiled code --------------*- C++ -*-===//
//
// The functions that compiled code calls have no parameter for the device. The executable that runs
// sets the device for the thread.
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

/// The device of a call in progress, and the call's first error.
class RuntimeContext {
public:
  /// Kernels are launched on `stream`; nullopt: on the device's own stream.
  explicit RuntimeContext(Device &device, std::optional<void *> stream = std::nullopt)
      : device(device), stream(stream) {}

  /// Runs `call` on the device unless an error has occurred: calls after a failed call would only
  /// fail because of it. Programs on other threads may call this too.
  void run(llvm::function_ref<llvm::Error(Device &)> call);
  /// Ends the call and returns its first error. Memory that it has allocated on a caller's stream
  /// and not freed is then freed, after all of its work.
  llvm::Error takeError();
  std::optional<void *> getStream() const { return stream; }

  /// Sets the LaunchFlags of the next launch only.
  void setLaunchFlags(int32_t flags) { launchFlags = flags; }
  int32_t takeLaunchFlags() { return std::exchange(launchFlags, 0); }

  /// Allocates memory for compiled code: in the order of the caller's stream, if there is one.
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

/// Returns the context of the code that runs on this thread; null if there is none.
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

/// Returns the functions that compiled code may call, and no others: memory, parallel loops, the
/// `mgpu*` functions of upstream's gpu lowering, those of the model, and the functions of the C
/// library that LLVM generates calls of.
llvm::orc::SymbolMap getRuntimeSymbols(llvm::orc::MangleAndInterner mangle);
bool isRuntimeSymbol(llvm::StringRef name);
/// Whether `name` is one of these functions that allocates memory.
bool isAllocationSymbol(llvm::StringRef name);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_RUNTIMECONTEXT_H
