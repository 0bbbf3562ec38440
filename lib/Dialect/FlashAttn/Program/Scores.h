//===- Scores.h - the scores of a tile, in their one place -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// Where a tile of scores lies: queries along its rows, keys along its columns. Index values.
struct ScorePlace {
  Value batch, head;   ///< query head
  Value queryTile;     ///< of as many rows as the tile has positions
  Value keyTile;       ///< of as many columns
  Value position;      ///< of the first query
  Value key;           ///< the first
  Value queries, keys; ///< that exist
};

/// Makes the scores of vector<MxN> tiles of one attention: rules A1 and A2 up to the mask, and M7.
/// Whatever else shapes a score belongs here.
class ScoreBuilder : TileBuilder {
public:
  /// Rows are those of the positions that `rows` says. `fullTilesKeep`: in full tiles `keep` hides
  /// nothing, as where key tiles are listed.
  ScoreBuilder(OpBuilder &b, AttentionOp op, RowPattern rows, bool fullTilesKeep);

  /// q k^T, vector<MxN>.
  Value multiply(Value q, Value k) const;
  /// The scores before the factor `getFactor()`, -inf where a pair is hidden; `products` are of
  /// `multiply`, inside of a loop over tiles.
  Value shape(Value products, const ScorePlace &at) const;
  /// What takes scores to exponents of 2: the factor that they still lack when they meet the mask,
  /// times log2 e.
  Factor getFactor() const;

private:
  /// A1.
  Factor getScale() const;
  Value load(Value memref, const ScorePlace &at) const;
  Value mask(Value scores, const ScorePlace &at) const;

  mutable AttentionOp op; ///< a handle, whose accessors are not const
  int64_t m, n;
  RowPattern rows;
  bool fullTilesKeep;
  SmallVector<IntegerSet> visible;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
