//===- Npy.h - NumPy's array files ------------------------------*- C++ -*-===//
//
// Versions 1 to 3, little endian: f2, f4, f8, b1, i1, i4, i8, and bf16, which NumPy lacks, as u2 or
// V2. Reads C and Fortran order, writes C order.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_NPY_H
#define FLASH_RUN_NPY_H

#include "HostTensor.h"

namespace mlir::flashattn {

/// Reads an array from a file; `-` is standard input. Errors name the file: missing, not an .npy
/// file, truncated, or an unsupported element type.
llvm::Expected<HostTensor> readNpy(llvm::StringRef path);

/// Writes a file like OutputFiles: a regular file is replaced only by a complete array.
llvm::Error writeNpy(llvm::StringRef path, const HostTensor &tensor);

/// Writes to an open file that represents standard output.
llvm::Error writeNpy(int descriptor, const HostTensor &tensor);

} // namespace mlir::flashattn

#endif // FLASH_RUN_NPY_H
