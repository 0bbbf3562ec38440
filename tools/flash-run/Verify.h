//===- Verify.h - outputs against what they should be -------------*- C++ -*-===//

#ifndef FLASH_RUN_VERIFY_H
#define FLASH_RUN_VERIFY_H

#include "Program.h"

namespace mlir::flashattn {

/// Products of the reference that take about two seconds on two processors.
constexpr double kDefaultVerifyWork = 4e9;

/// Compares o, lse and the projection of o, where the function gives them, with the float64
/// reference: all rows or, where that would take more than `maxWork` products, a sample of them.
/// Prints a line for each. True where all is as it should be.
bool verify(const AttentionProblem &problem, const AttentionInfo &info,
            ArrayRef<const HostTensor *> arguments, ArrayRef<const HostTensor *> outputs,
            raw_ostream &os, double maxWork = kDefaultVerifyWork);

struct Tolerance {
  std::optional<double> absolute, relative; ///< by element type where not given
};

/// Compares output `index` with the array of a file, element by element: the difference
/// at most absolute + relative * |expected|. Prints a line. Errors: shape or type.
llvm::Expected<bool> compareExpected(unsigned index, const HostTensor &output,
                                     const HostTensor &expected, Tolerance tolerance,
                                     raw_ostream &os);

} // namespace mlir::flashattn

#endif // FLASH_RUN_VERIFY_H
