//===- StageTimer.cpp -----------------------------------------------------===//

#include "flashattn/Runtime/StageTimer.h"
#include "flashattn/Support/Environment.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir::flashattn;

static std::string format(llvm::StringRef what, std::chrono::steady_clock::duration passed) {
  return llvm::formatv("{0} {1:F1}", what,
                       std::chrono::duration<double, std::milli>(passed).count())
      .str();
}

StageTimer::StageTimer(llvm::StringRef what) {
  if (!getSwitch("FLASHATTN_TIMING", /*byDefault=*/false))
    return;
  line = ("flashattn: " + what + ": ").str();
  begin = last = Clock::now();
}

void StageTimer::end(llvm::StringRef stage) {
  if (line.empty())
    return;
  Clock::time_point now = Clock::now();
  line += format(stage, now - std::exchange(last, now)) + ", ";
}

StageTimer::~StageTimer() {
  // A single write, because several threads may compile.
  if (!line.empty())
    llvm::errs() << line + format("all", last - begin) + " ms\n";
}
