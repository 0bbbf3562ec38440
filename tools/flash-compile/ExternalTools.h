//===- ExternalTools.h - programs of others that make files ------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H
#define FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/Error.h"

namespace mlir::flashattn {

/// A program by name or path. `advice` ends the message where there is none.
llvm::Expected<std::string> findTool(StringRef name, ArrayRef<StringRef> folders, StringRef advice);

/// Runs a program, whose standard error is the message where it fails.
llvm::Error runTool(StringRef program, ArrayRef<StringRef> arguments);

/// The bytes of a cubin for `chip` from PTX, by ptxas. Errors: no ptxas; what it says.
llvm::Expected<std::string> assemble(StringRef ptx, StringRef chip);

/// Links the bytes of an object and the runtime to the shared library `output`. Errors: no linker,
/// no runtime; what the linker says.
llvm::Error linkShared(StringRef linker, StringRef object, StringRef output, StringRef soname);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_EXTERNALTOOLS_H
