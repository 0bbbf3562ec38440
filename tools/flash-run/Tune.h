//===- Tune.h - the fastest schedule of a function's attention ----*- C++ -*-===//

#ifndef FLASH_RUN_TUNE_H
#define FLASH_RUN_TUNE_H

#include "Inputs.h"
#include "Program.h"

namespace mlir::flashattn {

/// Tries the schedules of getTrials (flashattn/Target/Schedules.h) on the function's one attention,
/// forward or backward: prints a line for each with its median time and quartiles, or why it was
/// refused, and writes the best to `file` (flashattn/Target/Tuned.h). What that has of an earlier
/// run is tried too. The best is the compiler's own choice unless another, timed with it in turn,
/// has a median at least 2% below and an upper quartile below its lower one. A schedule whose
/// outputs differ from those of the compiler's own choice by more than rounding is refused too.
/// Errors: no attention op, or several; a schedule that the op pins already; outputs of the
/// compiler's own choice that are not the reference's, or no numbers; what running and writing say.
llvm::Error tune(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                 const LoweringOptions &options, StringRef file, double seconds);

} // namespace mlir::flashattn

#endif // FLASH_RUN_TUNE_H
