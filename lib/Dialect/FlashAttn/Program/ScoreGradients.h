//===- ScoreGradients.h - gradients of scores, in one place ------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H

#include "Operands.h"
#include "Scores.h"
#include "flashattn/Analysis/MaskShape.h"

namespace mlir::flashattn {

/// memref<`sizes` x f32>, uninitialised.
Value allocateF32(OpBuilder &b, Location loc, ArrayRef<Value> sizes);

/// Which of `rows` rows from number `firstRow` on are in `counted`, vector<`rows`xi1>; null: all.
Value isCounted(const TileBuilder &build, const IndexRange &counted, Value firstRow, int64_t rows);

/// What the gradients need of each query, f32, made once before them: B1's delta, and the
/// log-sum-exp as an exponent of 2.
class QuerySums : public TileBuilder {
public:
  using FindFirst = function_ref<Value(Value batch, Value queryTile)>;
  /// How programs sum up dq: not there, to zeros, to what the first one makes zeros, or in turns.
  enum class Adding { None, ToZeros, FirstClears, InTurns };

  /// Makes room for them and, in programs of their own, the sums. `zeroed`, where given, becomes
  /// zeros: memref<B x N x D x f32> of tiles of the schedule's rows, fewer than the queries have.
  /// In turns that of the tile of keys is first which `findFirst` gives: the first that a tile of
  /// queries sees. `negates`: deltas are kept negated, as the programs over keys want them.
  QuerySums(OpBuilder &b, AttentionBackwardOp op, const Operands &operands, Adding adding,
            bool negates, Value zeroed, FindFirst findFirst, const CountedRows &countedQueries);
  void free() const;

  /// What is loaded, however deltas are kept. A weight is exp2(c (s - Base) - Exponent).
  enum Kind { Exponent, Delta, MinusDelta, Base };
  /// Of the rows of a query tile, vector<M>.
  Value loadRows(Kind kind, const Operands &operands, const ProgramPoint &at) const;
  /// A tile or rows, `type`, along `dims` of [batch, head, query], -1 for what is the same
  /// throughout; on these `at` counts tiles. Of tiles larger than the schedule's, what lies past
  /// the last query may be 0.
  Value load(Kind kind, const ScorePlace &at, VectorType type, ArrayRef<int64_t> dims) const;
  /// The log-sum-exps that the op was given, of tile `at.queryTile` of `type`. Where not `counts`,
  /// null: nowhere, what is no number is that of a query without a key (A6).
  Value loadLse(AttentionBackwardOp op, const ScorePlace &at, VectorType type, Value counts) const;
  /// Whether any of the `count` queries of tile `tile`, of as many, may have a base other than 0:
  /// i1, the same for all threads. Null in programs of `of` with warp specialization: loops of
  /// warpgroups have no registers for bases, and what they make of such rows is made again.
  Value hasBases(ScheduleAttr of, Value batch, Value head, Value tile, int64_t count) const;
  /// Notes that the op has large rows.
  void noteLarge() const;
  /// The number of programs over `tiles` tiles of `rows` rows that mostly find nothing to do: each
  /// has so many tiles that asking takes no time.
  Value countAsking(Value tiles, int64_t rows) const;
  /// Whether any tile of program `number` of these may have a base other than 0; as hasBases.
  Value haveBases(ScheduleAttr of, Value batch, Value head, Value number, int64_t rows) const;
  /// Calls `build` for each tile of program `number` of these.
  void forAskedTiles(Value number, Value tiles, int64_t rows,
                     function_ref<void(Value tile)> build) const;
  /// Calls `build`, for code that runs if the op has large rows.
  void ifLarge(function_ref<void()> build) const;
  /// Of the rows of tile `at.queryTile`, vector<M>, which are in whole tiles.
  void store(Kind kind, Value rows, const ScorePlace &at) const;
  /// Where an f32 log-sum-exp, vector<M>, is so far from 0 that weights would lack precision.
  Value isLarge(Value lse) const;
  /// memref<B x Hq x N x D x f32>, N queries in whole tiles: what programs add dq to.
  Value getQueryGradients() const { return gradients; }
  /// memref<B x Hq x T x i32>: who adds to each of their tiles of the schedule's columns, as of
  /// `flashattn.add_tile`; null where anyone may.
  Value getOrder() const { return order; }

  /// memref<B x Hq x C x i32>: of a head of keys, at [its first head of queries, 0], how many of
  /// its programs have added their shares of dq, as of `flashattn.signal_added`; null where none
  /// tells.
  Value getTold() const { return told; }

private:
  void buildProgram(AttentionBackwardOp op, const Operands &operands, Value zeroed,
                    FindFirst findFirst, const CountedRows &countedQueries);
  Value loadRow(Value memref, const ScorePlace &at, VectorType type) const;
  Value takeNumbers(Value given, Value counts, Value otherwise) const;
  void storeZeros(Value memref, ArrayRef<Value> indices) const;
  void storeOrder(const ScorePlace &at, FindFirst findFirst) const;
  SmallVector<Value> indicesOf(Kind kind, const ScorePlace &at) const;
  Value batchOf(Kind kind, Value batch) const {
    if (kind == Exponent)
      return batch;
    return add(batch, kind == Base ? mul(batches, 2) : batches);
  }
  Value flagIndex(Value batch) const { return add(batch, mul(batches, 3)); }
  void storeFlag(const ScorePlace &at, Value large) const;
  void storeCount(int64_t count, Value memref, ValueRange indices) const;
  /// As `kind` says, of what is kept.
  Value toKind(Kind kind, Value kept) const;

  ScheduleAttr schedule;
  Value batches, rows; ///< of the batches, and N
  /// memref<4B x Hq x N x f32>: the exponents of all batches, their deltas, their bases, and at the
  /// number of each tile of the schedule's rows whether it has rows with a base. N are the queries
  /// in whole tiles: one that is none has the exponent inf, and so weights of 0.
  Value buffer,
      split; ///< `split`: with heads as the operands of programs over query tiles have them
  Value gradients, order, told;
  Value large; ///< memref<1xi32>: whether the op has large rows; null where nothing is made again
  Adding adding;
  bool negates, isF32;
  int64_t whole; ///< queries of which N is a multiple
};

/// The schedule of programs beside those of `op`, with tiles as large as theirs or less: without
/// warp specialization, and with room for two tiles of factors.
ScheduleAttr getScheduleBeside(AttentionBackwardOp op);

/// B1: in programs of their own, finds the sums of weights again of large rows, whose log-sum-exp
/// has no room for them, and has `sums` take weights against the largest score of such a row. A row
/// whose log-sum-exp is not that of its keys, but for rounding, stays as it is.
void buildLargeRows(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                    const QuerySums &sums, const CountedRows &countedQueries);

/// P and dS of tiles (B1, B6, B7), with rows and columns as ScoreBuilder has them.
class ScoreGradientBuilder : public TileBuilder {
public:
  /// `fullTilesKeep` and `isExact` as of ScoreBuilder.
  ScoreGradientBuilder(OpBuilder &b, AttentionBackwardOp op, TileAxis columns,
                       bool fullTilesKeep = false, RowPattern pattern = {}, bool isExact = false)
      : TileBuilder(b, op.getLoc()), scores(b, op, columns, pattern, fullTilesKeep, isExact),
        factor(scores.getFactor()), dotType(op.getScheduleAttr().getDotType()),
        branches(op.getScheduleAttr().getThreadsPerRow() > 1),
        fullTilesHide(op.getKeep() && !fullTilesKeep),
        hidesPairs(op.getScheduleAttr().getHopper() &&
                   classifyMask(op.getVisibleSets()).shape != MaskShape::Full) {}

  /// Each query of q times each key of k.
  Value multiply(Value q, Value k) const { return scores.multiply(q, k); }
  /// dP, of d_o and v; dP - delta where its sums begin with `minusDeltas`, as QuerySums gives them.
  Value multiplyValues(Value dO, Value v, Value minusDeltas = {}) const;
  /// P, f32, inside of a loop over tiles; `exponents` as QuerySums gives them, and so what
  /// `loadBases` does, which is asked for where `hasBases` (null: nowhere). `derivative` is set to
  /// the scores'.
  Value buildWeights(Value products, const ScorePlace &at, Value exponents, Value hasBases,
                     function_ref<Value()> loadBases, ScoreDerivative &derivative) const;
  /// The gradient of the final scores, f32: what a bias has. `weights` may be of the products'
  /// type: then they need half the registers. `deltas` as QuerySums gives them, null where `dP` is
  /// less by them already.
  Value buildFinal(Value weights, Value dP, Value deltas) const;
  /// What the gradient of the final scores is for the products before their scale, as an operand of
  /// other products. What is hidden is so in pairs of elements, where weights are.
  Value buildOperand(Value weights, Value dP, Value deltas,
                     const ScoreDerivative &derivative) const;
  /// The same in f32, of the gradient of the final scores.
  Value buildInner(Value weights, Value final, const ScoreDerivative &derivative) const;
  /// Leaves no tile full in `intervals`, of queries, where some of the `rows` keys from `firstKey`
  /// on do not exist, of which there are `keys`: only a mask hides those from sums over keys. `all`
  /// is the number of keys without `kv_len`.
  void requireKeys(MutableArrayRef<TileInterval> intervals, Value firstKey, int64_t rows,
                   Value keys, Value all) const;
  /// An operand of the next product.
  Value toDotType(Value tile) const;

private:
  Value spread(Value sums, VectorType tile) const;
  Value multiplyWeights(Value weights, Value dP, Value deltas) const;
  Value hide(Value gradient, Value weights, bool inFullTiles) const;

  ScoreBuilder scores;
  Factor factor;
  FloatType dotType;
  bool branches;      ///< a branch costs less than an operation for each element
  bool fullTilesHide; ///< some pairs
  /// Two elements at once, where they have 16 bits. Without a mask only a sequence's last tile
  /// hides any, and the loop over all others then suffers from what ptxas makes of it
  /// (docs/rationale/gradient-step.md). And there are chips without warp specialization that
  /// compare no bf16.
  bool hidesPairs;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SCOREGRADIENTS_H
