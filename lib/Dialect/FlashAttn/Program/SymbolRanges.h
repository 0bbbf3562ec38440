//===- SymbolRanges.h - ranges of the mask's symbols in tiles ---*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SYMBOLRANGES_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SYMBOLRANGES_H

#include "Sequence.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

class Operands;

/// Y2: the least and the greatest value of each symbol per query, or per key, in tiles of rows of
/// each sequence. Kernels before the programs compute them once for all programs.
class SymbolRanges : TileBuilder {
public:
  /// Allocates the ranges for tiles of `rows` rows of `axis`, and builds the ops that write them.
  /// `all` is the result of Operands::getAll. With `copies`, they also copy the symbols to tiles.
  SymbolRanges(const Operands &operands, AttentionOpInterface op, const Sequence &all,
               TileAxis axis, int64_t rows, bool copies);

  /// Returns the ranges of the symbols in the `count` rows of `sequence` from `first` on, of which
  /// at least one exists. Other rows of the tiles that hold them may widen a range. `head` is a
  /// query head or, for keys, a key/value head; without it, nothing is known of a symbol whose
  /// values differ between heads.
  SmallVector<SymbolRange> get(const Sequence &sequence, Value head, Value first,
                               int64_t count) const;
  /// Loads the copy of symbol `i` in tile `tile` of `sequence` as a tile of equal rows of i32;
  /// `columns` are its f32 elements. `head` is that of `get`. Returns null without copies, or if a
  /// tile of copies has another number of rows.
  Value loadCopy(unsigned i, const Sequence &sequence, Value head, Value tile,
                 VectorType columns) const;
  /// Deallocates the ranges.
  void free() const;

private:
  const std::optional<Sequence::Packed> &getPacked(const Sequence &sequence) const {
    return axis == TileAxis::Queries ? sequence.packedQueries : sequence.packedKeys;
  }
  void build(const Operands &operands, const Sequence &all, Value values, Value ranges,
             Value copies);
  /// Returns the number of the first tile of `sequence`.
  Value getFirstTile(const Sequence &sequence) const;

  mutable AttentionOpInterface op; ///< a handle, whose accessors are not const
  TileAxis axis;
  int64_t rows;
  Value starts; ///< null if the rows are not packed
  Value tiles;  ///< number of tiles of a batch, or of all packed sequences
  Value buffer; ///< null if there are no symbols
  SmallVector<Value> ranges, copies;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_SYMBOLRANGES_H
