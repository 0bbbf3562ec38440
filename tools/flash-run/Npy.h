//===- Npy.h - NumPy's array files --------------------------------*- C++ -*-===//
//
// Versions 1 to 3, little endian: f2, f4, f8, b1, i1, i4, i8, and bf16, which NumPy does not
// know, as u2 or V2. Read in C and in Fortran order, written in C order.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_NPY_H
#define FLASH_RUN_NPY_H

#include "HostTensor.h"

namespace mlir::flashattn {

/// `-` is standard input. Errors name the file: not there, not an .npy file, cut short, a type that
/// has no scalar.
llvm::Expected<HostTensor> readNpy(llvm::StringRef path);

/// As OutputFiles does: a regular file holds the whole array or is not touched.
llvm::Error writeNpy(llvm::StringRef path, const HostTensor &tensor);

/// Writes to an open file, which stands for standard output.
llvm::Error writeNpy(int descriptor, const HostTensor &tensor);

} // namespace mlir::flashattn

#endif // FLASH_RUN_NPY_H
