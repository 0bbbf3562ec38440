//===- CubinArchive.h - machine code of kernels, made ahead -----*- C++ -*-===//
//
// What the driver's compiler makes of a kernel's PTX takes most of a first call. An archive (of
// `ar`) beside the library has it for the commonest kernels: a cubin by `ptxas` for each PTX, under
// the SHA-256 of that, in hexadecimal. So none of it can be out of date: PTX that a later compiler
// makes otherwise is not in there, and the driver compiles it.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_CUBINARCHIVE_H
#define FLASHATTN_RUNTIME_CUBINARCHIVE_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace mlir::flashattn {

class CubinArchive {
public:
  /// That of this process: FLASHATTN_CUBINS, or `flashattn-cubins.a` in the folder of the file that
  /// this code was loaded from or in the folder `lib` beside that. With `0` or `off`, or where
  /// there is none, nothing is found in it; one that cannot be read is one warning of the process
  /// to stderr.
  static const CubinArchive &get();

  explicit CubinArchive(std::string path);

  /// The cubin that was made of this text, "" where there is none; stays as long as the archive.
  llvm::StringRef find(llvm::StringRef ptx) const;

  /// "" where there is none to name.
  const std::string &getPath() const { return path; }
  /// Why nothing is found; "" where it was read.
  const std::string &getOffReason() const { return offReason; }
  size_t size() const { return cubins.size(); }

  /// Of this process: texts that were found.
  static int64_t getNumFound();

private:
  std::string path, offReason;
  std::unique_ptr<llvm::MemoryBuffer> file;
  llvm::StringMap<llvm::StringRef> cubins;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_CUBINARCHIVE_H
