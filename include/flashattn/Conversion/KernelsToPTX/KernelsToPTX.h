//===- KernelsToPTX.h - parallel compilation of kernels to PTX --*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H
#define FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mlir::flashattn {

/// Compiles kernels from the LLVM dialect to PTX, each group of kernels (`gpu.module`) on its own
/// thread, while the caller compiles the rest of the module. Must be destroyed before the module's
/// context.
class KernelsToPTX {
public:
  KernelsToPTX();
  /// Waits for the threads.
  ~KernelsToPTX();

  /// Starts to compile every `gpu.module` of `module`. A `gpu.module` must not change before
  /// `replace`. Returns failure after a diagnostic if a `gpu.module` does not have exactly one
  /// `#nvvm.target`, or cannot be translated to LLVM IR.
  LogicalResult start(ModuleOp module);

  /// Replaces each `gpu.module` by a `gpu.binary`, so that passes over host code do not walk the
  /// kernels. The `gpu.binary` contains the PTX only after `finish`.
  void replace();

  /// Waits for all compilations. Returns failure after a diagnostic if LLVM cannot compile a
  /// kernel.
  LogicalResult finish();

  /// Returns the name and the PTX of each `gpu.binary`, in the order of the module. Must be called
  /// after `finish`.
  std::vector<std::pair<std::string, std::string>> getPTX() const;

private:
  class Group;
  std::vector<std::unique_ptr<Group>> groups;
  bool isFinished = false;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H
