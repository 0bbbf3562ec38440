//===- AttentionParts.h - parts of an attention as attentions ---*- C++ -*-===//
//
// Helpers that turn a tile or a shard of an attention op into an attention op of its own with the
// same meaning as the part.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// The symbols of a mask's sets, which change if an op has only a part of the queries or keys.
enum class MaskSymbol : unsigned { NQ = 0, NK = 1 };

/// Whether the op's mask depends on a symbol.
bool readsSymbol(AttentionOpInterface op, MaskSymbol symbol);

/// Whether the op depends on the positions of queries, and A3 gives each batch its own position of
/// query 0, because of `kv_len` and alignment at the bottom right. No single offset can then
/// represent these positions.
bool needsOwnPositions(AttentionOpInterface op);

/// Adds `first` to the arguments of the score modification of `op`, which uses the indices of the
/// whole op. `first` are the offsets of the part's batches, heads, positions and keys; there may be
/// fewer than four.
void shiftScoreMod(OpBuilder &b, AttentionOpInterface op, ArrayRef<OpFoldResult> first);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
