//===- Program.h - a function of a module, as a caller sees it --*- C++ -*-===//

#ifndef FLASH_RUN_PROGRAM_H
#define FLASH_RUN_PROGRAM_H

#include "CheckedOp.h"
#include "GuardedDevice.h"
#include "HostTensor.h"
#include "flashattn/Pipelines/Compile.h"
#include "flashattn/Runtime/Executable.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::flashattn {

/// An argument or result of the function: a tensor or memref, or a scalar (rank 0, isScalar).
struct ValueInfo {
  Scalar scalar;
  SmallVector<int64_t> shape; ///< ShapedType::kDynamic for dynamic sizes
  bool isScalar = false;
  /// Whether an argument is written but never read, so that it needs no value.
  bool isWriteOnly = false;
  bool isWritten = false; ///< whether an argument is written
  std::string getTypeName() const { return formatShape(shape, scalar); }
};

/// An output is a result, or an argument that the function writes.
struct OutputInfo {
  bool isArgument;
  unsigned index;
};

/// An op in the function's own body, and the sources of its operands.
struct OpOfFunction {
  CheckedOp op;

  /// The source of an operand in `op.roles`.
  struct Source {
    std::optional<unsigned> argument; ///< argument of the function
    /// An earlier op that produces the operand: its index in the function, and its role there.
    std::optional<std::pair<unsigned, unsigned>> producer;
    SmallVector<int64_t> shape;                 ///< shape of the type, with dynamic sizes
    std::shared_ptr<const HostTensor> constant; ///< null if it is not a constant
    bool isTensor = false;                      ///< whether a captured value is a tensor
  };
  SmallVector<Source> sources;  ///< for each role
  SmallVector<Source> captured; ///< for each value that the score modification captures

  /// Returns the function argument that is the operand `name`, if any.
  std::optional<unsigned> getArgument(StringRef name) const;
};

/// The properties of a function that are needed after its module is lowered.
struct Program {
  std::string function;
  SmallVector<ValueInfo> arguments, results;
  SmallVector<OutputInfo> outputs;
  std::vector<OpOfFunction> ops;

  const ValueInfo &getInfo(OutputInfo output) const {
    return (output.isArgument ? arguments : results)[output.index];
  }
};

/// Returns the program of function `name`, or of the only public function if `name` is empty.
llvm::Expected<Program> analyze(ModuleOp module, StringRef name);

/// Returns the sizes of each op, derived from the shapes of the function's arguments; unknown sizes
/// are dynamic. Errors: sizes that do not agree (rule R1).
llvm::Expected<std::vector<OperandSizes>> getSizes(const Program &program,
                                                   ArrayRef<SmallVector<int64_t>> shapes);

/// Returns an error if the arguments do not fit together: sizes (rule R1) and scalars (rules A1,
/// A3).
llvm::Error checkInputs(const Program &program, ArrayRef<const HostTensor *> arguments);

struct LoweringOptions : CompileOptions {
  std::string dumpDir; ///< folder for the IR of each stage; empty: none
};

/// Lowers the module with the device's pipeline. Diagnostics are emitted as they occur.
llvm::Error lower(ModuleOp module, const LoweringOptions &options);

} // namespace mlir::flashattn

#endif // FLASH_RUN_PROGRAM_H
