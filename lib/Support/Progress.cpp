//===- Progress.cpp -------------------------------------------------------===//

#include "flashattn/Support/Progress.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir::flashattn;
using std::chrono::milliseconds;
using std::chrono::seconds;

Progress::Progress(std::string what)
    : what(std::move(what)), onTerminal(llvm::sys::Process::StandardErrIsDisplayed()),
      first(onTerminal ? seconds(1) : seconds(10)), every(onTerminal ? seconds(1) : seconds(30)),
      thread([this] { show(); }) {}

Progress::Progress(std::string what, milliseconds first, milliseconds every)
    : what(std::move(what)), onTerminal(false), first(first), every(every),
      thread([this] { show(); }) {}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  finished.notify_all();
  thread.join();
}

void Progress::set(std::string now) {
  std::lock_guard<std::mutex> lock(mutex);
  what = std::move(now);
}

void Progress::show() {
  std::unique_lock<std::mutex> lock(mutex);
  auto begin = std::chrono::steady_clock::now();
  bool hasSaid = false;
  for (milliseconds wait = first; !finished.wait_for(lock, wait, [&] { return done; });
       wait = every) {
    auto passed = std::chrono::steady_clock::now() - begin;
    std::string line =
        llvm::formatv("{0} … {1} s", what, std::chrono::duration_cast<seconds>(passed).count());
    // A single write, because the program may print at the same time.
    llvm::errs() << (onTerminal ? "\r\033[K" + line : line + "\n");
    hasSaid = true;
  }
  if (onTerminal && hasSaid)
    llvm::errs() << "\r\033[K"; // clears the line
}
