//===- Signature.h - what a function takes ----------------------*- C++ -*-===//
//
// A function's arguments as a caller outside of MLIR sees them, and what it has to see to.
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
  /// Promised by `flashattn.aligned_rows`: strides are checked, and the pointer.
  bool hasAlignedRows = false;
  /// The kernel's copies need it, promised or by its static layout.
  bool needsAlignedPointer = false;
  /// The strides are those of a dense array of its sizes.
  bool isDense = false;
  int64_t sizes[FLASHATTN_MAX_RANK] = {};   ///< -1 where any will do
  int64_t strides[FLASHATTN_MAX_RANK] = {}; ///< -1 where any will do
  /// A position (rule A3), which has 32 bits, or a factor (rule A1), which has a range.
  bool isPosition = false, isFactor = false;
  const char *role = "";
};

/// A dimension of an argument.
struct ArgumentDim {
  int argument, dim;
};

/// R1: a size that two arguments share, as operands of one op.
struct SharedSize {
  const char *name;
  ArgumentDim checked, expected;
};

/// A4: two arguments with the query heads and the key/value heads of one op.
struct SharedHeads {
  ArgumentDim queries, keys;
};

struct Signature {
  std::string function;
  /// Of its attention op; empty without one.
  std::string tuningKey;
  std::vector<Argument> arguments;
  std::vector<SharedSize> sharedSizes;
  std::vector<SharedHeads> sharedHeads;
  /// Why it cannot be launched; empty where it can.
  std::string reason;
  /// 64-bit words of all arguments' descriptors.
  size_t descriptorWords = 0;
};

/// "f16" and the like.
const char *getName(int32_t elementType);

/// Fills arguments, their roles and what they share, or `reason`, from the function as it was
/// given, which is to run on `chip`.
void describe(Signature &signature, func::FuncOp function, StringRef chip);

} // namespace mlir::flashattn

#endif // FLASHATTN_PIPELINES_SIGNATURE_H
