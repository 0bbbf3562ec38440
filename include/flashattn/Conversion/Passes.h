//===- Passes.h - from tile programs to each target --------------*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_PASSES_H
#define FLASHATTN_CONVERSION_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace mlir::flashattn {

#define GEN_PASS_DECL
#include "flashattn/Conversion/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "flashattn/Conversion/Passes.h.inc"

} // namespace mlir::flashattn

#endif // FLASHATTN_CONVERSION_PASSES_H
