//===- ToolContext.h - context of a tool that reads a file ------*- C++ -*-===//

#ifndef FLASHATTN_TOOLCONTEXT_H
#define FLASHATTN_TOOLCONTEXT_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/SourceMgr.h"

namespace mlir::flashattn {

/// An MLIR context with all dialects and extensions of the project. Diagnostics are printed to
/// standard error with their source line in `sources`, but without the op, because kernels are
/// long.
struct ToolContext {
  ToolContext();

  MLIRContext context;
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_TOOLCONTEXT_H
