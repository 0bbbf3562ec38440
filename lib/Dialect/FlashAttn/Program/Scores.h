//===- Scores.h - the scores of a tile --------------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H

#include "Sequence.h"
#include "SymbolRanges.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The location of a tile of scores, as index values.
struct ScorePlace {
  Sequence sequence;
  Value head;         ///< query head
  Value queryTile;    ///< in units of the positions of a tile
  Value keyTile;      ///< in units of the keys of a tile
  Value position;     ///< position of the first query
  Value key;          ///< the first key, counted along the sequence of the row map
  Value keyRows = {}; ///< `!flashattn.rows`; null if key r is row r of `k`
};

/// B6: the derivative of a tile of shaped scores, if visible, with respect to its products: `slope`
/// times `factor`.
struct ScoreDerivative {
  Value slope;   ///< a tile of f32; null if it is 1 everywhere
  Factor factor; ///< the scale (A1), which may be applied to a sum over tiles instead
};

/// Builds the scores of tiles of one attention op, with M rows and N columns of its schedule: rules
/// A1 and A2 up to the mask, and M7. All code that shapes scores belongs here.
///
/// Rows are queries and columns are keys or, if `columns` is Queries, vice versa. All tiles below
/// are such tiles, vector<MxN>.
class ScoreBuilder : TileBuilder {
public:
  /// `pattern` defines the positions of the queries. `fullTilesKeep`: `attn_mask` hides nothing in
  /// full tiles, as with lists of key tiles. `isExact`: f32 precision throughout, whatever the
  /// operand type.
  ScoreBuilder(OpBuilder &b, AttentionOpInterface op, TileAxis columns, RowPattern pattern,
               bool fullTilesKeep, bool isExact = false);

  /// Takes copies of symbols per key from `ranges`, if it has any.
  void useKeyRanges(const SymbolRanges &ranges) { keyRanges = &ranges; }

  /// Returns the products of each query of q, rows of D elements, and each key of k; added to
  /// `from`, of `getTileType`, if given.
  Value multiply(Value q, Value k, Value from = {}) const;
  /// Returns the type of a tile of scores.
  VectorType getTileType(Type element) const;
  /// Returns the scores before the factor `getFactor()`, -inf if a pair is hidden, inside a loop
  /// over tiles. `products` is a result of `multiply`. Sets `derivative`, if given, to that of the
  /// scores; the op's score_mod must then have one (verifyScoreModHasDerivative).
  Value shape(Value products, const ScorePlace &at, ScoreDerivative *derivative = nullptr) const;
  /// Returns the factor that converts scores to exponents of 2: the factor that the scores of
  /// `shape` still lack, times log2 e.
  Factor getFactor() const;

private:
  /// A1.
  Factor getScale() const;
  Value load(Value memref, const ScorePlace &at) const;
  Value step(int64_t count) const;
  Value findVisible(const ScorePlace &at) const;
  /// Y2: returns a symbol with a value per query or key, as `buildVisibleTile` takes it.
  Value loadSymbol(Value memref, TileAxis of, const ScorePlace &at) const;
  SmallVector<Value> loadCopies(const ScorePlace &at) const;
  SmallVector<Value> loadSymbols(const ScorePlace &at, ArrayRef<Value> copies) const;
  Value findInMask(const ScorePlace &at, ArrayRef<Value> copies) const;
  Value findQueries(const ScorePlace &at) const;

  mutable AttentionOpInterface op; ///< a handle, whose accessors are not const
  int64_t rows;
  TileAxis columns;
  int64_t queries, keys; ///< of a tile
  RowPattern pattern;
  bool fullTilesKeep, isExact;
  SmallVector<IntegerSet> visible;
  const SymbolRanges *keyRanges = nullptr;
  Value headTiles; ///< those of Sizes; null without symbols per key
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCORES_H
