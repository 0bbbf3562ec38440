//===- ScoreMod.h - score modifications on whole tiles -----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Error at the first op of `score_mod` that has no form on vectors.
LogicalResult verifyScoreModVectorizes(AttentionOpInterface op);

/// B6: error at the first op of `score_mod` between its score and its result that has no
/// derivative.
LogicalResult verifyScoreModHasDerivative(AttentionOpInterface op);

/// What a score modification is given beside the score; index values.
struct ScoreModPlace {
  Value batch, head;
  Value position; ///< of the tile's first query
  Value key;      ///< the tile's first
};

/// The score modification of `op` on `scores`, f32: element (i, j) is of the query at position
/// p0 + i and of key k0 + j, with `columns` the queries (j, i). Each op runs at the smallest shape
/// that holds its result: a scalar, one row, one column or the whole tile.
///
/// With `slope` its derivative comes along: `*slope` is what `scores` change by, null for 1, and
/// becomes what the result changes by, a tile like `scores` or null for 1.
Value applyScoreMod(OpBuilder &b, AttentionOpInterface op, Value scores, const ScoreModPlace &at,
                    TileAxis columns, Value *slope = nullptr);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
