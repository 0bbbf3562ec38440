//===- MicroKernel.h - register-blocked matrix products ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H

#include "mlir/IR/Builders.h"

namespace mlir::flashattn::cpu {

/// Vector registers of the machine.
struct RegisterFile {
  int64_t lanes; ///< f32 elements of one register
  int64_t count;
  /// x86: AVX-512 has 32 registers of 16 lanes, narrower ones have 16.
  static RegisterFile get(int64_t lanes) { return {lanes, lanes >= 16 ? 32 : 16}; }
};

/// The product C[n, 0:M] = init(n) + sum over k of rhs(n, k) * lhs[k, 0:M]: the M rows of
/// the tile along the lanes, an element of the other matrix broadcast to all of them.
struct Product {
  int64_t rows;    ///< M
  int64_t columns; ///< n < columns
  int64_t depth;   ///< k < depth
  Value lhs;       ///< memref<depth x M x f32>
  Value rhs;       ///< memref<columns x depth x f32> if transposedRhs, else <depth x columns x f32>
  bool transposedRhs;
  Value result;                            ///< memref<columns x M x f32>; may be what `init` reads
  llvm::function_ref<Value(Value n)> init; ///< vector<M>; null after an error
  Value lhsRows; ///< memref<M x depth x f32> for `lhs` on its side, with few rows and transposedRhs
};

/// Whether the rows are so few that lanes are columns, or the depth, instead.
bool hasFewRows(const Product &product, RegisterFile registers);

/// How many columns one block of the kernel keeps in registers as accumulators.
int64_t chooseColumnsPerBlock(int64_t rows, int64_t columns, RegisterFile registers);

LogicalResult buildProduct(OpBuilder &b, Location loc, const Product &product,
                           RegisterFile registers);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H
