//===- Watch.h - a run beside the one that is asked for -----------*- C++ -*-===//

#ifndef FLASH_RUN_WATCH_H
#define FLASH_RUN_WATCH_H

#include "Observer.h"

namespace mlir::flashattn {

/// A module whose ops are watched, where --verify or --bench wants that, and what became of them.
struct Watch {
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<Observer> observer; ///< null: nothing is watched
  SmallVector<HostTensor> outputs;

  /// Instruments a copy of `plain`. Errors, before anything takes time: what cannot be verified.
  static llvm::Expected<Watch> create(ModuleOp plain, const Program &program);

  /// Prints what the watched ops have done; `results` are those of `plain`, the module without the
  /// calls, whose code must be the same. False where something does not hold.
  bool report(ModuleOp plain, ArrayRef<HostTensor> results) const;

  /// Whether every run gives the same bits, as far as that is known.
  bool isDeterministic() const { return !observer || observer->isDeterministic(); }
};

/// Whether an output is the same in two runs: bit by bit or, where the order of sums may differ
/// (rule B4), but for a rounding or two of its type.
bool isSame(const HostTensor &a, const HostTensor &b, bool isExact);

} // namespace mlir::flashattn

#endif // FLASH_RUN_WATCH_H
