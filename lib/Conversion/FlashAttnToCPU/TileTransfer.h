//===- TileTransfer.h - between the caller's memory and tiles ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H

#include "TileValues.h"

namespace mlir::flashattn::cpu {

/// Whether `tile` is only ever the right-hand side of contractions, itself or extended.
bool isOnlyBroadcast(Value tile);

/// The tile or row that a transfer reads or writes. Rows of several heads, which lie apart in
/// memory, are two dimensions of the transfer: a cast makes them the tile's one.
Value getTile(vector::TransferReadOp read);
Value getTile(vector::TransferWriteOp write);
/// Whether `cast` is that of a transfer.
bool isOfTransfer(vector::ShapeCastOp cast);

/// vector.transfer_read of vector<MxN> or vector<M>: transposed into a new buffer, rows
/// and columns past the end as the padding.
LogicalResult lowerTileRead(vector::TransferReadOp read, TileValues &values);
LogicalResult lowerRowRead(vector::TransferReadOp read, TileValues &values);

/// vector.transfer_write of vector<MxN> or vector<M>: rows past the end are not written.
LogicalResult lowerTileWrite(vector::TransferWriteOp write, TileValues &values);
LogicalResult lowerRowWrite(vector::TransferWriteOp write, TileValues &values);

/// K or V as `read` takes it, rows as in memory: a two-dimensional memref of f32. A view of
/// the caller's memory where that is f32 with rows a static stride apart and all in bounds;
/// else a scratch buffer, to which it is copied, converted and padded. Null after an error.
Value lowerBroadcastRead(vector::TransferReadOp read, TileValues &values);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
