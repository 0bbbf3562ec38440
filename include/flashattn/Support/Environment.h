//===- Environment.h - environment variables --------------------*- C++ -*-===//
//
// All environment variables follow one rule: an unset variable is the same as an empty one, and an
// invalid value causes a warning on standard error and is replaced by the default. Depends on
// neither LLVM nor the C++ library, like the code that flash-compile generates.
// python/flashattn/_environment.py implements the same rule.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_SUPPORT_ENVIRONMENT_H
#define FLASHATTN_SUPPORT_ENVIRONMENT_H

#include <cstdint>

namespace mlir::flashattn {

/// Returns the variable's value; null if it is unset or empty.
const char *getVariable(const char *name);

/// Reads a switch: 0, off, no and false mean off; 1, on, yes and true mean on; in upper or lower
/// case.
bool getSwitch(const char *name, bool byDefault);

/// Reads a number from `least` to `most`.
int64_t getNumber(const char *name, int64_t least, int64_t most, int64_t byDefault);

/// A variable that is either a path or a switch. `isOff` is true if the switch is off.
struct PathVariable {
  bool isOff = false;
  const char *path = nullptr; ///< null: the default path
};
PathVariable getPathOrSwitch(const char *name);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_ENVIRONMENT_H
