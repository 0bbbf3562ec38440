//===- TileTransfer.h - transfers between memory and tiles ------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H

#include "TileValues.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn::cpu {

/// Whether `tile`, possibly extended, is used only as the right-hand side of contractions.
bool isOnlyBroadcast(Value tile);

/// Returns the tile or row that a transfer reads or writes. The rows of packed heads are two
/// dimensions of the transfer, which a cast merges into the rows of the tile.
Value getTile(vector::TransferReadOp read);
Value getTile(vector::TransferWriteOp write);
/// Whether `cast` belongs to a transfer.
bool isOfTransfer(vector::ShapeCastOp cast);

/// Lower vector.transfer_read of vector<MxN> or vector<M>: transposed into a new buffer, with
/// padding in rows and columns past the end.
LogicalResult lowerTileRead(vector::TransferReadOp read, TileValues &values);
LogicalResult lowerRowRead(vector::TransferReadOp read, TileValues &values);

/// Lower vector.transfer_write of vector<MxN> or vector<M>. Rows past the end are not written.
LogicalResult lowerTileWrite(vector::TransferWriteOp write, TileValues &values);
LogicalResult lowerRowWrite(vector::TransferWriteOp write, TileValues &values);

/// Returns K or V for `read`, row-major, as a two-dimensional memref of f32. This is a view of the
/// caller's memory if that memory is f32, in bounds, and has a static row stride; otherwise it is a
/// scratch buffer with a converted and padded copy. Returns null after an error.
Value lowerBroadcastRead(vector::TransferReadOp read, TileValues &values);

/// Returns a scratch buffer, like that of lowerBroadcastRead, with the rows that `load` loads: rows
/// in pages (P1), or of elements of 8 bits (F1). Rows that do not exist are 0. Returns null after an error.
Value lowerRowLoad(LoadTileOp load, TileValues &values);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILETRANSFER_H
