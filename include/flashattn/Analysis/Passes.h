//===- Passes.h - passes that print analysis results ------------*- C++ -*-===//

#ifndef FLASHATTN_ANALYSIS_PASSES_H
#define FLASHATTN_ANALYSIS_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mlir::flashattn {

#define GEN_PASS_DECL
#include "flashattn/Analysis/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "flashattn/Analysis/Passes.h.inc"

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_PASSES_H
