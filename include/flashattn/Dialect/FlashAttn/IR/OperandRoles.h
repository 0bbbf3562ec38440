//===- OperandRoles.h - tables of the operands of ops -----------*- C++ -*-===//
//
// One table per op (lib/Dialect/FlashAttn/IR/OperandRoles.cpp) describes the op's operands: their
// names, types and dimensions. The verifier, the C API, the Python package and flash-run use the
// table, so that a new operand only requires one more row.
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
  Float,             ///< f16, bf16 or f32
  FloatOrF8,         ///< a Float, f8E4M3FN or f8E5M2
  LikeFirst,         ///< the type of the op's first operand, which is a Float
  LikeFirstOrF32,    ///< the type of the op's first operand, or f32; any Float if that is f8
  LikeFirstOrNarrow, ///< the type of the op's first operand, or f8E4M3FN, f8E5M2 or i8 (rule F1)
  F32,
  I1,
  I32,
  Position, ///< not a tensor but a 32-bit index (rule A3)
  Factor    ///< not a tensor but an f32 from 1e-18 to 1e18 (rule A1)
};

/// One row of a table: the rules for one operand.
struct OperandRule {
  /// Bits of `flags`.
  enum Flag : unsigned {
    Output = 1,
    Optional = 2,
    /// The dimensions of heads and positions are swapped with `layout(bshd)`.
    FollowsLayout = 4,
    /// Any dimension may have size 1 and is then broadcast, except the rows of a variadic operand
    /// (rule Y2).
    Broadcasts = 8,
    /// The row stands for any number of operands, up to kMostOperands.
    Variadic = 16
  };
  static constexpr unsigned kMostOperands = 8;

  llvm::StringLiteral name;
  ElementRule element;
  /// A letter for each dimension in `layout(bhsd)`: B batches, H query heads, G key/value heads, N
  /// queries, K keys, D elements of a query or key row, V elements of a value or output row, E
  /// elements of a projected row, S splits of the keys. Dimensions with the same letter have the
  /// same size. C is the number of starts of B packed sequences, B + 1 (S1): it packs the rows
  /// whose letter is `limit`. R are packed rows beside N queries of each sequence, and N if no rows
  /// are packed. T is the number of pages of a sequence: keys are then in pages of Z
  /// rows in pools of L pages (P1). X and Y are the numbers of scales of a row of `k` and `v` (F1).
  /// Empty for a scalar.
  llvm::StringLiteral dims;
  unsigned flags = 0;
  /// For integers: the letter of the size to which values are clamped. 0: values are not clamped.
  char limit = 0;

  bool is(Flag flag) const { return flags & flag; }
  bool isScalar() const { return dims.empty(); }
  /// Whether the dimension `dim`, a letter of `dims`, may have size 1 and is then broadcast.
  bool broadcasts(char dim) const {
    return is(Broadcasts) && !(is(Variadic) && (dim == 'N' || dim == 'K'));
  }
  /// Whether the last dimension is a row of elements that kernels load and store in vectors. Other
  /// operands are loaded and stored element by element.
  bool hasRows() const;
};

/// Returns the name of the size `dim`, a letter of OperandRule::dims, for diagnostics, such as
/// "batch size".
llvm::StringLiteral getSizeName(char dim);

/// An operand of one op.
struct OperandRole {
  const OperandRule *rule; ///< has static storage duration
  Value value;             ///< null if the operand is omitted
  StringRef name;          ///< zero-terminated, with static storage duration
  /// A letter for each dimension, as in the rule, but in the layout of the op, '1' for a broadcast
  /// dimension, P, of size 1, for the batches of packed rows, and L and Z for batches and keys in
  /// pages.
  std::string dims;

  /// Returns the name of the operand: that of the rule, with a number if the rule is variadic.
  StringRef getName() const { return name; }
};

/// Returns the roles of an op's operands, in the order of `rules`; `getOperands(i)` returns the
/// values of row `i`. A variadic row has a role for each of its operands.
SmallVector<OperandRole> collectOperandRoles(ArrayRef<OperandRule> rules, Layout layout,
                                             function_ref<ValueRange(unsigned)> getOperands);

/// Rule R1: checks the sizes that the operands of one op share.
class OperandSizes {
public:
  /// Adds the sizes of an operand; dynamic sizes are ignored. Returns a description of an
  /// inconsistency, "expected … but got …", or an empty string. If `isType` is true, `shape` is
  /// that of the operand's type, which has size 1 in a broadcast dimension.
  std::string add(const OperandRole &role, ArrayRef<int64_t> shape, bool isType);

  /// Returns the size of a letter, or ShapedType::kDynamic if it is not known. With pages, the
  /// number of keys is that of the rows of a sequence's pages.
  int64_t get(char dim) const;

  /// Returns the shape for the letters `dims`; sizes that are not known are dynamic.
  SmallVector<int64_t> getShape(StringRef dims) const;

private:
  struct Size {
    int64_t size;
    StringRef of; ///< the operand with this size
  };
  llvm::SmallMapVector<char, Size, 8> sizes;
};

/// Rule A4: returns the reason why these numbers of query heads and key/value heads are invalid, or
/// an empty string. Dynamic numbers are valid.
std::string explainHeads(int64_t queryHeads, int64_t keyHeads);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_OPERANDROLES_H
