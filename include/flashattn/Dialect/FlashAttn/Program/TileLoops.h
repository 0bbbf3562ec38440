//===- TileLoops.h - lowering of loops over tiles to scf --------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class RewriterBase;
namespace scf {
class ForOp;
} // namespace scf

namespace flashattn {

/// A run of partial or full tiles within an interval.
struct TileRun {
  Value begin, end;
  bool isFull;
};

/// Returns the runs of interval `i` of `loop` in order: partial, full and partial tiles, without
/// those that are known to be empty. Each run begins where the previous one ends.
SmallVector<TileRun> getRuns(TileLoopOp loop, unsigned i = 0);

/// Returns the four bounds of interval `number`, an index value, selected from `bounds` at run
/// time; or those of the only interval.
SmallVector<Value> pickInterval(OpBuilder &builder, Location loc, ValueRange bounds, Value number);

/// One of a loop's passes over an interval. A loop runs through its rounds and, in each, through
/// its intervals.
struct TilePass {
  Value interval; ///< number of the interval
  Value round;    ///< null if the loop has no rounds
};

/// Return the number of passes of `loop`, and pass `number`.
Value countPasses(OpBuilder &builder, Location loc, TileLoopOp loop);
TilePass enterPass(OpBuilder &builder, Location loc, TileLoopOp loop, Value number);

/// Replaces a loop with several passes by a loop over their numbers that contains a loop over a
/// single interval, so that the code does not grow with the mask. Returns null if there is only one
/// pass.
scf::ForOp splitIntervals(RewriterBase &rewriter, TileLoopOp loop);

/// Annotates `loop`, an scf loop, so that LLVM does not unroll it. Lowerings pass on its attributes
/// of the LLVM dialect, which must be loaded.
void keepRolled(Operation *loop);

/// Returns the number of the tile at `place` of `loop`: an element of its list, or the place
/// itself.
Value getTileNumber(OpBuilder &builder, Location loc, TileLoopOp loop, Value place);

/// Lowers `loop` to `scf` loops, one for each of its runs, or one for all runs with the mask in a
/// branch (flashattn-expand-loops). Stages that lag run one step later: the first step then comes
/// before the loops, and the lagging stages of the last step come after them, all under the
/// condition that there is a step. Emits an error at the op if a lagging stage reads a value of an
/// earlier stage that is neither a tile nor computed from the step's numbers, or if a first stage
/// reads a value that a lagging stage yields.
LogicalResult expandTileLoop(RewriterBase &rewriter, TileLoopOp loop);

/// Returns the origin of the tile of `op` at `indices`, in elements along each dimension of the
/// memref. Like the indices of `op` itself, `indices` count tiles in the dimensions that the tile
/// covers.
SmallVector<Value> getTileOrigin(OpBuilder &builder, LoadTileOp op, ValueRange indices);
SmallVector<Value> getTileOrigin(OpBuilder &builder, StoreTileOp op, ValueRange indices);

/// Returns the rows of `memref` along `rowDim` from `from` on (null: the first row) and before
/// `below` (null: the end).
Value takeRows(OpBuilder &builder, Location loc, Value memref, unsigned rowDim, Value from,
               Value below);

/// Replaces `op` by `vector.transfer_read` or `vector.transfer_write` and, if the rows run along
/// several dimensions, a cast. A read of the rows from row `from` on uses a view of these rows, and
/// begins before the view, where the tile does.
void expandToTransfer(RewriterBase &rewriter, LoadTileOp op);
void expandToTransfer(RewriterBase &rewriter, StoreTileOp op);

/// Replaces `op` by arithmetic (flashattn-expand-rescale). With `threshold`, the base is updated,
/// and sums are rescaled, only if the scores of some row have grown by more; with a region, the
/// weights are then computed a second time.
void expandWeights(RewriterBase &rewriter, SoftmaxStepOp op);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
