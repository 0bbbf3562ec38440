//===- Distribute.h - distribution of a tile program to threads -*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_DISTRIBUTE_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_DISTRIBUTE_H

#include "TileLayout.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/PatternMatch.h"

namespace mlir::flashattn {

/// How a tile value is distributed over the threads of a program. A thread's elements are in the
/// order of m16n8 accumulators (see the pass description), which is also the order of the A operand
/// of the next product.
struct ThreadLayout {
  int64_t tileM;     ///< rows of every tile
  int64_t rowBlocks; ///< blocks of 16 rows per warp
  int64_t warps = 4;
  /// Number of warps that share rows; each has an equal range of a tile's columns.
  int64_t columnWarps = 1;
  /// Rows of a lane in a block of 16 rows, 1 or 2. The second row is 8 rows below the first.
  int64_t laneRows = 2;

  /// vector<M>, vector<Mx1> and vector<MxL>, where L is the 4 lanes that share a row.
  bool isRow(VectorType type) const;
  /// vector<1xN>
  bool isColumn(VectorType type) const;
  /// vector<MxN>
  bool isTile(VectorType type) const;
  /// vector<MxN/8x4x2>: a tile whose columns are split by lane.
  bool isSplitTile(VectorType type) const;
  /// vector<RxN> with R < M. Each warp has `columnWarps` blocks of 16 rows. R / (16 columnWarps)
  /// warps cover all rows, and each further set of that many warps has the next range of columns.
  bool isPart(VectorType type) const;
  /// Number of column ranges of such a tile with `rows` rows.
  int64_t countParts(int64_t rows) const { return 16 * columnWarps * warps / rows; }

  /// Number of warps with different rows.
  int64_t rowWarps() const { return warps / columnWarps; }
  /// Number of a tile's columns that a warp has.
  int64_t warpColumns(int64_t columns) const { return columns / columnWarps; }
  int64_t rowElements() const { return laneRows * rowBlocks; }
  /// Offset of a lane's row `i` from its first row.
  int64_t rowAt(int64_t i) const { return 16 * (i / laneRows) + 8 * (i % laneRows); }
  int64_t columnElements(int64_t columns) const { return warpColumns(columns) / 4; }
  /// Number of a thread's elements in a block of 16 rows of a tile.
  int64_t blockElements(int64_t columns) const { return laneRows * warpColumns(columns) / 4; }
  int64_t tileElements(int64_t columns) const { return rowBlocks * blockElements(columns); }

  /// Returns the vector of `type` that one thread holds; null if the layout does not support it.
  VectorType threadType(VectorType type) const;
};

/// Returns a pointer to element `at` of `memref`, in global or shared memory.
Value getPointer(OpBuilder &b, Location loc, Value memref, ArrayRef<Value> at);

/// Rewrites the tile ops of one program into ops on the fragments of each thread.
class Distributor {
public:
  Distributor(RewriterBase &b, OnThreadsOp program);

  /// Returns failure after an error at a tile op that cannot be distributed.
  LogicalResult run();

private:
  LogicalResult block(Block &body);
  LogicalResult distribute(Operation *op);
  LogicalResult forOp(scf::ForOp op);
  LogicalResult ifOp(scf::IfOp op);
  LogicalResult anyRow(AnyRowOp op);
  LogicalResult elementwise(Operation *op);
  Value numbers(VectorType type);
  LogicalResult shapeCast(vector::ShapeCastOp op);
  LogicalResult broadcast(vector::BroadcastOp op);
  std::optional<int64_t> findColumns(Operation *op, VectorType tile, VectorType part, ArrayAttr at);
  LogicalResult extractColumns(vector::ExtractStridedSliceOp op);
  LogicalResult insertColumns(vector::InsertStridedSliceOp op);
  LogicalResult reduction(vector::MultiDimReductionOp op);
  LogicalResult read(vector::TransferReadOp op);
  LogicalResult load(LoadTileOp op);
  LogicalResult store(StoreTileOp op);
  LogicalResult write(vector::TransferWriteOp op);
  bool fill(StoreTileOp op);
  void storeRow(StoreTileOp op, Value held, int64_t first, ArrayRef<Value> chunks,
                SmallVector<Value> at);
  LogicalResult contract(vector::ContractionOp op);
  LogicalResult contractPart(vector::ContractionOp op);
  LogicalResult addTile(AddTileOp op);
  LogicalResult wgmma(hopper::WgmmaOp op);
  LogicalResult contractPanels(vector::ContractionOp op);
  LogicalResult wgmmaWait(hopper::WgmmaWaitOp op);
  LogicalResult storeTile(hopper::StoreTileOp op);
  LogicalResult readTile(hopper::ReadTileOp op);
  LogicalResult pin(hopper::PinOp op);
  LogicalResult addTile(hopper::AddTileOp op);
  LogicalResult stageTile(hopper::StageTileOp op);
  /// Returns the index of this thread's warp in its program.
  Value findWarp();
  LogicalResult loadAdded(LoadAddedOp op);
  /// Returns this warp's index among `count` warps with different rows, and its index among the
  /// warps with the same rows.
  std::pair<Value, Value> splitWarp(int64_t count);
  /// Returns the first of this warp's columns in a tile of `columns` columns.
  Value firstColumn(int64_t columns);
  Value sliceForWarpgroup(Value tile, unsigned dim, int64_t size);
  // Programs whose threads have one row of a block of 16 (DistributeWarpgroups.cpp).
  void findSums();
  bool hasAllRows(Value held, Type tile);
  VectorType threadTypeOf(Value tile);
  Value withAllRows(Value held, Type tile);
  Value withOwnRows(Value held, Type tile);

  // mma.sync (MmaSync.cpp)
  void mma(ValueRange a, ValueRange rhs, MutableArrayRef<Value> c, Type element);
  Value contractHalf(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                     int64_t kSize, int64_t nSize);
  Value contractShared(vector::TransferReadOp lhs, vector::TransferReadOp rhs, bool transposed,
                       Value acc);
  Value contractTransposed(vector::TransferReadOp lhs, vector::TransferReadOp rhs, Value acc,
                           int64_t nSize);
  Value multiplyHalf(function_ref<SmallVector<Value>(int64_t, int64_t)> lhsAt, int64_t rowBlocks,
                     vector::TransferReadOp rhs, bool transposed, Value acc, int64_t kSize,
                     int64_t nSize, Value part);
  Value contractF32(Value lhs, vector::TransferReadOp rhs, bool transposed, Value acc,
                    int64_t kSize, int64_t nSize);
  Value loadTileFromShared(vector::TransferReadOp op);
  // Accesses to global memory (DistributeMemory.cpp).
  bool readsAlignedRows(LoadTileOp op);
  void findUnordered(vector::MultiDimReductionOp op);
  Value loadTileFromGlobal(LoadTileOp op);
  Value loadRowsFromGlobal(LoadTileOp op);
  SmallVector<Value> indicesOfRow(ArrayRef<Value> origin, ArrayRef<int64_t> rowDims,
                                  int64_t innerRows, int64_t number);
  SmallVector<Value> loadRow(LoadTileOp op, SmallVector<Value> at, unsigned columnDim,
                             Value lastColumn);
  SmallVector<Value> loadAlignedRow(Value memref, SmallVector<Value> at, int64_t columns,
                                    bool inAnyOrder);
  Value load16Bytes(Value memref, ArrayRef<Value> at);
  SmallVector<Value> transposeQuad(Value words);
  SmallVector<Value> gatherChunks(StoreTileOp op, Value held, Value firstColumn);

  // Small builders.
  Value index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, index(y)); }
  Value mul(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, index(y)); }
  Value shuffle(Value v, ArrayRef<int64_t> mask) {
    auto type = cast<VectorType>(v.getType());
    // The canonical form.
    if (type.getNumElements() == 1)
      return vector::BroadcastOp::create(
          b, loc, VectorType::get(static_cast<int64_t>(mask.size()), type.getElementType()), v);
    return vector::ShuffleOp::create(b, loc, v, v, mask);
  }
  Value slice(Value v, int64_t offset, int64_t size);
  /// Combines elementwise: `kind` is ADD, MAXNUMF or MAXSI.
  Value combine(vector::CombiningKind kind, Value x, Value y);
  /// Reduces over the 4 lanes that share a row. All 4 lanes get the result.
  Value reduceQuad(vector::CombiningKind kind, Value row);
  /// Reduces the thread's fragment of a tile along each row.
  Value reduceInThread(vector::CombiningKind kind, Value tile);

  /// Returns the fragment of `v` that this thread holds; null if unknown.
  Value mapped(Value v);
  bool isDistributed(Type type) const;

  /// Row or column indices as a per-thread value plus a constant for each element.
  struct NumberParts {
    Value thread;
    SmallVector<int64_t> constants;
  };
  NumberParts numberParts(VectorType type);
  Value getConstants(const NumberParts &parts, VectorType type);
  void splitColumns(Value columns, int64_t factor, NumberParts from);
  LogicalResult compareColumns(arith::CmpIOp op);

  RewriterBase &b;
  OnThreadsOp program;
  Location loc;
  ThreadLayout layout;
  bool isWarpSpecialized = false, hasProducts = false;
  DenseMap<Value, Value> values;            ///< tile value to the fragment that this thread holds
  DenseMap<Value, NumberParts> columnParts; ///< of 32-bit column indices and their multiples
  DenseSet<Value> sums;                     ///< tiles of which a lane always holds both rows
  DenseSet<Operation *> unordered;          ///< loads whose elements may be in any column order
  Value lane, laneRow, laneColumn, warpRow; ///< lane; lane/4; 2*(lane%4); first row of this warp
  Value columnWarp; ///< index among the warps that share rows; null if rows are not shared
  Value warpgroup;  ///< index, warp-uniform; null if one warpgroup runs the program
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_DISTRIBUTE_H
