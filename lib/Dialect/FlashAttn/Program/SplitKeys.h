//===- SplitKeys.h - one part of a query tile's keys -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H

#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// Part `part` of `parts` of the tiles of `keys`, which are disjoint and ascending: of all of them,
/// one interval after the other, an equal share. The same number of intervals; full tiles stay
/// full.
SmallVector<TileInterval> takeShare(OpBuilder &builder, Location loc, ArrayRef<TileInterval> keys,
                                    Value part, Value parts);

/// In the same way `count` tiles from number `first` on, or as many of these as there are.
SmallVector<TileInterval> takeTiles(OpBuilder &builder, Location loc, ArrayRef<TileInterval> tiles,
                                    Value first, Value count);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SPLITKEYS_H
