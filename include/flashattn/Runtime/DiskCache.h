//===- DiskCache.h - persistent cache of compiled code ----------*- C++ -*-===//
//
// Files that belong to the user alone, each with the code that was compiled from one input. Two
// environment variables configure the cache: FLASHATTN_CACHE names the folder or switches the cache
// off; FLASHATTN_CACHE_DISK_BYTES limits the total size of the files.
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
  /// Opens the cache that the environment specifies at this time, in `defaultFolder` if it names no
  /// folder. Creates nothing on disk. A folder that TrustedFolder does not trust is not used; this
  /// is reported once per process to stderr.
  explicit DiskCache(llvm::StringRef defaultFolder);

  /// Calls `use` with the stored bytes of an input, or with those that `make` creates for it, which
  /// are then stored. An input consists of all `parts`, in order, and of this build of the library.
  /// If several processes and threads request the same input at once, one creates the bytes and the
  /// others wait for it. Bytes of the KernelArchive take precedence, even if the cache is off.
  ///
  /// `use` returns false for bytes that it cannot read; they are created again, as are those of a
  /// file that is damaged or, with a warning, that belongs to another user. `make` returns nullopt
  /// if there is nothing to store; `use` is not called for what it has created. A failure to store
  /// is reported once per process.
  void find(llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<bool(llvm::StringRef)> use,
            llvm::function_ref<std::optional<std::string>()> make) const;

  /// "" if there is no folder.
  const std::string &getFolder() const { return folder; }
  /// The reason why the cache is not used; "" if it is.
  const std::string &getOffReason() const { return offReason; }
  int64_t getMaxBytes() const { return maxBytes; }

  struct Contents {
    int64_t files = 0, bytes = 0;
  };
  Contents getContents() const;

  /// Numbers of inputs in this process that were found, and that were created.
  struct Counts {
    int64_t found = 0, made = 0;
  };
  static Counts getCounts();

private:
  std::string folder, offReason;
  /// The folder, if it existed when the cache was opened.
  std::optional<TrustedFolder> opened;
  int64_t maxBytes;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_DISKCACHE_H
