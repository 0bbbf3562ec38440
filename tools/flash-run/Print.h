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

/// A line about the times: milliseconds of a call, TFLOP/s of the pairs that `observer`, which may
/// be null, has counted, and GB/s of what `data` and `results` hold.
void printBench(const BenchResult &result, const Inputs &data, ArrayRef<HostTensor> results,
                const Observer *observer);

/// The same times for --json: milliseconds, numbers of batches and of their calls.
llvm::json::Object describe(const BenchResult &result);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PRINT_H
