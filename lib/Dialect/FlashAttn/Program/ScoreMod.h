//===- ScoreMod.h - score modifications on whole tiles -----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Error at the first op of `score_mod` that has no form on vectors.
LogicalResult verifyScoreModVectorizes(AttentionOp op);

/// The score modification of `op` on `scores`, vector<MxNxf32>: element (i, j) is of the query at
/// position p0 + i and of key k0 + j. `batch`, `head`, `p0` and `k0` are index values. Each op runs
/// at the smallest shape that holds its result: scalars, vector<Mx1>, vector<1xN> or vector<MxN>.
Value applyScoreMod(OpBuilder &b, AttentionOp op, Value scores, Value batch, Value head, Value p0,
                    Value k0);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
