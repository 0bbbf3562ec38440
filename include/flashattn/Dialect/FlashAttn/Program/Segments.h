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

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SEGMENTS_H
