//===- Environment.h - environment variables --------------------*- C++ -*-===//
//
// All environment variables follow one rule: an empty variable counts as unset, and an invalid
// value causes a warning on standard error and is replaced by the default. This code depends on
// neither LLVM nor the C++ library, like the code that flash-compile generates.
// python/flashattn/_environment.py implements the same rule.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_SUPPORT_ENVIRONMENT_H
#define FLASHATTN_SUPPORT_ENVIRONMENT_H

#include <cstdint>

namespace mlir::flashattn {

/// Returns the variable's value, or null if it is unset or empty.
const char *getVariable(const char *name);

/// Returns the value of a switch: false for 0, off, no and false; true for 1, on, yes and true, in
/// upper or lower case.
bool getSwitch(const char *name, bool byDefault);

/// Returns the value of an integer from `least` to `most`.
int64_t getNumber(const char *name, int64_t least, int64_t most, int64_t byDefault);

/// The value of a variable that is either a path or a switch.
struct PathVariable {
  bool isOff = false;         ///< the value is a switch that is off
  const char *path = nullptr; ///< null: the default path
};
PathVariable getPathOrSwitch(const char *name);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_ENVIRONMENT_H
