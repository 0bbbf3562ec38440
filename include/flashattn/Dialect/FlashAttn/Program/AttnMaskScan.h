//===- AttnMaskScan.h - visible tiles of lists, and ranges of values -*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_ATTNMASKSCAN_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_ATTNMASKSCAN_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir::flashattn {

/// Target-independent lowering of `flashattn.list_tiles`: iterates over the tiles of a list's
/// intervals and classifies the tiles by their elements of `attn_mask`, or by the op's test. The
/// target assigns elements or tiles to threads.
class AttnMaskScan : public TileBuilder {
protected:
  /// The state of a tile after some of its elements of `attn_mask` were read, as i1 values.
  struct Found {
    Value any; ///< some element is true
    Value all; ///< no element is false, and the mask hides no pair: the tile may be full
  };
  /// A tile of a list: a key tile or, with `of_queries`, a query tile.
  struct ListedTile {
    Value number; ///< tile index
    Value isFull; ///< whether the mask hides no pair of the tile
  };
  /// The candidate tiles of a list.
  struct List {
    SmallVector<Value> place; ///< indices of batch, head tile, and query or key tile
    SmallVector<TileInterval> intervals;
    SmallVector<Value> before; ///< number of tiles before each interval
    Value total;               ///< number of tiles of all intervals
  };
  static constexpr int64_t kWord = 4; // booleans per word

  AttnMaskScan(OpBuilder &b, ListTilesOp op);

  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value minUnsigned(Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); }
  Value boolean(bool v) { return arith::ConstantOp::create(b, loc, b.getBoolAttr(v)); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  /// Whether `attn_mask` is broadcast along dimension `i`.
  bool isSame(unsigned i) { return AttentionOp::isBroadcastDim(attnMask, i); }

  /// Builds the candidate tiles of the list at `place`.
  List enterList(ArrayRef<Value> place);
  /// Returns candidate tile `number`, counted from 0 over all intervals.
  ListedTile getTile(const List &list, Value number);
  /// Whether the op has a test, and no `attn_mask`.
  bool hasTest() { return !op.getTest().empty(); }
  /// Classifies `tile` of `list` by the op's test.
  Found testTile(const List &list, Value tile);
  /// Returns the indices of the query tile and of the key tile of `tile` in `list`.
  std::pair<Value, Value> getNumbers(const List &list, const ListedTile &tile) {
    return op.getOfQueries() ? std::pair(tile.number, list.place[2])
                             : std::pair(list.place[2], tile.number);
  }
  /// Returns the position in the middle of a list's row of `tiles`, from which the list grows.
  Value getMiddle() { return div(dim(op.getTiles(), 3), index(2)); }
  /// Returns the index, in dimension `dim` of `attn_mask`, of the first element of tile `number`,
  /// which has `size` elements along this dimension.
  Value firstElement(unsigned dim, Value number, int64_t size);
  /// Builds `read` in a branch that is skipped if `found` already classifies the tile as visible
  /// but not full.
  Found readUntilKnown(Found found, llvm::function_ref<Found()> read);
  /// Creates an `scf.if` on `condition` that returns a `Found`, with empty blocks.
  scf::IfOp branch(Value condition);

  /// Sets `attnMaskBytes`.
  void viewAsBytes();
  /// Loads `count` elements of `attn_mask`, as vector<(count / 4)xi32>.
  Value loadWords(ArrayRef<Value> at, int64_t count, llvm::Align alignment);
  /// Classifies words of `attn_mask` by their bitwise or, `anyOf`, and their bitwise and, `allOf`.
  Found judgeWords(Value anyOf, Value allOf);
  /// Stores the bounds of the list at `place`: its first position and its end, both i32.
  void writeBounds(ArrayRef<Value> place, Value begin, Value end);

  ListTilesOp op;
  TypedValue<MemRefType> attnMask;
  int64_t tileHeads, tileRows, tileKeys;
  /// `attn_mask` as bytes, for vector loads; null if the target uses no vector loads.
  Value attnMaskBytes;
};

/// Target-independent lowering of `flashattn.tile_ranges`. The target assigns rows to threads.
class RangeBuilder : public TileBuilder {
public:
  RangeBuilder(OpBuilder &b, TileRangesOp op) : TileBuilder(b, op.getLoc()), op(op) {}

  /// Builds a loop over every `step`th row of range `place` from its row `first` on, and returns
  /// the least and the greatest value, i32.
  std::pair<Value, Value> reduce(ArrayRef<Value> place, Value first, int64_t step);
  void store(ArrayRef<Value> place, Value least, Value greatest);

private:
  TileRangesOp op;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_ATTNMASKSCAN_H
