//===- CompactKeys.h - visible keys as one sequence -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H

#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// The keys of several intervals as one sequence without gaps, which is cut into tiles.
struct CompactKeys {
  /// The part of the sequence that contains the keys of one interval.
  struct Part {
    Value cut;     ///< index of its first key in the sequence
    Value skip;    ///< number of hidden keys between the previous part and this part
    int64_t least; ///< lower bound of its keys
  };
  TileInterval interval; ///< in tiles of the sequence
  SmallVector<Part> parts;
};

/// Compacts `pieces`, intervals that count pieces of LoadTileOp::kPieceRows keys, to tiles of
/// `tileN` keys.
CompactKeys compactIntervals(OpBuilder &b, Location loc, ArrayRef<TileInterval> pieces,
                             int64_t tileN);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
