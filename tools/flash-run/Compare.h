//===- Compare.h - outputs against arrays of files ---------------*- C++ -*-===//

#ifndef FLASH_RUN_COMPARE_H
#define FLASH_RUN_COMPARE_H

#include "HostTensor.h"

namespace mlir::flashattn {

struct Tolerance {
  std::optional<double> absolute, relative; ///< by the output's element type where not given
};

struct FileComparison {
  double maxError = 0;   ///< of the elements that are finite on both sides
  int64_t notFinite = 0; ///< the others
  int64_t wrong = 0, elements = 0;
};

/// Compares output `index` with the array of a file, element by element: the difference
/// at most absolute + relative * |expected|. Prints a line. A float array may be of any float type.
/// Errors: shape, or floats against integers.
llvm::Expected<FileComparison> compareExpected(unsigned index, const HostTensor &output,
                                               const HostTensor &expected, Tolerance tolerance,
                                               llvm::raw_ostream &os);

} // namespace mlir::flashattn

#endif // FLASH_RUN_COMPARE_H
