//===- Program.h - a function of an .mlir file, and how to call it -*- C++ -*-===//

#ifndef FLASH_RUN_PROGRAM_H
#define FLASH_RUN_PROGRAM_H

#include "CheckedOp.h"
#include "GuardedDevice.h"
#include "HostTensor.h"
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
  bool isWritten = false; ///< of an argument
  std::string getTypeName() const { return formatShape(shape, scalar); }
};

/// An output is a result, or an argument that the function writes.
struct OutputInfo {
  bool isArgument;
  unsigned index;
};

/// An op that stands in the function itself, and where its operands come from.
struct OpOfFunction {
  CheckedOp op;

  /// Where one of `op.roles` comes from.
  struct Source {
    std::optional<unsigned> argument; ///< of the function
    /// An op before, by its place among the function's, and the role there.
    std::optional<std::pair<unsigned, unsigned>> producer;
    SmallVector<int64_t> shape; ///< of the type, dynamic where it is
    std::shared_ptr<const HostTensor> constant; ///< null where it is none
  };
  SmallVector<Source> sources;  ///< for each role
  SmallVector<Source> captured; ///< for each value that the score modification captures

  /// The argument that is the operand `name`.
  std::optional<unsigned> getArgument(StringRef name) const;
};

/// What there is to know before the module is lowered.
struct Program {
  std::string function;
  SmallVector<ValueInfo> arguments, results;
  SmallVector<OutputInfo> outputs;
  std::vector<OpOfFunction> ops;
};

/// The program of function `name`, or of the only public one where that is empty.
llvm::Expected<Program> analyze(ModuleOp module, StringRef name);

/// The sizes of each op, from the shapes of the function's arguments, dynamic where they are not
/// known yet. Errors: sizes that do not agree (rule R1).
llvm::Expected<std::vector<OperandSizes>> getSizes(const Program &program,
                                                   ArrayRef<SmallVector<int64_t>> shapes);

/// Error unless the arguments fit together: sizes (rule R1) and offsets (rule A3).
llvm::Error checkInputs(const Program &program, ArrayRef<const HostTensor *> arguments);

struct LoweringOptions : CompileOptions {
  std::string dumpDir; ///< empty: nothing is kept
};

/// Runs the device's pipeline. Diagnostics are printed where they arise.
llvm::Error lower(ModuleOp module, const LoweringOptions &options);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PROGRAM_H
