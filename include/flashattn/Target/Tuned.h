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
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// The user's cache folder: $XDG_CACHE_HOME/flashattn or, where that is not set or no absolute
/// path,
/// ~/.cache/flashattn. Empty where there is no such folder to name.
std::string getUserCacheFolder();
/// schedules.json in it. Empty where there is no such folder.
std::string getTunedSchedulesPath();

/// The file that compilations read: that path, or nothing where FLASHATTN_TUNED is 0.
std::string getTunedSchedulesFile();

/// What a finding holds for: the machine's name, head dimensions, element type and class of mask
/// (full, triangular, banded), as "sm_90a/128/128/f16/triangular", and "…/full/decode" for few
/// queries (isDecode). That of gradients ends with "/backward", or "/backward/deterministic".
std::string getTuningKey(AttentionOpInterface op, StringRef machine);

/// Gives every attention op of `module` without a schedule the one that `file` has for it,
/// where that still fits the machine. A file that is not there counts as empty; one that cannot
/// be read is a warning at the module, for a cache must not keep anyone from computing. How many
/// ops were given one.
int64_t applyTunedSchedules(ModuleOp module, const Machine &machine, StringRef file);

/// All findings of `file`, none where it is not there. Errors: a file that is none of these.
llvm::Expected<llvm::json::Object> loadTunedSchedules(StringRef file);

/// Whether a finding could be stored, before trials take their time: makes the folder. Errors: as
/// of storeTunedSchedule.
llvm::Error checkTunedSchedules(StringRef file);

/// Adds a finding: an object with the fields of the `schedule` as text, the milliseconds `ms` of a
/// call, and whatever else the tuner has to say. The file is replaced whole or not at all. Errors:
/// a file there that is none of these, or that cannot be written.
llvm::Error storeTunedSchedule(StringRef file, StringRef key, llvm::json::Object finding);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_TUNED_H
