//===- TileLists.h - the tiles that a keep shows -----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H

#include "Operands.h"
#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// Lists of key tiles, one for each batch and each tile of heads and of queries; or lists of query
/// tiles for tiles of keys.
class TileLists {
public:
  /// Makes room for the lists and writes them. `keep` is broadcastable to [B, H, Nq, Nk]; `sizes`
  /// are the numbers of lists along B, H and Nq, one that is 1 for all of them; of `count` keys, or
  /// queries, the lists have tiles; `tile` is that of `flashattn.list_tiles`, and so are the
  /// `intervals` of list (b, h, t). With `listed` the queries the lists along Nq are along Nk.
  void build(OpBuilder &builder, Location loc, Value keep, ArrayRef<Value> sizes, TileAxis listed,
             Value count, ArrayRef<int64_t> tile,
             function_ref<SmallVector<TileInterval>(ValueRange list)> intervals);

  /// The list at `place` (b, h, t), as an interval of places.
  TileInterval getInterval(OpBuilder &builder, Location loc, ValueRange place) const;

  /// The memref whose last dimension holds the numbers of the list's tiles, and its other
  /// indices.
  std::pair<Value, SmallVector<Value>> getList(OpBuilder &builder, Location loc,
                                               ValueRange place) const;

  /// Gives their room back.
  void free(OpBuilder &builder, Location loc);

private:
  SmallVector<Value> at(OpBuilder &builder, Location loc, ValueRange place) const;

  Value buffer, bounds, tiles, middle;
};

/// How many programs of a block run beside each other, and so have the same tiles.
int64_t countTogether(ScheduleAttr schedule);

/// Lists the tiles that the `keep` of `op` shows, of those that the mask does, for programs of
/// `of`: tiles of keys for those over query tiles, and of queries for those over key tiles. Of
/// several heads, whose number only the run knows, there are none. `all` is that of
/// Operands::getAllKeys.
std::optional<TileLists> listGradientTiles(OpBuilder &builder, AttentionBackwardOp op,
                                           const Operands &operands, const KeyRange &all,
                                           TileAxis listed, ScheduleAttr of);

/// A loop over `intervals` of tiles or, with lists, of the list at `place`; its body is empty.
/// `when` and `rounds`, which may be null, and `state` are those of `flashattn.tile_loop`.
TileLoopOp createTileLoop(OpBuilder &builder, Location loc, const std::optional<TileLists> &lists,
                          ArrayRef<TileInterval> intervals, ArrayRef<Value> place, Value when,
                          ValueRange state, Value rounds = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
