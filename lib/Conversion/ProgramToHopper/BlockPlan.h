//===- BlockPlan.h - what a block of a tile program holds --------*- C++ -*-===//
//
// What flashattn-specialize-warps finds in a tile program before it builds anything: which tiles go
// through shared memory, and in which way.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H
#define FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "flashattn/Target/ResourcePlans.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn {

/// How consumers split the sums of a loop. Each makes one, and what it is made of but for what an
/// earlier one makes, which is passed to it.
struct SumSplit {
  SmallVector<unsigned> sums;               ///< by consumer, the number of what the loop yields
  SmallVector<SetVector<Operation *>> made; ///< by consumer, the loop's ops that only it has
  Value passed;                             ///< the tile that the first one passes to the second
};

/// A block of warpgroups for the programs of `program`: a producer, and consumers that each run
/// one of them.
struct BlockPlan {
  /// Elements along the columns of a tile, the same in all its rows, that come anew in each step.
  struct Row {
    LoadTileOp load;
    unsigned stream; ///< whose tile they come with
  };

  ProgramOp program;
  ScheduleAttr schedule;
  HopperAttr hopper;
  TileLoopOp loop;                   ///< the one that reads `streams`
  SmallVector<LoadTileOp> residents; ///< tiles that a program's contractions keep
  SmallVector<LoadTileOp> streams;   ///< tiles that come anew in each step; each has a ring
  SmallVector<unsigned> drained;     ///< numbers of those that products multiply by residents
  bool warpsRelease = false;         ///< whether each warp, and not its group, lets their tiles go
  SmallVector<Row> rows;             ///< what comes with their tiles
  SmallVector<StoreTileOp> outputs;  ///< tiles that tensor copies write
  /// Products of the loop whose left-hand side, transposed, consumers hand each other.
  SmallVector<vector::ContractionOp> exchanges;
  SmallVector<AddTileOp> added;     ///< tiles that are added to global memory, at most one a step
  SignalAddedOp told;               ///< who is told when all of a program is added; null: nobody
  bool takesTurns = false;          ///< whether programs that add to the same tiles do so in turns
  bool firstClears = false;         ///< whether the first of them makes the tile zeros
  bool batchesShare = false;        ///< whether batches share what a consumer itself reads
  int64_t intervals = 0;            ///< of the loop
  bool countsRounds = false;        ///< whether the loop has rounds
  SumSplit split;                   ///< where consumers split the sums
  std::optional<int64_t> consumer;  ///< whose share of the sums `program` is, if it is one
  Value passed;                     ///< of a share: what it passes on
  SmallVector<bool> cleared;        ///< of each resident, whether its missing rows are to be zeros
  std::optional<int64_t> firstTile; ///< where the only interval begins, if that is known
  bool sharesIntervals = false;     ///< whether the programs of a block have the same
  WarpgroupBlockPlan memory;        ///< buffers and barriers by number

  /// The plan of `program`, whose schedule has warp specialization. Errors, at the op that is in
  /// the way.
  static FailureOr<BlockPlan> get(ProgramOp program);

  /// The loads in `loop` whose tiles come through rings, in their order.
  static SmallVector<LoadTileOp> findStreams(TileLoopOp loop);
  /// The loads in `loop` of rows that come with the tiles of a stream, in their order.
  static SmallVector<Row> findRows(TileLoopOp loop, const SumSplit &split);

  int64_t getConsumers() const { return hopper.getConsumers(); }
  /// Whether all consumers run one program, each 64 of its rows or one of its sums.
  bool sharesProgram() const { return schedule.sharesProgram(); }
  bool splitsSums() const { return schedule.splitsSums(); }
  /// Whether the programs of a block go over one sequence, of listed tiles or of joined ones, which
  /// is that of as many programs from a multiple of them on.
  bool sharesSequence() const {
    return TileLoopOp(loop).getList() ||
           llvm::any_of(streams, [](LoadTileOp load) { return !load.getCuts().empty(); });
  }
  /// Programs that a block runs at once.
  int64_t getPrograms() const { return sharesProgram() ? 1 : getConsumers(); }
  int64_t getStages() const { return schedule.getStages(); }
  /// Groups of programs whose residents a block has room for. With several it is persistent: it
  /// goes from one group to the next.
  int64_t getHeld() const { return hopper.getQStages(); }
  /// Groups that a block is told of at a time.
  int64_t getSlots() const { return memory.slots; }
  bool isPersistent() const { return getHeld() > 1 || claims(); }
  /// Whether persistent blocks take groups as they have room for them, from a counter.
  bool claims() const { return hopper.getDynamicSchedulerMaxLen() > 0; }
  /// Whether a persistent block has room for the residents of one group: those of the next come
  /// where they were as soon as all steps have read them, and what the program has made is written
  /// from elsewhere.
  bool reloads() const { return hopper.reloads(); }
  /// Whether residents are read when the tiles are that they are multiplied with, by programs of
  /// their own: then those say when the next ones may come.
  bool drainsRings() const { return reloads() && getPrograms() > 1; }
  /// Who says of a program that its slot is free.
  int64_t countSlotReleases() const {
    int64_t spare = getDqReduceStages() ? WarpgroupBlockPlan::kSpareWarps : 0;
    constexpr int64_t kWarps = 4;
    return getConsumers() / getPrograms() * (reloads() ? kWarps : 1) + spare;
  }
  /// Places through which consumers hand what is added of a step to spare warps; 0: they add it.
  int64_t getDqReduceStages() const { return hopper.getDqReduceStages(); }
  /// Whether the loop goes over several intervals, or over them in rounds.
  bool hasPasses() const { return intervals > 1 || countsRounds; }
  int64_t getThreads() const { return hopper::kWarpgroupThreads * (getConsumers() + 1); }
  int64_t getHeadsPerBlock() const {
    return hopper.getAlong() == ProgramAxis::Head ? getPrograms() : 1;
  }
  /// Whether a block may have fewer programs than it has room for.
  bool mayLackPrograms() const { return getPrograms() > 1 && getHeadsPerBlock() == 1; }
};

/// Finds how the consumers of `plan` split the sums of its loop. Errors, at the op that is in the
/// way.
LogicalResult splitSums(BlockPlan &plan);

/// Whether some contraction sums over the rows of `load`. Rows that are not there then count, with
/// weights of 0 it may be, and 0 times what happens to lie there is 0 for finite numbers alone
/// (A7). Along the other dimensions they only give rows and columns that are not there.
bool sumsOverRows(LoadTileOp load);

/// Rows of `load` that are left out where some contraction sums over them: those before `begin` and
/// from `end` on, null where there are none.
struct LeftOut {
  Value begin, end;
};
/// The rows left out whose number the host knows: tensor maps end there, and copies give zeros.
LeftOut getLeftOutByMap(LoadTileOp load);
/// The others, whose number a block computes: consumers clear them.
LeftOut getLeftOutInBlock(LoadTileOp load);

/// The stage of a step in which `op` stands, `flashattn.stage`; null for the first one.
StageOp getStage(Operation *op);
/// Its number, from 0 on.
int64_t countStagesBefore(Operation *op);

/// Columns of a panel of `tile` in shared memory.
inline int64_t getPanelColumns(VectorType tile) {
  return getPanelColumns(tile.getDimSize(1), tile.getElementTypeBitWidth() / 8);
}

/// Whether rows of a tile of `load` need not follow each other. One cut is where the first tile
/// begins.
inline bool mayBeCut(LoadTileOp load) { return load.getCuts().size() > 1; }

/// Panels of the tile of `load` that copies bring: those behind are its ones.
inline int64_t countCopiedPanels(LoadTileOp load) {
  VectorType tile = load.getTileType();
  int64_t columns = tile.getDimSize(1) - (load.getOnes() ? LoadTileOp::kOnes : 0);
  return llvm::divideCeil(columns, getPanelColumns(tile));
}

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H
