//===- CheckedOp.h - properties of an op for the reference ------*- C++ -*-===//

#ifndef FLASH_RUN_CHECKEDOP_H
#define FLASH_RUN_CHECKEDOP_H

#include "Reference.h"
#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"

namespace mlir::flashattn {

/// The properties of an attention op other than its operands.
struct AttentionAttributes {
  bool isBottomRight = true;
  bool hasOwnLengths = false; ///< whether lengths differ between batches
  double scale = 1;
  SmallVector<IntegerSet> sets;
  std::optional<double> softcap;
  std::optional<ScoreMod> scoreMod;
  std::optional<int64_t> leastQueries, mostQueries; ///< S7
};

/// The properties of a flashattn.attention, attention_backward, combine or project op, independent
/// of its module, which may be lowered.
struct CheckedOp {
  enum class Kind { Attention, AttentionBackward, Combine, Project };

  Kind kind = Kind::Attention;
  std::string name;  ///< "flashattn.attention"
  std::string place; ///< "file.mlir:3:8"
  bool isBSHD = false;
  /// Roles of the operands that are present, outputs last. Their values are invalid once the module
  /// is lowered.
  SmallVector<OperandRole> roles;
  AttentionAttributes attention;
  /// The reason why the reference does not support the op; empty if it does.
  std::string obstacle;

  /// Returns nothing for any other op.
  static std::optional<CheckedOp> create(Operation *op);

  /// Returns text such as "flashattn.attention at file.mlir:3:8".
  std::string describe() const { return name + " at " + place; }
};

/// Returns the location of an op as text, such as "file.mlir:3:8".
std::string formatPlace(Location location);

/// Returns the operand whose scales `role` is (rule F1), "k" or "v"; empty if it is no such
/// operand.
StringRef getScaled(const OperandRole &role);

/// Returns the elements of a constant tensor or scalar; nothing if it is not a constant.
std::optional<HostTensor> getConstant(Value value);

/// A value that a score modification captures: a float, an integer or a tensor.
struct CapturedValue {
  double real = 0;
  int64_t integer = 0;
  const HostTensor *tensor = nullptr;
};

/// The values of an op's operands, by name. Scalars have rank 0.
class OperandValues {
public:
  void set(StringRef name, const HostTensor *value) { values.emplace_back(name, value); }
  /// Returns null if the operand is absent.
  const HostTensor *get(StringRef name) const;

  /// The values that the score modification captures, in the order of ScoreMod::getCaptured.
  SmallVector<CapturedValue> captured;

private:
  SmallVector<std::pair<StringRef, const HostTensor *>> values;
};

/// Returns the sizes that the operands of an op share. `getShape` returns the shape of the role
/// with that index in `roles`, in which unknown sizes are dynamic; it is not called for scalars.
/// Errors: sizes that do not agree (rule R1).
llvm::Expected<OperandSizes>
getSizes(const CheckedOp &op, llvm::function_ref<SmallVector<int64_t>(unsigned role)> getShape);

/// Same, with the shapes of the values that are present.
llvm::Expected<OperandSizes> getSizes(const CheckedOp &op, const OperandValues &values);

/// Returns an error if `value` is outside the range of its scalar role (rules A1, A3).
llvm::Error checkScalar(const OperandRole &role, const HostTensor &value);

/// Returns the problem of an attention op, forward or backward, with these values. Errors: sizes or
/// scalars that do not fit.
llvm::Expected<AttentionProblem> getProblem(const CheckedOp &op, const OperandValues &values);

/// Returns the problem of a combine op with these values. Errors: sizes that do not fit.
llvm::Expected<CombineProblem> getCombineProblem(const CheckedOp &op, const OperandValues &values);

} // namespace mlir::flashattn

#endif // FLASH_RUN_CHECKEDOP_H
