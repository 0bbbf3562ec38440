//===- KeyParts.h - key tiles that several programs share -------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H

#include "Operands.h"
#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// The first key tiles, if far more queries see them than see the other tiles, as with sink tokens.
/// A single program for such a tile would outlast all other programs. Several programs therefore
/// share its query tiles, and add up their dk and dv in f32.
class KeyParts : public TileBuilder {
public:
  /// Allocates the sums; called before any program is built. Returns nullopt if the first tiles are
  /// like the others. If lengths are known only at run time, the number of shared tiles may be 0
  /// then. `all` is the range of all keys.
  static std::optional<KeyParts> get(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                                     const Sequence &all);
  void free() const;

  /// Returns the sums, memref<B x R x D x f32> with the R rows of all shared tiles. They must be
  /// zeroed before any program adds to them.
  Value getSums() const { return sums; }
  /// Returns the number of programs per batch and head for `tiles` key tiles.
  Value countPrograms(Value tiles) const { return TileBuilder::add(tiles, more); }

  /// The work of one program: a key tile and, of the query tiles that see it, at most `steps` tiles
  /// from index `first` on.
  struct Share {
    Value tile, first, steps;
    Value isPart; ///< i1: whether several programs share the tile
    Value stored; ///< the tile to store; with `isPart`, one past the last, which is not written
  };
  /// Returns the share of program `number` of a head with `tiles` key tiles. Shared tiles have the
  /// first numbers, because their programs may take longest.
  Share locate(Value number, Value tiles) const;
  /// Adds dk and dv, f32, to the sums if `share` is part of a shared tile.
  void add(const Share &share, Value batch, Value kvHead, Value dk, Value dv) const;

  /// Returns the number of shared tiles of a head: tiles [0, count).
  Value getCount() const { return count; }
  /// Returns the sum of a shared tile in f32: dk (`which` = 0) or dv (1).
  Value load(Value batch, Value kvHead, Value tile, int64_t which) const;

private:
  KeyParts(OpBuilder &b, Location loc) : TileBuilder(b, loc) {}
  SmallVector<Value> getSumIndices(Value batch, Value kvHead, Value number, int64_t which) const;

  VectorType tile;     ///< type of a sum
  int64_t columnParts; ///< `parts` of `flashattn.add_tile`
  int64_t heavy;       ///< number of shared tiles of a head, if it has any
  // Computed on the host, so that kernels need not compute them.
  Value count;   ///< `heavy`, or 0
  Value more;    ///< programs of a head in addition to one per tile
  Value bounded; ///< programs whose share is not the last of its tile
  Value steps;   ///< query tiles of such a share
  Value sums;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H
