//===- MicroKernel.h - register-blocked products ----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H

#include "mlir/IR/Builders.h"

namespace mlir::flashattn::cpu {

/// The vector registers of the machine.
struct RegisterFile {
  int64_t lanes; ///< f32 elements per register
  int64_t count;
  /// x86: 32 registers with AVX-512 (16 lanes), otherwise 16.
  static RegisterFile get(int64_t lanes) { return {lanes, lanes >= 16 ? 32 : 16}; }
};

/// The product C[n, 0:M] = init(n) + sum over k of rhs(n, k) * lhs[k, 0:M]. The M rows of the tile
/// run along the lanes, and an element of the other matrix is broadcast to all lanes.
struct Product {
  int64_t rows;    ///< M
  int64_t columns; ///< n < columns
  int64_t depth;   ///< k < depth
  Value lhs;       ///< memref<depth x M x f32>
  Value rhs;       ///< memref<columns x depth x f32> if transposedRhs, else <depth x columns x f32>
  bool transposedRhs;
  Value result;                            ///< memref<columns x M x f32>; `init` may read it
  llvm::function_ref<Value(Value n)> init; ///< vector<M>; null after an error
  Value lhsRows; ///< memref<M x depth x f32> for `lhs` transposed, if few rows and transposedRhs
};

/// Whether there are so few rows that lanes run along the columns, or the depth, instead.
bool hasFewRows(const Product &product, RegisterFile registers);

/// Returns the number of columns that one block of the kernel keeps in registers as accumulators.
int64_t chooseColumnsPerBlock(int64_t rows, int64_t columns, RegisterFile registers);

LogicalResult buildProduct(OpBuilder &b, Location loc, const Product &product,
                           RegisterFile registers);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_MICROKERNEL_H
