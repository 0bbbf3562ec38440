//===- Tune.h - the fastest schedule of a function's attention --*- C++ -*-===//

#ifndef FLASH_RUN_TUNE_H
#define FLASH_RUN_TUNE_H

#include "Inputs.h"
#include "Program.h"

namespace mlir::flashattn {

/// Tries the schedules of getTrials (flashattn/Target/Schedules.h) on the function's only attention
/// op, forward or backward, and the schedule that an earlier run stored in `file`. Prints a line
/// for each with its median time and quartiles, or why it was rejected, and writes the best to
/// `file` (flashattn/Target/Tuned.h). The best is the compiler's own choice unless another
/// schedule, timed in turns with it, has a median that is at least 2% lower and an upper quartile
/// below the lower quartile of that choice. A schedule whose outputs differ from those of the
/// compiler's own choice by more than rounding is rejected too. Errors: no attention op, or
/// several; an op that pins a schedule; outputs of the compiler's own choice that differ from the
/// reference or contain NaN; errors of running and writing.
llvm::Error tune(ModuleOp module, const Program &program, const Inputs &inputs, Device &device,
                 const LoweringOptions &options, StringRef file, double seconds);

} // namespace mlir::flashattn

#endif // FLASH_RUN_TUNE_H
