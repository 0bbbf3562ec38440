//===- StageTimer.h - times of the stages of a first call -------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_STAGETIMER_H
#define FLASHATTN_RUNTIME_STAGETIMER_H

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <string>

namespace mlir::flashattn {

/// Times a piece of work that consists of consecutive stages. If FLASHATTN_TIMING is set, and not
/// to 0, the destructor prints a line to stderr, in milliseconds:
///
///   flashattn: compile: parse 2.1, passes 55.0, all 57.1 ms
class StageTimer {
public:
  explicit StageTimer(llvm::StringRef what);
  ~StageTimer();

  /// Ends `stage`, which began with the work or at the end of the previous stage.
  void end(llvm::StringRef stage);

private:
  using Clock = std::chrono::steady_clock;

  std::string line; ///< empty if FLASHATTN_TIMING is not set
  Clock::time_point begin, last;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_STAGETIMER_H
