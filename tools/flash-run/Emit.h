//===- Emit.h - stages of a compiled module as text -------------*- C++ -*-===//

#ifndef FLASH_RUN_EMIT_H
#define FLASH_RUN_EMIT_H

#include "Program.h"

namespace mlir::flashattn {

enum class Emit {
  None,
  Schedule, ///< a line for each op with a schedule
  Tiles,    ///< the module after ops became tile programs
  LLVM,     ///< LLVM IR of the host's code, before LLVM's own passes
  PTX,      ///< each group of kernels, after a comment with its name
};

/// Compiles the module and returns the text of stage `what`. Errors: compilation fails, or PTX
/// without kernels.
llvm::Expected<std::string> emitText(ModuleOp module, const LoweringOptions &options, Emit what);

} // namespace mlir::flashattn

#endif // FLASH_RUN_EMIT_H
