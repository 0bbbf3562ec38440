//===- OutputFile.h - files named by tool flags -----------------*- C++ -*-===//

#ifndef FLASHATTN_SUPPORT_OUTPUTFILE_H
#define FLASHATTN_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"

#include <string>
#include <vector>

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace mlir::flashattn {

/// Whether `path` exists and is neither a regular file nor a folder: a device, a FIFO, a socket.
bool isStream(llvm::StringRef path);

/// Returns an error if `path` is a device that is not a terminal, because reading it to its end may
/// never finish.
llvm::Error checkInputFile(llvm::StringRef path);

/// A temporary file, which is removed with this object, and when a signal terminates the process.
class ScratchFile {
public:
  /// Errors: no temporary file can be created.
  static llvm::Expected<ScratchFile> create(llvm::StringRef content = "");
  ScratchFile(ScratchFile &&) = default;
  ~ScratchFile();

  llvm::StringRef getPath() const { return file.TmpName; }

private:
  explicit ScratchFile(llvm::sys::fs::TempFile file) : file(std::move(file)) {}

  llvm::sys::fs::TempFile file;
};

/// Output files that are created together. A regular file is written to a temporary file next to
/// its path, and moved there when all files are complete; until then, and after an error, the
/// previous file is kept. For a symbolic link, the target is replaced. A path that is not a regular
/// file, such as a device or a FIFO, is written to directly. Errors of all functions name the path
/// and the reason.
class OutputFiles {
public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles &) = delete;
  ~OutputFiles();

  /// Calls `write` to print the content of `path`. "-" is standard output.
  llvm::Error write(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write);
  /// Returns the path to which another program must write the content of `path`.
  llvm::Expected<std::string> create(llvm::StringRef path);
  /// Moves all files to their final paths.
  llvm::Error keep();

private:
  struct File {
    std::string path;   ///< as given by the caller
    std::string target; ///< after resolving symbolic links; empty: `path` is written directly
    llvm::sys::fs::TempFile temporary;
  };
  std::vector<File> files;
};

/// Writes a single output file.
llvm::Error writeOutputFile(llvm::StringRef path,
                            llvm::function_ref<void(llvm::raw_ostream &)> write);

/// Same, to an open file that represents standard output.
llvm::Error writeStandardOutput(int descriptor,
                                llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_OUTPUTFILE_H
