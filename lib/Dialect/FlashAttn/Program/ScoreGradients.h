//===- ScoreGradients.h - gradients of scores -------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H

#include "Operands.h"
#include "Scores.h"
#include "flashattn/Analysis/MaskShape.h"

namespace mlir::flashattn {

/// Allocates an uninitialized memref<`sizes` x f32>.
Value allocateF32(OpBuilder &b, Location loc, ArrayRef<Value> sizes);

/// Returns which of the `rows` rows from `firstRow` on are in `counted`, vector<`rows`xi1>; null if
/// all are.
Value isCounted(const TileBuilder &build, const IndexRange &counted, Value firstRow, int64_t rows);

/// The f32 values per query that the gradients need, computed once before them: delta (B1), and the
/// log-sum-exp as an exponent of 2.
class QuerySums : public TileBuilder {
public:
  using FindFirst = function_ref<Value(const Sequence &sequence, Value queryTile)>;
  /// How programs over key tiles add to dq: not at all, to zeros, to a tile that the first of them
  /// clears, or in turns.
  enum class Adding { None, ToZeros, FirstClears, InTurns };

  /// Allocates the values and builds the programs that compute them. These programs also zero
  /// `zeroed`, if given, a memref<B x N x D x f32> of tiles of the schedule's rows, fewer than the
  /// queries have. With turns, the first program to add to a query tile is that of the key tile
  /// that `findFirst` returns, the first that the queries see. `negates`: deltas are stored
  /// negated, as programs over key tiles need them.
  QuerySums(OpBuilder &b, AttentionBackwardOp op, const Operands &operands, Adding adding,
            bool negates, Value zeroed, FindFirst findFirst, const CountedRows &countedQueries);
  void free() const;
  /// Returns `getWholeTiles` of an op with this schedule.
  static int64_t countWhole(ScheduleAttr schedule, const Operands &operands);

  /// The value to load, independent of the stored sign of delta. P = exp2(c (s - Base) - Exponent).
  enum Kind { Exponent, Delta, MinusDelta, Base };
  /// Loads the values of the rows of a query tile, vector<M>.
  Value loadRows(Kind kind, const Operands &operands, const ProgramPoint &at) const;
  /// Loads a tile or rows of `type` along `dims` of [batch, head, query], where -1 broadcasts. In
  /// these dimensions `at` counts tiles. In tiles larger than the schedule's, values past the last
  /// query may be 0.
  Value load(Kind kind, const ScorePlace &at, VectorType type, ArrayRef<int64_t> dims) const;
  /// Loads the op's log-sum-exps of tile `at.queryTile`, of `type`. If a query is not in `counts`
  /// (null: all are), a value that is not finite is replaced by that of a query without a key (A6).
  Value loadLse(AttentionBackwardOp op, const ScorePlace &at, VectorType type, Value counts) const;
  /// Returns whether any of the queries of tile `tile` of `count` queries may have a base other
  /// than 0: an i1 that is the same for all threads. Null if `of`, the schedule of the programs,
  /// has warp specialization: loops of warpgroups have no registers for bases, and their results
  /// for such rows are recomputed.
  Value hasBases(ScheduleAttr of, const Sequence &sequence, Value head, Value tile,
                 int64_t count) const;
  /// Records that the op has large rows.
  void noteLarge() const;
  /// Returns the number of rows that a program checks for large rows in tiles of `rows` rows. Most
  /// find none, so each checks enough rows to make the total time of the checks negligible.
  static int64_t countCheckedRows(int64_t rows);
  /// Returns the number of programs that check `tiles` tiles of `rows` rows for large rows.
  Value countChecking(Value tiles, int64_t rows) const;
  /// Returns whether any tile of such a program `number` may have a base other than 0, as hasBases.
  Value anyTileHasBases(ScheduleAttr of, const Sequence &sequence, Value head, Value number,
                        int64_t rows) const;
  /// Builds a loop over the tiles of such a program `number`, with the body that `build` builds.
  void forCheckedTiles(Value number, Value tiles, int64_t rows,
                       function_ref<void(Value tile)> build) const;
  /// Builds a branch with the code that `build` builds, which runs if the op has large rows.
  void ifLarge(function_ref<void()> build) const;
  /// Stores the values of the rows of query tile `at.queryTile`, vector<M>, which is in bounds.
  void store(Kind kind, Value rows, const ScorePlace &at) const;
  /// Returns the rows whose f32 log-sum-exp, vector<M>, is so far from 0 that P would lack
  /// precision.
  Value isLarge(Value lse) const;
  /// Returns the sums to which programs add dq: memref<B x Hq x N x D x f32>, where N is the number
  /// of queries rounded up to whole tiles. Their tiles are those of `indicesIn`.
  Value getQueryGradients() const { return gradients; }
  /// Returns the indices [batch, head, tile] of tile `tile` of `count` queries in the memrefs of
  /// this class. With packed queries, B is 1 and N counts the queries of all segments, each of
  /// which begins at a whole tile.
  SmallVector<Value> indicesIn(const Sequence &sequence, Value head, Value tile,
                               int64_t count) const;
  /// Returns the index of the batch in these memrefs.
  Value getBatch(const Sequence &sequence) const {
    return sequence.packedQueries ? index(0) : sequence.batch;
  }
  /// Returns the number of queries of which N is a multiple, and of which each segment of packed
  /// queries begins at a multiple.
  int64_t getWholeTiles() const { return whole; }
  /// Returns B and N.
  Value getBatches() const { return batches; }
  Value getRows() const { return rows; }
  /// Returns the `order` of `flashattn.add_tile`, with one element for each of the T tiles of
  /// `tile_n` queries: memref<B x Hq x T x i32>. Null if programs may add at any time.
  Value getOrder() const { return order; }

  /// Returns the counters of `flashattn.signal_added`: memref<B x Hq x C x i32>. For a key/value
  /// head, the element at [b, its first query head, 0] counts the programs that have added to dq.
  /// Null if programs do not signal.
  Value getAddedCounter() const { return addedCounter; }

private:
  void buildProgram(AttentionBackwardOp op, Value zeroed, FindFirst findFirst,
                    const CountedRows &countedQueries);
  Value loadRow(Value memref, const ScorePlace &at, VectorType type) const;
  Value takeNumbers(Value given, Value counts, Value otherwise) const;
  void storeZeros(Value memref, ArrayRef<Value> indices) const;
  void storeOrder(const ScorePlace &at, FindFirst findFirst) const;
  SmallVector<Value> indicesOf(Kind kind, const ScorePlace &at, int64_t count) const;
  Value batchOf(Kind kind, Value batch) const {
    if (kind == Exponent)
      return batch;
    return add(batch, kind == Base ? mul(batches, 2) : batches);
  }
  Value flagIndex(Value batch) const { return add(batch, mul(batches, 3)); }
  void storeFlag(const ScorePlace &at, Value large) const;
  void storeCount(int64_t count, Value memref, ValueRange indices) const;
  /// Converts a stored value to `kind`.
  Value toKind(Kind kind, Value kept) const;

  const Operands &operands;
  ScheduleAttr schedule;
  Value batches, rows; ///< B and N
  /// memref<4B x Hq x N x f32>: the exponents of all batches, their deltas, their bases, and flags.
  /// At the index of a tile of the schedule's rows, a nonzero flag means that some row has a base.
  /// N is the number of queries rounded up to whole tiles. Rows past the queries have the exponent
  /// inf, so that their P is 0.
  Value buffer,
      split; ///< `split`: `buffer` with split heads, for programs over query tiles
  Value gradients, order, addedCounter;
  Value large; ///< memref<1xi32>: whether the op has large rows; null if nothing is recomputed
  Adding adding;
  bool negates, isF32;
  int64_t whole; ///< N is a multiple of this number of queries
};

/// Returns the schedule of additional programs of `op`: without warp specialization, with tiles
/// that are at most as large, and with shared memory for two operand tiles.
ScheduleAttr getScheduleBeside(AttentionBackwardOp op);

/// B1: builds programs that recompute the row sums of large rows, whose log-sum-exp cannot
/// represent them. P of such a row is then relative to its row maximum in `sums`. A row whose
/// log-sum-exp, except for rounding, is not that of its own keys stays as it is.
void buildLargeRows(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                    const QuerySums &sums, const CountedRows &countedQueries);

/// Builds P and dS of tiles (B1, B6, B7), whose rows and columns are those of ScoreBuilder.
class ScoreGradientBuilder : public TileBuilder {
public:
  /// See ScoreBuilder for `fullTilesKeep` and `isExact`.
  ScoreGradientBuilder(OpBuilder &b, AttentionBackwardOp op, TileAxis columns,
                       bool fullTilesKeep = false, RowPattern pattern = {}, bool isExact = false)
      : TileBuilder(b, op.getLoc()), scores(b, op, columns, pattern, fullTilesKeep, isExact),
        factor(scores.getFactor()), dotType(op.getScheduleAttr().getDotType()),
        branches(op.getScheduleAttr().getMapping().isOnGPU()),
        fullTilesHide(op.getAttnMask() && !fullTilesKeep),
        hidesTwoAtOnce(op.getScheduleAttr().getMapping().hidesPairsAtOnce() &&
                       classifyMask(op.getVisibleSets()).shape != MaskShape::Full) {}

  /// Returns the products of each query of q and each key of k.
  Value multiply(Value q, Value k) const { return scores.multiply(q, k); }
  /// Returns dP, computed from d_o and v; or dP - delta if its accumulators start from
  /// `minusDeltas` (QuerySums::MinusDelta).
  Value multiplyValues(Value dO, Value v, Value minusDeltas = {}) const;
  /// Returns P in f32, inside a loop over tiles. `exponents` are those of QuerySums, and so are the
  /// bases that `loadBases` loads, which are used if `hasBases` (null: never). Sets `derivative` to
  /// that of the scores.
  Value buildWeights(Value products, const ScorePlace &at, Value exponents, Value hasBases,
                     function_ref<Value()> loadBases, ScoreDerivative &derivative) const;
  /// Returns the gradient of the final scores in f32, which is that of a bias. `weights` (P) may
  /// have the operand type of products, which takes half the registers. `deltas` are those of
  /// QuerySums, or null if they are already subtracted from `dP`.
  Value buildFinal(Value weights, Value dP, Value deltas) const;
  /// Returns the gradient of the products before their scale, as an operand of other products.
  /// Hidden pairs are set to 0 two elements at a time if `weights` have the operand type.
  Value buildOperand(Value weights, Value dP, Value deltas,
                     const ScoreDerivative &derivative) const;
  /// Returns the same in f32, given the gradient of the final scores.
  Value buildInner(Value weights, Value final, const ScoreDerivative &derivative) const;
  /// Makes all query tiles in `intervals` partial if some of the `rows` keys from `firstKey` on do
  /// not exist: only a mask excludes these from sums over keys. `keys` is the number of keys, and
  /// `all` the number without `kv_len`.
  void requireKeys(MutableArrayRef<TileInterval> intervals, Value firstKey, int64_t rows,
                   Value keys, Value all) const;
  /// Converts `tile` to the operand type of products.
  Value toDotType(Value tile) const;

private:
  Value spread(Value sums, VectorType tile) const;
  Value multiplyWeights(Value weights, Value dP, Value deltas) const;
  Value hide(Value gradient, Value weights, bool inFullTiles) const;

  ScoreBuilder scores;
  Factor factor;
  FloatType dotType;
  bool branches;      ///< whether a branch costs less than an operation per element
  bool fullTilesHide; ///< whether pairs are hidden in full tiles
  /// Whether to hide two 16-bit elements at once. Without a mask, only the last key tile hides any,
  /// and ptxas generates slower code for the loop over all other tiles
  /// (docs/rationale/gradient-step.md). Some chips without warp specialization cannot compare bf16.
  bool hidesTwoAtOnce;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
