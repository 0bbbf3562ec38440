//===- Program.h - a function of an .mlir file, and how to call it -*- C++ -*-===//

#ifndef FLASH_RUN_PROGRAM_H
#define FLASH_RUN_PROGRAM_H

#include "GuardedDevice.h"
#include "HostTensor.h"
#include "Reference.h"
#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/Executable.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::flashattn {

/// One argument or result of the function: a tensor or memref, or a scalar (rank 0,
/// isScalar).
struct ValueInfo {
  Scalar scalar;
  SmallVector<int64_t> shape; ///< ShapedType::kDynamic where it is
  bool isScalar = false;
  /// Written and never read: nothing need be put in.
  bool isWriteOnly = false;
  std::string getTypeName() const { return formatShape(shape, scalar); }
};

/// An output is a result, or an argument that the function writes.
struct OutputInfo {
  bool isArgument;
  unsigned index;
};

/// An operand that is an argument of the function. The value of its role is gone with the module.
struct OperandInfo {
  OperandRole role;
  unsigned argument;
};

/// The flashattn.project of the attention's output, as positions of arguments and outputs.
struct ProjectionInfo {
  SmallVector<OperandInfo> operands;
  OperandRole o; ///< an argument or not
  unsigned w;
  std::optional<unsigned> p; ///< output
};

/// The one flashattn.attention of a function, as positions of its arguments and outputs.
struct AttentionInfo {
  SmallVector<OperandInfo> operands;
  unsigned q, k, v;
  std::optional<int64_t> constantOffset;
  bool isBottomRight, isBSHD;
  double scale;
  SmallVector<IntegerSet> sets;
  std::optional<double> softcap;
  std::shared_ptr<const ScoreMod> scoreMod;
  std::optional<unsigned> o, lse; ///< outputs
  std::optional<ProjectionInfo> projection;

  /// The argument that is the operand `name`.
  std::optional<unsigned> getArgument(StringRef name) const;
};

/// The sizes of attention and of its projection.
struct ProgramSizes {
  OperandSizes attention, projection;
};

/// The sizes, from the shapes of the function's arguments, dynamic where they are not known yet.
/// Errors: sizes that do not agree (rule R1).
llvm::Expected<ProgramSizes> getSizes(const AttentionInfo &info,
                                      ArrayRef<SmallVector<int64_t>> shapes);

/// What there is to know before the module is lowered.
struct Program {
  std::string function;
  SmallVector<ValueInfo> arguments, results;
  SmallVector<OutputInfo> outputs;
  std::optional<AttentionInfo> attention;
  /// Why `attention` is missing.
  std::string noAttention;
};

/// The program of function `name`, or of the only public one where that is empty.
llvm::Expected<Program> analyze(ModuleOp module, StringRef name);

/// The attention's sizes, from the arguments' shapes. Errors: sizes that do not agree.
llvm::Expected<AttentionProblem> getProblem(const Program &program,
                                            ArrayRef<const HostTensor *> arguments);

struct LoweringOptions : CompileOptions {
  std::string dumpDir; ///< empty: nothing is kept
};

/// Runs the device's pipeline. Diagnostics are printed where they arise.
llvm::Error lower(ModuleOp module, const LoweringOptions &options);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PROGRAM_H
