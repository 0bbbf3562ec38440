//===- CubinArchive.cpp ----------------------------------------------------===//

#include "flashattn/Runtime/CubinArchive.h"
#include "Errors.h"
#include "LoadedFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Object/Archive.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/SHA256.h"

#include <atomic>

using namespace mlir::flashattn;
using llvm::Error;
using llvm::StringRef;

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr StringRef kFileName = "flashattn-cubins.a";

static std::atomic<int64_t> numFound;

int64_t CubinArchive::getNumFound() { return numFound; }

/// Where this process has its archive; "" where it has none.
static std::string findFile() {
  llvm::SmallString<128> loaded;
  if (fs::real_path(getLoadedFile(reinterpret_cast<void *>(&findFile)), loaded))
    return "";
  StringRef folder = path::parent_path(loaded);
  llvm::SmallString<128> beside(folder), inLib(path::parent_path(folder));
  path::append(beside, kFileName);
  path::append(inLib, "lib", kFileName);
  return fs::exists(beside) ? beside.str().str() : fs::exists(inLib) ? inLib.str().str() : "";
}

/// The members of an archive by their names.
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

CubinArchive::CubinArchive(std::string named) : path(std::move(named)) {
  if (path.empty()) {
    offReason = ("there is no " + kFileName + " beside the library").str();
    return;
  }
  auto read = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!read) {
    offReason = read.getError().message();
    return;
  }
  file = std::move(*read);
  if (Error error = readMembers(*file, cubins)) {
    offReason = llvm::toString(std::move(error));
    cubins.clear();
  }
}

const CubinArchive &CubinArchive::get() {
  static const CubinArchive archive = [] {
    std::string given = llvm::sys::Process::GetEnv("FLASHATTN_CUBINS").value_or("");
    if (given == "0" || given == "off") {
      CubinArchive none("");
      none.offReason = "FLASHATTN_CUBINS=" + given;
      return none;
    }
    CubinArchive found(given.empty() ? findFile() : given);
    if (!found.path.empty() && !found.offReason.empty())
      std::fprintf(stderr,
                   "flashattn: warning: the driver compiles every kernel, for '%s' cannot be read: "
                   "%s\n",
                   found.path.c_str(), found.offReason.c_str());
    return found;
  }();
  return archive;
}

StringRef CubinArchive::find(StringRef ptx) const {
  if (cubins.empty())
    return "";
  StringRef found = cubins.lookup(
      llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(ptx)), /*LowerCase=*/true));
  numFound += !found.empty();
  return found;
}
