//===- KernelArchive.cpp --------------------------------------------------===//

#include "flashattn/Runtime/KernelArchive.h"
#include "Errors.h"
#include "LoadedFile.h"
#include "flashattn/Support/Environment.h"
#include "flashattn/Support/OutputFile.h"
#include "flashattn/Support/TrustedFolder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/Archive.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

#include <atomic>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::StringRef;

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr StringRef kFileName = "flashattn-kernels.a";

static std::atomic<int64_t> numFound;

int64_t KernelArchive::getNumFound() { return numFound; }

/// Returns the file from which this code was loaded, without links; "" if it is unknown.
static std::string findLoadedFile() {
  llvm::SmallString<128> loaded;
  if (fs::real_path(getLoadedFile(reinterpret_cast<void *>(&findLoadedFile)), loaded))
    return "";
  return loaded.str().str();
}

/// Returns the path of this process's archive; "" if there is none.
static std::string findFile() {
  std::string loaded = findLoadedFile();
  StringRef folder = path::parent_path(loaded);
  llvm::SmallString<128> beside(folder), inLib(path::parent_path(folder));
  path::append(beside, kFileName);
  path::append(inLib, "lib", kFileName);
  return fs::exists(beside) ? beside.str().str() : fs::exists(inLib) ? inLib.str().str() : "";
}

/// Opens an archive, whose code runs with the user's rights.
static llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> openFile(StringRef file, bool isNamed) {
  llvm::SmallString<128> resolved;
  if (std::error_code error = fs::real_path(file, resolved))
    return makeError(error.message());
  std::optional<LoadedCode> code = LoadedCode::find(findLoadedFile());
  StringRef folder = path::parent_path(resolved);
  auto read =
      [&](const TrustedFolder &opened) -> llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> {
    auto found = opened.read(path::filename(resolved));
    if (found && !*found)
      return makeError("the file does not exist any more");
    return found;
  };
  if (code && !isNamed) {
    auto opened = TrustedFolder::openBeside(folder, *code);
    return opened ? read(*opened) : opened.takeError();
  }
  auto opened = TrustedFolder::open(folder, TrustedFolder::IfMissing::Nothing, code);
  if (!opened)
    return opened.takeError();
  return *opened ? read(**opened) : makeError("the file does not exist any more");
}

/// Reads the members of an archive by their names.
static Error readMembers(llvm::MemoryBufferRef file, llvm::StringMap<StringRef> &members) {
  auto archive = llvm::object::Archive::create(file);
  if (!archive)
    return archive.takeError();
  Error error = Error::success();
  for (const llvm::object::Archive::Child &child : (*archive)->children(error)) {
    llvm::Expected<StringRef> name = child.getName();
    if (!name)
      return llvm::joinErrors(std::move(error), name.takeError());
    llvm::Expected<StringRef> bytes = child.getBuffer();
    if (!bytes)
      return llvm::joinErrors(std::move(error), bytes.takeError());
    members[*name] = *bytes;
  }
  return error;
}

KernelArchive::KernelArchive(std::string named, bool isNamed) : path(std::move(named)) {
  if (path.empty()) {
    offReason = ("there is no " + kFileName + " beside the library").str();
    return;
  }
  if (isStream(path)) {
    offReason = "expected a file but got a device or a FIFO";
    return;
  }
  auto read = openFile(path, isNamed);
  if (!read) {
    offReason = llvm::toString(read.takeError());
    return;
  }
  file = std::move(*read);
  if (Error error = readMembers(*file, members)) {
    offReason = llvm::toString(std::move(error));
    members.clear();
  }
}

const KernelArchive &KernelArchive::get() {
  static const KernelArchive archive = [] {
    PathVariable given = getPathOrSwitch("FLASHATTN_KERNELS");
    if (given.isOff) {
      KernelArchive none("");
      none.offReason = std::string("FLASHATTN_KERNELS=") + getVariable("FLASHATTN_KERNELS");
      return none;
    }
    KernelArchive found(given.path ? given.path : findFile(), /*isNamed=*/given.path != nullptr);
    if (!found.path.empty() && !found.offReason.empty())
      std::fprintf(
          stderr, "flashattn: warning: every kernel is compiled, because '%s' cannot be read: %s\n",
          found.path.c_str(), found.offReason.c_str());
    return found;
  }();
  return archive;
}

StringRef KernelArchive::find(StringRef name) const {
  StringRef found = members.lookup(name);
  numFound += !found.empty();
  return found;
}

StringRef KernelArchive::findCubin(StringRef ptx) const {
  if (members.empty())
    return "";
  auto hash = llvm::SHA256::hash(llvm::arrayRefFromStringRef(ptx));
  return find(llvm::toHex(hash, /*LowerCase=*/true) + ".cubin");
}
