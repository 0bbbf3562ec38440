//===- TrustedFolder.cpp --------------------------------------------------===//

#include "flashattn/Support/TrustedFolder.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <unistd.h>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

static Error makeError(std::error_code code) {
  return llvm::createStringError(code, code.message().c_str());
}
static Error makeSystemError() { return makeError(llvm::errnoAsErrorCode()); }

template <typename... Args> static Error distrust(const char *format, Args &&...args) {
  return llvm::createStringError(std::make_error_code(std::errc::operation_not_permitted),
                                 llvm::formatv(format, std::forward<Args>(args)...).str().c_str());
}

namespace {
/// A descriptor that is closed unless it is released.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() { reset(-1); }
  void reset(int other) {
    if (number >= 0)
      close(number);
    number = other;
  }
  int get() const { return number; }
  int release() { return std::exchange(number, -1); }

private:
  int number;
};
} // namespace

std::optional<LoadedCode> LoadedCode::find(StringRef path) {
  LoadedCode code;
  if (stat(path.str().c_str(), &code.file) ||
      stat(path::parent_path(path).str().c_str(), &code.folder))
    return std::nullopt;
  return code;
}

//===----------------------------------------------------------------------===//
// Owners and permissions
//===----------------------------------------------------------------------===//

/// Accepts root, the user, and the owner of `code`.
static Error checkOwner(const struct stat &status, StringRef what,
                        const std::optional<LoadedCode> &code) {
  llvm::SmallVector<uid_t, 3> owners = {geteuid()};
  for (uid_t owner : {uid_t(0), code ? code->file.st_uid : uid_t(0)})
    if (!llvm::is_contained(owners, owner))
      owners.push_back(owner);
  if (llvm::is_contained(owners, status.st_uid))
    return Error::success();
  return distrust(
      "expected a {0} of user {1} but got one of user {2}", what,
      llvm::join(llvm::map_range(owners, [](uid_t owner) { return std::to_string(owner); }),
                 " or "),
      status.st_uid);
}

static std::string formatMode(const struct stat &status) {
  return llvm::formatv("{0}", llvm::format("%04o", unsigned(status.st_mode & 07777))).str();
}

Error TrustedFolder::check(const struct stat &status, bool isFolder) const {
  StringRef what = isFolder ? "folder" : "file";
  if (isFolder ? !S_ISDIR(status.st_mode) : !S_ISREG(status.st_mode))
    return distrust("expected a {0} but got something else", what);
  if (Error error = checkOwner(status, what, code))
    return error;
  mode_t writers = status.st_mode & kOthersWrite;
  // A sticky bit is sufficient for callers that only read: others cannot replace files here, and
  // files of other owners are rejected.
  if (isFolder && code && status.st_mode & S_ISVTX)
    writers = 0;
  if (isBeside) {
    const struct stat &like = isFolder ? code->folder : code->file;
    writers &= ~(like.st_mode & (like.st_gid == status.st_gid ? kOthersWrite : S_IWOTH));
  }
  if (!writers)
    return Error::success();
  return distrust("expected a {0} that only its owner may write to but got mode {1}", what,
                  formatMode(status));
}

/// Checks a parent folder. With a sticky bit, other users cannot rename or remove the next
/// component, which is checked next.
static Error checkParent(const struct stat &status, StringRef name,
                         const std::optional<LoadedCode> &code) {
  if (Error error = checkOwner(status, "folder", code))
    return distrust("parent folder '{0}': {1}", name, llvm::toString(std::move(error)));
  if (!(status.st_mode & kOthersWrite) || status.st_mode & S_ISVTX)
    return Error::success();
  return distrust(
      "parent folder '{0}': expected a folder that only its owner may write to, or one with "
      "a sticky bit, but got mode {1}",
      name, formatMode(status));
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

/// Splits a path into the part that exists, with links resolved, and the names of the missing
/// components.
static Error resolve(StringRef path, llvm::SmallString<256> &resolved,
                     llvm::SmallVector<std::string> &missing) {
  llvm::SmallString<256> there(path);
  if (std::error_code error = fs::make_absolute(there))
    return makeError(error);
  while (std::error_code error = fs::real_path(there, resolved)) {
    if (error != std::errc::no_such_file_or_directory)
      return makeError(error);
    missing.insert(missing.begin(), path::filename(there).str());
    path::remove_filename(there);
  }
  return Error::success();
}

Expected<std::optional<TrustedFolder>> TrustedFolder::open(StringRef path, IfMissing ifMissing,
                                                           std::optional<LoadedCode> code) {
  llvm::SmallString<256> resolved;
  llvm::SmallVector<std::string> missing;
  if (Error error = resolve(path, resolved, missing))
    return std::move(error);
  if (!missing.empty() && ifMissing == IfMissing::Nothing)
    return std::nullopt;
  llvm::SmallVector<std::string> names;
  for (StringRef name : llvm::make_range(path::begin(resolved), path::end(resolved)))
    if (name != "/")
      names.push_back(name.str());
  const size_t numThere = names.size();
  names.append(missing);

  // O_PATH: parent folders need not be readable.
  constexpr int kFlags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Descriptor folder(::open("/", (names.empty() ? O_RDONLY : O_PATH) | kFlags));
  llvm::SmallString<256> walked("/");
  struct stat status;
  for (size_t i = 0;; ++i) {
    if (folder.get() < 0 || fstat(folder.get(), &status))
      return makeSystemError();
    if (i == names.size())
      break;
    if (Error error = checkParent(status, walked, code))
      return std::move(error);
    const char *name = names[i].c_str();
    if (i >= numThere && mkdirat(folder.get(), name, S_IRWXU) && errno != EEXIST)
      return makeSystemError();
    path::append(walked, name);
    folder.reset(openat(folder.get(), name, (i + 1 == names.size() ? O_RDONLY : O_PATH) | kFlags));
    // The component is a file, or has become a link since `resolve`.
    if (folder.get() < 0 && (errno == ENOTDIR || errno == ELOOP) && i + 1 == names.size())
      return distrust("expected a folder but got something else");
  }
  TrustedFolder opened(folder.release(), code, /*isBeside=*/false);
  if (Error error = opened.check(status, /*isFolder=*/true))
    return std::move(error);
  return std::move(opened);
}

Expected<TrustedFolder> TrustedFolder::openBeside(StringRef path, const LoadedCode &code) {
  Descriptor folder(::open(path.str().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (folder.get() < 0 || fstat(folder.get(), &status))
    return makeSystemError();
  TrustedFolder opened(folder.release(), code, /*isBeside=*/true);
  if (Error error = opened.check(status, /*isFolder=*/true))
    return std::move(error);
  return std::move(opened);
}

TrustedFolder::~TrustedFolder() {
  if (descriptor >= 0)
    close(descriptor);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<llvm::MemoryBuffer>> TrustedFolder::read(StringRef name) const {
  // O_NONBLOCK: opening a FIFO would wait for a writer.
  Descriptor file(openat(descriptor, name.str().c_str(),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT)
    return nullptr;
  if (file.get() < 0 && errno == ELOOP)
    return distrust("expected a file but got a link");
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status))
    return makeSystemError();
  if (Error error = check(status, /*isFolder=*/false))
    return std::move(error);
  auto buffer = llvm::MemoryBuffer::getOpenFile(file.get(), name, status.st_size,
                                                /*RequiresNullTerminator=*/false);
  if (!buffer)
    return makeError(buffer.getError());
  return std::move(*buffer);
}

Error TrustedFolder::write(StringRef name, llvm::ArrayRef<StringRef> pieces) const {
  std::string unfinished;
  Descriptor file(-1);
  do {
    unfinished =
        llvm::formatv("{0}.{1:x-}{2}", name, llvm::sys::Process::GetRandomNumber(), kUnfinished);
    file.reset(openat(descriptor, unfinished.c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  } while (file.get() < 0 && errno == EEXIST);
  if (file.get() < 0)
    return makeSystemError();
  std::error_code failure;
  {
    llvm::raw_fd_ostream stream(file.get(), /*shouldClose=*/false, /*unbuffered=*/true);
    for (StringRef piece : pieces)
      stream << piece;
    failure = stream.error();
    // LLVM terminates the process if a stream is destroyed with an uncleared error.
    stream.clear_error();
  }
  if (!failure && renameat(descriptor, unfinished.c_str(), descriptor, name.str().c_str()))
    failure = llvm::errnoAsErrorCode();
  if (!failure)
    return Error::success();
  remove(unfinished);
  return makeError(failure);
}

void TrustedFolder::remove(StringRef name) const {
  unlinkat(descriptor, name.str().c_str(), /*flags=*/0);
}
