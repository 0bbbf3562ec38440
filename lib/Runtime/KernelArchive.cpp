//===- KernelArchive.cpp ----------------------------------------------------===//

#include "flashattn/Runtime/KernelArchive.h"
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

static constexpr StringRef kFileName = "flashattn-kernels.a";

static std::atomic<int64_t> numFound;

int64_t KernelArchive::getNumFound() { return numFound; }

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

KernelArchive::KernelArchive(std::string named) : path(std::move(named)) {
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
  if (Error error = readMembers(*file, members)) {
    offReason = llvm::toString(std::move(error));
    members.clear();
  }
}

const KernelArchive &KernelArchive::get() {
  static const KernelArchive archive = [] {
    std::string given = llvm::sys::Process::GetEnv("FLASHATTN_KERNELS").value_or("");
    if (given == "0" || given == "off") {
      KernelArchive none("");
      none.offReason = "FLASHATTN_KERNELS=" + given;
      return none;
    }
    KernelArchive found(given.empty() ? findFile() : given);
    if (!found.path.empty() && !found.offReason.empty())
      std::fprintf(stderr,
                   "flashattn: warning: every kernel is compiled, for '%s' cannot be read: "
                   "%s\n",
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
