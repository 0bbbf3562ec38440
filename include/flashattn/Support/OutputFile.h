//===- OutputFile.h - files that the flags of a tool name ---------*- C++ -*-===//

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

/// Whether `path` is there and is neither a regular file nor a folder: a device, a FIFO, a socket.
bool isStream(llvm::StringRef path);

/// Error where `path` is a device that is no terminal: reading it to its end may never be over.
llvm::Error checkInputFile(llvm::StringRef path);

/// A file for the time being, which goes with this object and with the process, where a signal
/// ends that.
class ScratchFile {
public:
  /// Errors: there is no place for temporary files.
  static llvm::Expected<ScratchFile> create(llvm::StringRef content = "");
  ScratchFile(ScratchFile &&) = default;
  ~ScratchFile();

  llvm::StringRef getPath() const { return file.TmpName; }

private:
  explicit ScratchFile(llvm::sys::fs::TempFile file) : file(std::move(file)) {}

  llvm::sys::fs::TempFile file;
};

/// Files that come to be together. A regular file is written beside its place, and moved there when
/// all are whole: until then, and after an error, what was there before stays. For a symbolic link
/// it is the target that is replaced. What is no regular file, a device or a FIFO, is written to.
/// Errors of all functions name the path and say why.
class OutputFiles {
public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles &) = delete;
  ~OutputFiles();

  /// Has `write` print the content of `path`. "-" is standard output.
  llvm::Error write(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write);
  /// Where another program is to put the content of `path`.
  llvm::Expected<std::string> create(llvm::StringRef path);
  /// Puts all files to their places.
  llvm::Error keep();

private:
  struct File {
    std::string path;   ///< as it was given
    std::string target; ///< behind all symbolic links; empty: `path` is written to
    llvm::sys::fs::TempFile temporary;
  };
  std::vector<File> files;
};

/// A single one of them.
llvm::Error writeOutputFile(llvm::StringRef path,
                            llvm::function_ref<void(llvm::raw_ostream &)> write);

/// The same to an open file that stands for standard output.
llvm::Error writeStandardOutput(int descriptor,
                                llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_OUTPUTFILE_H
