//===- ProgramOutlining.h - outlining of a program --------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::flashattn::cpu {

/// Creates a private function `(context: !llvm.ptr, i: i64)` and, before `program`, a call of
/// `flashattnParallelFor` that runs the function for every point of the program's sizes. The
/// function unpacks captured values from the context and program indices from i, and adds both to
/// `mapping`. Its body ends there; the caller adds the program's ops. Along the last dimension,
/// programs run in descending order: under a causal mask the longest run first. Returns failure
/// after an error at the program if it is outside a function or captures a value whose type LLVM
/// lacks.
FailureOr<func::FuncOp> outlineProgram(ProgramOp program, SymbolTable &symbols, IRMapping &mapping);

/// Returns the number of threads that run programs.
Value countThreads(OpBuilder &b, Location loc, SymbolTable &symbols);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
