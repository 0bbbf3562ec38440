//===- Signature.h - arguments of a compiled function -----------*- C++ -*-===//
//
// Describes the arguments of a function for a caller outside MLIR, and the conditions that the
// caller must check.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_PIPELINES_SIGNATURE_H
#define FLASHATTN_PIPELINES_SIGNATURE_H

#include "flashattn-c/FlashAttn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace mlir::flashattn {

/// An argument of a compiled function.
struct Argument {
  FlashAttnArgumentKind kind = FLASHATTN_ARGUMENT_MEMREF;
  FlashAttnElementType elementType = FLASHATTN_F32;
  int64_t elementBytes = 4;
  int32_t rank = 0;
  int32_t direction = 0; ///< FlashAttnDirection bits
  /// Whether the argument has `flashattn.aligned_rows`, so that strides and pointer are checked.
  bool hasAlignedRows = false;
  /// Whether the kernel's copies require a pointer that is aligned to 16 bytes, because of
  /// `flashattn.aligned_rows` or the static layout.
  bool needsAlignedPointer = false;
  /// Whether the strides are those of a dense array of the argument's sizes.
  bool isDense = false;
  int64_t sizes[FLASHATTN_MAX_RANK] = {};   ///< -1 if any size is allowed
  int64_t strides[FLASHATTN_MAX_RANK] = {}; ///< -1 if any stride is allowed
  /// Whether the argument is a position (rule A3), which has 32 bits, or a factor (rule A1), which
  /// has a limited range.
  bool isPosition = false, isFactor = false;
  const char *role = ""; ///< see FlashAttnArgumentInfo::role
};

/// A dimension of an argument.
struct ArgumentDim {
  int argument, dim;
};

/// Rule R1: a size that two arguments share because they are operands of one op. The size of
/// `checked` is that of `expected` plus `more` (rule S1).
struct SharedSize {
  const char *name;
  ArgumentDim checked, expected;
  int more = 0;
};

/// Rule A4: the dimensions of the query heads and of the key/value heads of one op.
struct SharedHeads {
  ArgumentDim queries, keys;
};

/// The signature of a compiled function.
struct Signature {
  std::string function;
  /// The tuning key of the function's attention op; empty if it has none.
  std::string tuningKey;
  std::vector<Argument> arguments;
  std::vector<SharedSize> sharedSizes;
  std::vector<SharedHeads> sharedHeads;
  /// The reason why the function cannot be launched; empty if it can.
  std::string reason;
  /// Total number of 64-bit words of the arguments' descriptors.
  size_t descriptorWords = 0;
};

/// Returns the name of an element type, such as "f16"; "no element type" for other numbers.
const char *getName(int32_t elementType);

/// Returns the names of all element types, "f16, … or f8E5M2", for diagnostics.
std::string listElementTypes();

/// Fills in the arguments, their roles, and the sizes and heads that they share, or else `reason`.
/// `function` is the function before it is lowered; the code will run on `chip`.
void describe(Signature &signature, func::FuncOp function, StringRef chip);

} // namespace mlir::flashattn

#endif // FLASHATTN_PIPELINES_SIGNATURE_H
