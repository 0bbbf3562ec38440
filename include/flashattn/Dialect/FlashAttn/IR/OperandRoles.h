//===- OperandRoles.h - what each operand of an op is -----------*- C++ -*-===//
//
// One table for each op (lib/Dialect/FlashAttn/IR/OperandRoles.cpp) says what its operands are:
// names, types, and what their dimensions count. The verifier, the C API, the Python package and
// flash-run read it, so that a new operand is one more row.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_OPERANDROLES_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_OPERANDROLES_H

#include "mlir/IR/BuiltinTypeInterfaces.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/MapVector.h"

#include <string>

namespace mlir::flashattn {

enum class Layout : uint32_t;

/// The element types that an operand may have.
enum class ElementRule {
  Float,          ///< f16, bf16 or f32
  LikeFirst,      ///< a Float, that of the op's first operand
  LikeFirstOrF32, ///< the same, or f32
  F32,
  I1,
  I32,
  Position, ///< no tensor but an index of 32 bits (rule A3)
  Factor    ///< no tensor but an f32 from 1e-18 to 1e18 (rule A1)
};

/// One row of the table.
struct OperandRule {
  /// Bits of `flags`.
  enum Flag : unsigned {
    Output = 1,
    Optional = 2,
    /// The dimensions of heads and of sequence change places with `layout(bshd)`.
    FollowsLayout = 4,
    /// Any dimension may have size 1 and is the same along all of what it stands for then.
    Broadcasts = 8
  };

  llvm::StringLiteral name;
  ElementRule element;
  /// What each dimension counts in `layout(bhsd)`: B batches, H query heads, G key/value heads,
  /// N queries, K keys, D elements of a query or key row, V those of a value or output row, E those
  /// of a projected row, S parts of the keys. Sizes of one letter are the same. Empty for a scalar.
  llvm::StringLiteral dims;
  unsigned flags = 0;
  /// Of integers: numbers from 0 to the size of this letter differ in meaning, others do not.
  char limit = 0;

  bool is(Flag flag) const { return flags & flag; }
  bool isScalar() const { return dims.empty(); }
  /// Whether the last dimension is a row of elements, which kernels move in chunks; others they
  /// read and write one by one.
  bool hasRows() const;
};

/// "batch size" and the like, for messages.
llvm::StringLiteral getSizeName(char dim);

/// An operand of one op.
struct OperandRole {
  const OperandRule *rule; ///< of static storage
  Value value;             ///< null where it is left out
  /// What each dimension counts: as in the rule, in the op's layout, and 1 where it is broadcast.
  std::string dims;

  StringRef getName() const { return rule->name; }
};

/// The roles of an op's operands in their order; `getOperands(i)` are the values of row `i`.
SmallVector<OperandRole> collectOperandRoles(ArrayRef<OperandRule> rules, Layout layout,
                                             function_ref<ValueRange(unsigned)> getOperands);

/// Rule R1: the sizes that the operands of one op share.
class OperandSizes {
public:
  /// Takes the sizes of an operand; dynamic ones say nothing. Returns what is wrong with them,
  /// "expected … but got …", or nothing. `isType`: they are those of its type, which would say 1
  /// where a dimension is broadcast.
  std::string add(const OperandRole &role, ArrayRef<int64_t> shape, bool isType);

  /// The size of a letter, ShapedType::kDynamic where none is known.
  int64_t get(char dim) const;

  /// The shape that `dims` stand for, dynamic where a size is not known.
  SmallVector<int64_t> getShape(StringRef dims) const;

private:
  struct Size {
    int64_t size;
    StringRef of; ///< the operand that says so
  };
  llvm::SmallMapVector<char, Size, 8> sizes;
};

/// A4: what is wrong with so many query heads to so many key/value heads; dynamic numbers are fine.
std::string explainHeads(int64_t queryHeads, int64_t keyHeads);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_OPERANDROLES_H
