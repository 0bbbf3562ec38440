//===- Signature.h - arguments of a compiled function -----------*- C++ -*-===//
//
// The arguments of a function as seen by a caller outside MLIR, and the conditions that the caller
// must check.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_PIPELINES_SIGNATURE_H
#define FLASHATTN_PIPELINES_SIGNATURE_H

#include "flashattn-c/FlashAttn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace mlir::flashattn {

struct Argument {
  FlashAttnArgumentKind kind = FLASHATTN_ARGUMENT_MEMREF;
  FlashAttnElementType elementType = FLASHATTN_F32;
  int64_t elementBytes = 4;
  int32_t rank = 0;
  int32_t direction = 0;
  /// Promised by `flashattn.aligned_rows`: the strides and the pointer are checked.
  bool hasAlignedRows = false;
  /// The kernel's copies require an aligned pointer, by promise or because of the static layout.
  bool needsAlignedPointer = false;
  /// The strides are those of a dense array of the argument's sizes.
  bool isDense = false;
  int64_t sizes[FLASHATTN_MAX_RANK] = {};   ///< -1 if any size is allowed
  int64_t strides[FLASHATTN_MAX_RANK] = {}; ///< -1 if any stride is allowed
  /// Whether the argument is a position (rule A3), which has 32 bits, or a factor (rule A1), which
  /// has a limited range.
  bool isPosition = false, isFactor = false;
  const char *role = "";
};

/// A dimension of an argument.
struct ArgumentDim {
  int argument, dim;
};

/// R1: a size that two arguments share because they are operands of one op.
struct SharedSize {
  const char *name;
  ArgumentDim checked, expected;
};

/// A4: two arguments that have the query heads and the key/value heads of one op.
struct SharedHeads {
  ArgumentDim queries, keys;
};

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

/// Returns the name of an element type, such as "f16".
const char *getName(int32_t elementType);

/// Fills in the arguments, their roles, and the sizes and heads that they share, or else `reason`.
/// `function` is the original function; the code will run on `chip`.
void describe(Signature &signature, func::FuncOp function, StringRef chip);

} // namespace mlir::flashattn

#endif // FLASHATTN_PIPELINES_SIGNATURE_H
