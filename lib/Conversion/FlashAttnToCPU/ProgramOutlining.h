//===- ProgramOutlining.h - a function of one program ------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::flashattn::cpu {

/// Makes a private function `(context: !llvm.ptr, i: i64)` and, before `program`, a call
/// of `flashattnParallelFor` that runs it for every point of the program's sizes. The function
/// unpacks what the program captures and its numbers from i, and maps them in `mapping`; its body
/// ends there, without what the program does. Along the last dimension programs run from the
/// highest number down: with a causal mask the longest come first. Errors, at the program: outside
/// of a function, captured values that LLVM does not know.
FailureOr<func::FuncOp> outlineProgram(ProgramOp program, SymbolTable &symbols, IRMapping &mapping);

/// The number of threads that programs run on.
Value countThreads(OpBuilder &b, Location loc, SymbolTable &symbols);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
