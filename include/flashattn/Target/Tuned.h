//===- Tuned.h - schedules that a tuner found on this machine ----*- C++ -*-===//
//
// One JSON file of the user, which the Python tuner writes and reads too:
//   {"version": 1, "schedules": {"sm_90a/128/128/f16/full": {"schedule": "tile_m = …", "ms": …}}}
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_TARGET_TUNED_H
#define FLASHATTN_TARGET_TUNED_H

#include "flashattn/Target/Schedules.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// schedules.json in the user's cache folder, $XDG_CACHE_HOME/flashattn or ~/.cache/flashattn.
/// Empty where FLASHATTN_TUNED is 0, or there is no such folder to name.
std::string getTunedSchedulesFile();

/// What a finding holds for: the machine's name, head dimensions, element type and class of mask
/// (full, triangular, banded), as "sm_90a/128/128/f16/triangular", and "…/full/decode" for few
/// queries (isDecode).
std::string getTuningKey(AttentionOp op, StringRef machine);

/// Gives every attention op of `module` without a schedule the one that `file` has for it,
/// where that still fits the machine. A file that is not there counts as empty; one that cannot
/// be read is a warning at the module, for a cache must not keep anyone from computing.
void applyTunedSchedules(ModuleOp module, const Machine &machine, StringRef file);

/// Adds a finding: fields of the schedule and milliseconds a call. The file is replaced whole
/// or not at all. Errors: a file there that is none of these, or that cannot be written.
llvm::Error storeTunedSchedule(StringRef file, StringRef key, StringRef schedule, double ms);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_TUNED_H
