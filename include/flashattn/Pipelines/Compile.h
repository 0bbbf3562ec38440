//===- Compile.h - compile a module for one chip ----------------*- C++ -*-===//
//
// Steps before and after the pipelines, for clients that compile modules in order to run them.
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

/// Runs flashattn-raise-attention on the module. Returns the number of attention ops created, or
/// failure after a diagnostic.
FailureOr<int64_t> raiseAttention(ModuleOp module);

/// Runs flashattn-raise-linalg, the first step of every pipeline, on the module. Tools run it early
/// to name the arguments of the resulting ops and to verify their results. Returns failure after a
/// diagnostic.
LogicalResult raiseLinalg(ModuleOp module);

/// Returns the public function `name` with a body, or the only such function if `name` is empty. An
/// error lists the available functions; `option` is the name of the option by which the user
/// selects a function.
llvm::Expected<func::FuncOp> findFunction(ModuleOp module, StringRef name, StringRef option);

/// Returns the index of the argument of `function` that is equal to `value`, after looking through
/// casts that only change static shape information or convert a tensor to its memref; nullopt if
/// there is none.
std::optional<unsigned> getArgumentIndex(Value value, func::FuncOp function);

/// How a function uses the memory of a memref argument.
struct Access {
  bool reads = false, writes = false;
};
/// Returns how a function uses its memref argument: directly or through aliases, in its own body or
/// in functions and kernels that it calls or launches. Determined through op interfaces.
Access getAccess(Value argument);

/// Returns the number of f32 lanes of the host's vector registers.
int64_t getHostVectorWidth();

struct CompileOptions {
  std::string function; ///< function to compile, with its callees; empty: all functions
  std::string chip;     ///< "cpu" or sm_XX
  /// Generates code for a model of the GPU, which runs on the host.
  bool forModel = false;
  std::string schedule; ///< fields to pin, see flashattn-select-schedule; may be empty
  /// File of tuned schedules (flashattn/Target/Tuned.h), or empty. Pinned fields take precedence.
  std::string tunedFile;
  int64_t vectorWidth = 0; ///< CPU: f32 lanes of a vector register; 0: the host's
  /// CPU: fuses projections into the epilogue of attention programs (flashattn-fuse-projection).
  bool fuseProjection = false;
  /// Stops after flashattn-select-schedule, before code is generated.
  bool scheduleOnly = false;
  StageVisitor visitStage; ///< may be empty
  /// Compiles kernels to PTX in the background, possibly beyond the return of `compile`. If null,
  /// `compile` waits for the PTX.
  KernelsToPTX *background = nullptr;
  /// Whether the module is verified after each pass, which takes a seventh of the compile time, or
  /// only before calls of `visitStage`.
  bool verifyEach = true;
};

/// Runs the chip's pipeline on the module. `instrument` may add instrumentation to the pass
/// manager. Diagnostics are emitted to the handlers of the context. Returns failure after a
/// diagnostic.
LogicalResult compile(ModuleOp module, const CompileOptions &options,
                      function_ref<void(PassManager &)> instrument = {});

/// Returns the PTX of a compiled module, with a comment before each group of kernels that contains
/// the group's name. Empty if there are no kernels.
std::string getPTX(ModuleOp compiled);

/// Calls `visit` with the name and the PTX of each group of kernels of a compiled module.
void visitPTX(ModuleOp compiled, function_ref<void(StringRef name, StringRef ptx)> visit);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_PIPELINES_COMPILE_H
