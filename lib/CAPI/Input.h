//===- Input.h - parsing of input texts -------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_INPUT_H
#define FLASHATTN_LIB_CAPI_INPUT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::flashattn::capi {

/// Returns the dialects that an input module may contain. None of them represents code of a machine
/// or of LLVM; those dialects are loaded when passes need them. With `attentionOnly`, returns the
/// dialects of a function around one attention.
DialectRegistry getInputRegistry(bool attentionOnly = false);

/// Parses untrusted text in a context with that registry, and adds the dialects that passes need.
/// Returns null after diagnostics; with `attentionOnly`, also for anything more than one attention.
OwningOpRef<ModuleOp> parseModule(MLIRContext *context, StringRef text, bool attentionOnly = false);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_INPUT_H
