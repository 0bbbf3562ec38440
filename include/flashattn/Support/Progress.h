//===- Progress.h - progress messages ---------------------------*- C++ -*-===//

#ifndef FLASHATTN_SUPPORT_PROGRESS_H
#define FLASHATTN_SUPPORT_PROGRESS_H

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace mlir::flashattn {

/// Prints the current activity to standard error during its lifetime: on a terminal, one line that
/// is updated every second; otherwise, such as in a log, a new line after ten seconds and then
/// every half minute.
class Progress {
public:
  explicit Progress(std::string what);
  /// Prints as if there were no terminal: after `first`, and then at intervals of `every`.
  Progress(std::string what, std::chrono::milliseconds first, std::chrono::milliseconds every);
  ~Progress();

  /// Sets the current activity; the elapsed time is not reset.
  void set(std::string now);

private:
  void show();

  std::string what;
  bool onTerminal;
  std::chrono::milliseconds first, every;
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::thread thread;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_PROGRESS_H
