//===- LoadedFile.cpp -----------------------------------------------------===//

#include "LoadedFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

using namespace mlir;
using llvm::StringRef;

namespace {
/// The dynamic linker's information about the file from which code at an address was loaded.
struct LoadedFile {
  uintptr_t address;
  std::string path, buildId;

  static LoadedFile find(const void *code) {
    LoadedFile file{reinterpret_cast<uintptr_t>(code), "", ""};
    dl_iterate_phdr(visit, &file);
    return file;
  }

private:
  static int visit(dl_phdr_info *info, size_t, void *user) {
    auto *file = static_cast<LoadedFile *>(user);
    llvm::ArrayRef headers(info->dlpi_phdr, info->dlpi_phnum);
    auto getStart = [&](auto &header) { return info->dlpi_addr + header.p_vaddr; };
    if (llvm::none_of(headers, [&](auto &header) {
          return header.p_type == PT_LOAD && file->address >= getStart(header) &&
                 file->address - getStart(header) < header.p_memsz;
        }))
      return 0;
    // The program itself has no name.
    file->path = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
    for (auto &header : headers)
      if (header.p_type == PT_NOTE)
        file->readNotes(reinterpret_cast<const char *>(getStart(header)), header.p_memsz);
    return 1;
  }
  /// Finds the build id in notes, whose names and contents are each padded to 4 bytes.
  void readNotes(const char *at, size_t size) {
    for (const char *end = at + size; size_t(end - at) >= sizeof(ElfW(Nhdr));) {
      auto &note = *reinterpret_cast<const ElfW(Nhdr) *>(at);
      const char *name = at + sizeof(note), *content = name + llvm::alignTo(note.n_namesz, 4);
      if (note.n_type == NT_GNU_BUILD_ID && StringRef(name, note.n_namesz) == StringRef("GNU\0", 4))
        buildId.assign(content, note.n_descsz);
      at = content + llvm::alignTo(note.n_descsz, 4);
    }
  }
};
} // namespace

std::string flashattn::getLoadedFile(const void *code) { return LoadedFile::find(code).path; }

std::string flashattn::getBuildId(const void *code) {
  LoadedFile file = LoadedFile::find(code);
  if (!file.buildId.empty())
    return file.buildId;
  auto contents = llvm::MemoryBuffer::getFile(file.path, /*IsText=*/false,
                                              /*RequiresNullTerminator=*/false);
  // Then no two processes have the same id.
  if (!contents)
    return std::to_string(getpid());
  return std::to_string(llvm::xxh3_64bits((*contents)->getBuffer()));
}
