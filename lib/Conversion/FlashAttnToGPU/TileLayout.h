//===- TileLayout.h - layouts of tiles in registers and memory --*- C++ -*-===//
//
// The two layouts that the GPU passes share: of a tile value over the threads of a block, and of a
// tile in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::flashattn {

/// Returns the tile programs on threads in `root`.
inline SmallVector<OnThreadsOp> findTilePrograms(Operation *root) {
  SmallVector<OnThreadsOp> programs;
  root->walk([&](OnThreadsOp program) { programs.push_back(program); });
  return programs;
}

inline bool isSharedMemory(MemRefType type) {
  return gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type);
}

/// A row-major tile in shared memory with `columns` elements per row. The 16-byte chunks of a row
/// are swizzled by the row index, so that the 8 rows that one `ldmatrix` phase reads at the same
/// column are in different banks.
struct SharedTile {
  int64_t columns, elementBytes;

  int64_t chunkElements() const { return 16 / elementBytes; }
  int64_t chunksPerRow() const { return columns * elementBytes / 16; }

  /// Returns where in its row chunk `chunk` of row `row` is stored:
  /// chunk ^ ((row / rowsPerLine) & mask).
  Value swizzle(OpBuilder &b, Location loc, Value row, Value chunk) const {
    int64_t chunks = chunksPerRow();
    // XOR stays within the row only for bits below the lowest set bit of the number of chunks.
    int64_t mask = std::min<int64_t>(8, chunks & -chunks) - 1;
    if (mask <= 0)
      return chunk;
    auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); };
    // A line of all 32 banks (8 chunks) holds several short rows.
    if (int64_t rowsPerLine = std::max<int64_t>(1, 8 / chunks); rowsPerLine > 1)
      row = arith::DivUIOp::create(b, loc, row, index(rowsPerLine));
    Value bits = arith::AndIOp::create(b, loc, row, index(mask));
    return arith::XOrIOp::create(b, loc, chunk, bits);
  }
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILELAYOUT_H
