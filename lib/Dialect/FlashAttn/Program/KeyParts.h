//===- KeyParts.h - key tiles that several programs share --------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H

#include "Operands.h"
#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// The first tiles of keys where far more queries see them than the others, as sinks are seen: one
/// program of such a tile would last longer than all else. Several share its queries and add their
/// dk and dv up, in f32.
class KeyParts : public TileBuilder {
public:
  /// Before any program, and makes room for the sums. Nothing where the first tiles are like the
  /// others, whatever the lengths. Where these are known at run time only there may still be no
  /// such tile then. `all` is the range of all keys.
  static std::optional<KeyParts> get(OpBuilder &b, AttentionBackwardOp op, const Operands &operands,
                                     const KeyRange &all);
  void free() const;

  /// memref<B x tiles * M x D x f32>, which must be zeros before any program adds to it.
  Value getSums() const { return sums; }
  /// Programs of a batch and a head that has `tiles` tiles of keys.
  Value countPrograms(Value tiles) const { return TileBuilder::add(tiles, more); }

  /// What the program of a number has: a tile of keys and, of the tiles of queries that see it,
  /// `steps` from number `first` on, or as many of these as there are.
  struct Share {
    Value tile, first, steps;
    Value isPart; ///< i1: of a tile that several programs share
    Value stored; ///< the tile that it stores: of a part one past the last, which is not written
  };
  /// Of a head that has `tiles` tiles. The parts have the first numbers: they may last longest.
  Share locate(Value number, Value tiles) const;
  /// Adds dk and dv, f32, to the sums where `share` is a part.
  void add(const Share &share, Value batch, Value kvHead, Value dk, Value dv) const;

  /// Tiles [0, count) of a head are shared.
  Value getCount() const { return count; }
  /// The sum of one of them: dk (`which` 0) or dv (1), f32.
  Value load(Value batch, Value kvHead, Value tile, int64_t which) const;

private:
  KeyParts(OpBuilder &b, Location loc) : TileBuilder(b, loc) {}
  SmallVector<Value> placeOf(Value batch, Value kvHead, Value number, int64_t which) const;

  VectorType tile;     ///< of a sum
  int64_t columnParts; ///< of `flashattn.add_tile`
  int64_t heavy;       ///< tiles of a head that are shared, if any are
  // Of the host, so that kernels need not compute them.
  Value count;   ///< `heavy`, or 0
  Value more;    ///< programs of a head beyond one a tile
  Value bounded; ///< programs whose part has another behind it
  Value steps;   ///< tiles of queries that such a part has
  Value sums;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_KEYPARTS_H
