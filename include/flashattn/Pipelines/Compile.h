//===- Compile.h - one function of a module, for one chip --------*- C++ -*-===//
//
// What everyone who compiles in order to run does around the pipelines.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_PIPELINES_COMPILE_H
#define FLASHATTN_PIPELINES_COMPILE_H

#include "flashattn/Pipelines/Pipelines.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace mlir {
class PassManager;
namespace flashattn {

/// flashattn-raise-attention on the module. The attention ops that it made; failure after a
/// diagnostic.
FailureOr<int64_t> raiseAttention(ModuleOp module);

/// What every pipeline does first, so that a tool sees what it makes of linalg: its arguments have
/// names, and its numbers can be verified. Failure after a diagnostic.
LogicalResult raiseLinalg(ModuleOp module);

/// The public function `name` with a body, or the only one where the name is empty. Errors
/// list what there is; `option` is what the user gives the name by.
llvm::Expected<func::FuncOp> findFunction(ModuleOp module, StringRef name, StringRef option);

/// The argument of `function` that `value` is, looking through casts that only change what is
/// known of a shape, and from a tensor to its memref.
std::optional<unsigned> getArgumentIndex(Value value, func::FuncOp function);

struct Access {
  bool reads = false, writes = false;
};
/// How a function uses its memref argument: itself or through what shares its memory, here or in
/// what it calls and launches, by the interfaces of ops.
Access getAccess(Value argument);

/// f32 lanes of the host's vector registers.
int64_t getHostVectorWidth();

struct CompileOptions {
  std::string function; ///< compiled alone, with what it calls; empty: all are
  std::string chip;     ///< "cpu" or sm_XX
  /// Code for a model of the GPU, on the host.
  bool forModel = false;
  std::string schedule; ///< fields to pin, as of flashattn-select-schedule; may be empty
  /// File of tuned schedules (flashattn/Target/Tuned.h); empty: none. Pins come first.
  std::string tunedFile;
  int64_t vectorWidth = 0; ///< CPU: f32 lanes of a register; 0: the host's
  /// CPU: projections in the epilogue of attention's programs (flashattn-fuse-projection).
  bool fuseProjection = false;
  /// Stops behind flashattn-select-schedule: what is left of the pipeline makes code.
  bool scheduleOnly = false;
  StageVisitor visitStage; ///< may be empty
  /// Makes the PTX of kernels, which may go on behind `compile`; null: that waits for it.
  KernelsToPTX *background = nullptr;
  /// Whether the module is verified behind each pass, which takes a seventh of a compilation, or
  /// only where it is visited.
  bool verifyEach = true;
};

/// Runs the chip's pipeline on the module, with what `instrument` adds to its pass manager.
/// Diagnostics go to the context's handlers.
LogicalResult compile(ModuleOp module, const CompileOptions &options,
                      function_ref<void(PassManager &)> instrument = {});

/// The PTX of a compiled module, each group of kernels behind a comment with its name. Empty where
/// there are none.
std::string getPTX(ModuleOp compiled);

/// Calls `visit` with the name and PTX of each group of kernels of a compiled module.
void visitPTX(ModuleOp compiled, function_ref<void(StringRef name, StringRef ptx)> visit);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_PIPELINES_COMPILE_H
