//===- Sequence.h - the queries and keys of one batch -----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SEQUENCE_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SEQUENCE_H

#include "mlir/IR/Value.h"
#include "mlir/Support/LLVM.h"

namespace mlir::flashattn {

/// The queries and keys of one batch (rules A3, A7, S1 to S4), as index values.
struct Sequence {
  /// The rows of a packed sequence in memory.
  struct Packed {
    Value first;   ///< first row
    Value count;   ///< number of rows, some of which may not exist
    Value segment; ///< index of the segment (see `flashattn.program`)
  };

  Value batch;         ///< index in `kv_len` and `q_len`, and the batch of a score modification
  Value queries, keys; ///< numbers of queries and keys that exist
  Value offset;        ///< position of query 0
  std::optional<Packed> packedQueries = {}, packedKeys = {}; ///< set if they are packed
  Value slot = {};    ///< index of the keys in `k` and `v`; null: that of the batch (P4)
  Value leftpad = {}; ///< number of rows before key 0 (P3); null: none
  SmallVector<Value> symbols = {}; ///< values of the mask's symbols per sequence (Y1)
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SEQUENCE_H
