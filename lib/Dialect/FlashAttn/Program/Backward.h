//===- Backward.h - gradients as programs on tile values ---------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H

#include "KeyParts.h"
#include "ScoreGradients.h"
#include "TileLists.h"

namespace mlir::flashattn {

/// Builds the programs of one op.
class BackwardBuilder : TileBuilder {
public:
  /// `isRare`: of code that rarely runs, and so should be short.
  BackwardBuilder(AttentionBackwardOp op, OpBuilder &b, bool isRare = false)
      : TileBuilder(b, op.getLoc()), op(op), isRare(isRare), schedule(op.getScheduleAttr()),
        operands(b, op), sizes(operands.getSizes()), all(operands.getAllKeys()),
        countedKeys(operands, TileAxis::Keys, all),
        countedQueries(operands, TileAxis::Queries, all), parts(findParts()) {}

  void build();

private:
  /// Which gradients a program over key tiles makes: both, or one.
  struct KeySums {
    bool dk, dv;
  };
  std::optional<KeyParts> findParts();
  /// What a program goes over: the list that it has, or without `lists` what `find` gives. `place`
  /// is its batch, head and tile, and becomes its list's.
  SmallVector<TileInterval> getTiles(const std::optional<TileLists> &lists,
                                     SmallVector<Value> &place,
                                     function_ref<SmallVector<TileInterval>()> find) const;
  /// For the programs that are built from here on.
  void useSchedule(ScheduleAttr of);
  /// A tile of keys that a program keeps.
  struct KeyTile {
    const KeyRange &keys;
    const IndexRange &queries; ///< that count
    Value batch, kvHead, tile, firstKey, k, v;
  };
  void buildKeyStep(TileLoopOp loop, const QuerySums &sums, KeySums wanted,
                    const ScoreGradientBuilder &gradients, const KeyTile &of);
  void buildKeyPrograms(const QuerySums &sums, KeySums wanted);
  void buildKeyTile(const QuerySums &sums, KeySums wanted, const ScoreGradientBuilder &gradients,
                    ProgramPoint at, Value keyTiles, Value programs);
  void addQueries(const QuerySums &sums, Value inner, Value k, ArrayRef<Value> at,
                  Value keyTile) const;
  /// What programs over query tiles share.
  struct QueryTiles {
    Operands operands; ///< of tiles of the schedule's own rows
    ScoreGradientBuilder gradients;
    Destination to;
    Value gradientOfOutput, count;
  };
  QueryTiles prepareQueries();
  void buildQueryPrograms(const QuerySums &sums, bool behindBoth);
  void buildQueryTile(const QuerySums &sums, const QueryTiles &of, ProgramPoint point,
                      bool behindBoth);
  /// Builds programs that make all gradients again, with bases, if the op has large rows: those of
  /// warpgroups have none. `own` is the op's schedule. In LargeRows.cpp, as buildAgain.
  void makeLargeRowsAgain(const QuerySums &sums, ScheduleAttr own);
  /// Builds programs that make dk and dv, dq, or all of them again.
  void buildAgain(const QuerySums &sums, bool ofKeys, bool ofQueries);
  void buildSumPrograms(const QuerySums &sums);
  void buildKeySumPrograms();
  ScheduleAttr getSumSchedule(int64_t rows) const;
  /// Whether programs over key tiles add shares of dq one after the other, so that sums are the
  /// same each time.
  bool takesTurns() const { return op.getDeterministic() && schedule.addsQueries(); }
  /// Whether sums of dP begin with the negated deltas, which spares a subtraction for each element.
  /// Where a step has fewer queries than its program keys products would wait for them
  /// (docs/rationale/dp-deltas.md).
  bool beginsWithDeltas() const {
    return schedule.getHopper() && schedule.addsQueries() &&
           schedule.getTileN() == schedule.getTileM();
  }
  /// How they do so.
  QuerySums::Adding getAdding() const {
    if (!schedule.addsQueries())
      return QuerySums::Adding::None;
    if (takesTurns())
      return QuerySums::Adding::InTurns;
    // Spare warps have time to ask who is first, but not memory where a bias has a gradient.
    HopperAttr hopper = schedule.getHopper();
    return hopper && hopper.getDqReduceStages() && !op.getDBiasInit()
               ? QuerySums::Adding::FirstClears
               : QuerySums::Adding::ToZeros;
  }
  /// Copies add four elements of a thread; without them each is added alone.
  int64_t getAdjacent() const { return schedule.getHopper() ? 4 : 1; }
  Value hideMissingKeys(Value rows, const KeyRange &keys, Value firstKey) const;
  /// The sum, f32, times `factor` where that is not 1, in the operands' type.
  Value finish(Value sum, const Factor &factor) const;
  /// Writes it.
  void store(Value rows, const Factor &factor, Value memref, Value batch, Value head,
             Value tile) const;

  mutable AttentionBackwardOp op; ///< a handle, whose accessors are not const
  const bool isRare;
  ScheduleAttr schedule;
  Operands operands;
  const Sizes &sizes;
  KeyRange all;
  CountedRows countedKeys, countedQueries;
  std::optional<KeyParts> parts; ///< of programs over key tiles, where some are too long
  std::optional<TileLists> queryLists, keyLists; ///< of the tiles that `keep` shows, where it can
  Factor scale;                                  ///< of dq and dk: what sums of products still lack
  Value keyPrograms; ///< of a head, if they tell when they have added to dq
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_BACKWARD_H
