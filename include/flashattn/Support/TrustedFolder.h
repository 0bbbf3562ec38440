//===- TrustedFolder.h - files that run as the user's own -------*- C++ -*-===//
//
// Compiled code that is read from a file runs with the rights of who reads it. So a folder counts
// only as what was opened and looked at, never as a path, which may lead elsewhere a moment later:
// links are resolved once, each part of what they come to is opened from the one before and
// follows no further link, and every file is opened, made and removed from the folder that is held
// open. Who may write there is looked at too: root and the user, and nobody else.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_SUPPORT_TRUSTEDFOLDER_H
#define FLASHATTN_SUPPORT_TRUSTEDFOLDER_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <utility>

namespace mlir::flashattn {

/// A file whose code runs already, and the folder that it lies in.
struct LoadedCode {
  struct stat file, folder;

  /// Nothing where the system says nothing of it.
  static std::optional<LoadedCode> find(llvm::StringRef path);
};

class TrustedFolder {
public:
  enum class IfMissing { Nothing, Make };

  /// Opens a folder; nothing where there is none. With Make it is made, and those that it lies in,
  /// for the user alone. Errors: somebody else who owns it or may write to it, or owns or, without
  /// a sticky bit, may write to one that it lies in; something that is no folder; what the system
  /// says. `code` is for callers that only read files there: its owner is trusted too, and a sticky bit is
  /// enough for the folder itself.
  static llvm::Expected<std::optional<TrustedFolder>>
  open(llvm::StringRef path, IfMissing ifMissing, std::optional<LoadedCode> code = std::nullopt);
  /// Opens a folder that was found beside `code`. Who may write to that could do no more here, so
  /// that folders which it lies in are not looked at, and who else may write is as there.
  static llvm::Expected<TrustedFolder> openBeside(llvm::StringRef path, const LoadedCode &code);

  TrustedFolder(TrustedFolder &&other)
      : descriptor(std::exchange(other.descriptor, -1)), code(other.code),
        isBeside(other.isBeside) {}
  TrustedFolder &operator=(TrustedFolder &&) = delete;
  ~TrustedFolder();

  /// The open folder, for functions of the system that end with `at`.
  int get() const { return descriptor; }

  /// What a file holds; null where there is none of that name. Errors: a file of somebody else, one
  /// that others may write to, a link, something that is no file; what the system says.
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> read(llvm::StringRef name) const;
  /// Puts a file of the user's alone in the place of what has that name, whole or not at all.
  llvm::Error write(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> pieces) const;
  void remove(llvm::StringRef name) const;

  /// Prefix of the names of unfinished files, which stay where a process is killed.
  static constexpr llvm::StringLiteral kUnfinished = ".unfinished";

private:
  TrustedFolder(int descriptor, std::optional<LoadedCode> code, bool isBeside)
      : descriptor(descriptor), code(code), isBeside(isBeside) {}
  /// Why what was opened cannot be trusted: the folder, or a file in it.
  llvm::Error check(const struct stat &status, bool isFolder) const;

  int descriptor;
  std::optional<LoadedCode> code;
  bool isBeside;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_TRUSTEDFOLDER_H
