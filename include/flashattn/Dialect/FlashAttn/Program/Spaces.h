//===- Spaces.h - items of the spaces of programs ---------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SPACES_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SPACES_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Returns the number of points of `space`, an index.
Value countPoints(OpBuilder &builder, SpaceOpInterface space);

/// Order in which the points of a space are numbered. The last axis varies fastest, and query tiles
/// run last to first: under a causal mask, the last one has the most keys.
enum class PointOrder {
  Ascending, ///< other axes run first to last
  Descending ///< other axes run last to first
};

/// Returns the item at point `number` of `space`: index values, one for each axis. `number` is an
/// index or, for fast divisions on a GPU, i32.
SmallVector<Value> emitItem(OpBuilder &builder, SpaceOpInterface space, Value number,
                            PointOrder order = PointOrder::Ascending);

/// Returns the item at the point with `coordinates`, index values.
SmallVector<Value> emitItemAt(OpBuilder &builder, SpaceOpInterface space, ValueRange coordinates);

/// Erases `program`, and its space unless others use it.
void eraseProgram(RewriterBase &rewriter, ProgramOp program);

/// Finds the segment of tile `number` of ragged rows with `tiles` tiles in all. Returns the number
/// of the segment, and of the tile in it, index values.
std::pair<Value, Value> findSegment(OpBuilder &builder, Location loc, const RaggedAxes &ragged,
                                    Value tiles, Value number);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_SPACES_H
