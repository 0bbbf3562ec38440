//===- Input.h - texts of callers and of files ------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CAPI_INPUT_H
#define FLASHATTN_LIB_CAPI_INPUT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::flashattn::capi {

/// What a module may be made of when it is read. Nothing of it stands for code of a machine or of
/// LLVM: these dialects come when the passes need them. With `attentionOnly` it is what one
/// function around one attention is made of.
DialectRegistry getInputRegistry(bool attentionOnly = false);

/// Parses text that may hold anything, in a context of that registry, to which it adds what the
/// passes need. Null with diagnostics otherwise: also for `attentionOnly`, and more than that.
OwningOpRef<ModuleOp> parseModule(MLIRContext *context, StringRef text, bool attentionOnly = false);

} // namespace mlir::flashattn::capi

#endif // FLASHATTN_LIB_CAPI_INPUT_H
