//===- ScoreMod.h - score modifications on whole tiles ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Emits an error at the first op of `score_mod` that has no vector form.
LogicalResult verifyScoreModVectorizes(AttentionOpInterface op);

/// B6: emits an error at the first op of `score_mod` between its score and its result that has no
/// derivative.
LogicalResult verifyScoreModHasDerivative(AttentionOpInterface op);

/// The arguments of a score modification other than the score, as index values.
struct ScoreModPlace {
  Value batch, head;
  Value position; ///< position of the tile's first query
  Value key;      ///< the tile's first key
};

/// Applies the score modification of `op` to `scores`, f32. Element (i, j) has the query at
/// position p0 + i and the key k0 + j or, if `columns` are the queries, vice versa. Each op runs at
/// the smallest shape that holds its result: a scalar, one row, one column or the whole tile.
///
/// With `slope`, the derivative is computed, too. `*slope` is the derivative of `scores`, and is
/// replaced by that of the result: a tile like `scores`, or null for 1.
Value applyScoreMod(OpBuilder &b, AttentionOpInterface op, Value scores, const ScoreModPlace &at,
                    TileAxis columns, Value *slope = nullptr);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREMOD_H
