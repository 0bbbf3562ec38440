//===- LibrarySymbols.h - the C library's functions, by name ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H
#define FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

namespace mlir::flashattn {

/// Visits all functions of the C library and of the compiler's support library that LLVM may call:
/// for ops of `math` and `arith`, for copies of memory, for `cf.assert`. Compiled code cannot call
/// any others.
void visitLibrarySymbols(llvm::function_ref<void(llvm::StringRef name, void *address)> visit);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_RUNTIME_LIBRARYSYMBOLS_H
