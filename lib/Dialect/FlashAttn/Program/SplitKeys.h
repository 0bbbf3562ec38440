//===- SplitKeys.h - one split of a query tile's keys -----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H

#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// Returns split `part` of `parts` equal splits of the tiles of `keys`, which are disjoint and
/// ascending and are counted through the intervals in turn. The number of intervals stays the same;
/// full tiles stay full.
SmallVector<TileInterval> takeShare(OpBuilder &builder, Location loc, ArrayRef<TileInterval> keys,
                                    Value part, Value parts);

/// Returns, in the same way, at most `count` tiles from index `first` on.
SmallVector<TileInterval> takeTiles(OpBuilder &builder, Location loc, ArrayRef<TileInterval> tiles,
                                    Value first, Value count);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H
