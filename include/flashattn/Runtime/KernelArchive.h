//===- KernelArchive.h - archive of precompiled kernels ---------*- C++ -*-===//
//
// The time of a first call is that of compiling its kernel. An archive (created by `ar`) next to
// the library contains the most common kernels, compiled ahead of time: KEY.code is the content
// that the disk cache would store under that key, and HASH.cubin is the machine code that `ptxas`
// generated for the PTX whose SHA-256 is HASH, in hexadecimal. No member is ever out of date: a key
// belongs to one build of the library, and the code that a later build generates differently is not
// found.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_KERNELARCHIVE_H
#define FLASHATTN_RUNTIME_KERNELARCHIVE_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace mlir::flashattn {

class KernelArchive {
public:
  /// Returns the archive of this process: FLASHATTN_KERNELS, or `flashattn-kernels.a` in the folder
  /// of the file from which this code was loaded, or in the folder `lib` next to that folder. If it
  /// is switched off or does not exist, nothing is found. If it cannot be read, or TrustedFolder
  /// does not trust it, this is reported once per process to stderr. Its owner may be the owner of
  /// the file from which this code was loaded: a user who may write to that file may also write to
  /// files next to it.
  static const KernelArchive &get();

  /// Opens an archive that the user has named, or that is next to the file from which this code was
  /// loaded.
  explicit KernelArchive(std::string path, bool isNamed = true);

  /// Returns the member with that name, or "" if there is none. It is valid as long as the archive.
  llvm::StringRef find(llvm::StringRef name) const;
  /// Returns the cubin that was generated from this text, or "".
  llvm::StringRef findCubin(llvm::StringRef ptx) const;

  /// "" if there is no archive.
  const std::string &getPath() const { return path; }
  /// The reason why nothing is found; "" if the archive was read.
  const std::string &getOffReason() const { return offReason; }
  size_t size() const { return members.size(); }

  /// Number of members that were found in this process.
  static int64_t getNumFound();

private:
  std::string path, offReason;
  std::unique_ptr<llvm::MemoryBuffer> file;
  llvm::StringMap<llvm::StringRef> members;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_KERNELARCHIVE_H
