//===- Tuned.h - the user's tuned schedules ---------------------*- C++ -*-===//
//
// Tuned schedules are stored in a JSON file of the user, which the Python tuner also accesses:
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

/// Returns the user's cache folder: $XDG_CACHE_HOME/flashattn or, if that variable is not set or is
/// not an absolute path, ~/.cache/flashattn. Empty if there is no such folder.
std::string getUserCacheFolder();
/// Returns the path of schedules.json in the user's cache folder. Empty if there is no such folder.
std::string getTunedSchedulesPath();

/// Returns the path of the file that compilations read: getTunedSchedulesPath(), or empty if
/// FLASHATTN_TUNED is 0.
std::string getTunedSchedulesFile();

/// Returns the tuning key of `op`: the machine's name, D, Dv, the element type and the class of the
/// mask (full, triangular, banded), such as "sm_90a/128/128/f16/triangular", or "…/full/decode" for
/// few queries (isDecode). The key of a backward pass ends with "/backward", or
/// "/backward/deterministic".
std::string getTuningKey(AttentionOpInterface op, StringRef machine);

/// Sets the schedule of every attention op of `module` without a schedule to the tuned schedule in
/// `file`, if there is one and it still fits the machine. A file that does not exist counts as
/// empty. A file that cannot be read only causes a warning at the module, because a cache must not
/// prevent a computation. Returns the number of ops whose schedule was set.
int64_t applyTunedSchedules(ModuleOp module, const Machine &machine, StringRef file);

/// Returns the tuned schedules of `file` by key; an empty object if the file does not exist.
/// Errors: a file that is not of this format.
llvm::Expected<llvm::json::Object> loadTunedSchedules(StringRef file);

/// Checks, before trials are run, whether storeTunedSchedule would succeed; creates the folder.
/// Errors: those of storeTunedSchedule.
llvm::Error checkTunedSchedules(StringRef file);

/// Stores `finding` under `key`: an object with the fields of the `schedule` as text, the time `ms`
/// of a call in milliseconds, and further data of the tuner. The file is replaced atomically.
/// Errors: an existing file that is not of this format, or that cannot be written.
llvm::Error storeTunedSchedule(StringRef file, StringRef key, llvm::json::Object finding);

} // namespace mlir::flashattn

#endif // FLASHATTN_TARGET_TUNED_H
