//===- DiskCache.cpp ------------------------------------------------------===//

#include "flashattn/Runtime/DiskCache.h"
#include "Errors.h"
#include "LoadedFile.h"
#include "flashattn/Runtime/KernelArchive.h"
#include "flashattn/Support/Environment.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include "llvm/TargetParser/Host.h"

#include <atomic>
#include <chrono>
#include <dirent.h>
#include <fcntl.h>
#include <mutex>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

/// The version of the file layout and of the stored content.
static constexpr StringRef kFormat = "flashattn 1\n";
/// The name of a file is this prefix and its key; that of a lock is a key and this suffix.
static constexpr StringRef kPrefix = "llvmcache-", kLockSuffix = ".lock";
static constexpr int64_t kDefaultMaxBytes = int64_t(1) << 30;
/// Files that were not read for this long are removed.
static constexpr std::chrono::hours kExpiration(30 * 24);
/// Unfinished files of killed processes are removed earlier, because no write takes this long.
static constexpr std::chrono::hours kUnfinishedExpiration(1);
/// Longer than a kernel takes to compile. After this time, a waiting thread compiles the kernel
/// itself.
static constexpr std::chrono::seconds kMaxWait(30);
/// The polling interval of a waiting thread.
static constexpr std::chrono::milliseconds kPoll(5);

static std::atomic<int64_t> numFound, numMade;

/// Prints each message once per process, whatever the reason, which may name the file that was
/// tried.
static void warn(const llvm::Twine &message, const llvm::Twine &reason) {
  static std::mutex mutex;
  static llvm::StringSet<> said;
  std::lock_guard<std::mutex> lock(mutex);
  if (said.insert(message.str()).second)
    std::fprintf(stderr, "flashattn: warning: %s: %s\n", message.str().c_str(),
                 reason.str().c_str());
}

//===----------------------------------------------------------------------===//
// The build
//===----------------------------------------------------------------------===//

/// Returns the build ids of everything that compiles: this project, LLVM and MLIR, which may be one
/// file or three.
static const std::string &getBuild() {
  static const std::string build =
      getBuildId(reinterpret_cast<void *>(&getBuild)) +
      getBuildId(reinterpret_cast<void *>(&llvm::sys::getHostCPUName)) +
      getBuildId(reinterpret_cast<void *>(&mlir::makeOptimizingTransformer));
  return build;
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

DiskCache::DiskCache(StringRef defaultFolder)
    : maxBytes(getNumber("FLASHATTN_CACHE_DISK_BYTES", 1, INT64_MAX, kDefaultMaxBytes)) {
  PathVariable given = getPathOrSwitch("FLASHATTN_CACHE");
  if (given.isOff) {
    offReason = std::string("FLASHATTN_CACHE=") + getVariable("FLASHATTN_CACHE");
    return;
  }
  folder = given.path ? given.path : defaultFolder.str();
  if (folder.empty()) {
    offReason = "there is no home folder";
    return;
  }
  // A missing folder is created when something is stored.
  auto found = TrustedFolder::open(folder, TrustedFolder::IfMissing::Nothing);
  if (found) {
    if (*found)
      opened.emplace(std::move(**found));
    return;
  }
  offReason = llvm::toString(found.takeError());
  warn("compiled code is not kept in '" + folder + "'", offReason);
}

namespace {
struct File {
  std::string name;
  struct stat status;
};
} // namespace

/// Returns the files that are in a folder now.
static std::vector<File> listFiles(const TrustedFolder &folder) {
  std::vector<File> files;
  int listed = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = listed < 0 ? nullptr : fdopendir(listed);
  if (!stream) {
    if (listed >= 0)
      close(listed);
    return files;
  }
  while (const dirent *entry = readdir(stream)) {
    File file{entry->d_name, {}};
    if (!fstatat(folder.get(), entry->d_name, &file.status, AT_SYMLINK_NOFOLLOW) &&
        S_ISREG(file.status.st_mode))
      files.push_back(std::move(file));
  }
  closedir(stream);
  return files;
}

static bool isKept(const File &file) {
  StringRef name = file.name;
  return name.starts_with(kPrefix) && !name.ends_with(TrustedFolder::kUnfinished);
}

DiskCache::Contents DiskCache::getContents() const {
  Contents contents;
  if (opened)
    for (const File &file : listFiles(*opened))
      if (isKept(file)) {
        ++contents.files;
        contents.bytes += file.status.st_size;
      }
  return contents;
}

DiskCache::Counts DiskCache::getCounts() { return {numFound, numMade}; }

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Returns the header of stored bytes, which shows that a file has this format and is complete and
/// unchanged.
static std::string makeHeader(StringRef bytes) {
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(bytes));
  std::string header = kFormat.str();
  for (uint64_t word : {uint64_t(bytes.size()), uint64_t(hash.low64), uint64_t(hash.high64)}) {
    char raw[sizeof(word)];
    llvm::support::endian::write64le(raw, word);
    header.append(raw, sizeof(raw));
  }
  return header;
}

/// Returns the key under which an input is stored. A length before each part marks its end.
static std::string makeKey(llvm::ArrayRef<StringRef> parts) {
  llvm::SHA256 hash;
  auto add = [&](StringRef part) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  };
  add(kFormat);
  add(getBuild());
  for (StringRef part : parts)
    add(part);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

/// Whether a file is complete, and `use` accepts its bytes.
static bool take(StringRef file, llvm::function_ref<bool(StringRef)> use) {
  StringRef header = file.take_front(makeHeader("").size()), bytes = file.drop_front(header.size());
  return header == makeHeader(bytes) && use(bytes);
}

/// Reads the bytes that are stored for a key. Returns whether there were any, and `use` accepted
/// them. Removes a file that is damaged or belongs to another user.
static bool read(const TrustedFolder &folder, StringRef key,
                 llvm::function_ref<bool(StringRef)> use) {
  std::string name = (kPrefix + key).str();
  auto found = folder.read(name);
  if (found && !*found)
    return false;
  if (!found) {
    warn("compiled code in '" + name + "' is not used", llvm::toString(found.takeError()));
  } else if (take((*found)->getBuffer(), use)) {
    // Set explicitly, because the system may not record when a file was read.
    constexpr timespec kTimes[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    utimensat(folder.get(), name.c_str(), kTimes, AT_SYMLINK_NOFOLLOW);
    return true;
  }
  folder.remove(name);
  return false;
}

namespace {
/// The right to compile for a key, which one thread of all processes holds at a time. The system
/// releases the lock of a process that is killed. (llvm::LockFileManager removes a lock file that
/// it could not read, even if another process has created it in the meantime: two processes that
/// started at once both held the lock.)
class KeyLock {
public:
  KeyLock(const TrustedFolder &folder, std::string name) : folder(folder), name(std::move(name)) {}
  KeyLock(const KeyLock &) = delete;
  ~KeyLock() {
    if (file < 0)
      return;
    folder.remove(name);
    close(file);
  }

  /// Returns whether the lock is held now.
  Expected<bool> tryToTake() {
    int opened = openat(folder.get(), name.c_str(),
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                        S_IRUSR | S_IWUSR);
    if (opened < 0)
      return llvm::errorCodeToError(llvm::errnoAsErrorCode());
    std::error_code error;
    if (flock(opened, LOCK_EX | LOCK_NB))
      error = llvm::errnoAsErrorCode();
    // The previous holder removes the file before it releases the lock.
    struct stat ours, named;
    bool isGone = !error && (fstat(opened, &ours) ||
                             fstatat(folder.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) ||
                             ours.st_dev != named.st_dev || ours.st_ino != named.st_ino);
    if (!error && !isGone) {
      file = opened;
      return true;
    }
    close(opened);
    if (isGone || error == std::errc::operation_would_block)
      return false;
    return llvm::errorCodeToError(error);
  }

private:
  const TrustedFolder &folder;
  std::string name;
  int file = -1;
};
} // namespace

static auto getTime(const timespec &time) {
  using namespace std::chrono;
  return system_clock::time_point(
      duration_cast<system_clock::duration>(seconds(time.tv_sec) + nanoseconds(time.tv_nsec)));
}

/// Removes files that were not read for long, then the least recently read ones beyond `maxBytes`,
/// and files that killed processes have left.
static void prune(const TrustedFolder &folder, int64_t maxBytes) {
  auto now = std::chrono::system_clock::now();
  std::vector<File> kept;
  int64_t bytes = 0;
  for (File &file : listFiles(folder)) {
    StringRef name = file.name;
    if (name.ends_with(kLockSuffix)) {
      // A lock that can be taken is removed by its destructor.
      KeyLock lock(folder, file.name);
      llvm::consumeError(lock.tryToTake().takeError());
    } else if (name.ends_with(TrustedFolder::kUnfinished)) {
      if (now - getTime(file.status.st_mtim) > kUnfinishedExpiration)
        folder.remove(name);
    } else if (isKept(file)) {
      if (now - getTime(file.status.st_atim) > kExpiration) {
        folder.remove(name);
        continue;
      }
      bytes += file.status.st_size;
      kept.push_back(std::move(file));
    }
  }
  // Other programs need disk space too.
  struct statvfs disk;
  if (!fstatvfs(folder.get(), &disk))
    maxBytes =
        std::min<int64_t>(maxBytes, (bytes + int64_t(disk.f_bavail * disk.f_frsize)) / 4 * 3);
  llvm::sort(kept, [](const File &a, const File &b) {
    return getTime(a.status.st_atim) < getTime(b.status.st_atim);
  });
  for (const File &file : kept) {
    if (bytes <= maxBytes)
      return;
    folder.remove(file.name);
    bytes -= file.status.st_size;
  }
}

/// Waits for a lock while `isDone` is false, for a limited time. Returns whether it is done.
static Expected<bool> waitFor(KeyLock &lock, llvm::function_ref<bool()> isDone) {
  auto end = std::chrono::steady_clock::now() + kMaxWait;
  while (true) {
    Expected<bool> isOurs = lock.tryToTake();
    if (!isOurs)
      return isOurs.takeError();
    // Also if the lock is held now: its previous holder stored the bytes, or failed to.
    if (isDone())
      return true;
    if (*isOurs || std::chrono::steady_clock::now() >= end)
      return false;
    std::this_thread::sleep_for(kPoll);
  }
}

void DiskCache::find(llvm::ArrayRef<StringRef> parts, llvm::function_ref<bool(StringRef)> use,
                     llvm::function_ref<std::optional<std::string>()> make) const {
  auto makeNew = [&] {
    ++numMade;
    return make();
  };
  std::string key = makeKey(parts);
  if (take(KernelArchive::get().find(key + ".code"), use))
    return;
  if (!offReason.empty()) {
    makeNew();
    return;
  }
  auto findIn = [&](const TrustedFolder &place) {
    bool isFound = read(place, key, use);
    numFound += isFound;
    return isFound;
  };
  auto warnOfKeeping = [&](Error error) {
    warn("cannot keep compiled code in '" + folder + "'", llvm::toString(std::move(error)));
  };
  if (opened && findIn(*opened))
    return;
  std::optional<TrustedFolder> made;
  if (!opened) {
    auto found = TrustedFolder::open(folder, TrustedFolder::IfMissing::Make);
    if (!found) {
      warnOfKeeping(found.takeError());
      makeNew();
      return;
    }
    made.emplace(std::move(**found));
  }
  const TrustedFolder &place = opened ? *opened : *made;
  KeyLock lock(place, key + kLockSuffix.str());
  Expected<bool> isDone = waitFor(lock, [&] { return findIn(place); });
  if (!isDone) {
    warnOfKeeping(isDone.takeError());
    makeNew();
    return;
  }
  if (*isDone)
    return;
  std::optional<std::string> bytes = makeNew();
  if (!bytes)
    return;
  if (Error error = place.write(kPrefix.str() + key, {makeHeader(*bytes), *bytes})) {
    warnOfKeeping(std::move(error));
    return;
  }
  prune(place, maxBytes);
}
