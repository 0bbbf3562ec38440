//===- Emit.h - what a module becomes, as text -------------------*- C++ -*-===//

#ifndef FLASH_RUN_EMIT_H
#define FLASH_RUN_EMIT_H

#include "Program.h"

namespace mlir::flashattn {

enum class Emit {
  None,
  Schedule, ///< a line for each op that has one
  Tiles,    ///< the module once ops are tile programs
  LLVM,     ///< LLVM IR of the host's code, before LLVM's own passes
  PTX,      ///< each group of kernels behind a comment with its name
};

/// Compiles the module and gives that text. Errors: no compilation, or PTX without kernels.
llvm::Expected<std::string> emitText(ModuleOp module, const LoweringOptions &options, Emit what);

} // namespace mlir::flashattn

#endif // FLASH_RUN_EMIT_H
