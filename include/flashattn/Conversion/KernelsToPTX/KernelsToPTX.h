//===- KernelsToPTX.h - LLVM's work on kernels, on threads -------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H
#define FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mlir::flashattn {

/// Kernels on their way from the LLVM dialect to PTX, each group of them (`gpu.module`) on a thread
/// of its own. What else the module becomes may be made meanwhile. Goes before the module's
/// context.
class KernelsToPTX {
public:
  KernelsToPTX();
  /// Waits for the threads.
  ~KernelsToPTX();

  /// Starts on every `gpu.module` of `module`, none of which may change until it is replaced.
  /// Failure after a diagnostic: one without a single `#nvvm.target`, or that LLVM IR cannot say.
  LogicalResult start(ModuleOp module);

  /// Puts a `gpu.binary` in the place of each, so that passes over host code do not walk it. It has
  /// the PTX behind `finish` only.
  void replace();

  /// Waits. Failure after a diagnostic: what LLVM cannot make code of.
  LogicalResult finish();

  /// The names of these ops and their PTX, in the order of the module, behind `finish`.
  std::vector<std::pair<std::string, std::string>> getPTX() const;

private:
  class Group;
  std::vector<std::unique_ptr<Group>> groups;
  bool isFinished = false;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_KERNELSTOPTX_KERNELSTOPTX_H
