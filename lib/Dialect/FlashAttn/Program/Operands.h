//===- Operands.h - q, k, v, o and lse as tiles ------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H

#include "CompactKeys.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// Sizes of an attention, index values.
struct Sizes {
  Value batches, heads, kvHeads, queries, keys;
  /// Query heads to a key/value head (A4), and tiles of heads to one: `group` but where several
  /// heads share a tile.
  Value group, headTiles;
};

/// The numbers of one program.
struct ProgramPoint {
  Value batch, head; ///< `head` counts tiles of heads
  Value kvHead;
  Value tile;     ///< of queries
  Value outBatch; ///< where its output goes: the batch or, of a part of the keys, its place
};

/// The keys that exist for one batch and where its query 0 stands (A3, A7).
struct KeyRange {
  Value keys, offset;
};

/// Where a program's output goes: the op's own destinations, or those of a part of the keys.
struct Destination {
  Value o, lse; ///< `lse` is null where none is asked for
  Layout layout;
  FloatType type;
  /// Where the op's keys come in parts, the excess of a part's log-sum-exp over `lse`; else null.
  Value lseRest = {};
};

/// The operands of one attention, tile by tile.
class Operands : public TileBuilder {
public:
  /// Before any program: finds the sizes. `op` has a schedule.
  Operands(OpBuilder &b, AttentionOpInterface op);

  const Sizes &getSizes() const { return sizes; }
  ScheduleAttr getSchedule() const { return schedule; }
  /// Positions of each of a tile's heads.
  int64_t getPositions() const { return schedule.getTileM() / schedule.getPack(); }
  /// Whether a tile has rows of several heads.
  bool isPacked() const { return schedule.getPack() > 1; }
  /// Columns of a tile with `columns` of a memref: products on tensor cores take 16 at a time, and
  /// elsewhere a tile of one column could not be told from what a row has one of. What a tile has
  /// more reads as 0 and is not written.
  int64_t padColumns(int64_t columns) const;

  /// Splits the heads of `destination` and `q` where several share a tile: what lies past a group
  /// is out of bounds then, so that any number of heads may be packed.
  void packHeads(Destination &destination);

  /// Before any program, and then in one: the keys of `batch` (null: not known yet).
  KeyRange getAllKeys() const;
  KeyRange getKeys(const KeyRange &all, Value batch) const;
  /// The tiles of `columns` keys, or pieces of joined ones, that the mask shows to the `rows`
  /// queries from `firstQuery` on.
  SmallVector<TileInterval> findKeys(const KeyRange &keys, Value firstQuery, int64_t rows,
                                     int64_t columns) const;
  /// The tiles of `columns` queries that the mask shows to the `rows` keys from `firstKey` on.
  SmallVector<TileInterval> findQueries(const KeyRange &keys, Value firstKey, int64_t rows,
                                        int64_t columns) const;

  /// The tile of `rows` rows at `tile` of a memref like `q` or `k`, at a batch and a head, in the
  /// type that products take. Rows out of `counted` read as 0. With `ones` columns of 1 come behind
  /// the memref's.
  Value loadRows(Value memref, Value batch, Value head, Value tile, int64_t rows,
                 const IndexRange &counted = {}, bool ones = false,
                 const CompactKeys *joined = nullptr) const;
  /// Writes a tile of the schedule's rows, of the memref's type.
  void storeRows(Value rows, Value memref, Value batch, Value head, Value tile) const;
  Value loadQueries(const ProgramPoint &at) const;
  /// The queries' tile of a memref like `q`, or their rows of one like `lse`, at `batch`: of the
  /// schedule's rows, from a memref of `splitHeads` where several heads share a tile.
  Value loadQueryTile(Value memref, const ProgramPoint &at) const;
  Value loadQueryRows(Value memref, Value batch, const ProgramPoint &at, bool inBounds) const;
  /// `memref`, which has the query heads along `headDim`, for these: with key/value heads and the
  /// heads of a group where several share a tile.
  Value splitHeads(Value memref, int64_t headDim) const;
  /// Where the heads that share a tile are in it.
  RowPattern getPattern() const;
  /// Whether the queries are known to be so few that rows 8 to 15 of every 16 of a tile have none.
  bool leaveHalfRows() const;
  /// The tile of `k` or `v` at `tile` of the keys, or of the sequence of `joined` ones. `counted`
  /// and `ones` as above.
  Value loadKeys(Value memref, const ProgramPoint &at, Value tile, const IndexRange &counted,
                 bool ones = false, const CompactKeys *joined = nullptr) const;
  /// vector<MxDv>, of the destination's type.
  void storeOutput(Value rows, const Destination &to, const ProgramPoint &at) const;
  /// vector<M>, f32.
  /// The same of numbers, vector<M>, to a memref as that of the log-sum-exps.
  void storePerRow(Value rows, Value memref, const ProgramPoint &at) const;

private:
  /// How the rows of a tile with several heads lie in a memref whose heads are split.
  struct Packed {
    SmallVector<Value> indices;
    SmallVector<int64_t> dims, shape;
    SmallVector<bool> inBounds;
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

/// Rows that count (A7): the keys from the first to the last that any query sees or, along the axis
/// Queries, the queries from the first to the last that see any key.
class CountedRows {
public:
  /// Before any program: `all` are its keys.
  CountedRows(const Operands &operands, TileAxis axis, const KeyRange &all);

  /// In a program: those of a batch that has `keys`. The end is null where it is the memref's.
  IndexRange get(const KeyRange &keys) const;

private:
  const Operands &operands;
  TileAxis axis;
  IndexRange ofAll; ///< without kv_len
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
