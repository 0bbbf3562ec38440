//===- Runner.h - calls a compiled function ----------------------*- C++ -*-===//

#ifndef FLASH_RUN_RUNNER_H
#define FLASH_RUN_RUNNER_H

#include "Program.h"

namespace mlir::flashattn {

struct BenchResult {
  double median, min, max, lowerQuartile, upperQuartile; ///< milliseconds a call
  unsigned batches, repeats;
};

/// A program on a device with its arguments there.
class Runner {
public:
  Runner(const Program &program, GuardedDevice &device, Executable &executable)
      : program(program), device(device), executable(executable) {}

  /// Puts the arguments on the device; those in `poisoned` hold NaN instead.
  llvm::Error upload(ArrayRef<const HostTensor *> arguments, const llvm::BitVector &poisoned);

  /// Calls the function once, waits, checks the margins of all buffers and brings the
  /// outputs back.
  llvm::Expected<SmallVector<HostTensor>> run();

  /// The first argument that the function should not write and that is no longer as it was
  /// uploaded.
  llvm::Expected<std::optional<unsigned>> findChangedInput(ArrayRef<const HostTensor *> arguments,
                                                           const llvm::BitVector &poisoned);

  /// Times calls: batches of as many as fill a tenth of `seconds` or less.
  llvm::Expected<BenchResult> bench(double seconds);

private:
  /// One call; the results' descriptors lie in `results` then.
  llvm::Error call();
  /// The descriptor of result `index`.
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
