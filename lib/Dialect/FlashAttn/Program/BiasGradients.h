//===- BiasGradients.h - gradients of a bias and of sinks --------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H

#include "ScoreGradients.h"

namespace mlir::flashattn {

/// The programs of `d_bias` (B5), if `op` asks for it. Each element is made by one program, which
/// goes over all that it is a sum of, so that there is no workspace for scores and one order of a
/// sum. Only where a bias is broadcast along queries and keys is there room for an f32 a query.
void buildBiasGradient(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                       const QuerySums &sums);

/// The programs of `d_sink_logits` (B3), if `op` asks for it.
void buildSinkGradient(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                       const QuerySums &sums);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BIASGRADIENTS_H
