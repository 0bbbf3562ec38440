//===- DiskCache.h - compiled code that outlives a process ------*- C++ -*-===//
//
// Files of the user's alone, each with what was compiled of one input. The environment says where:
// FLASHATTN_CACHE names the folder, or switches the cache off;
// FLASHATTN_CACHE_DISK_BYTES limits what the files take together.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_DISKCACHE_H
#define FLASHATTN_RUNTIME_DISKCACHE_H

#include "flashattn/Support/TrustedFolder.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>

namespace mlir::flashattn {

class DiskCache {
public:
  /// The cache as the environment says at this time; `defaultFolder` where it names none. Makes
  /// nothing. What TrustedFolder does not trust is left aside with one warning of the process to
  /// stderr.
  explicit DiskCache(llvm::StringRef defaultFolder);

  /// Has `use` take the bytes that are kept for an input, or those that `make` makes of it, which
  /// are kept then. An input is all of `parts`, in their order, for this build of the library. Of
  /// several processes and threads that ask at once one makes it, and the others wait for that.
  /// Bytes of the KernelArchive come first, also where nothing is read or kept.
  ///
  /// `use` is false for bytes that it cannot read; they are made anew, as those of a file that is
  /// damaged or, with a warning, somebody else's. `make` gives nothing where there is nothing to keep, and `use` is not called for what
  /// it has made. What cannot be kept is one warning of the process.
  void find(llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<bool(llvm::StringRef)> use,
            llvm::function_ref<std::optional<std::string>()> make) const;

  /// "" where there is none to name.
  const std::string &getFolder() const { return folder; }
  /// Why nothing is read or kept; "" where it is.
  const std::string &getOffReason() const { return offReason; }
  int64_t getMaxBytes() const { return maxBytes; }

  struct Contents {
    int64_t files = 0, bytes = 0;
  };
  Contents getContents() const;

  /// Of this process: inputs that were found, and those that were made.
  struct Counts {
    int64_t found = 0, made = 0;
  };
  static Counts getCounts();

private:
  std::string folder, offReason;
  /// The folder where it was there when the cache was made.
  std::optional<TrustedFolder> opened;
  int64_t maxBytes;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_DISKCACHE_H
