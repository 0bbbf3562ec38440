//===- BlockPlan.h - the plan of a warp-specialized block -------*- C++ -*-===//
//
// The analysis that flashattn-specialize-warps runs on a tile program before it builds anything:
// which tiles go through shared memory, and how.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H
#define FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "flashattn/Target/ResourcePlans.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <numeric>

namespace mlir::flashattn {

/// How consumers split the sums (accumulators) of a loop. Each consumer computes one sum and every
/// value that the sum depends on, except values that the first consumer computes and passes on.
struct SumSplit {
  SmallVector<unsigned> sums;               ///< by consumer: the index of the loop's yielded value
  SmallVector<SetVector<Operation *>> made; ///< by consumer: the loop's ops that only it computes
  Value passed;                             ///< the tile that the first one passes to the second
  SmallVector<int64_t> clearedBy; ///< by stream: the consumer that sets missing rows to zero, or -1
};

/// Whether some contraction reduces over the rows of `load`. Rows out of bounds then contribute to
/// the result even if their factor is 0, because 0 times an infinity or NaN in memory is not 0
/// (A7). Along other dimensions they only produce rows and columns that are out of bounds too.
bool sumsOverRows(LoadTileOp load);
/// F3: whether the tiles of `load` are transposed in shared memory, because products of f8 sum over
/// columns alone.
inline bool isTransposed(LoadTileOp load) {
  return load.getTileType().getElementTypeBitWidth() == 8 && sumsOverRows(load);
}
/// Whether spare warps convert or transpose the tiles of `load` in shared memory.
inline bool isRewritten(LoadTileOp load) { return load.converts() || isTransposed(load); }

/// The thread block that runs programs of `program`: a producer warpgroup, and consumer warpgroups
/// that run one program each or share one.
struct BlockPlan {
  /// A 1 x N tile of f32, broadcast along all rows of a tile, that is loaded anew in each step.
  struct Row {
    LoadTileOp load;
    unsigned stream; ///< index of the stream whose tile it is loaded with
  };

  ProgramOp program;
  ScheduleAttr schedule;
  HopperAttr hopper;
  TileLoopOp loop;                   ///< the loop that reads `streams`
  SmallVector<LoadTileOp> residents; ///< contraction operands, loaded once per program
  SmallVector<LoadTileOp> streams;   ///< contraction operands, loaded in each step through a ring
  SmallVector<unsigned> residentStreams; ///< streams that products multiply by residents
  bool warpsRelease = false;             ///< whether each warp, not its warpgroup, releases tiles
  SmallVector<Row> rows;                 ///< rows that are loaded with the tiles of streams
  SmallVector<StoreTileOp> outputs;      ///< output tiles that TMA stores
  /// Products of the loop with a transposed left-hand side, which consumers exchange.
  SmallVector<vector::ContractionOp> exchanges;
  SmallVector<AddTileOp> added;     ///< tiles that are added to global memory, at most one per step
  SignalAddedOp signal;             ///< signals that all tiles of a program are added; or null
  bool takesTurns = false;          ///< whether programs add to the same tile in a fixed order
  bool firstClears = false;         ///< whether the first program to reach a tile sets it to zero
  bool batchesShare = false;        ///< whether batches share tiles that consumers load themselves
  int64_t intervals = 0;            ///< number of the loop's intervals
  bool countsRounds = false;        ///< whether the loop has rounds
  SumSplit split;                   ///< set if consumers split the sums
  std::optional<int64_t> consumer;  ///< the consumer whose copy `program` is, if sums are split
  Value passed;                     ///< in such a copy: the tile that it passes on, or null
  SmallVector<bool> cleared;        ///< by resident: whether its missing rows are set to zero
  std::optional<int64_t> firstTile; ///< first tile of the only interval, if constant
  bool sharesIntervals = false;     ///< whether the programs of a block have the same intervals
  WarpgroupBlockPlan memory;        ///< buffers, and barriers by number

  /// Returns the plan of `program`, whose schedule has warp specialization. On failure, emits an
  /// error at the op that prevents it.
  static FailureOr<BlockPlan> get(ProgramOp program);

  /// Returns the loads in `loop` whose tiles go through rings, in program order.
  static SmallVector<LoadTileOp> findStreams(TileLoopOp loop);
  /// Returns the loads in `loop` of rows that are loaded with a stream's tiles, in program order.
  static SmallVector<Row> findRows(TileLoopOp loop, const SumSplit &split);

  int64_t getConsumers() const { return hopper.getConsumers(); }
  /// Whether all consumers run one program: each computes 64 of its rows or one of its sums.
  bool sharesProgram() const { return schedule.sharesProgram(); }
  bool splitsSums() const { return schedule.splitsSums(); }
  /// Whether the programs of a block iterate over one sequence, a tile list or compacted keys.
  /// Programs share a sequence in groups of `getPrograms()`, starting at a multiple of that number.
  bool sharesSequence() const {
    return TileLoopOp(loop).getList() ||
           llvm::any_of(streams, [](LoadTileOp load) { return !load.getSegments().empty(); });
  }
  /// Number of programs that a block runs side by side.
  int64_t getPrograms() const { return sharesProgram() ? 1 : getConsumers(); }
  int64_t getStages() const { return schedule.getStages(); }
  /// Number of groups whose residents fit into the block's shared memory at once. A block with
  /// several is persistent.
  int64_t getResidentGroups() const { return hopper.getQStages(); }
  /// Number of slots for the numbers and shared ranges of a group.
  int64_t getSlots() const { return memory.slots; }
  bool isPersistent() const { return getResidentGroups() > 1 || claims(); }
  /// Whether one thread finds the groups of a block and publishes them in shared memory.
  bool publishesGroups() const {
    return isPersistent() || ProgramOp(program).getRagged().has_value();
  }
  /// Whether persistent blocks claim groups from an atomic counter (dynamic scheduler).
  bool claims() const { return hopper.getDynamicScheduler() > 0; }
  /// Whether a kernel that runs before lists the groups, because only the device knows the lengths
  /// of the segments.
  bool listsGroups() const { return claims() && ProgramOp(program).getRagged().has_value(); }
  /// Whether a persistent block has buffers for the residents of one group only. The next group's
  /// residents overwrite them as soon as all steps have read them, so outputs are written from
  /// another buffer or from registers.
  bool reusesResidentBuffers() const { return hopper.reusesResidentBuffers(); }
  /// Whether each consumer runs its own program and residents are read only by products with
  /// streamed tiles. An empty ring then also means that the residents can be overwritten.
  bool waitsForEmptyRings() const { return reusesResidentBuffers() && getPrograms() > 1; }
  /// Whether the first threads of two warps load one stream each, because a tile consists of pieces
  /// of pages. One thread issues their copies too slowly.
  bool splitsStreams() const;
  /// Whether spare warps rewrite tiles of elements of 8 bits (F1, F3).
  bool rewrites() const { return llvm::any_of(streams, isRewritten); }
  /// Number of arrivals that free the slot of one program.
  int64_t countSlotReleases() const {
    bool areBusy = getDqReduceStages() || rewrites();
    int64_t spare = areBusy ? WarpgroupBlockPlan::kSpareWarps : splitsStreams() ? 1 : 0;
    constexpr int64_t kWarps = 4;
    return getConsumers() / getPrograms() * (reusesResidentBuffers() ? kWarps : 1) + spare;
  }
  /// Number of staging buffers through which consumers pass the tile that a step adds (dQ) to the
  /// spare warps. If 0, consumers add the tile themselves.
  int64_t getDqReduceStages() const { return hopper.getDqReduceStages(); }
  /// Whether the loop iterates over several intervals, or in rounds.
  bool hasPasses() const { return intervals > 1 || countsRounds; }
  int64_t getThreads() const { return hopper::kWarpgroupThreads * (getConsumers() + 1); }
  int64_t getHeadsPerBlock() const {
    return hopper.getAlong() == ProgramAxis::Head ? getPrograms() : 1;
  }
  /// Whether a block may run fewer programs than it has consumers.
  bool mayLackPrograms() const { return getPrograms() > 1 && getHeadsPerBlock() == 1; }
};

/// Determines how the consumers of `plan` split the sums of its loop. On failure, emits an error at
/// the op that prevents it.
LogicalResult splitSums(BlockPlan &plan);

/// Verifies that spare warps can rewrite the tiles of elements of 8 bits, if there are any (F1,
/// F3).
LogicalResult verifyConversion(const BlockPlan &plan);

/// Rows of `load` that must be read as zeros, because some contraction reduces over them or has
/// them as its own rows: rows before `begin` and rows from `end` on. A null bound excludes no rows.
struct LeftOut {
  Value begin, end;
};
/// Returns the row bounds of `load` that are defined inside its program if `inBlock`, else those
/// defined outside. In a consumer, the program's body has been moved into the launch.
LeftOut getRowBounds(LoadTileOp load, bool inBlock);
/// Returns the same if the rows outside of these bounds must be zero, else nothing.
LeftOut getLeftOut(LoadTileOp load, bool inBlock);
/// Returns the bounds that the host knows. The tensor map ends there, and TMA fills with zeros.
inline LeftOut getLeftOutByMap(LoadTileOp load) { return getLeftOut(load, /*inBlock=*/false); }
/// Returns the bounds that a block computes. Consumers set these rows to zero in shared memory.
inline LeftOut getLeftOutInBlock(LoadTileOp load) { return getLeftOut(load, /*inBlock=*/true); }

/// The memref of an access: `base`, or the rows of `base` from row `firstRow` on, which is null if
/// it is 0. A program that accesses packed rows creates the view of its sequence itself, but a
/// tensor map is that of a memref that the host knows.
struct RowView {
  Value base, firstRow;
  unsigned dim = 0; ///< the dimension of these rows, if there is a `firstRow`
};
/// Returns the view that `memref` is, along one of the dimensions `dims` of a tile.
RowView getRowView(Value memref, ArrayRef<int64_t> dims);

/// Returns the `flashattn.stage` op that begins the stage of `op`, or null in the first stage.
StageOp getStage(Operation *op);
/// Returns the index of the stage of `op`, from 0.
int64_t countStagesBefore(Operation *op);

/// Returns the type of the tile that products read.
inline VectorType getReadType(LoadTileOp load) {
  VectorType tile = load.getTileType();
  return isTransposed(load)
             ? VectorType::get({tile.getDimSize(1), tile.getDimSize(0)}, tile.getElementType())
             : tile;
}

/// Returns the type of the tile that a copy of `load` writes. That of elements of 8 bits, which are
/// converted later, has no columns of ones (F1).
inline VectorType getCopiedType(LoadTileOp load) {
  VectorType tile = load.getTileType();
  if (!load.converts())
    return tile;
  int64_t columns = tile.getDimSize(1) - (load.getOnes() ? LoadTileOp::kOnes : 0);
  return VectorType::get({tile.getDimSize(0), columns}, load.getMemRefType().getElementType());
}
inline VectorType getCopiedType(StoreTileOp store) { return store.getTileType(); }
inline VectorType getReadType(StoreTileOp store) { return store.getTileType(); }
inline bool isRewritten(StoreTileOp) { return false; }

/// Returns the number of columns in a panel of `tile` in shared memory.
inline int64_t getPanelColumns(VectorType tile) {
  return getPanelColumns(tile.getDimSize(1), tile.getElementTypeBitWidth() / 8);
}

/// Returns the number of rows of the pieces in which a tile of `load` is loaded: rows that are
/// contiguous in memory wherever the tile begins. It is that of the tile if all of its rows are. A
/// single segment starts at the first tile and does not split a tile.
inline int64_t getPieceRows(LoadTileOp load) {
  int64_t rows = load.getTileType().getDimSize(0);
  if (std::optional<PageMap> pages = load.getPages())
    return std::gcd(rows, pages->size);
  return load.getSegments().size() > 1 ? CompactRowsOp::kGranularity : rows;
}

/// Whether rows of a tile of `load` may be discontiguous in memory.
inline bool mayBeCut(LoadTileOp load) {
  return getPieceRows(load) != load.getTileType().getDimSize(0);
}

/// Returns the number of panels that TMA copies of a tile of `load`. Any further panels are ones.
inline int64_t countCopiedPanels(LoadTileOp load) {
  VectorType tile = load.getTileType();
  int64_t columns = tile.getDimSize(1) - (load.getOnes() ? LoadTileOp::kOnes : 0);
  return llvm::divideCeil(columns, getPanelColumns(tile));
}

inline bool BlockPlan::splitsStreams() const {
  return streams.size() == 2 && !getDqReduceStages() && !rewrites() &&
         (!isPersistent() || memory.residentEmpty.has_value()) &&
         llvm::all_of(streams, [](LoadTileOp load) { return load.getPages() && mayBeCut(load); });
}

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCKPLAN_H
