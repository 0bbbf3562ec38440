//===- TileLayout.h - who holds which element of a tile ----------*- C++ -*-===//
//
// The two layouts that the GPU passes share: a tile value across the threads of a
// block, and a tile in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn {

/// The tile programs on threads below `root`.
inline SmallVector<OnThreadsOp> findTilePrograms(Operation *root) {
  SmallVector<OnThreadsOp> programs;
  root->walk([&](OnThreadsOp program) { programs.push_back(program); });
  return programs;
}

inline bool isSharedMemory(MemRefType type) {
  return gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type);
}

/// A tile in shared memory: `columns` elements a row, rows one after the other. The
/// 16-byte chunks of a row change places by the row's number, so that the 8 rows which
/// one `ldmatrix` phase reads at the same column lie in different banks.
struct SharedTile {
  int64_t columns, elementBytes;

  int64_t chunkElements() const { return 16 / elementBytes; }
  int64_t chunksPerRow() const { return columns * elementBytes / 16; }

  /// Column where (row, column) is stored: chunk ^ ((row / rowsPerLine) & mask). `column`
  /// must be the first of a chunk, plus `inChunk` elements.
  Value swizzle(OpBuilder &b, Location loc, Value row, Value chunk) const {
    int64_t chunks = chunksPerRow();
    // XOR stays within the row only for the bits below the row length's lowest set bit.
    int64_t mask = std::min<int64_t>(8, chunks & -chunks) - 1;
    if (mask <= 0)
      return chunk;
    auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
    // A line of all 32 banks, 8 chunks, holds several short rows.
    if (int64_t rowsPerLine = std::max<int64_t>(1, 8 / chunks); rowsPerLine > 1)
      row = arith::DivUIOp::create(b, loc, row, index(rowsPerLine));
    Value bits = arith::AndIOp::create(b, loc, row, index(mask));
    return arith::XOrIOp::create(b, loc, chunk, bits);
  }
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H
