//===- KernelArchive.h - archive of precompiled kernels ---------*- C++ -*-===//
//
// Compiling the kernel dominates the time of a first call. An archive (created by `ar`) next to the
// library therefore contains the most common kernels, compiled ahead of time: KEY.code is the
// content that the disk cache would store under this key, and HASH.cubin is the machine code that
// `ptxas` generated for the PTX whose SHA-256 is HASH, in hexadecimal. A stale member is never
// found, because a key belongs to one build of the library, and different PTX has another hash.
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
  /// of the file from which this code was loaded, or in the folder `lib` next to that folder. If
  /// the archive is switched off or does not exist, nothing is found. If the archive cannot be
  /// read, or TrustedFolder does not trust it, this is reported once per process to stderr. The
  /// archive may belong to the owner of the file from which this code was loaded, because a user
  /// who may write to that file gains no further rights.
  static const KernelArchive &get();

  /// Opens an archive. `isNamed` states that the user has named the path; otherwise, the archive is
  /// next to the file from which this code was loaded.
  explicit KernelArchive(std::string path, bool isNamed = true);

  /// Returns member `name`, or "" if there is none. The result is valid as long as the archive.
  llvm::StringRef find(llvm::StringRef name) const;
  /// Returns the cubin that was generated from the text `ptx`, or "" if there is none.
  llvm::StringRef findCubin(llvm::StringRef ptx) const;

  /// Returns the path of the archive, or "" if there is none.
  const std::string &getPath() const { return path; }
  /// Returns the reason why nothing is found, or "" if the archive was read.
  const std::string &getOffReason() const { return offReason; }
  size_t size() const { return members.size(); }

  /// Returns the number of members that were found in this process.
  static int64_t getNumFound();

private:
  std::string path, offReason;
  std::unique_ptr<llvm::MemoryBuffer> file;
  llvm::StringMap<llvm::StringRef> members;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_KERNELARCHIVE_H
