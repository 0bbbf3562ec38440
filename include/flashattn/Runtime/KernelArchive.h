//===- KernelArchive.h - kernels made ahead ---------------------*- C++ -*-===//
//
// To compile a kernel takes all of a first call. An archive (of `ar`) beside the library has it
// done for the commonest: KEY.code is what the disk cache would keep under that key, and HASH.cubin
// the machine code that `ptxas` made of the PTX with that SHA-256, in hexadecimal. So nothing in it
// is ever out of date: a key is of one build of the library, and what a later one makes otherwise
// is not in there.
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
  /// That of this process: FLASHATTN_KERNELS, or `flashattn-kernels.a` in the folder of the file
  /// that this code was loaded from or in the folder `lib` beside that. Switched off, or where
  /// there is none, nothing is found in it; one that cannot be read is one warning of the process
  /// to stderr, as one that TrustedFolder does not trust. Its owner may be that of the file that
  /// this code was loaded from; who may write there may write to what lies beside it.
  static const KernelArchive &get();

  /// One that the user has named, or that lies beside the file that this code was loaded from.
  explicit KernelArchive(std::string path, bool isNamed = true);

  /// The member of that name, "" where there is none; stays as long as the archive.
  llvm::StringRef find(llvm::StringRef name) const;
  /// The cubin that was made of this text, or "".
  llvm::StringRef findCubin(llvm::StringRef ptx) const;

  /// "" where there is none to name.
  const std::string &getPath() const { return path; }
  /// Why nothing is found; "" where it was read.
  const std::string &getOffReason() const { return offReason; }
  size_t size() const { return members.size(); }

  /// Of this process: members that were found.
  static int64_t getNumFound();

private:
  std::string path, offReason;
  std::unique_ptr<llvm::MemoryBuffer> file;
  llvm::StringMap<llvm::StringRef> members;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_KERNELARCHIVE_H
