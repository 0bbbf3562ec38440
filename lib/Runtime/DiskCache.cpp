//===- DiskCache.cpp -------------------------------------------------------===//

#include "flashattn/Runtime/DiskCache.h"
#include "Errors.h"
#include "LoadedFile.h"
#include "flashattn/Runtime/KernelArchive.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/Caching.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include "llvm/TargetParser/Host.h"

#include <atomic>
#include <mutex>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

namespace fs = llvm::sys::fs;

/// Of the files' layout, and of what their users keep in them.
static constexpr StringRef kFormat = "flashattn 1\n";
/// In the names of unfinished files, and in LLVM's messages.
static constexpr char kCacheName[] = "flashattn";
static constexpr int64_t kDefaultMaxBytes = int64_t(1) << 30;
/// Files that nobody has read for so long go.
static constexpr std::chrono::hours kExpiration(30 * 24);
/// Longer than a kernel takes to compile. Who waits longer compiles it himself.
static constexpr std::chrono::seconds kMaxWait(30);
/// How often it looks meanwhile.
static constexpr std::chrono::milliseconds kPoll(5);

static std::atomic<int64_t> numFound, numMade;

/// Says it to people, once in a process: reasons may name the file that was tried.
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

/// Of all that compiles: this project, LLVM and MLIR, which may be one file or three.
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

static int64_t getMaxBytesOrDefault() {
  std::string given = llvm::sys::Process::GetEnv("FLASHATTN_CACHE_DISK_BYTES").value_or("");
  int64_t bytes = 0;
  if (given.empty())
    return kDefaultMaxBytes;
  if (llvm::to_integer(given, bytes, 10) && bytes >= 1)
    return bytes;
  warn("at most " + llvm::Twine(kDefaultMaxBytes) + " bytes of compiled code are kept",
       "expected FLASHATTN_CACHE_DISK_BYTES to be a number of at least 1 but got '" + given + "'");
  return kDefaultMaxBytes;
}

/// Why a folder that is there cannot be trusted; "" where it can.
static std::string explainDistrust(const fs::file_status &status) {
  if (status.type() != fs::file_type::directory_file)
    return "expected a folder but got something else";
  if (status.getUser() != geteuid())
    return llvm::formatv("expected a folder of user {0} but got one of user {1}", geteuid(),
                         status.getUser());
  if (status.permissions() & (fs::group_write | fs::others_write))
    return llvm::formatv("expected a folder that only its owner may write to but got mode {0}",
                         llvm::format("%04o", unsigned(status.permissions())));
  return "";
}

DiskCache::DiskCache(StringRef defaultFolder) : maxBytes(getMaxBytesOrDefault()) {
  std::string given = llvm::sys::Process::GetEnv("FLASHATTN_CACHE").value_or("");
  if (given == "0" || given == "off") {
    offReason = "FLASHATTN_CACHE=" + given;
    return;
  }
  folder = given.empty() ? defaultFolder.str() : given;
  if (folder.empty()) {
    offReason = "there is no home folder";
    return;
  }
  fs::file_status status;
  // What is not there yet is made when something is kept.
  if (fs::status(folder, status))
    return;
  offReason = explainDistrust(status);
  if (!offReason.empty())
    warn("compiled code is not kept in '" + folder + "'", offReason);
}

/// Makes a folder, and those that it lies in, for its owner alone.
static Error makeFolder(StringRef folder) {
  if (std::error_code error =
          fs::create_directories(folder, /*IgnoreExisting=*/true, fs::owner_all))
    return makeError(error.message());
  return Error::success();
}

DiskCache::Contents DiskCache::getContents() const {
  Contents contents;
  std::error_code error;
  if (offReason.empty())
    for (fs::directory_iterator file(folder, error), end; !error && file != end;
         file.increment(error)) {
      // As llvm::pruneCache.
      fs::file_status status;
      if (!llvm::sys::path::filename(file->path()).starts_with("llvmcache-") ||
          fs::status(file->path(), status))
        continue;
      ++contents.files;
      contents.bytes += status.getSize();
    }
  return contents;
}

DiskCache::Counts DiskCache::getCounts() { return {numFound, numMade}; }

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// What stands before the bytes that are kept: that they are ours, whole and as they were.
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

/// The name of what is kept of an input. A length before each part tells where it ends.
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

/// Whether `use` takes the bytes of a file that is whole.
static bool take(StringRef file, llvm::function_ref<bool(StringRef)> use) {
  StringRef header = file.take_front(makeHeader("").size()), bytes = file.drop_front(header.size());
  return header == makeHeader(bytes) && use(bytes);
}

/// Reads what is kept for a key: whether there was something, and `use` took it. What is damaged
/// goes.
static Expected<bool> read(StringRef folder, StringRef key,
                           llvm::function_ref<bool(StringRef)> use) {
  std::unique_ptr<llvm::MemoryBuffer> found;
  auto cache = llvm::localCache(
      kCacheName, kCacheName, folder,
      [&](unsigned, const llvm::Twine &, std::unique_ptr<llvm::MemoryBuffer> buffer) {
        found = std::move(buffer);
      });
  if (!cache)
    return cache.takeError();
  Expected<llvm::AddStreamFn> missing = (*cache)(/*Task=*/0, key, kCacheName);
  if (!missing)
    return missing.takeError();
  if (!found)
    return false;
  if (take(found->getBuffer(), use))
    return true;
  fs::remove(folder + "/llvmcache-" + key);
  return false;
}

/// Keeps bytes under a key, in place of none.
static Error write(StringRef folder, StringRef key, StringRef bytes) {
  if (Error error = makeFolder(folder))
    return error;
  auto cache = llvm::localCache(kCacheName, kCacheName, folder);
  if (!cache)
    return cache.takeError();
  Expected<llvm::AddStreamFn> addStream = (*cache)(/*Task=*/0, key, kCacheName);
  if (!addStream)
    return addStream.takeError();
  // Another process was quicker.
  if (!*addStream)
    return Error::success();
  auto stream = (*addStream)(/*Task=*/0, kCacheName);
  if (!stream)
    return stream.takeError();
  auto &file = static_cast<llvm::raw_fd_ostream &>(*(*stream)->OS);
  file << makeHeader(bytes) << bytes;
  file.flush();
  std::error_code failure = file.error();
  // LLVM ends the process for an error that nobody has seen.
  file.clear_error();
  Error error = (*stream)->commit();
  if (!failure)
    return error;
  llvm::consumeError(std::move(error));
  fs::remove(folder + "/llvmcache-" + key);
  return makeError(failure.message());
}

namespace {
/// The right to compile for a key, which one thread of all processes has at a time. The system
/// takes it back from a process that ends without a word. (llvm::LockFileManager removes the file
/// of a lock that it could not read, also where another process has made it meanwhile: of two that
/// began at once both had the lock.)
class KeyLock {
public:
  explicit KeyLock(std::string path) : path(std::move(path)) {}
  KeyLock(const KeyLock &) = delete;
  ~KeyLock() {
    if (file < 0)
      return;
    fs::remove(path);
    close(file);
  }

  /// Whether it is ours now.
  Expected<bool> tryToTake() {
    int opened;
    if (std::error_code error =
            fs::openFile(path, opened, fs::CD_OpenAlways, fs::FA_Read | fs::FA_Write, fs::OF_None,
                         fs::owner_read | fs::owner_write))
      return llvm::errorCodeToError(error);
    std::error_code error;
    if (flock(opened, LOCK_EX | LOCK_NB))
      error = llvm::errnoAsErrorCode();
    // Who had it removes the file before it can be locked again.
    fs::file_status ours, named;
    bool isGone = !error && (fs::status(opened, ours) || fs::status(path, named) ||
                             ours.getUniqueID() != named.getUniqueID());
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
  std::string path;
  int file = -1;
};
} // namespace

/// Waits for a lock, as long as `isDone` is false and not for ever: whether it is done.
static Expected<bool> waitFor(KeyLock &lock, llvm::function_ref<bool()> isDone) {
  auto end = std::chrono::steady_clock::now() + kMaxWait;
  while (true) {
    Expected<bool> isOurs = lock.tryToTake();
    if (!isOurs)
      return isOurs.takeError();
    // Also where it is ours: who had it before us made it, or could not.
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
  auto isKept = [&] {
    // What cannot be read cannot be kept either, which is said then.
    Expected<bool> found = read(folder, key, use);
    bool isFound = found ? *found : (llvm::consumeError(found.takeError()), false);
    numFound += isFound;
    return isFound;
  };
  if (isKept())
    return;
  auto warnOfKeeping = [&](Error error) {
    warn("cannot keep compiled code in '" + folder + "'", llvm::toString(std::move(error)));
  };
  if (Error error = makeFolder(folder)) {
    warnOfKeeping(std::move(error));
    makeNew();
    return;
  }
  KeyLock lock(folder + "/" + key + ".lock");
  Expected<bool> isDone = waitFor(lock, isKept);
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
  if (Error error = write(folder, key, *bytes)) {
    warnOfKeeping(std::move(error));
    return;
  }
  llvm::CachePruningPolicy policy;
  policy.Interval = std::chrono::seconds(0);
  policy.Expiration = kExpiration;
  policy.MaxSizeBytes = maxBytes;
  llvm::pruneCache(folder, policy);
}
