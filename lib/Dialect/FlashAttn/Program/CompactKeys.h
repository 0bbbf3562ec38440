//===- CompactKeys.h - visible keys as one sequence -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H

#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// The keys of several intervals, one behind the other and cut into tiles.
struct CompactKeys {
  /// The keys of an interval, and those up to the next one's.
  struct Part {
    Value cut;     ///< where it begins in the sequence
    Value skip;    ///< hidden keys before it: so much more is a key's number than in the part before
    int64_t least; ///< no key of it has a lower number
  };
  TileInterval interval; ///< of tiles of the sequence
  SmallVector<Part> parts;
};

/// Joins `pieces`, intervals of LoadTileOp::kPieceRows keys each, to tiles of `tileN` keys.
CompactKeys compactIntervals(OpBuilder &b, Location loc, ArrayRef<TileInterval> pieces, int64_t tileN);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
