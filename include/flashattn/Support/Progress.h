//===- Progress.h - a sign of life --------------------------------*- C++ -*-===//

#ifndef FLASHATTN_SUPPORT_PROGRESS_H
#define FLASHATTN_SUPPORT_PROGRESS_H

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace mlir::flashattn {

/// While it lives, says on standard error what is going on: on a terminal in one line, every
/// second; elsewhere, as in a log, in a line of its own after ten seconds, and then every half
/// minute.
class Progress {
public:
  explicit Progress(std::string what);
  /// As where there is no terminal, at times of the caller's.
  Progress(std::string what, std::chrono::milliseconds first, std::chrono::milliseconds every);
  ~Progress();

  /// What goes on from now on; the time goes on too.
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
