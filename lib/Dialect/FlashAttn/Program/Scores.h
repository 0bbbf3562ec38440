//===- Scores.h - the scores of a tile, in their one place -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H

#include "CompactKeys.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// Where a tile of scores lies. Index values.
struct ScorePlace {
  Value batch, head;   ///< query head
  Value queryTile;     ///< of as many queries as the tile has positions
  Value keyTile;       ///< of as many as the tile has keys
  Value position;      ///< of the first query
  Value key;           ///< the first or, of compacted keys, its place in the sequence
  Value queries, keys; ///< that exist
  const CompactKeys *joined = nullptr;
};

/// B6: how a tile of shaped scores, where it is not hidden, changes with its products: by `slope`
/// times `factor` each.
struct ScoreDerivative {
  Value slope;   ///< as the tile, f32; null where it is 1 throughout
  Factor factor; ///< the scale (A1), which a sum over the tile may take once
};

/// Makes the scores of tiles of one attention, M rows and N columns of its schedule: rules A1 and
/// A2 up to the mask, and M7. Whatever else shapes a score belongs here.
///
/// Rows are queries and columns keys, or with `columns` the queries the other way round. Everything
/// below is of such a tile, vector<MxN>.
class ScoreBuilder : TileBuilder {
public:
  /// Queries are at the positions that `pattern` says. `fullTilesKeep`: in full tiles `keep` hides
  /// nothing, as where key tiles are listed. `isExact`: f32 throughout, whatever the operands keep.
  ScoreBuilder(OpBuilder &b, AttentionOpInterface op, TileAxis columns, RowPattern pattern,
               bool fullTilesKeep, bool isExact = false);

  /// Each query of q, rows of D elements, times each key of k; added to `from`, of `getTileType`,
  /// where that is given.
  Value multiply(Value q, Value k, Value from = {}) const;
  /// Of the scores of a tile.
  VectorType getTileType(Type element) const;
  /// The scores before the factor `getFactor()`, -inf where a pair is hidden; `products` are of
  /// `multiply`, inside of a loop over tiles. With `derivative` it is set to theirs; the op's
  /// score_mod must have one then (verifyScoreModHasDerivative).
  Value shape(Value products, const ScorePlace &at, ScoreDerivative *derivative = nullptr) const;
  /// What takes scores to exponents of 2: the factor that they still lack when they meet the mask,
  /// times log2 e.
  Factor getFactor() const;

private:
  /// A1.
  Factor getScale() const;
  Value load(Value memref, const ScorePlace &at) const;
  Value step(int64_t count) const;
  Value findVisible(const ScorePlace &at) const;
  Value findInMask(const ScorePlace &at) const;
  Value findQueries(const ScorePlace &at) const;

  mutable AttentionOpInterface op; ///< a handle, whose accessors are not const
  int64_t rows;
  TileAxis columns;
  int64_t queries, keys; ///< of a tile
  RowPattern pattern;
  bool fullTilesKeep, isExact;
  SmallVector<IntegerSet> visible;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
