//===- AttentionParts.h - parts of an attention as attentions ---*- C++ -*-===//
//
// What a tile and a shard of an attention need to know, and to change, so that each is an attention
// of its own that means what it did as a part.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// The symbols of a mask's sets: what changes with a part of the queries, and of the keys.
enum class MaskSymbol : unsigned { NQ = 0, NK = 1 };

/// Whether the op's mask reads a symbol.
bool readsSymbol(AttentionOpInterface op, MaskSymbol symbol);

/// Whether something asks for the positions of queries, and A3 gives each batch a position of query
/// 0 of its own: by `kv_len`, aligned at the bottom right. No one offset stands for them then.
bool needsOwnPositions(AttentionOpInterface op);

/// Adds `first`, of the batches, heads, positions and keys of which there may be fewer than four, to
/// what the score modification of `op` is asked for: it goes by those of the whole op.
void shiftScoreMod(OpBuilder &b, AttentionOpInterface op, ArrayRef<OpFoldResult> first);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_ATTENTIONPARTS_H
