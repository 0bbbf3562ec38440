//===- Passes.h - passes on the flashattn dialect ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_PASSES_H
#define FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_PASSES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Pass/Pass.h"

namespace mlir::flashattn {

#define GEN_PASS_DECL
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "flashattn/Dialect/FlashAttn/Transforms/Passes.h.inc"

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_TRANSFORMS_PASSES_H
