//===- Watch.h - an additional run that is observed -------------*- C++ -*-===//

#ifndef FLASH_RUN_WATCH_H
#define FLASH_RUN_WATCH_H

#include "Observer.h"

namespace mlir::flashattn {

/// An instrumented copy of the module, if --verify or --bench requires it, and the results of its
/// run.
struct Watch {
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<Observer> observer; ///< null: nothing is observed
  SmallVector<HostTensor> outputs;

  /// Instruments a copy of `plain`. Errors: an op that cannot be verified.
  static llvm::Expected<Watch> create(ModuleOp plain, const Program &program);

  /// Prints the results of the observed ops. `results` are the outputs of `plain`, the module
  /// without the calls, whose kernels must be the same. Returns false if a check fails.
  bool report(ModuleOp plain, ArrayRef<HostTensor> results) const;

  /// Whether every run must give the same bits. True if no op is observed.
  bool isDeterministic() const { return !observer || observer->isDeterministic(); }
};

/// Whether an output is the same in two runs: bitwise, or up to about two roundings of its type if
/// the order of sums may differ (rule B4).
bool isSame(const HostTensor &a, const HostTensor &b, bool isExact);

} // namespace mlir::flashattn

#endif // FLASH_RUN_WATCH_H
