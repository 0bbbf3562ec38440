//===- CheckedOp.h - an op as the reference needs it --------------*- C++ -*-===//

#ifndef FLASH_RUN_CHECKEDOP_H
#define FLASH_RUN_CHECKEDOP_H

#include "Reference.h"
#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"

namespace mlir::flashattn {

/// What an attention says beside its operands.
struct AttentionAttributes {
  bool isBottomRight = true;
  double scale = 1;
  SmallVector<IntegerSet> sets;
  std::optional<double> softcap;
  std::optional<ScoreMod> scoreMod;
};

/// A flashattn.attention, attention_backward, combine or project, taken apart, so that it outlives
/// the lowering of its module.
struct CheckedOp {
  enum class Kind { Attention, AttentionBackward, Combine, Project };

  Kind kind = Kind::Attention;
  std::string name;  ///< "flashattn.attention"
  std::string place; ///< "file.mlir:3:8"
  bool isBSHD = false;
  /// Of the operands that are given, outputs last. Their values are gone with the module.
  SmallVector<OperandRole> roles;
  AttentionAttributes attention;
  /// Why the reference cannot do it; empty where it can.
  std::string obstacle;

  /// Nothing for any other op.
  static std::optional<CheckedOp> create(Operation *op);

  /// "flashattn.attention at file.mlir:3:8".
  std::string describe() const { return name + " at " + place; }
};

/// Where an op is in its file: "file.mlir:3:8".
std::string formatPlace(Location location);

/// The elements of a constant, or a scalar one; nothing where the value is none.
std::optional<HostTensor> getConstant(Value value);

/// A scalar that a score modification captures, a float or an integer.
struct CapturedValue {
  double real = 0;
  int64_t integer = 0;
};

/// The values of an op's operands, by name. Scalars have rank 0.
class OperandValues {
public:
  void set(StringRef name, const HostTensor *value) { values.emplace_back(name, value); }
  /// Null where it is left out.
  const HostTensor *get(StringRef name) const;

  /// What the score modification captures, in its order.
  SmallVector<CapturedValue> captured;

private:
  SmallVector<std::pair<StringRef, const HostTensor *>> values;
};

/// The sizes that the operands of an op share; `getShape` is asked for each role but scalars, by
/// its place in `roles`, and may have dynamic sizes. Errors: sizes that do not agree (rule R1).
llvm::Expected<OperandSizes>
getSizes(const CheckedOp &op, llvm::function_ref<SmallVector<int64_t>(unsigned role)> getShape);

/// The same of the values that are there.
llvm::Expected<OperandSizes> getSizes(const CheckedOp &op, const OperandValues &values);

/// Error where `value` is a scalar that its role does not take (rules A1, A3).
llvm::Error checkScalar(const OperandRole &role, const HostTensor &value);

/// An attention, forward or backward, with its values. Errors: sizes or scalars that do not fit.
llvm::Expected<AttentionProblem> getProblem(const CheckedOp &op, const OperandValues &values);

/// A combine with its values. Errors: sizes that do not fit.
llvm::Expected<CombineProblem> getCombineProblem(const CheckedOp &op, const OperandValues &values);

} // namespace mlir::flashattn

#endif // FLASH_RUN_CHECKEDOP_H
