//===- ProgramOutlining.h - a function of one program ------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::flashattn::cpu {

/// Makes a private function `(context: !llvm.ptr, i: i64)` and, before `forall`, a call
/// of `flashattnParallelFor` that runs it for every point of the forall. The function
/// unpacks what the forall captures and its induction variables from i, and maps them in
/// `mapping`; its body ends there, without what the forall does. Along the last dimension
/// programs run from the highest index down: with a causal mask the longest come first.
FailureOr<func::FuncOp> outlineProgram(scf::ForallOp forall, SymbolTable &symbols,
                                       IRMapping &mapping);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_PROGRAMOUTLINING_H
