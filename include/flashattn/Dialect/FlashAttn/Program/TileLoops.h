//===- TileLoops.h - lowering of loops over tiles to scf --------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir {
class RewriterBase;
namespace memref {
class LoadOp;
} // namespace memref
namespace scf {
class ForOp;
} // namespace scf

namespace flashattn {

/// A run of consecutive partial or full tiles within an interval.
struct TileRun {
  Value begin, end;
  bool isFull;
};

/// Returns the runs of interval `i` of `loop` in order: partial, full and partial tiles, without
/// the runs that are known to be empty. Each run begins at the end of the previous run.
SmallVector<TileRun> getRuns(TileLoopOp loop, unsigned i = 0);

/// Returns the four bounds of interval `number`, an index value, selected from `bounds` at run
/// time. If there is only one interval, returns its bounds.
SmallVector<Value> pickInterval(OpBuilder &builder, Location loc, ValueRange bounds, Value number);

/// A pass of a loop over one interval. A loop iterates over its rounds and, in each round, over its
/// intervals.
struct TilePass {
  Value interval; ///< index of the interval
  Value round;    ///< index of the round; null if the loop has no rounds
};

/// Returns the number of passes of `loop`.
Value countPasses(OpBuilder &builder, Location loc, TileLoopOp loop);
/// Returns pass `number` of `loop`.
TilePass enterPass(OpBuilder &builder, Location loc, TileLoopOp loop, Value number);

/// Moves `load`, in the body of a loop over tiles, in front of the loop unless it depends on the
/// step. Returns the load. A program writes no memory that it reads by `memref.load`.
memref::LoadOp hoistLoad(OpBuilder &builder, memref::LoadOp load);

/// Replaces a loop with several passes by a loop over the passes that contains a loop over one
/// interval, so that the code size does not depend on the number of intervals. Loads that depend
/// only on the pass are in the outer loop. Returns the outer loop, or null if `loop` has only one
/// pass.
scf::ForOp splitIntervals(RewriterBase &rewriter, TileLoopOp loop);

/// Annotates `loop`, an scf loop, so that LLVM does not unroll it. The LLVM dialect must be loaded.
void keepRolled(Operation *loop);

/// Returns the index of the tile at position `place` of `loop`: an element of its list, or `place`
/// itself if there is no list.
Value getTileNumber(OpBuilder &builder, Location loc, TileLoopOp loop, Value place);

/// Lowers `loop` to `scf` loops, one for each of its runs, or one for all runs with the mask in a
/// branch (flashattn-expand-loops). Stages that lag run one step later: the stages of the first
/// step are placed before the loops, and the lagging stages of the last step after the loops, all
/// under the condition that there is a step. Emits an error at the op if a lagging stage reads a
/// value of an earlier stage that is neither a tile nor computed from the step's indices, or if a
/// first stage reads a value that a lagging stage yields.
LogicalResult expandTileLoop(RewriterBase &rewriter, TileLoopOp loop);

/// Returns the origin of the tile of `op` at `indices`, in elements along each dimension of the
/// memref. Like the indices of `op` itself, `indices` count tiles in the dimensions that the tile
/// covers.
SmallVector<Value> getTileOrigin(OpBuilder &builder, LoadTileOp op, ValueRange indices);
SmallVector<Value> getTileOrigin(OpBuilder &builder, StoreTileOp op, ValueRange indices);

/// Where a row of a sequence is in its pages (P1).
struct PagePlace {
  Value exists; ///< i1: whether the page does
  Value number; ///< i32: index of the page in the sequence
  Value row;    ///< i32: the row in the page
};
/// Returns the place of `row`, an i32 index of a row of a sequence.
PagePlace findPage(OpBuilder &builder, Location loc, const PageMap &pages, Value row);
/// Returns the index in the pool of page `number` of the sequence, i32: any number if the page does
/// not exist.
Value loadPage(OpBuilder &builder, Location loc, const PageMap &pages, Value number);

/// Returns a subview of the rows [`from`, `below`) of `memref` along `rowDim`. A null `from` is the
/// first row, and a null `below` the end.
Value takeRows(OpBuilder &builder, Location loc, Value memref, unsigned rowDim, Value from,
               Value below);

/// Replaces `op` by `vector.transfer_read` or `vector.transfer_write` and, if the rows run along
/// several dimensions, a shape cast. If the load has a `from`, the transfer reads a subview that
/// begins at row `from`, and the tile may begin at a negative row of this subview.
void expandToTransfer(RewriterBase &rewriter, LoadTileOp op);
void expandToTransfer(RewriterBase &rewriter, StoreTileOp op);

/// Replaces `op` by arithmetic (flashattn-expand-rescale). With `threshold`, bases are updated and
/// accumulators rescaled only if a score or probability exceeds the threshold; with the region
/// `recompute`, the scores and probabilities are then computed a second time.
void expandSoftmaxSteps(RewriterBase &rewriter, SoftmaxStepOp op);

} // namespace flashattn
} // namespace mlir

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_TILELOOPS_H
