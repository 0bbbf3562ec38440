//===- LibrarySymbols.h - the C library's functions, by name -----*- C++ -*-===//

#ifndef FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H
#define FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace mlir::flashattn {

/// All functions of the C library and of the compiler's that LLVM may make calls of: of operations
/// of `math` and `arith`, of copies of memory, of `cf.assert`. Compiled code reaches no others.
void visitLibrarySymbols(llvm::function_ref<void(llvm::StringRef name, void *address)> visit);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H
