//===- TileTransfer.h - between the caller's memory and tiles ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H

#include "TileValues.h"

namespace mlir::flashattn::cpu {

/// The matrix whose elements a contraction broadcasts, one at a time: K or V, rows as in
/// memory. Element (i, j) is `memref[indices with i and j added to two of them]`.
struct BroadcastMatrix {
  Value memref;
  SmallVector<Value> indices;
  unsigned rowDim = 0, columnDim = 1;

  Value load(OpBuilder &b, Location loc, Value row, Value column) const;
};

/// Whether `tile` is only ever the right-hand side of contractions, itself or extended.
bool isOnlyBroadcast(Value tile);

/// vector.transfer_read of vector<MxN> or vector<M>: transposed into a new buffer, rows
/// and columns past the end as the padding.
LogicalResult lowerTileRead(vector::TransferReadOp read, TileValues &values);
LogicalResult lowerRowRead(vector::TransferReadOp read, TileValues &values);

/// vector.transfer_write of vector<MxN> or vector<M>: rows past the end are not written.
LogicalResult lowerTileWrite(vector::TransferWriteOp write, TileValues &values);
LogicalResult lowerRowWrite(vector::TransferWriteOp write, TileValues &values);

/// The rows of K or V that `read` takes, as f32: straight from the caller's memory where
/// that is f32 with rows a static stride apart and all in bounds, else copied, converted and
/// padded, to scratch. Null memref after an error.
BroadcastMatrix lowerBroadcastRead(vector::TransferReadOp read, TileValues &values);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
