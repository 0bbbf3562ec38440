//===- Progress.h - a sign of life --------------------------------*- C++ -*-===//

#ifndef FLASH_RUN_PROGRESS_H
#define FLASH_RUN_PROGRESS_H

#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace mlir::flashattn {

/// While it lives and standard error is a terminal, says there after a second, and then
/// every second, what is going on.
class Progress {
public:
  explicit Progress(std::string what) : what(std::move(what)) {
    if (llvm::sys::Process::StandardErrIsDisplayed())
      thread = std::thread([this] { show(); });
  }
  ~Progress() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      done = true;
    }
    finished.notify_all();
    if (thread.joinable())
      thread.join();
  }

private:
  void show() {
    std::unique_lock<std::mutex> lock(mutex);
    unsigned seconds = 0;
    while (!finished.wait_for(lock, std::chrono::seconds(1), [&] { return done; }))
      llvm::errs() << "\r" << what << " … " << ++seconds << " s";
    if (seconds)
      llvm::errs() << "\r\033[K"; // clears the line
  }

  std::string what;
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::thread thread;
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_PROGRESS_H
