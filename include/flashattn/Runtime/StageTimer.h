//===- StageTimer.h - where the time of a first call goes -------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_STAGETIMER_H
#define FLASHATTN_RUNTIME_STAGETIMER_H

#include "llvm/ADT/StringRef.h"

#include <chrono>
#include <string>

namespace mlir::flashattn {

/// Times a piece of work whose stages follow each other. Where FLASHATTN_TIMING is set, and not to
/// 0, it becomes a line of stderr when the object goes, in milliseconds:
///
///   flashattn: compile: parse 2.1, passes 55.0, all 57.1 ms
class StageTimer {
public:
  explicit StageTimer(llvm::StringRef what);
  ~StageTimer();

  /// `stage` ends here. It began with the work, or where the one before it ended.
  void end(llvm::StringRef stage);

private:
  using Clock = std::chrono::steady_clock;

  std::string line; ///< empty where nobody asks
  Clock::time_point begin, last;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_STAGETIMER_H
