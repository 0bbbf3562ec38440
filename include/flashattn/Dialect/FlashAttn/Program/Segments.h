//===- Segments.h - programs over packed rows -------------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SEGMENTS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SEGMENTS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Replaces `numbers`, the position of a program along each axis of `program`, by the arguments of
/// the region: with segments, the first becomes the index of a segment, and the last the index of
/// a tile in this segment. `starts` and `size` are the starts and the last size of `program`, as
/// values at the insertion point. Does nothing without segments.
void findSegment(OpBuilder &builder, ProgramOp program, Value starts, Value size,
                 MutableArrayRef<Value> numbers);

/// Does the same for tiles of `tileRows` rows that no program counts; a segment begins at a
/// multiple of `segmentTiles` tiles, and `size` is their number.
void findSegment(OpBuilder &builder, Location loc, Value starts, Value size, int64_t tileRows,
                 int64_t segmentTiles, MutableArrayRef<Value> numbers);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SEGMENTS_H
