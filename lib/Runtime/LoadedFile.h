//===- LoadedFile.h - the file that code was loaded from --------*- C++ -*-===//

#ifndef FLASHATTN_LIB_RUNTIME_LOADEDFILE_H
#define FLASHATTN_LIB_RUNTIME_LOADEDFILE_H

#include <string>

namespace mlir::flashattn {

/// Returns the path of the library, or of the program itself, from which `code` was loaded.
std::string getLoadedFile(const void *code);

/// Returns an id that no other build of that file has: the linker's build id, or a hash of the
/// content.
std::string getBuildId(const void *code);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_RUNTIME_LOADEDFILE_H
