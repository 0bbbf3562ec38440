//===- Outputs.h - files and the programs that make them --------*- C++ -*-===//

#ifndef FLASHATTN_FLASHCOMPILE_OUTPUTS_H
#define FLASHATTN_FLASHCOMPILE_OUTPUTS_H

#include "mlir/Support/LLVM.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"

#include <vector>

namespace mlir::flashattn {

/// Files that come to be together: each is written beside its place, and moved there when all are
/// whole. Until then, and after an error, what was there before stays.
class Outputs {
public:
  ~Outputs();
  /// A file that is to be `path`: its temporary path. Errors: cannot be written.
  llvm::Expected<std::string> create(StringRef path);
  /// The same, with its content.
  llvm::Error write(StringRef path, StringRef content);
  /// Where the last file is until then.
  StringRef getTemporary() const { return files.back().second.TmpName; }
  llvm::Error keep();

private:
  std::vector<std::pair<std::string, llvm::sys::fs::TempFile>> files;
};

/// A program by name or path. `advice` ends the message where there is none.
llvm::Expected<std::string> findTool(StringRef name, ArrayRef<StringRef> folders, StringRef advice);

/// Runs a program, whose standard error is the message where it fails.
llvm::Error runTool(StringRef program, ArrayRef<StringRef> arguments);

/// The bytes of a cubin for `chip` from PTX, by ptxas. Errors: no ptxas; what it says.
llvm::Expected<std::string> assemble(StringRef ptx, StringRef chip);

/// Links an object and the runtime to the shared library `output`. Errors: no linker, no runtime;
/// what the linker says.
llvm::Error linkShared(StringRef linker, StringRef object, StringRef output, StringRef soname);

} // namespace mlir::flashattn

#endif // FLASHATTN_FLASHCOMPILE_OUTPUTS_H
