//===- TileLists.h - lists of the tiles that `attn_mask` shows -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H

#include "Operands.h"
#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// Lists of key tiles, one for each batch, head tile and query tile; or lists of query tiles, one
/// for each key tile.
class TileLists {
public:
  /// Allocates the lists and builds the op that writes them. `attn_mask` is broadcastable to [B, H,
  /// Nq, Nk]. `sizes` are the numbers of lists along B, H and Nq; a size of 1 is one list for the
  /// whole dimension. The listed tiles are those of `count` keys or queries. `tile` and the
  /// `intervals` of list (b, h, t) are as in `flashattn.list_tiles`. If `listed` is Queries, lists
  /// are along Nk instead of Nq.
  void build(OpBuilder &builder, Location loc, Value attnMask, ArrayRef<Value> sizes,
             TileAxis listed, Value count, ArrayRef<int64_t> tile,
             function_ref<SmallVector<TileInterval>(ValueRange list)> intervals);

  /// Returns the interval of the list at `place` (b, h, t), as positions in its row.
  TileInterval getInterval(OpBuilder &builder, Location loc, ValueRange place) const;

  /// Returns the memref whose last dimension holds the tile indices of the list, and its other
  /// indices.
  std::pair<Value, SmallVector<Value>> getList(OpBuilder &builder, Location loc,
                                               ValueRange place) const;

  /// Deallocates the lists.
  void free(OpBuilder &builder, Location loc);

private:
  SmallVector<Value> at(OpBuilder &builder, Location loc, ValueRange place) const;

  Value buffer, bounds, tiles, middle;
};

/// Lists the tiles that both `attn_mask` and the mask of `op` show, for programs with the schedule
/// `of`: key tiles for programs over query tiles, and query tiles for programs over key tiles.
/// Returns nullopt without `attn_mask`, or if a list would cover several heads whose number is
/// known only at run time. `all` is the result of Operands::getAll.
std::optional<TileLists> listGradientTiles(OpBuilder &builder, AttentionBackwardOp op,
                                           const Operands &operands, const Sequence &all,
                                           TileAxis listed, ScheduleAttr of);

/// Creates a loop over `intervals` or, with `lists`, over the list at `place`, with an empty body.
/// `when` and `rounds`, which may be null, and `state` are those of `flashattn.tile_loop`.
TileLoopOp createTileLoop(OpBuilder &builder, Location loc, const std::optional<TileLists> &lists,
                          ArrayRef<TileInterval> intervals, ArrayRef<Value> place, Value when,
                          ValueRange state, Value rounds = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
