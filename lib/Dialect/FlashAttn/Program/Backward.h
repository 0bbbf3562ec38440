//===- Backward.h - the backward pass as tile programs ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H

#include "KeyParts.h"
#include "ScoreGradients.h"
#include "TileLists.h"

namespace mlir::flashattn {

/// Builds the tile programs of one backward op.
class BackwardBuilder : TileBuilder {
public:
  /// `isRare`: for code that rarely runs, and should be short.
  BackwardBuilder(AttentionBackwardOp op, OpBuilder &b, bool isRare = false)
      : TileBuilder(b, op.getLoc()), op(op), isRare(isRare), schedule(op.getScheduleAttr()),
        operands(b, op), sizes(operands.getSizes()), all(operands.getAll()),
        countedKeys(operands, TileAxis::Keys, all),
        countedQueries(operands, TileAxis::Queries, all), parts(findParts()) {}

  void build();

private:
  /// The gradients that a program over key tiles computes: one or both.
  struct KeySums {
    bool dk, dv;
  };
  std::optional<KeyParts> findParts();
  /// Returns the tiles that a program visits: the interval of its list or, without `lists`, the
  /// intervals that `find` returns. `place` is the program's batch, head and tile. With `lists`, it
  /// becomes the position of the program's list.
  SmallVector<TileInterval> getTiles(const std::optional<TileLists> &lists,
                                     const Sequence &sequence, SmallVector<Value> &place,
                                     function_ref<SmallVector<TileInterval>()> find) const;
  /// Sets the schedule of the programs that are built from here on.
  void useSchedule(ScheduleAttr of);
  /// The key tile of a program, which stays the same in all steps.
  struct KeyTile {
    const Sequence &sequence;
    Value queryRows; ///< `!flashattn.rows` of the queries that have an effect (B7)
    Value kvHead, tile, firstKey, k, v;
  };
  void buildKeyStep(TileLoopOp loop, const QuerySums &sums, KeySums wanted,
                    const ScoreGradientBuilder &gradients, const KeyTile &of);
  void buildKeyPrograms(const QuerySums &sums, KeySums wanted);
  void buildKeyTile(const QuerySums &sums, KeySums wanted, const ScoreGradientBuilder &gradients,
                    Value batch, Value kvHead, Value keyTile, Value keyTiles, Value programs);
  void addQueries(const QuerySums &sums, Value inner, Value k, ArrayRef<Value> at,
                  Value keyTile) const;
  /// Values that all programs over query tiles share.
  struct QueryTiles {
    Operands operands; ///< for tiles of the current schedule
    ScoreGradientBuilder gradients;
    Destination to;
    Value gradientOfOutput, count;
  };
  QueryTiles prepareQueries(const QuerySums &sums);
  void buildQueryPrograms(const QuerySums &sums, bool behindBoth);
  void buildQueryTile(const QuerySums &sums, const QueryTiles &of, Value batch, Value head,
                      Value kvHead, Value queryTile, bool behindBoth);
  /// Builds programs that recompute all gradients, with bases, if the op has large rows: programs
  /// with warp specialization use no bases. `own` is the op's schedule. Defined in LargeRows.cpp,
  /// like buildRecompute.
  void recomputeLargeRows(const QuerySums &sums, ScheduleAttr own);
  /// Builds programs that recompute dk and dv (`ofKeys`), dq (`ofQueries`), or all of them.
  void buildRecompute(const QuerySums &sums, bool ofKeys, bool ofQueries);
  void buildSumPrograms(const QuerySums &sums);
  void buildKeySumPrograms();
  ScheduleAttr getSumSchedule(int64_t rows) const;
  /// Whether programs over key tiles add their contributions to dq in turns, so that the sums are
  /// deterministic.
  bool takesTurns() const { return op.getDeterministic() && schedule.addsQueries(); }
  /// Returns how programs over key tiles add to dq.
  QuerySums::Adding getAdding() const {
    if (!schedule.addsQueries())
      return QuerySums::Adding::None;
    if (takesTurns())
      return QuerySums::Adding::InTurns;
    // Spare warps have time to check whether they are first. With a gradient of a bias, there is no
    // workspace left for the states of the tiles.
    return schedule.hasReduceWarps() && !op.getDBiasInit() ? QuerySums::Adding::FirstClears
                                                           : QuerySums::Adding::ToZeros;
  }
  /// Returns the number of adjacent elements of a thread that are added together: 4 by bulk copies,
  /// otherwise 1.
  int64_t getAdjacent() const { return schedule.getMapping().addsByBulkCopy() ? 4 : 1; }
  Value hideMissingKeys(Value rows, const Sequence &sequence, Value firstKey) const;
  /// Returns the f32 `sum` times `factor`, in the operands' type.
  Value finish(Value sum, const Factor &factor) const;
  /// Stores `finish(rows, factor)` to a tile of `memref`.
  void store(Value rows, const Factor &factor, Value memref, TileAxis axis,
             const Sequence &sequence, Value head, Value tile) const;

  mutable AttentionBackwardOp op; ///< a handle, whose accessors are not const
  const bool isRare;
  ScheduleAttr schedule;
  Operands operands;
  const Sizes &sizes;
  Sequence all;
  CountedRows countedKeys, countedQueries;
  std::optional<KeyParts> parts; ///< set if some programs over key tiles are too long
  std::optional<TileLists> queryLists, keyLists; ///< lists of the visible tiles
  Factor scale;                                  ///< missing in the sums of dq and dk
  Value keyPrograms; ///< number per head, if programs signal that they have added to dq
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H
