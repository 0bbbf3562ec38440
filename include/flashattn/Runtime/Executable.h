//===- Executable.h - a lowered module, ready to call ------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_EXECUTABLE_H
#define FLASHATTN_RUNTIME_EXECUTABLE_H

#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/HostCode.h"

namespace mlir::flashattn {

/// The host code of a lowered module (LLVM dialect, kernels as `gpu.binary`), ready to run. A
/// kernel loads into `device` when it is first launched.
///
/// Host functions that carry `llvm.emit_c_interface` can be called. Memory they
/// allocate (`_mlir_memref_to_llvm_alloc`) is the device's.
class Executable {
public:
  virtual ~Executable() = default;

  /// A function of the caller's that the module may call: its name in LLVM IR and its address.
  using Symbol = std::pair<std::string, void *>;

  /// Beside the runtime's functions the code may call `symbols`, with which it was compiled.
  /// Errors: what LLVM's JIT says; kernels that the device cannot take (PTX version too new for the
  /// driver, wrong architecture).
  static llvm::Expected<std::unique_ptr<Executable>> load(const HostImage &image, Device &device,
                                                          llvm::ArrayRef<Symbol> symbols = {});
  /// Compiles a lowered module and loads it. Errors: also those of compileHostCode.
  static llvm::Expected<std::unique_ptr<Executable>> create(ModuleOp lowered, Device &device,
                                                            llvm::ArrayRef<Symbol> symbols = {});

  /// Calls the C interface of `function`. Each element of `arguments` is the value of
  /// one argument: for a memref, the address of its descriptor
  /// {T *allocated, T *aligned, int64_t offset, int64_t sizes[r], int64_t strides[r]};
  /// for a function with results, the first is the address where they are stored.
  /// Errors: no such function; a kernel that the driver cannot load, with its compiler's log, or
  /// launch (shared memory beyond the limit). On CUDA returns before
  /// the work is done: errors inside kernels come out of Device::synchronize.
  virtual llvm::Error invoke(llvm::StringRef function, llvm::ArrayRef<void *> arguments) = 0;

  /// A function's C interface, called with the address of each argument's value.
  using Entry = void (*)(void **);
  /// Errors: no such function.
  virtual llvm::Expected<Entry> lookup(llvm::StringRef function) const = 0;

  /// invoke for who calls often: looks nothing up and allocates nothing, once the kernels are
  /// loaded, which the first launch of several does side by side. On CUDA all kernels go to
  /// `stream`, a CUstream of the device's context (null: the legacy default stream). Any number of
  /// threads may be inside at once. Errors: as invoke; a function that does more to the device than
  /// to launch kernels.
  virtual llvm::Error launch(Entry entry, void **addresses, void *stream) = 0;

  /// Bytes of host memory that its code and constants take. Images of kernels are the device's.
  virtual int64_t getCodeBytes() const = 0;

  /// The most bytes of device memory that a `launch` of the same arguments has allocated at any
  /// time: what the function asks for, for its sizes and on this device. On CUDA only: nothing is
  /// allocated or started, and the addresses of memrefs do not matter. Any number of threads may
  /// be inside at once. Errors: as launch, of what it refuses before it starts anything.
  virtual llvm::Expected<int64_t> measureWorkspace(Entry entry, void **addresses) = 0;
};

/// Whether any function of a lowered module asks the runtime for memory.
bool allocatesMemory(ModuleOp lowered);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_EXECUTABLE_H
