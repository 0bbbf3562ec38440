//===- Operands.h - q, k, v, o and lse as tiles -----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The sizes of an attention op, as index values.
struct Sizes {
  Value batches, heads, kvHeads, queries, keys;
  /// Query heads per key/value head (A4), and head tiles per key/value head: `group`, unless
  /// several heads share a tile.
  Value group, headTiles;
};

/// The indices of one program.
struct ProgramPoint {
  Value batch, head; ///< `head` counts tiles of heads
  Value kvHead;
  Value tile;     ///< query tile
  Value outBatch; ///< batch of the output: `batch` or, with split-KV, a batch of its split
};

/// The number of keys of one batch, and the position of its query 0 (A3, A7).
struct KeyRange {
  Value keys, offset;
};

/// The destination of a program's output: the op's own, or that of a split of the keys.
struct Destination {
  Value o, lse; ///< `lse` is null if there is none
  Layout layout;
  FloatType type;
  /// With split-KV, the log-sum-exp of a split minus its rounded value in `lse`; otherwise null.
  Value lseRest = {};
};

/// Loads and stores the operands of one attention op by tiles.
class Operands : public TileBuilder {
public:
  /// Reads the sizes; called before any program is built. `op` has a schedule.
  Operands(OpBuilder &b, AttentionOpInterface op);

  const Sizes &getSizes() const { return sizes; }
  ScheduleAttr getSchedule() const { return schedule; }
  /// Returns the number of positions of each head in a tile.
  int64_t getPositions() const { return schedule.getTileM() / schedule.getPack(); }
  /// Whether a tile has rows of several heads.
  bool isPacked() const { return schedule.getPack() > 1; }
  /// Returns the number of columns of a tile for `columns` columns of a memref. Products on tensor
  /// cores need multiples of 16. Elsewhere, a tile of one column could not be distinguished from
  /// one value per row. Additional columns read as 0 and are not written.
  int64_t padColumns(int64_t columns) const;

  /// If several heads share a tile, splits the heads of `destination` and `q` into groups. Heads
  /// past a group are then out of bounds, so that any number of heads may be packed.
  void packHeads(Destination &destination);

  /// Return the keys of all batches, before any program, and those of `batch`, in a program. The
  /// first has a null offset if it depends on the batch.
  KeyRange getAllKeys() const;
  KeyRange getKeys(const KeyRange &all, Value batch) const;
  /// Returns the tiles of `columns` keys, or the pieces of compacted keys, that the mask shows to
  /// the `rows` queries from `firstQuery` on.
  SmallVector<TileInterval> findKeys(const KeyRange &keys, Value firstQuery, int64_t rows,
                                     int64_t columns) const;
  /// Returns the tiles of `columns` queries to which the mask shows the `rows` keys from `firstKey`
  /// on.
  SmallVector<TileInterval> findQueries(const KeyRange &keys, Value firstKey, int64_t rows,
                                        int64_t columns) const;

  /// Builds the row map of the rows in `existing`, as one sequence of `segments` if there are any.
  /// Returns null if all rows of the memref exist, in order.
  Value buildRowMap(const IndexRange &existing, ArrayRef<RowSegment> segments = {}) const;
  /// Loads tile `tile` of `count` rows of the sequence that the row map `rows` places in a memref
  /// like `q` or `k`, at a batch and a head, in the operand type of products. With `ones`, columns
  /// of ones follow those of the memref.
  Value loadRows(Value memref, Value batch, Value head, Value tile, int64_t count, Value rows = {},
                 bool ones = false) const;
  /// Stores a tile of rows that has the memref's element type.
  void storeRows(Value rows, Value memref, Value batch, Value head, Value tile) const;
  Value loadQueries(const ProgramPoint &at) const;
  /// Load the query tile of a memref like `q`, or its rows of a memref like `lse` at `batch`. If
  /// several heads share a tile, the memref is one that `splitHeads` returned.
  Value loadQueryTile(Value memref, const ProgramPoint &at) const;
  Value loadQueryRows(Value memref, Value batch, const ProgramPoint &at, bool inBounds) const;
  /// Returns `memref`, whose query heads are along `headDim`, with these split into key/value heads
  /// and the heads of a group if several heads share a tile.
  Value splitHeads(Value memref, int64_t headDim) const;
  /// Returns the positions of the rows of a tile that several heads may share.
  RowPattern getPattern() const;
  /// Whether there are statically so few queries that rows 8 to 15 of every 16 rows of a tile are
  /// unused.
  bool leavesRowHalfUnused() const;
  /// Loads key tile `tile` of `k` or `v`. See loadRows for `rows` and `ones`.
  Value loadKeys(Value memref, const ProgramPoint &at, Value tile, Value rows,
                 bool ones = false) const;
  /// Stores the output, a vector<MxDv> of the destination's type.
  void storeOutput(Value rows, const Destination &to, const ProgramPoint &at) const;
  /// Stores f32 values, vector<M>, to a memref like that of the log-sum-exps.
  void storePerRow(Value rows, Value memref, const ProgramPoint &at) const;

private:
  /// The access to a tile with several heads in a memref with split heads.
  struct Packed {
    SmallVector<Value> indices;
    SmallVector<int64_t> dims;
    SmallVector<bool> inBounds;
    Value rows; ///< `!flashattn.rows`
  };

  Packed pack(Value memref, Layout memory, Value batch, const ProgramPoint &at) const;
  Value toDotType(Value tile) const;
  IndexRange getVisible(TileAxis axis, const KeyRange &keys) const;

  mutable AttentionOpInterface op; ///< a handle, whose accessors are not const
  ScheduleAttr schedule;
  Sizes sizes;
  Value q;
  SmallVector<IntegerSet> visible;

  friend class CountedRows;
};

/// The rows that have an effect (A7): the keys from the first to the last that any query sees or,
/// for the axis Queries, the queries from the first to the last that see any key.
class CountedRows {
public:
  /// Called before any program is built. `all` is the result of Operands::getAllKeys.
  CountedRows(const Operands &operands, TileAxis axis, const KeyRange &all);

  /// Returns the rows of a batch with `keys`, in a program. The end is null if it is the memref's.
  IndexRange get(const KeyRange &keys) const;

private:
  const Operands &operands;
  TileAxis axis;
  IndexRange ofAll; ///< set if there is no kv_len
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
