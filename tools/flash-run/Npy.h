//===- Npy.h - NumPy's array files ------------------------------*- C++ -*-===//
//
// Versions 1 to 3, little endian: f2, f4, f8, b1, i1, i4, i8, and the bits of types that NumPy
// lacks: bf16 as u2 or V2, f8E4M3FN and f8E5M2 as u1 or V1. Reads C and Fortran order, writes C
// order.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_NPY_H
#define FLASH_RUN_NPY_H

#include "HostTensor.h"

namespace mlir::flashattn {

/// Reads an array from a file; `-` is standard input. Errors name the file: missing, not an .npy
/// file, truncated, or an unsupported element type. u1 and V1 are supported only if `wanted`, the
/// element type of the tensor that the array is for, is f8E4M3FN or f8E5M2.
llvm::Expected<HostTensor> readNpy(llvm::StringRef path, Scalar wanted);

/// Writes a file like OutputFiles: a regular file is replaced only by a complete array.
llvm::Error writeNpy(llvm::StringRef path, const HostTensor &tensor);

/// Writes to an open file that represents standard output.
llvm::Error writeNpy(int descriptor, const HostTensor &tensor);

} // namespace mlir::flashattn

#endif // FLASH_RUN_NPY_H
