//===- DiskCache.h - persistent cache of compiled code ----------*- C++ -*-===//
//
// A folder of files that only the user can access, each with the code compiled from one input. Two
// environment variables configure the cache: FLASHATTN_CACHE is the path of the folder or switches
// the cache off; FLASHATTN_CACHE_DISK_BYTES limits the total size of the files.
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
  /// Opens the cache that the environment specifies at this time. `defaultFolder` is used if the
  /// environment names no folder. Creates no files. A folder that TrustedFolder does not trust is
  /// not used; this is reported once per process to stderr.
  explicit DiskCache(llvm::StringRef defaultFolder);

  /// Calls `use` with the stored bytes of an input. If there are none, calls `make` and stores the
  /// bytes that `make` returns. An input consists of all `parts`, in order, and of this build of
  /// the library. If several processes or threads request the same input at once, one calls `make`
  /// and the others wait for the result. Bytes of the KernelArchive take precedence, even if the
  /// cache is off.
  ///
  /// `use` returns false for bytes that it cannot read; `make` is then called again, as for a
  /// damaged file or, with a warning, a file of another user. `make` returns nullopt if there is
  /// nothing to store; `use` is not called after `make`. A failure to store is reported once per
  /// process.
  void find(llvm::ArrayRef<llvm::StringRef> parts, llvm::function_ref<bool(llvm::StringRef)> use,
            llvm::function_ref<std::optional<std::string>()> make) const;

  /// Returns the path of the folder, or "" if there is none.
  const std::string &getFolder() const { return folder; }
  /// Returns the reason why the cache is not used, or "" if it is used.
  const std::string &getOffReason() const { return offReason; }
  int64_t getMaxBytes() const { return maxBytes; }

  struct Contents {
    int64_t files = 0, bytes = 0;
  };
  Contents getContents() const;

  /// Numbers of requests of this process whose bytes were found, and whose bytes were created.
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
