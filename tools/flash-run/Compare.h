//===- Compare.h - comparison of outputs with files -------------*- C++ -*-===//

#ifndef FLASH_RUN_COMPARE_H
#define FLASH_RUN_COMPARE_H

#include "HostTensor.h"

namespace mlir::flashattn {

struct Tolerance {
  std::optional<double> absolute, relative; ///< default: by the output's element type
};

struct FileComparison {
  double maxError = 0;   ///< of elements that are finite in both arrays
  int64_t notFinite = 0; ///< number of other elements
  int64_t wrong = 0, elements = 0;
};

/// Compares output `index` with the array of a file, element by element. Each difference must be at
/// most absolute + relative * |expected|. Prints a line. The file may contain any float type if the
/// output is a float array. Errors: different shapes, or floats and integers.
llvm::Expected<FileComparison> compareExpected(unsigned index, const HostTensor &output,
                                               const HostTensor &expected, Tolerance tolerance,
                                               llvm::raw_ostream &os);

} // namespace mlir::flashattn

#endif // FLASH_RUN_COMPARE_H
