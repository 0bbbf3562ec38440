//===- TrustedFolder.h - folders with trusted files -------------*- C++ -*-===//
//
// Compiled code that is read from a file runs with the rights of the user who reads it. Therefore
// only a folder with a checked, open file descriptor is trusted, never a path, which may refer to
// another folder a moment later. Links are resolved once; each component of the resolved path is
// opened relative to the previous component, without following further links; and every file is
// opened, created and removed relative to the open folder. The checks also require that only root
// and the user may write to a folder.
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

/// Owners and permissions of a file whose code is already running, and of its folder.
struct LoadedCode {
  struct stat file, folder;

  /// Returns the information about the file at `path`, or nullopt if the system has none.
  static std::optional<LoadedCode> find(llvm::StringRef path);
};

/// An open folder that has passed the checks.
class TrustedFolder {
public:
  enum class IfMissing { Nothing, Make };

  /// Opens a folder; returns nullopt if it does not exist. With Make, the folder and its parents
  /// are created, accessible to the user only. Errors: another user owns the folder or may write to
  /// it; another user owns one of its parents, or may write to a parent without a sticky bit; the
  /// path is not a folder; system errors. `code` is for callers that only read files in the folder:
  /// the owner of `code` is trusted too, and a sticky bit is sufficient for the folder itself.
  static llvm::Expected<std::optional<TrustedFolder>>
  open(llvm::StringRef path, IfMissing ifMissing, std::optional<LoadedCode> code = std::nullopt);
  /// Opens a folder next to `code`. The parents of the folder are not checked, and all users who
  /// may write to `code` may also write to the folder, because they gain no further rights.
  static llvm::Expected<TrustedFolder> openBeside(llvm::StringRef path, const LoadedCode &code);

  TrustedFolder(TrustedFolder &&other)
      : descriptor(std::exchange(other.descriptor, -1)), code(other.code),
        isBeside(other.isBeside) {}
  TrustedFolder &operator=(TrustedFolder &&) = delete;
  ~TrustedFolder();

  /// Returns the file descriptor of the open folder, for system functions such as `openat`.
  int get() const { return descriptor; }

  /// Returns the content of a file, or null if there is no file with that name. Errors: another
  /// user owns the file or may write to it; it is a link or not a regular file; system errors.
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> read(llvm::StringRef name) const;
  /// Atomically replaces the file `name` by a file that only the user can access.
  llvm::Error write(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> pieces) const;
  void remove(llvm::StringRef name) const;

  /// Prefix of the names of unfinished files, which remain if a process is killed.
  static constexpr llvm::StringLiteral kUnfinished = ".unfinished";

private:
  TrustedFolder(int descriptor, std::optional<LoadedCode> code, bool isBeside)
      : descriptor(descriptor), code(code), isBeside(isBeside) {}
  /// Returns the reason why the opened folder, or a file in it, cannot be trusted.
  llvm::Error check(const struct stat &status, bool isFolder) const;

  int descriptor;
  std::optional<LoadedCode> code;
  bool isBeside;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_SUPPORT_TRUSTEDFOLDER_H
