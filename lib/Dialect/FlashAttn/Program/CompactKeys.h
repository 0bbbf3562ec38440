//===- CompactKeys.h - visible keys as one sequence -------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// The keys of several intervals as one sequence without gaps, which is cut into tiles.
struct CompactKeys {
  TileInterval interval; ///< in tiles of the sequence
  SmallVector<RowSegment> segments;
};

/// Compacts `pieces`, intervals that count pieces of CompactRowsOp::kGranularity keys, to tiles of
/// `tileN` keys.
CompactKeys compactIntervals(OpBuilder &b, Location loc, ArrayRef<TileInterval> pieces,
                             int64_t tileN);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_COMPACTKEYS_H
