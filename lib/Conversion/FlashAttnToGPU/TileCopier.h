//===- TileCopier.h - copies of tiles to shared memory ----------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILECOPIER_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILECOPIER_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// Builds the asynchronous copies of a block's threads to tiles in shared memory (SharedTile). Each
/// thread copies chunks of 16 bytes, the same ones of every tile of a shape.
class TileCopier : public TileBuilder {
public:
  /// `thread` is the index of a thread, below `threads`.
  TileCopier(OpBuilder &b, Location loc, Value thread, int64_t threads)
      : TileBuilder(b, loc), thread(thread), threads(threads) {}

  /// A copy of a tile to shared memory.
  struct Copy {
    LoadTileOp load;
    Value source;
    SmallVector<Value> origin; ///< first element of the tile
    SmallVector<bool> inBounds;
    Value scales; ///< null: none
  };

  /// A tile before its conversion and the stages for it after that, memref<N x vector> each: the
  /// vectors have the elements of a chunk of the converted tile.
  struct Vectors {
    Value from, to;
  };

  /// Copies a tile, with the elements that it has in memory, to `buffer[stage]`. Rows that do not
  /// exist are set to 0.
  void copyTile(const Copy &copy, Value buffer, Value stage);
  /// Converts a narrow tile (F1) to stage `stage`. Each thread converts the chunks that it has
  /// copied, and so need not wait for other threads.
  void convertTile(const Copy &copy, const Vectors &vectors, Value stage);

private:
  /// A row of a tile in memory.
  struct Row {
    SmallVector<Value> indices; ///< of its first element in the tile
    Value exists;               ///< null if the row always does
  };

  void forEachChunk(VectorType tile, int64_t elementBytes,
                    function_ref<void(Value row, Value inRow)> emit);
  Row findRow(const Copy &copy, Value row, Value inRow = {}, Value chunk = {});
  void copyChunk(const Copy &copy, Value buffer, Value stage, Value row, Value inRow);

  Value thread;
  int64_t threads;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOGPU_TILECOPIER_H
