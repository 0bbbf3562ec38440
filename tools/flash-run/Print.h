//===- Print.h - what flash-run says of a run --------------------*- C++ -*-===//

#ifndef FLASH_RUN_PRINT_H
#define FLASH_RUN_PRINT_H

#include "HostTensor.h"
#include "Runner.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

struct Inputs;
class Observer;

/// A line for each device of this machine, on standard output. Errors: no CPU to run on.
llvm::Error printDevices();

/// A line about an output, so that there is something to see: with all values where they are few,
/// and with `all` every element behind it.
void printOutput(unsigned index, const HostTensor &output, bool all);

/// What a call does beside taking time.
struct Work {
  uint64_t pairs = 0; ///< visible ones; 0 where none were counted
  double flops = 0;   ///< floating-point operations of these
  double bytes = 0;   ///< of inputs and outputs

  /// `observer` has counted, or is null.
  Work(const Inputs &data, ArrayRef<HostTensor> results, const Observer *observer);
};

/// A line about the times: milliseconds of a call, TFLOP/s and GB/s.
void printBench(const BenchResult &result, const Work &work);

/// The same for --json.
llvm::json::Object describe(const BenchResult &result, const Work &work);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PRINT_H
