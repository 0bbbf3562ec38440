//===- AttentionParts.h - slices of attention ops ---------------*- C++ -*-===//
//
// Helpers for the TilingInterface and the ShardingInterface, which turn a slice of an attention op
// (a tile or a shard) into an equivalent attention op.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// The symbols of a mask's sets. Their values change if an op has only a slice of the queries or
/// keys.
enum class MaskSymbol : unsigned { NQ = 0, NK = 1 };

/// Whether the mask of `op` depends on `symbol`.
bool readsSymbol(AttentionOpInterface op, MaskSymbol symbol);

/// Whether the result depends on the positions of queries and the position of query 0 differs
/// between batches (rule A3), because of own offsets, or of `kv_len` and `align(bottom_right)`. No
/// single `offset` can then represent the positions.
bool needsOwnPositions(AttentionOpInterface op);

/// Adds `first` to the index arguments of the score modification of `op`, so that the score
/// modification of a slice uses the indices of the whole op. `first` are the offsets of the slice's
/// batches, heads, positions and keys, in this order; trailing offsets may be omitted.
void shiftScoreMod(OpBuilder &b, AttentionOpInterface op, ArrayRef<OpFoldResult> first);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
