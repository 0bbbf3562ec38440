//===- Environment.h - what environment variables say ------------*- C++ -*-===//
//
// One rule for all of them: unset and empty are the same, and a value that makes no sense is a
// warning on standard error and the default. Needs neither LLVM nor the C++ library, as code that
// flash-compile makes. python/flashattn/_environment.py says the same.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_SUPPORT_ENVIRONMENT_H
#define FLASHATTN_SUPPORT_ENVIRONMENT_H

#include <cstdint>

namespace mlir::flashattn {

/// The variable's value; null where it is unset or empty.
const char *getVariable(const char *name);

/// A switch: 0, off, no and false are off, 1, on, yes and true are on, in upper and lower case.
bool getSwitch(const char *name, bool byDefault);

/// A number from `least` to `most`.
int64_t getNumber(const char *name, int64_t least, int64_t most, int64_t byDefault);

/// A path, or a switch of what is there. `isOff` says whether it is off.
struct PathVariable {
  bool isOff = false;
  const char *path = nullptr; ///< null: the default's
};
PathVariable getPathOrSwitch(const char *name);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_ENVIRONMENT_H
