//===- WarpRoles.h - a block of warpgroups with roles -----------*- C++ -*-===//
//
// What flashattn-specialize-warps builds: the launch (SpecializeWarps.cpp), and in it the
// producer and the consumers (WarpRoles.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_WARPROLES_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_WARPROLES_H

#include "TileLayout.h"
#include "flashattn/Dialect/FlashAttn/Transforms/Transforms.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {

inline constexpr int64_t kWarpgroupThreads = 128;
/// Numbers of named barriers: the block's, and each consumer's is that of its warpgroup.
inline constexpr int64_t kBlockBarrier = 0;

/// Whether `op` is the run of key loops over one interval.
inline bool isKeyRun(Operation &op) { return op.hasAttr(kKeyRunAttrName); }

/// Rounds of the loop over several intervals.
inline int64_t countIntervals(scf::ForOp outer) {
  return getConstantIntValue(outer.getUpperBound()).value_or(0);
}

/// The dimension of its memref that the rows of a tile go along; the inner one of two.
inline unsigned getRowDim(VectorTransferOpInterface op) {
  return op.getPermutationMap().getDimPosition(op.getTransferRank() - 2);
}

/// Whether `read` is of keys or values, and not of what shapes scores.
inline bool isKeyTile(vector::TransferReadOp read) {
  return llvm::any_of(read->getUsers(), llvm::IsaPred<vector::ContractionOp>);
}

/// The rows and columns that `op` moves; its rows may be those of several heads.
inline VectorType getTile(VectorTransferOpInterface op) {
  VectorType type = op.getVectorType();
  int64_t columns = type.getShape().back();
  return VectorType::get({type.getNumElements() / columns, columns}, type.getElementType());
}

/// The rows, or rows and columns, that `write` writes: the value before it was cast to its heads.
inline Value getStored(vector::TransferWriteOp write) {
  auto split = write.getValueToStore().getDefiningOp<vector::ShapeCastOp>();
  return split ? split.getSource() : write.getValueToStore();
}

/// Whether `v` is computed from `from`.
bool dependsOn(Value v, Value from);

/// The number x of the tile that `read` reads: its row is x * rows. Null where it is none.
Value getTileNumber(vector::TransferReadOp read);

/// Where a list has the number of the tile that `read` reads; null where it is no list's.
memref::LoadOp getListEntry(vector::TransferReadOp read);

/// One operand of the key loops on its way through shared memory: as many tiles as there
/// are stages, each with a barrier that it is full and one that it is empty.
struct Ring {
  vector::TransferReadOp read; ///< a read of it, whose row index is `tile number * rows`
  Value map;                   ///< tensor map
  Value tiles;                 ///< memref<stages x panels x rows x columns>
  int64_t full, empty;         ///< number of the first of its barriers of each kind
};

/// Builds the block of one tile program.
class WarpRoles {
public:
  WarpRoles(RewriterBase &b, scf::ForallOp program)
      : b(b), program(program), loc(program.getLoc()), schedule(getSchedule(program)),
        roles(schedule.getRoles()), consumers(roles.getConsumers()), stages(schedule.getStages()),
        queryStages(roles.getQueryStages()) {}

  LogicalResult run();

private:
  /// First tile and end of an interval, as index values.
  struct Bounds {
    Value begin, end;
  };

  // Small builders.
  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
  Value mul(Value x, Value y) { return b.createOrFold<arith::MulIOp>(loc, x, y); }
  Value div(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(loc, x, y); }
  Value min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
  Value max(Value x, Value y) { return b.createOrFold<arith::MaxSIOp>(loc, x, y); }
  Value less(Value x, Value y) {
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y);
  }
  Value i32(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v); }
  Value i32(int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 32); }
  Value toIndex(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); }

  /// Lane 0's `v`, below 2^31, for all of a warp.
  Value fromLane0(Value v) {
    return toIndex(gpu::ShuffleOp::create(b, loc, i32(v), i32(0), i32(32), gpu::ShuffleMode::IDX)
                       .getShuffleResult());
  }

  /// Whether a block goes from one group of programs to the next.
  bool isPersistent() const { return queryStages > 1; }
  int64_t getThreads() const { return kWarpgroupThreads * (consumers + 1); }

  // The launch.
  LogicalResult findReads();
  LogicalResult splitByLength();
  Value countGroups();
  Value countResidentBlocks();
  Value countSmallerGroups();
  void decodeGroup(Value group);
  Value makeMap(VectorTransferOpInterface op);
  void allocate();
  void initBlock();

  // Groups of programs.
  Value groupOf(Value round);
  Value placeIn(Value round);
  Value countRounds();
  void forEachRound(Value rounds, function_ref<Value(Value round, Value step)> body);
  void prepareGroup();
  void readGroup(Value slot, bool byWarp);

  // Tiles.
  memref::SubViewOp getExistingKeys(VectorTransferOpInterface op);
  Value getWholeMemref(VectorTransferOpInterface op);
  static MemRefType getTileType(MLIRContext *ctx, VectorType tile, int64_t copies);
  Value slot(Value tiles, Value number);
  Value getPosition(vector::TransferReadOp read);
  Value tileAt(Value position, IRMapping &mapping);
  IRMapping programIds(Value consumer);
  SmallVector<IRMapping> programsOfGroup();
  Value isProgram(IRMapping &mapping);
  Value cloneValue(Value v, IRMapping &mapping);
  void load(vector::TransferReadOp read, Value map, Value tile, Value barrier, Value row,
            IRMapping &mapping);
  void loadQueries(MutableArrayRef<IRMapping> programs, Value slot);
  Value queryNumber(Value slot, Value consumer);

  // Rings.
  Ring &ringOf(vector::TransferReadOp read);
  Value stageOf(Value step, int64_t stages);
  Value parityOf(Value step, int64_t stages, bool inverted = false);
  void wait(int64_t first, Value step, bool inverted = false);
  void release(Ring &ring, Value step);

  // Roles.
  bool shareInterval(scf::IfOp run);
  Bounds boundsOf(scf::IfOp run, IRMapping &mapping);
  Bounds hullOf(scf::IfOp run, MutableArrayRef<IRMapping> programs);
  void publishHulls(Block &block, MutableArrayRef<IRMapping> programs, Value interval);
  Bounds readHull(scf::IfOp run, IRMapping &mapping, bool byWarp);
  void produce();
  Value produceGroup(Value step);
  Value produceBlock(Block &block, IRMapping &mapping, Value step);
  void meetBeforeAsyncReads();
  void storeOutput(Value number);
  void consume();
  Value consumeGroup(Value consumer, Value query, Value parity, Value step);
  Value consumeBlock(Block &block, IRMapping &mapping, Value step);
  void clearMissingRows(vector::TransferReadOp read, Value tile);
  void consumeRun(scf::IfOp run, const Bounds &hull, Value step);
  void passBy(Value begin, Value end, const Bounds &hull, Value step);

  RewriterBase &b;
  scf::ForallOp program;
  Location loc;
  ScheduleAttr schedule;
  RolesAttr roles;
  int64_t consumers, stages, queryStages;

  vector::TransferReadOp queryRead;
  Operation *queryTile = nullptr;      ///< the read, or its cast to a tile
  vector::TransferWriteOp outputWrite; ///< null where tensor copies cannot make it
  SmallVector<Ring> rings;             ///< keys, values
  /// An entry of the list of key tiles, null without one. All programs of a block have the same.
  memref::LoadOp listEntry;
  /// Number in `hulls` of each run's first interval, and of them all.
  DenseMap<Operation *, int64_t> firstInterval;
  int64_t intervals = 0;
  bool batchesShare = false; ///< whether batches share a bias or a keep that is dense

  // Outside of the launch.
  Value batches, heads, queryTiles, queryMap, outputMap;
  Value tileGroups, groups; ///< groups of programs: of one head, and all
  int64_t headsPerBlock = 1;
  gpu::LaunchOp launch;
  // In the launch.
  Value pool;              ///< dynamic shared memory, bytes
  int64_t poolBytes = 0;   ///< in use
  Value queries;           ///< memref<slots * consumers x panels x 64 x columns>
  Value outputs;           ///< the same for the output, in the queries' place or one slot
  Value barriers;          ///< memref<N x i64>: the queries' by slot and consumer, the rings'
  int64_t queriesFull = 0; ///< number of the first barrier of each kind
  int64_t queriesEmpty = 0;
  Value hulls;   ///< memref<slots x I x 2 x i32>: tiles that a group reads
  Value numbers; ///< memref<slots x 4 x i32>: batch, head, tile and end of a group
  // Of a group of programs: those that a block runs at once.
  Value batch, head, tile; ///< of the first program
  Value programEnd;        ///< number of query tiles up to the last one's
  Value hullSlot;          ///< where its hulls are
  Value thread, warpgroup; ///< number in the block; uniform over a warp
  Value signals;           ///< whether this thread is its warpgroup's first
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_WARPROLES_H
