//===- OutputFile.cpp -----------------------------------------------------===//

#include "flashattn/Support/OutputFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <optional>
#include <unistd.h>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::Expected;
using llvm::SmallString;
using llvm::StringRef;

namespace fs = llvm::sys::fs;

static Error failToWrite(StringRef path, std::error_code code) {
  std::string name = path == "-" ? "standard output" : ("'" + path + "'").str();
  return llvm::createStringError("cannot write " + name + ": " + code.message());
}
static Error failToWrite(StringRef path, Error error) {
  return failToWrite(path, llvm::errorToErrorCode(std::move(error)));
}

bool mlir::flashattn::isStream(StringRef path) {
  fs::file_status status;
  return !fs::status(path, status) && status.type() != fs::file_type::regular_file &&
         status.type() != fs::file_type::directory_file;
}

Error mlir::flashattn::checkInputFile(StringRef path) {
  fs::file_status status;
  if (path == "-" || fs::status(path, status) || status.type() != fs::file_type::character_file ||
      path == "/dev/null")
    return Error::success();
  int descriptor = open(path.str().c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  bool isTerminal = descriptor >= 0 && isatty(descriptor);
  if (descriptor >= 0)
    close(descriptor);
  if (isTerminal)
    return Error::success();
  return llvm::createStringError("expected a file but got the device '" + path + "'");
}

//===----------------------------------------------------------------------===//
// Resolution of paths
//===----------------------------------------------------------------------===//

namespace {
/// The target of a path. Exactly one of `file`, `descriptor` and `isStream` is set.
struct Place {
  std::string file;              ///< path of a regular file, which may not exist yet
  std::optional<int> descriptor; ///< an open descriptor of this process
  bool isStream = false;
  /// Permissions of `file`, if it exists.
  std::optional<fs::perms> permissions;
};
} // namespace

/// Returns the number of a descriptor of this process if `path` names one.
static std::optional<int> getDescriptor(StringRef path) {
  int number;
  if ((path.consume_front("/proc/self/fd/") || path.consume_front("/dev/fd/")) &&
      !path.getAsInteger(10, number))
    return number;
  return std::nullopt;
}

/// Resolves a path. Errors: a folder, or a file that may not be written to.
static llvm::ErrorOr<Place> follow(StringRef path) {
  if (path == "-")
    return Place{"", STDOUT_FILENO};
  SmallString<256> at(path);
  // Linux follows at most 40 links.
  for (int links = 0; links < 40; ++links) {
    // Opening the path again would overwrite a file that others write to, and fails for a socket.
    if (std::optional<int> descriptor = getDescriptor(at))
      return Place{"", descriptor};
    char link[4096];
    ssize_t length = readlink(at.c_str(), link, sizeof(link));
    if (length < 0)
      break;
    StringRef next(link, length);
    if (llvm::sys::path::is_relative(next)) {
      llvm::sys::path::remove_filename(at);
      llvm::sys::path::append(at, next);
    } else {
      at = next;
    }
  }
  fs::file_status status;
  std::error_code code = fs::status(at, status);
  if (code == std::errc::no_such_file_or_directory)
    return Place{at.str().str(), std::nullopt};
  if (code)
    return code;
  if (status.type() == fs::file_type::directory_file)
    return std::make_error_code(std::errc::is_a_directory);
  if (status.type() != fs::file_type::regular_file)
    return Place{"", std::nullopt, /*isStream=*/true};
  if ((code = fs::access(at, fs::AccessMode::Write)))
    return code;
  return Place{at.str().str(), std::nullopt, /*isStream=*/false, status.permissions()};
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static std::error_code print(int descriptor, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  llvm::raw_fd_ostream stream(descriptor, /*shouldClose=*/false);
  write(stream);
  stream.flush();
  std::error_code code = stream.error();
  stream.clear_error();
  return code;
}

/// Writes directly to a descriptor or a stream, without a temporary file.
static std::error_code printTo(const Place &place, StringRef path,
                               llvm::function_ref<void(llvm::raw_ostream &)> write) {
  if (place.descriptor) {
    // Earlier output must come first.
    llvm::outs().flush();
    return print(*place.descriptor, write);
  }
  int descriptor = open(path.str().c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0)
    return llvm::errnoAsErrorCode();
  std::error_code code = print(descriptor, write);
  // A network file system may report failed writes only now.
  if (close(descriptor) && !code)
    code = llvm::errnoAsErrorCode();
  return code;
}

static Expected<fs::TempFile> createScratch() {
  SmallString<128> model;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, model);
  llvm::sys::path::append(model, "flashattn-%%%%%%%%");
  return fs::TempFile::create(model, fs::owner_read | fs::owner_write);
}

static Expected<fs::TempFile> createBeside(const Place &place) {
  Expected<fs::TempFile> file =
      fs::TempFile::create(place.file + ".temp-%%%%%%", 0666 & ~fs::getUmask());
  if (file && place.permissions)
    if (std::error_code code = fs::setPermissions(file->FD, *place.permissions)) {
      llvm::consumeError(file->discard());
      return llvm::errorCodeToError(code);
    }
  return file;
}

Expected<ScratchFile> ScratchFile::create(StringRef content) {
  Expected<fs::TempFile> file = createScratch();
  if (!file)
    return llvm::createStringError("cannot make a temporary file: " +
                                   llvm::toString(file.takeError()));
  ScratchFile scratch(std::move(*file));
  if (std::error_code code = print(scratch.file.FD, [&](llvm::raw_ostream &os) { os << content; }))
    return failToWrite(scratch.getPath(), code);
  return scratch;
}

ScratchFile::~ScratchFile() { llvm::consumeError(file.discard()); }

OutputFiles::~OutputFiles() {
  for (File &file : files)
    llvm::consumeError(file.temporary.discard());
}

Error OutputFiles::write(StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  llvm::ErrorOr<Place> place = follow(path);
  if (!place)
    return failToWrite(path, place.getError());
  if (place->file.empty()) {
    std::error_code code = printTo(*place, path, write);
    return code ? failToWrite(path, code) : Error::success();
  }
  Expected<fs::TempFile> temporary = createBeside(*place);
  if (!temporary)
    return failToWrite(path, temporary.takeError());
  files.push_back({path.str(), place->file, std::move(*temporary)});
  std::error_code code = print(files.back().temporary.FD, write);
  return code ? failToWrite(path, code) : Error::success();
}

Expected<std::string> OutputFiles::create(StringRef path) {
  llvm::ErrorOr<Place> place = follow(path);
  if (!place)
    return failToWrite(path, place.getError());
  Expected<fs::TempFile> temporary = place->file.empty() ? createScratch() : createBeside(*place);
  if (!temporary)
    return failToWrite(path, temporary.takeError());
  files.push_back({path.str(), place->file, std::move(*temporary)});
  return files.back().temporary.TmpName;
}

/// Copies a temporary file to a descriptor or a stream.
static std::error_code copyTo(const Place &place, StringRef path, StringRef temporary) {
  auto content = llvm::MemoryBuffer::getFile(temporary, /*IsText=*/false,
                                             /*RequiresNullTerminator=*/false);
  if (!content)
    return content.getError();
  return printTo(place, path, [&](llvm::raw_ostream &os) { os << (*content)->getBuffer(); });
}

Error OutputFiles::keep() {
  while (!files.empty()) {
    File file = std::move(files.back());
    files.pop_back();
    std::error_code code;
    if (file.target.empty()) {
      llvm::ErrorOr<Place> place = follow(file.path);
      code = place ? copyTo(*place, file.path, file.temporary.TmpName) : place.getError();
      llvm::consumeError(file.temporary.discard());
    } else if (Error error = file.temporary.keep(file.target)) {
      code = llvm::errorToErrorCode(std::move(error));
      llvm::consumeError(file.temporary.discard());
    }
    if (code)
      return failToWrite(file.path, code);
  }
  return Error::success();
}

Error mlir::flashattn::writeOutputFile(StringRef path,
                                       llvm::function_ref<void(llvm::raw_ostream &)> write) {
  OutputFiles file;
  if (Error error = file.write(path, write))
    return error;
  return file.keep();
}

Error mlir::flashattn::writeStandardOutput(int descriptor,
                                           llvm::function_ref<void(llvm::raw_ostream &)> write) {
  std::error_code code = print(descriptor, write);
  return code ? failToWrite("-", code) : Error::success();
}
