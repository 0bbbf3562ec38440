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

/// Returns an error if `path` is a device that is not a terminal, because a device may have no end.
llvm::Error checkInputFile(llvm::StringRef path);

/// A temporary file. It is removed by the destructor, or when a signal terminates the process.
class ScratchFile {
public:
  /// Creates a temporary file with `content`. Errors: the file cannot be created.
  static llvm::Expected<ScratchFile> create(llvm::StringRef content = "");
  ScratchFile(ScratchFile &&) = default;
  ~ScratchFile();

  llvm::StringRef getPath() const { return file.TmpName; }

private:
  explicit ScratchFile(llvm::sys::fs::TempFile file) : file(std::move(file)) {}

  llvm::sys::fs::TempFile file;
};

/// Output files that are created together. The content of a regular file is written to a temporary
/// file next to its path, which replaces the file when all files are complete; until then, and
/// after an error, the previous file is kept. For a symbolic link, the target is replaced. A path
/// that is not a regular file, such as a device or a FIFO, is written directly. Errors of all
/// functions name the path and the reason.
class OutputFiles {
public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles &) = delete;
  ~OutputFiles();

  /// Calls `write` to print the content of `path`. The path "-" is standard output.
  llvm::Error write(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write);
  /// Returns the path to which another program must write the content of `path`: that of a
  /// temporary file, or `path` itself if it is written directly.
  llvm::Expected<std::string> create(llvm::StringRef path);
  /// Moves all files to their final paths.
  llvm::Error keep();

private:
  struct File {
    std::string path;   ///< as given by the caller
    std::string target; ///< with symbolic links resolved; empty: `path` is written directly
    llvm::sys::fs::TempFile temporary;
  };
  std::vector<File> files;
};

/// Writes a single output file.
llvm::Error writeOutputFile(llvm::StringRef path,
                            llvm::function_ref<void(llvm::raw_ostream &)> write);

/// Writes to `descriptor`, an open file that represents standard output.
llvm::Error writeStandardOutput(int descriptor,
                                llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_OUTPUTFILE_H
