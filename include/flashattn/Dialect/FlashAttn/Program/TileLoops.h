//===- TileLoops.h - from loops over tiles to scf ----------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class RewriterBase;
namespace scf {
class ForOp;
} // namespace scf

namespace flashattn {

/// A run of steps of one kind within an interval, in tiles.
struct TileRun {
  Value begin, end;
  bool isFull;
};

/// The runs of interval `i` of `loop` in order, without those that are known to be empty: partial,
/// full and partial tiles. Each begins where the one before ends.
SmallVector<TileRun> getRuns(TileLoopOp loop, unsigned i = 0);

/// The bounds of interval `number`, an index value, of those in `bounds`: four, picked when it
/// runs, or those of the only one.
SmallVector<Value> pickInterval(OpBuilder &builder, Location loc, ValueRange bounds, Value number);

/// One of the passes over an interval that a loop makes: its rounds, and in each the intervals.
struct TilePass {
  Value interval; ///< number
  Value round;    ///< null where the loop has none
};

/// How many passes `loop` makes, and pass `number` of them.
Value countPasses(OpBuilder &builder, Location loc, TileLoopOp loop);
TilePass enterPass(OpBuilder &builder, Location loc, TileLoopOp loop, Value number);

/// Makes of a loop of several passes one over their numbers with a loop over a single interval
/// inside, so that code does not grow with the mask; null where it makes one.
scf::ForOp splitIntervals(RewriterBase &rewriter, TileLoopOp loop);

/// Annotates `loop`, of scf, so that LLVM does not unroll it: lowerings hand on what attributes it
/// has of LLVM's dialect, which has to be loaded.
void keepRolled(Operation *loop);

/// The number of the tile at `place` of `loop`: from its list, or the place itself.
Value getTileNumber(OpBuilder &builder, Location loc, TileLoopOp loop, Value place);

/// Turns `loop` into `scf` loops, one for each of its runs, or one for all with the mask in a
/// branch (flashattn-expand-loops). Stages that lag run a step later: the first step then stands
/// before the loops, and what is left of the last one behind them, all within a condition that
/// there is a step. Errors, at the op: a stage that lags reads a value of a stage before it that is
/// neither a tile nor computed from the step's numbers; a first stage that reads what a lagging one
/// yields.
LogicalResult expandTileLoop(RewriterBase &rewriter, TileLoopOp loop);

/// Where the tile of `op` at `indices` begins along each dimension of the memref, in elements:
/// `indices` count tiles where it covers a dimension, as those of `op` itself do.
SmallVector<Value> getTileOrigin(OpBuilder &builder, LoadTileOp op, ValueRange indices);
SmallVector<Value> getTileOrigin(OpBuilder &builder, StoreTileOp op, ValueRange indices);

/// The rows of `memref` along `rowDim` from `from` on, null: the first, and before `below`, null:
/// the end.
Value takeRows(OpBuilder &builder, Location loc, Value memref, unsigned rowDim, Value from,
               Value below);

/// Replaces `op` by `vector.transfer_read` or `vector.transfer_write` and, where rows go along
/// several dimensions, a cast. A read of rows `from` some row on begins before the view that it is
/// of, where its tile does.
void expandToTransfer(RewriterBase &rewriter, LoadTileOp op);
void expandToTransfer(RewriterBase &rewriter, StoreTileOp op);

/// Replaces `op` by arithmetic (flashattn-expand-rescale): with `growth` by a base that is taken
/// anew, and a rescaling, only where some row's scores have grown by more; and with a region by
/// weights that are made a second time where they have.
void expandWeights(RewriterBase &rewriter, WeightsOp op);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
