//===- Executable.h - lowered modules ready to call -------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_EXECUTABLE_H
#define FLASHATTN_RUNTIME_EXECUTABLE_H

#include "flashattn/Runtime/Device.h"
#include "flashattn/Runtime/HostCode.h"

namespace mlir::flashattn {

/// The host code of a lowered module (LLVM dialect, kernels as `gpu.binary`), ready to run. A
/// kernel is loaded onto the device when it is first launched.
///
/// Host functions with `llvm.emit_c_interface` can be called. Memory that they allocate
/// (`_mlir_memref_to_llvm_alloc`) is device memory.
class Executable {
public:
  virtual ~Executable() = default;

  /// A function of the caller that the module may call: its name in LLVM IR and its address.
  using Symbol = std::pair<std::string, void *>;

  /// Loads an image. Besides the runtime's functions, the code may call `symbols`, whose names were
  /// passed to compileHostCode. Errors: those of LLVM's JIT; kernels that the device does not
  /// support (PTX version too new for the driver, wrong architecture).
  static llvm::Expected<std::unique_ptr<Executable>> load(const HostImage &image, Device &device,
                                                          llvm::ArrayRef<Symbol> symbols = {});
  /// Compiles a lowered module and loads it. Errors: those of compileHostCode and load.
  static llvm::Expected<std::unique_ptr<Executable>> create(ModuleOp lowered, Device &device,
                                                            llvm::ArrayRef<Symbol> symbols = {});

  /// Calls the C interface of `function`. Each element of `arguments` is the value of one argument;
  /// for a memref, the address of its descriptor {T *allocated, T *aligned, int64_t offset, int64_t
  /// sizes[r], int64_t strides[r]}. For a function with results, the first element is the address
  /// of their storage. On CUDA, the call returns before the work is done; errors inside kernels are
  /// reported by Device::synchronize. Errors: no such function; a kernel that the driver cannot
  /// load, with the log of its compiler, or launch (shared memory beyond the limit).
  virtual llvm::Error invoke(llvm::StringRef function, llvm::ArrayRef<void *> arguments) = 0;

  /// The C interface of a function, which takes an array of the addresses of argument values.
  using Entry = void (*)(void **);
  /// Returns the C interface of a function. Errors: no such function.
  virtual llvm::Expected<Entry> lookup(llvm::StringRef function) const = 0;

  /// Like invoke, for frequent calls: performs no lookups and no allocations once the kernels are
  /// loaded. The first launch of a function with several kernels loads the kernels in parallel. On
  /// CUDA, all kernels are launched on `stream`, a CUstream of the device's context (null: the
  /// legacy default stream). Thread-safe. Errors: those of invoke; a function that uses the device
  /// for more than kernel launches.
  virtual llvm::Error launch(Entry entry, void **addresses, void *stream) = 0;

  /// Returns the bytes of host memory for code and constants. Images of kernels are in device
  /// memory.
  virtual int64_t getCodeBytes() const = 0;

  /// Returns the peak number of bytes of device memory that a `launch` with the same arguments
  /// allocates on this device. On CUDA only: nothing is allocated or launched, and the addresses of
  /// memrefs are ignored. Thread-safe. Errors: those that launch returns before it launches a
  /// kernel.
  virtual llvm::Expected<int64_t> measureWorkspace(Entry entry, void **addresses) = 0;
};

/// Whether any function of a lowered module allocates memory through the runtime.
bool allocatesMemory(ModuleOp lowered);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_EXECUTABLE_H
