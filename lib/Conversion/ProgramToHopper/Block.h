//===- Block.h - a block of warpgroups with warp specialization -*- C++ -*-===//
//
// What flashattn-specialize-warps builds, by job. Each builder holds a plan and the values that all
// of them share; what changes from place to place is passed on.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H
#define FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H

#include "BlockPlan.h"
#include "KernelBuilder.h"
#include "flashattn/Dialect/FlashAttn/Program/TileLoops.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::flashattn {

/// Numbers of named barriers: the block's, and each consumer's is that of its warpgroup. Consumers
/// that share a program have the first one's or, where they split its sums, one behind all of these
/// for themselves.
inline constexpr int64_t kBlockBarrier = 0;
/// The first of the two at which consumers that share a program, and do not split its sums, wait
/// for each other's products.
inline constexpr int64_t kPeerBarriers = 2;

/// Threads of a warp.
inline constexpr int64_t kWarpThreads = 32;

/// Programs that a block runs at once.
struct Group {
  Value batch, head, tile; ///< of the first one
  Value end;               ///< number of query tiles up to the last one's; null along heads
};

/// Values that the whole block shares, once they are there.
struct BlockValues {
  // Of the host.
  Value tiles;              ///< how many programs a head has
  Value tileGroups, groups; ///< groups of programs: of one head, and all
  Value section;            ///< heads that are started together, i32; null: as the schedule says
  Value idle;               ///< places of a ring that have no tile on its way, i32; null: all may
  /// Tensor maps of a stream's tiles and, where these may be cut, of their pieces; else null.
  struct StreamMaps {
    Value tile, piece;
  };
  SmallVector<Value> residentMaps, outputMaps;
  SmallVector<StreamMaps> streamMaps;
  Value counter; ///< memref<? x i32> in global memory: how many groups were claimed
  gpu::LaunchOp launch;
  // In shared memory.
  Value pool;                   ///< all of it: memref<? x i8>
  SmallVector<Value> residents; ///< memref<held tiles x panels x rows x columns> each
  SmallVector<Value> outputs;   ///< the same, or with one tile for each consumer
  SmallVector<Value> rings;
  SmallVector<Value> exchanged; ///< memref<2 x panels x rows x columns> each
  SmallVector<Value> rows;      ///< memref<stages x elements x f32> each
  SmallVector<Value> staging;   ///< memref<warps x elements x f32> each
  Value barriers;               ///< memref<N x i64>
  Value sharedRanges;           ///< memref<slots x intervals x 2 x i32>: tiles that a group reads
  Value numbers;                ///< memref<slots x 4 x i32>: batch, head, tile and end of a group
  // In the kernel.
  Group group;             ///< the only one of a block that is not persistent
  Value thread, warpgroup; ///< number in the block; uniform over a warp
  Value signals;           ///< whether this thread is its warpgroup's first
  Value releases;          ///< whether this thread lets tiles of rings go
};

/// Tiles, or places of a list, from `begin` up to `end`.
struct TileRange {
  Value begin, end;
};

class BlockBuilder : public KernelBuilder {
public:
  BlockBuilder(RewriterBase &b, const BlockPlan &plan, const BlockValues &block)
      : KernelBuilder(b, plan.program->getLoc()), plan(plan), block(block) {}

protected:
  /// A value of the program for the numbers in `mapping`.
  Value clone(Value v, IRMapping &mapping) { return TileBuilder::clone(v, mapping, plan.program); }
  /// Where the tile of `access` begins in its memref.
  template <typename AccessOp> SmallVector<Value> getOrigin(AccessOp access, IRMapping &mapping) {
    SmallVector<Value> indices;
    for (Value v : access.getIndices())
      indices.push_back(clone(v, mapping));
    return getTileOrigin(b, access, indices);
  }
  /// Number of a consumer's residents in a slot, of their tiles and of their barriers.
  Value heldNumber(Value slot, Value consumer) {
    if (plan.getHeld() == 1)
      return consumer;
    return add(mul(slot, plan.getPrograms()), consumer);
  }

  /// The place through which what is added of step `step`, i32, goes to spare warps: memref<warps x
  /// elements x f32>; and the number of the barrier of whether it is free.
  Value stagingAt(Value step);
  Value stagingFree(Value step) {
    return add(placeOf(step, plan.getDqReduceStages()), index(plan.memory.stagingFree));
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
  Value countIdlePlaces();
  Value countHeadsOfPlaces();

  // In the kernel.
  Group decode(Value number);
  Value groupOf(Value round);
  Value countRounds();
  using RoundBody = function_ref<Value(Value round, Value state)>;
  void forEachRound(Value rounds, Value state, RoundBody body);
  Value hasMoreGroups();
  Value claim();
  void forEachClaim(bool byWarp, function_ref<void(Value round)> await, Value state,
                    RoundBody body);
  void forEachGroup(Value consumer, Value state, RoundBody body);
  SmallVector<Value> listNumbers(const Group &group, Value consumer);
  IRMapping numbersOf(const Group &group, Value consumer);
  SmallVector<IRMapping> programsOf(const Group &group);
  Value isProgram(Value tile) { return less(tile, block.tiles); }
  void tell(const Group &group, Value slot);
  void tellEnd(Value slot);
  Group read(Value slot, bool byWarp);

private:
  Value countPlaces();
  Value countSmallerGroups();
  Value readNumber(Value slot, int64_t which, bool byWarp);
  Value placeIn(Value round);
};

/// Which tiles the programs of a group read together (SharedRanges.cpp). An interval has a number
/// where the loop has several.
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

/// The warpgroup that brings tiles (Producer.cpp).
class ProducerBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void prepare(const Group &group, Value slot);
  void build();

private:
  void loadResidents(MutableArrayRef<IRMapping> programs, Value slot);
  Value produce(const Group &group, Value slot, Value step);
  Value toMap(LoadTileOp load, Value row);
  SmallVector<Value> findPieces(LoadTileOp load, IRMapping &mapping, Value first);
  SmallVector<hopper::RingPutOp> put(unsigned stream, IRMapping &mapping, Value step);
  Value produceInterval(IRMapping mapping, Value slot, Value interval, Value step);
  void prepareNext(Value round, Value rounds, Value step);
  void prepareClaimed(Value round, Value step);
  Value awaitSlot(Value round, Value step);
};

/// Spare warps of the producer's group, which add what consumers stage (Adder.cpp).
class AdderBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void build();

private:
  /// A tile of what is added up, and where its state stands.
  struct Place {
    Value sums;        ///< memref<N x D x f32>, of all rows
    Value order;       ///< memref<T x i32>, of all tiles; null without one
    Value row, column; ///< where the tile begins
    Value tile;        ///< its number
  };

  Place findPlace(IRMapping &mapping);
  void clearIfFirst(const Place &place, Value seen);
  void addStep(IRMapping &mapping, Value before);
  Value addInterval(IRMapping mapping, Value interval, Value progress);
  Value flatten(Value memref, Value count, ArrayRef<int64_t> columns);
  Value addPasses(IRMapping &mapping, Value progress);
  Value addProgram(const Group &group, Value progress);

  Value warp; ///< i32, of the spare ones
};

/// The warpgroups that run programs (Consumer.cpp).
class ConsumerBuilder : public BlockBuilder {
public:
  using BlockBuilder::BlockBuilder;

  void build();

private:
  void buildThreads();
  BlockPlan takeShare(int64_t consumer);
  void handOver(TileLoopOp loop, Value first, Value step);
  /// Residents of a consumer: the slot, their number, and whether they have yet to be waited for.
  struct Held {
    Value slot, number;
    bool pending;
  };

  Value consume(const Group &group, Value consumer, const Held &held, Value step);
  void rereadNumbers(ArrayRef<Value> numbers, Value slot, Value consumer);
  mlir::Value holdFirstColumns(LoadTileOp resident, mlir::Value tile);
  void useResidents(const Held &held);
  void hideBounds(TileLoopOp loop);
  Value consumeLoop(Value slot, Value tile, Value step);
  Value consumeInterval(TileLoopOp loop, Value slot, Value interval, Value tile, Value step);
  void skipTiles(Value begin, Value end, Value first, Value step);
  Value stepAt(TileLoopOp loop, Value first, Value step);
  /// The same in 32 bits.
  Value now(TileLoopOp loop, Value first, Value step);
  void useStream(TileLoopOp loop, LoadTileOp load, Value ring, Value first, Value step);
  void useRows(TileLoopOp loop, Value first, Value step);
  void clearMissingRows(LoadTileOp load, const LeftOut &missing, Value tile);
  void pinOperands(TileLoopOp loop);
  void meet();
  void fillOnes();
  void meetAlone();
  bool waitsForStoreLater(Value buffer);
  void awaitStaging(Value step);
  void storeOutputs(const Held &held, Value consumer, Value step);

  // What consumers of one program have of each other (Exchange.cpp).
  void exchange(TileLoopOp loop, Value first, Value step);
  SmallVector<Value> getPlace(AddTileOp added);
  void addTiles(mlir::Block *body, Value step);
  bool alternates(TileLoopOp loop) const;
  void alternate(TileLoopOp loop);

  Value threadInGroup;   ///< its number in what runs the program, or a share of it
  Value threadOfProgram; ///< in all that run the program
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_PROGRAMTOHOPPER_BLOCK_H
