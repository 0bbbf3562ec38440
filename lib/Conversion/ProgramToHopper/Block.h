//===- Block.h - builders of a warp-specialized block -----------*- C++ -*-===//
//
// The builders of flashattn-specialize-warps, one for each task. Each holds the plan and the values
// that all builders share; other values are arguments.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H
#define FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H

#include "BlockPlan.h"
#include "KernelBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::flashattn {

/// Numbers of named barriers: 0 is the whole block's, and each consumer's is the index of its
/// warpgroup. Consumers that share a program use the first consumer's number. If they split its
/// sums, each also has its own barrier, the index of its warpgroup plus 1.
inline constexpr int64_t kBlockBarrier = 0;
/// The first of two barriers at which consumers that share a program, without splitting its sums,
/// take turns to issue products.
inline constexpr int64_t kPeerBarriers = 2;

/// Threads of a warp.
inline constexpr int64_t kWarpThreads = 32;

/// The programs that a block runs side by side.
struct Group {
  Value batch, head, tile; ///< of the first program
  Value end;               ///< end of the group's query tiles; null if the group is along heads
};

/// Values that the whole block shares, set while the block is built.
struct BlockValues {
  // Computed on the host.
  Value tiles;              ///< number of programs per head
  Value tileGroups, groups; ///< number of groups: per head, in total
  Value section;            ///< heads per section, i32; null: a constant of the schedule
  Value idle;               ///< stages of a ring kept without a tile in flight, i32; null: 0
  /// Tensor maps of a stream's tiles and, if tiles may be cut, of their pieces; else null.
  struct StreamMaps {
    Value tile, piece;
  };
  struct Maps {
    SmallVector<Value> residents, outputs;
    SmallVector<StreamMaps> streams;
  };
  Maps maps;
  /// In global memory, if blocks claim groups.
  struct Scheduler {
    Value counter; ///< memref<? x i32>: number of claimed groups
    /// For programs over segments, memref<? x 2 x i32>: the number of groups per head, then the
    /// segment and the first tile of each.
    Value list;
  };
  Scheduler scheduler;
  gpu::LaunchOp launch;
  // In shared memory.
  Value pool;                   ///< the whole pool: memref<? x i8>
  SmallVector<Value> residents; ///< memref<held tiles x panels x rows x columns> each
  SmallVector<Value> outputs;   ///< the same shape, or one tile for each consumer
  SmallVector<Value> rings;
  /// By stream: the ring of the source tiles of elements of 8 bits; or null. If they are converted,
  /// vectors of the elements of all stages before and after the conversion, memref<N x vector>
  /// each; if they are transposed, the tiles, memref<stages x panels x rows x columns>.
  struct Source {
    Value ring, from, to;
  };
  SmallVector<Source> sources;
  SmallVector<Value> exchanged; ///< memref<2 x panels x rows x columns> each
  SmallVector<Value> rows;      ///< memref<stages x elements x f32> each
  SmallVector<Value> staging;   ///< memref<warps x elements x f32> each
  Value barriers;               ///< memref<N x i64>
  Value sharedRanges;           ///< memref<slots x intervals x 2 x i32>: tiles that a group reads
  Value numbers;                ///< memref<slots x 4 x i32>: batch, head, tile and end of a group
  // In the kernel.
  Group group;             ///< the only group, if every thread finds it
  Value thread, warpgroup; ///< thread in the block; warpgroup, warp-uniform
  Value signals;           ///< whether this is the first thread of its warpgroup
  Value releases;          ///< whether this thread releases the stages of rings
};

/// Tiles, or positions of a tile list, in [begin, end).
struct TileRange {
  Value begin, end;
};

class BlockBuilder : public KernelBuilder {
public:
  BlockBuilder(RewriterBase &b, const BlockPlan &plan, const BlockValues &block)
      : KernelBuilder(b, plan.program->getLoc()), plan(plan), block(block) {}

protected:
  /// Clones `v` and its operands from the program, with the program indices in `mapping`.
  Value clone(Value v, IRMapping &mapping) { return TileBuilder::clone(v, mapping, plan.program); }
  /// Returns the indices at which the tile of `access` begins in its memref.
  template <typename AccessOp> SmallVector<Value> getOrigin(AccessOp access, IRMapping &mapping) {
    SmallVector<Value> indices;
    for (Value v : access.getIndices())
      indices.push_back(clone(v, mapping));
    return getTileOrigin(b, access, indices);
  }
  /// Returns the index of a consumer's residents in a slot, for their buffers and their barriers.
  Value heldNumber(Value slot, Value consumer) {
    if (plan.getResidentGroups() == 1)
      return consumer;
    return add(mul(slot, plan.getPrograms()), consumer);
  }

  /// Calls `body` for each pass of the loop of a program with the indices `mapping`, with the step
  /// before it, starting at `step`. `body` returns the step after it. Returns the last one.
  using PassBody = function_ref<Value(const IRMapping &mapping, Value interval, Value step)>;
  Value forEachPass(IRMapping mapping, Value step, PassBody body);
  /// Builds a spare warp, or thread, that works on the tiles of every group that the first thread
  /// publishes, and then frees the group's slot by calling `arrive` for each of its barriers.
  void forEachPublishedGroup(bool byWarp, function_ref<void(Value barrier)> arrive,
                             function_ref<Value(const Group &group, Value slot, Value step)> body);

  /// Returns the staging buffer of step `step` (i32), memref<warps x elements x f32>. `stagingFree`
  /// returns the index of the mbarrier that signals that the buffer is free.
  Value stagingAt(Value step);
  Value stagingFree(Value step) {
    return add(slotOf(step, plan.getDqReduceStages()), index(plan.memory.stagingFree));
  }

  const BlockPlan &plan;
  const BlockValues &block;
};

/// Which programs a block runs, and when (Grid.cpp).
class GridBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  // On the host.
  void countGroups(BlockValues &values);
  Value countBlocks();
  Value countIdleStages();
  Value countHeadsPerSection();

  // In the kernel.
  Group decode(Value number);
  Value groupOf(Value round);
  Value countRounds();
  using RoundBody = function_ref<Value(Value round, Value state)>;
  void forEachRound(Value rounds, Value state, RoundBody body);
  Value hasMoreGroups();
  Value isGroup(Value number);
  Value claim();
  void forEachClaim(bool byWarp, function_ref<void(Value round)> await, Value state,
                    RoundBody body);
  void forEachGroup(bool byWarp, Value consumer, Value state, RoundBody body);
  SmallVector<Value> listNumbers(const Group &group, Value consumer);
  IRMapping numbersOf(const Group &group, Value consumer);
  SmallVector<IRMapping> programsOf(const Group &group);
  Value isProgram(Value tile) { return less(tile, block.tiles); }
  void publishGroup(const Group &group, Value slot);
  void publishEnd(Value slot);
  Group read(Value slot, bool byWarp);
  /// Returns the only group of a block that is not persistent.
  Group onlyGroup(bool byWarp) {
    return plan.publishesGroups() ? read(index(0), byWarp) : block.group;
  }

private:
  Value countResidentBlocks();
  Value countSmallerGroups();
  Value countHeadGroups();
  Value countPerHead();
  Group fromList(Value position, Value head);
  Value readNumber(Value slot, int64_t which, bool byWarp);
  Value positionIn(Value round);
};

/// Builds the kernel that lists the groups of programs over segments (ListGroups.cpp).
class GroupLister : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  /// Allocates the list for up to `most` groups per head.
  Value allocate(Value most);
  /// Builds the kernel, which also sets `counter` to 0.
  void build(Value list, Value counter);

private:
  void launchBlock();
  /// Returns the number of tiles of a group.
  int64_t countTiles() const { return plan.getHeadsPerBlock() == 1 ? plan.getPrograms() : 1; }
  Value countGroups(Value segment);
  void forEachSegment(function_ref<void(Value segment, Value groups, Value key)> body);
  Value fromLane(Value value, Value from);
  Value sumUpTo(Value number);
  Value addTo(Value key, Value number);
  void addLarger();
  void inFirst(Value thread, function_ref<void()> body);
  void signalOthers(Value groups);
  void writeGroups(Value list, Value segment, Value groups, Value first, Value most);

  Value thread, lane; ///< index values
  Value counts;       ///< i32 in shared memory: groups by sort key, then sums of warps
};

/// Computes the key tiles that the programs of a group read together (SharedRanges.cpp). `interval`
/// is null if the loop has only one.
class SharedRangeBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void publish(MutableArrayRef<IRMapping> programs, Value slot);
  TileRange read(Value slot, Value interval, bool byWarp);
  TileRange boundsOf(IRMapping &mapping, Value interval);
  TileRange withStep(TileRange range, Value interval);

private:
  TileRange hullOf(MutableArrayRef<IRMapping> programs, Value interval);
  void store(const TileRange &sharedRange, Value slot, Value interval);
};

/// Builds the producer warpgroup, which loads tiles (Producer.cpp).
class ProducerBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void prepare(const Group &group, Value slot);
  void prepareIf(Value isGroup, Value number, Value slot);
  void build();

private:
  void buildSpareWarps();
  void buildFirstThread();
  void buildSecondThread();
  void loadResidents(MutableArrayRef<IRMapping> programs, Value slot);
  Value produce(const Group &group, Value slot, Value step);
  Value toMap(LoadTileOp load, unsigned dim, Value row, IRMapping &mapping);
  SmallVector<Value> findPieces(LoadTileOp load, IRMapping &mapping, Value first);
  /// The pages of the tiles that `load`, and other streams like it, load.
  struct PagedTiles {
    LoadTileOp load;
    Value table, sequence;
    SmallVector<Value> begins, ends;

    int64_t countPieces() const {
      return LoadTileOp(load).getTileType().getDimSize(0) / getPieceRows(load);
    }
    PageMap getMap() const {
      return {table, sequence, LoadTileOp(load).getPages()->size, Value(), begins, ends};
    }
  };
  /// Pieces of a tile: the first row of each in its page, and the page, as index values.
  struct PagedPieces {
    SmallVector<Value> rows, pages;
  };
  std::optional<PagedTiles> findPages(IRMapping &mapping);
  SmallVector<PagePlace> placePieces(const PagedTiles &tiles, Value tile);
  SmallVector<Value> loadPages(const PagedTiles &tiles, Value tile);
  PagedPieces findPieces(const PagedTiles &tiles, Value tile, ValueRange pages);
  SmallVector<hopper::RingPutOp> put(unsigned stream, IRMapping &mapping, Value step,
                                     const PagedPieces &paged);
  Value produceInterval(IRMapping mapping, Value slot, Value interval, Value step);
  /// Whether the thread that is being built loads a stream.
  bool loads(unsigned stream) const { return !ownStream || stream == *ownStream; }
  /// The only stream that the thread loads; see BlockPlan::splitsStreams. Otherwise it loads all.
  std::optional<unsigned> ownStream;
  void prepareNext(Value round, Value rounds, Value step);
  void prepareClaimed(Value round, Value step);
  Value awaitSlot(Value round, Value step);
};

/// Builds the spare warps of the producer warpgroup, which add staged tiles (Adder.cpp).
class AdderBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void build();

private:
  /// A tile of the f32 sums in global memory, and the position of its state.
  struct Place {
    Value sums;        ///< memref<N x D x f32>, all rows
    Value order;       ///< memref<T x i32>, state of all tiles; null if there is none
    Value row, column; ///< first row and column of the tile
    Value tile;        ///< index of the tile
  };

  Place findPosition(IRMapping &mapping);
  void clearIfFirst(const Place &place, Value seen);
  void addStep(IRMapping &mapping, Value before);
  Value addInterval(IRMapping mapping, Value interval, Value progress);
  Value flatten(Value memref, Value count, ArrayRef<int64_t> columns);
  Value addPasses(IRMapping &mapping, Value progress);
  Value addProgram(const Group &group, Value progress);

  Value warp; ///< i32, index among the spare warps
};

/// Builds the spare warps of the producer warpgroup, which convert or transpose tiles
/// (Converter.cpp).
class ConverterBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  /// Elements that a thread converts at once: 16 bytes of the converted tile.
  static constexpr int64_t kElements = 8;

  void build();

private:
  /// A stream whose tiles are converted or transposed.
  struct Stream {
    Stream(const BlockPlan &plan, unsigned number);

    unsigned number;
    LoadTileOp load;
    int64_t perRow, vectors; ///< vectors of a row and of a tile
    /// A warp converts a unit at a time: rows of a panel with four vectors for each lane, whose
    /// swizzles differ by constants. 0 if a tile does not consist of units.
    int64_t unitRows = 0;
    int64_t unitVectors = 0; ///< vectors of a row of a unit
    int64_t unitsPerRow = 0, units = 0;
    /// Registers for the scales of the rows that a warp converts in a step; 0 if there are none, or
    /// if a thread loads the scale of each vector.
    int64_t held = 0;
  };
  /// Stages of a step before and after the conversion, i32.
  struct Stages {
    Value from, to;
  };
  /// The places of vectors in the panels of a tile. TMA and products permute the 16-byte chunks of
  /// a row by the number of its line of 128 bytes.
  struct VectorLayout {
    VectorLayout(VectorType tile);

    int64_t panels, rows, vectorsPerRow, vectorsPerChunk;
    int64_t chunks, rowsPerLine; ///< chunks of a row, rows of a line
  };

  Value getLane();
  Value getFirstUnit(const Stream &stream);
  std::pair<Value, Value> locate(const Stream &stream, Value turn);
  Value placeIn(const VectorLayout &layout, Value stage, Value row, Value vector);
  Value loadScale(const Stream &stream, IRMapping &mapping, Value row, Value vector);
  SmallVector<Value> loadHeldScales(const Stream &stream, IRMapping mapping);
  Value takeHeldScale(const Stream &stream, ValueRange held, Value turn, Value row);
  void convert(const Stream &stream, IRMapping &mapping, const Stages &stages, Value turn,
               int64_t count);
  void convertUnit(const Stream &stream, ValueRange held, IRMapping &mapping, const Stages &stages,
                   Value turn);
  void convertUnits(const Stream &stream, ValueRange held, IRMapping &mapping,
                    const Stages &stages);
  void convertVectors(const Stream &stream, IRMapping &mapping, const Stages &stages);
  void transpose(const Stream &stream, IRMapping &mapping, const Stages &stages);
  Stages findStages(const Stream &stream, Value now);
  Stages awaitStages(const Stream &stream, Value now);
  Stages convertTile(const Stream &stream, ValueRange held, IRMapping mapping, Value now);
  void signal(const Stream &stream, const Stages &stages);
  IRMapping mapTo(const IRMapping &mapping, Value position);
  Value convertInterval(IRMapping mapping, Value slot, Value interval, Value step);

  SmallVector<Value> firstUnits; ///< first unit of the warp by stream modulo the number of warps
};

/// Builds the consumer warpgroups, which run programs (Consumer.cpp).
class ConsumerBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void build();

private:
  void buildThreads();
  BlockPlan cloneForSum(int64_t consumer);
  void passTile(TileLoopOp loop, Value first, Value step);
  /// Residents of a consumer: their slot, their index, and whether they must still be waited for.
  struct Held {
    Value slot, number;
    bool pending;
  };

  Value consume(const Group &group, Value consumer, const Held &held, Value step);
  void recomputeNumbers();
  void rereadNumbers(ArrayRef<Value> numbers, Value slot, Value consumer);
  mlir::Value holdFirstColumns(LoadTileOp resident, mlir::Value tile);
  void useResidents(const Held &held);
  void hideBounds(TileLoopOp loop);
  Value consumeLoop(Value slot, Value tile, Value step);
  Value consumeInterval(TileLoopOp loop, Value slot, Value interval, Value tile, Value step);
  void skipTiles(Value begin, Value end, Value first, Value step);
  Value stepAt(TileLoopOp loop, Value first, Value step);
  /// Returns `stepAt` as i32.
  Value now(TileLoopOp loop, Value first, Value step);
  void useStream(TileLoopOp loop, unsigned number, LoadTileOp load, Value first, Value step);
  void useRows(TileLoopOp loop, Value first, Value step);
  void clearMissingRows(LoadTileOp load, const LeftOut &missing, Value tile);
  void pinOperands(TileLoopOp loop);
  void syncProgram();
  void fillOnes();
  void syncWarpgroup();
  bool waitsForStoreLater(Value buffer);
  void awaitStaging(Value step);
  void storePartial(StoreTileOp output);
  void storeOutputs(const Held &held, Value consumer, Value step);

  // Exchange between consumers that share a program (Exchange.cpp).
  void exchange(TileLoopOp loop, Value first, Value step);
  SmallVector<Value> getPosition(AddTileOp added);
  void addTiles(mlir::Block *body, Value step);
  bool alternates(TileLoopOp loop) const;
  void alternate(TileLoopOp loop);

  Value threadInGroup;   ///< index among the threads that run this program or this copy of it
  Value threadOfProgram; ///< index among all threads that run the program
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H
