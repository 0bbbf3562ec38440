//===- LoadedFile.h - the file that code was loaded from --------*- C++ -*-===//

#ifndef FLASHATTN_LIB_RUNTIME_LOADEDFILE_H
#define FLASHATTN_LIB_RUNTIME_LOADEDFILE_H

#include <string>

namespace mlir::flashattn {

/// The path of the file, a library or the program itself, that `code` was loaded from.
std::string getLoadedFile(const void *code);

/// What tells that file from every other build of it: what the linker computed of its contents, or
/// a hash of them.
std::string getBuildId(const void *code);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_RUNTIME_LOADEDFILE_H
