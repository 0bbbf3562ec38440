//===- StageTimer.h - times of the stages of a first call -------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_STAGETIMER_H
#define FLASHATTN_RUNTIME_STAGETIMER_H

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <string>

namespace mlir::flashattn {

/// Measures the times of consecutive stages of a piece of work. If the switch FLASHATTN_TIMING is
/// on, the destructor prints a line with the times in milliseconds to stderr:
///
///   flashattn: compile: parse 2.1, passes 55.0, all 57.1 ms
class StageTimer {
public:
  explicit StageTimer(llvm::StringRef what);
  ~StageTimer();

  /// Ends the current stage, under the name `stage`. It began in the constructor or at the end of
  /// the previous stage.
  void end(llvm::StringRef stage);

private:
  using Clock = std::chrono::steady_clock;

  std::string line; ///< empty if FLASHATTN_TIMING is off
  Clock::time_point begin, last;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_STAGETIMER_H
