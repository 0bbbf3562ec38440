//===- KeepScan.h - the key tiles that `keep` shows --------------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KEEPSCAN_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KEEPSCAN_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir::flashattn {

/// What every target does for a `flashattn.list_tiles`: goes through the tiles of a list's
/// intervals and judges them by some of their elements of `keep`. Which thread has which is the
/// target's.
class KeepScan : public TileBuilder {
protected:
  /// What is known of a tile after some of its elements of `keep`, as i1 values.
  struct Found {
    Value any; ///< some element is true
    Value all; ///< none is false, and the mask hides no pair: the tile may be full
  };
  /// A tile of those of a list, of keys or, with `of_queries`, of queries.
  struct ListedTile {
    Value number;
    Value isFull; ///< for the mask
  };
  /// The tiles that a list may have.
  struct List {
    SmallVector<Value> place; ///< batch, tile of heads, tile of queries or of keys
    SmallVector<TileInterval> intervals;
    SmallVector<Value> before; ///< tiles of the intervals before each
    Value total;               ///< tiles of all of them
  };
  static constexpr int64_t kWord = 4; // booleans

  KeepScan(OpBuilder &b, ListTilesOp op);

  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  }
  Value minUnsigned(Value x, Value y) { return b.createOrFold<arith::MinUIOp>(loc, x, y); }
  Value boolean(bool v) { return arith::ConstantOp::create(b, loc, b.getBoolAttr(v)); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value either(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  /// Whether `keep` is the same along all of a dimension.
  bool isSame(unsigned i) { return AttentionOp::isBroadcastDim(keep, i); }

  /// The list at `place`.
  List enterList(ArrayRef<Value> place);
  /// Tile `number` of the intervals', one after the other.
  ListedTile getTile(const List &list, Value number);
  /// Of the queries and of the keys: numbers of the tile of pairs that `tile` of `list` stands for.
  std::pair<Value, Value> getNumbers(const List &list, const ListedTile &tile) {
    return op.getOfQueries() ? std::pair(tile.number, list.place[2])
                             : std::pair(list.place[2], tile.number);
  }
  /// The place in the middle of a list's row, from which it grows.
  Value getMiddle() { return div(dim(op.getTiles(), 3), index(2)); }
  /// Index into dimension `dim` of `keep` of the first element of a tile of `size`.
  Value firstElement(unsigned dim, Value number, int64_t size);
  /// `read` where more elements matter: those of a tile that is shown and not full do not.
  Found readUntilKnown(Found found, llvm::function_ref<Found()> read);
  /// A branch on `condition` that gives a `Found`, with empty blocks.
  scf::IfOp branch(Value condition);

  /// Sets `keepBytes`.
  void viewAsBytes();
  /// `count` elements of `keep`, vector<(count / 4)xi32>.
  Value loadWords(ArrayRef<Value> at, int64_t count, llvm::Align alignment);
  /// Whether any element is true of words whose bits were joined by or, and all of those joined by
  /// and.
  Found judgeWords(Value anyOf, Value allOf);
  /// Writes first place and end of the list at `place`, i32.
  void writeBounds(ArrayRef<Value> place, Value begin, Value end);

  ListTilesOp op;
  TypedValue<MemRefType> keep;
  int64_t tileHeads, tileRows, tileKeys;
  /// `keep` as bytes, which vectors are read of; null where they cannot be.
  Value keepBytes;
};

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_KEEPSCAN_H
