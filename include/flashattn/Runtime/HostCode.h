//===- HostCode.h - from lowered modules to LLVM IR -------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_HOSTCODE_H
#define FLASHATTN_RUNTIME_HOSTCODE_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir::flashattn {

/// What the functions of a lowered module have that a caller calls begins with it: one for each
/// `func.func` with `llvm.emit_c_interface`.
inline constexpr StringLiteral kCInterfacePrefix = "_mlir_ciface_";

/// Makes a lowered module ready for its translation to LLVM IR: registers the translations, and
/// removes what functions' arguments promised to passes, of which LLVM would warn as unknown.
void prepareTranslation(ModuleOp lowered);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_HOSTCODE_H
