//===- Print.h - output of flash-run ----------------------------*- C++ -*-===//

#ifndef FLASH_RUN_PRINT_H
#define FLASH_RUN_PRINT_H

#include "HostTensor.h"
#include "Runner.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

struct Inputs;
class Observer;

/// Prints a line for each device of this machine. Errors: no CPU device.
llvm::Error printDevices();

/// Prints a line about an output, with all its values if they are few. With `all`, every element
/// follows.
void printOutput(unsigned index, const HostTensor &output, bool all);

/// The work of a call.
struct Work {
  uint64_t pairs = 0; ///< visible pairs; 0 if not counted
  double flops = 0;   ///< floating-point operations
  double bytes = 0;   ///< of inputs and outputs

  /// `observer` has counted the work, or is null.
  Work(const Inputs &data, ArrayRef<HostTensor> results, const Observer *observer);
};

/// Prints a line with milliseconds per call, TFLOP/s and GB/s.
void printBench(const BenchResult &result, const Work &work);

/// Returns the same for --json.
llvm::json::Object describe(const BenchResult &result, const Work &work);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PRINT_H
