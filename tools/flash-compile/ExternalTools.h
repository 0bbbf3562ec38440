//===- ExternalTools.h - ptxas, the linker, other programs ------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H
#define FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// Returns the path of a program, given by name or path. Names are searched in PATH, then in
/// `folders`. The error message ends with `advice`.
llvm::Expected<std::string> findTool(StringRef name, ArrayRef<StringRef> folders, StringRef advice);

/// Runs a program. If it fails, the error message contains its output.
llvm::Error runTool(StringRef program, ArrayRef<StringRef> arguments);

/// Assembles PTX with ptxas. Returns the bytes of a cubin for `chip`. Errors: no ptxas; errors of
/// ptxas.
llvm::Expected<std::string> assemble(StringRef ptx, StringRef chip);

/// Links the bytes of an object and the runtime into the shared library `output`. Errors: no
/// linker; no runtime; errors of the linker.
llvm::Error linkShared(StringRef linker, StringRef object, StringRef output, StringRef soname);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H
