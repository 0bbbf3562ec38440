//===- ToolContext.h - what a tool reads a file with -------------*- C++ -*-===//

#ifndef FLASHATTN_TOOLCONTEXT_H
#define FLASHATTN_TOOLCONTEXT_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/SourceMgr.h"

namespace mlir::flashattn {

/// A context that has everything the project has. Diagnostics go to standard error, with the line
/// of `sources` that they are about and without the op: kernels are long.
struct ToolContext {
  ToolContext();

  MLIRContext context;
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler diagnostics;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_TOOLCONTEXT_H
