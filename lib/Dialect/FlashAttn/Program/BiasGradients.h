//===- BiasGradients.h - gradients of a bias and of sink logits -*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H

#include "ScoreGradients.h"

namespace mlir::flashattn {

/// Builds the programs of `d_bias` (B5), if `op` has it. One program computes each element and
/// iterates over all summands, so that there is no workspace for scores and the order of a sum is
/// fixed. Only if a bias is broadcast along queries and keys is there a workspace of an f32 per
/// query.
void buildBiasGradient(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                       const QuerySums &sums);

/// Builds the programs of `d_sink_logits` (B3), if `op` has it.
void buildSinkGradient(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                       const QuerySums &sums);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H
