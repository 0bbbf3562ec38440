//===- Runner.h - calls a compiled function ---------------------*- C++ -*-===//

#ifndef FLASH_RUN_RUNNER_H
#define FLASH_RUN_RUNNER_H

#include "Program.h"

namespace mlir::flashattn {

struct BenchResult {
  double median, min, max, lowerQuartile, upperQuartile; ///< milliseconds per call
  unsigned batches, repeats;
};

/// Runs a program on a device that holds its arguments.
class Runner {
public:
  Runner(const Program &program, GuardedDevice &device, Executable &executable)
      : program(program), device(device), executable(executable) {}

  /// Allocates the arguments on the device and copies their values, except those in `poisoned`,
  /// which contain NaN.
  llvm::Error upload(ArrayRef<const HostTensor *> arguments, const llvm::BitVector &poisoned);

  /// Calls the function once, waits, checks the margins of all buffers, and returns the outputs.
  llvm::Expected<SmallVector<HostTensor>> run();

  /// Returns the first argument that changed although the function should not write it.
  llvm::Expected<std::optional<unsigned>> findChangedInput(ArrayRef<const HostTensor *> arguments,
                                                           const llvm::BitVector &poisoned);

  /// Times calls in batches. A batch takes at most a tenth of `seconds`, or is a single call.
  llvm::Expected<BenchResult> bench(double seconds);

private:
  /// Calls the function once. The descriptors of its results are then in `results`.
  llvm::Error call();
  /// Returns the descriptor of result `index`.
  const int64_t *getResult(unsigned index) const;

  const Program &program;
  GuardedDevice &device;
  Executable &executable;
  /// A descriptor, or a scalar's bits, for each argument.
  std::vector<std::vector<int64_t>> descriptors;
  std::vector<int64_t> results;
  std::vector<void *> values;
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_RUNNER_H
