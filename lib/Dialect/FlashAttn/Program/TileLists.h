//===- TileLists.h - the key tiles that a keep shows -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Lists of key tiles, one for each batch and each tile of heads and of queries.
class TileLists {
public:
  /// Makes room for the lists and writes them. `keep` is broadcastable to [B, H, Nq, Nk]; `sizes`
  /// are the numbers of lists along B, H and Nq, one that is 1 for all of them; `tile` is that of
  /// `flashattn.list_tiles`, and so are the `intervals` of list (b, h, t).
  void build(OpBuilder &builder, Location loc, Value keep, ArrayRef<Value> sizes, Value numKeys,
             ArrayRef<int64_t> tile,
             function_ref<SmallVector<TileInterval>(ValueRange list)> intervals);

  /// The list at `place` (b, h, t), as an interval of places.
  TileInterval getInterval(OpBuilder &builder, Location loc, ValueRange place) const;

  /// The memref whose last dimension holds the numbers of the list's key tiles, and its other
  /// indices.
  std::pair<Value, SmallVector<Value>> getList(OpBuilder &builder, Location loc,
                                               ValueRange place) const;

  /// Gives their room back.
  void free(OpBuilder &builder, Location loc);

private:
  SmallVector<Value> at(OpBuilder &builder, Location loc, ValueRange place) const;

  Value buffer, bounds, tiles, middle;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
