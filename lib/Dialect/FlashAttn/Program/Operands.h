//===- Operands.h - q, k, v, o and lse as tiles -----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H

#include "Sequence.h"
#include "SymbolRanges.h"
#include "flashattn/Analysis/MaskTiles.h"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"
#include "flashattn/Dialect/FlashAttn/Program/TileBuilder.h"

namespace mlir::flashattn {

/// The sizes of an attention op, as index values.
struct Sizes {
  Value batches; ///< 1 if both queries and keys are packed
  Value heads, kvHeads, queries, keys;
  /// Query heads per key/value head (A4), and head tiles per key/value head: `group`, unless
  /// several heads share a tile.
  Value group, headTiles;
};

/// The indices of one program.
struct ProgramPoint {
  Sequence sequence;
  Value head; ///< counts tiles of heads
  Value kvHead;
  Value tile;     ///< query tile
  Value outBatch; ///< batch of the output or, with split-KV, a batch of its split
};

/// The destination of a program's output: the op's own, or that of a split of the keys.
struct Destination {
  Value o, lse; ///< `lse` is null if there is none
  Layout layout;
  FloatType type;
  /// With split-KV, the log-sum-exp of a split minus its rounded value in `lse`; otherwise null.
  Value lseRest = {};

  /// Whether rows are those of `ProgramPoint::outBatch`, also if the rows of queries are packed.
  bool isOfSplits() const { return lseRest != nullptr; }
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
  bool packsHeads() const { return schedule.getPack() > 1; }
  /// Returns the number of columns of a tile for `columns` columns of a memref. Products on tensor
  /// cores need multiples of 16. Elsewhere, a tile of one column could not be distinguished from
  /// one value per row. Additional columns read as 0 and are not written.
  int64_t padColumns(int64_t columns) const;

  /// If several heads share a tile, splits the heads of `destination` and `q` into groups. Heads
  /// past a group are then out of bounds, so that any number of heads may be packed.
  void packHeads(Destination &destination);

  /// Returns the lengths of all batches, before any program. Those that depend on the batch are
  /// upper bounds, and the offset is then null.
  Sequence getAll() const;
  /// Returns the sequence of a program over tiles of `axis`, whose first coordinate is `batch`.
  Sequence getSequence(const Sequence &all, Value batch, TileAxis axis) const;
  /// Y2: computes the ranges of the mask's symbols in tiles of `queries` queries and of `keys`
  /// keys, before any program. `all` is the result of getAll. With `copiesKeys`, the symbols per
  /// key are copied to tiles.
  void makeRanges(const Sequence &all, int64_t queries, int64_t keys, bool copiesKeys);
  /// Returns the ranges per key, which makeRanges has made.
  const SymbolRanges &getKeyRanges() const { return *keyRanges; }
  /// Uses the ranges of other operands of the same op.
  void shareRanges(const Operands &other) {
    queryRanges = other.queryRanges;
    keyRanges = other.keyRanges;
  }
  void freeRanges() const;
  /// Some rows of a sequence, of which at least one exists.
  struct RowTile {
    Value head; ///< query head or key/value head; null: all heads
    Value first;
    int64_t count;
  };
  /// Returns what is known of the mask's symbols for the pairs of `sequence` in these rows.
  SymbolValues getSymbols(const Sequence &sequence, std::optional<RowTile> queries = {},
                          std::optional<RowTile> keys = {}) const;
  /// Returns `cu_seqlens_q` or `cu_seqlens_k`; null if the rows of `axis` are not packed.
  Value getStarts(TileAxis axis) const;
  /// Returns the starts of the segments of programs over `axis`; null if each batch, or sequence
  /// with few queries (S7), has its own programs.
  Value getSegmentStarts(TileAxis axis) const;
  /// Returns the number of rows of `axis` that a batch, or a sequence with few queries, may have.
  Value getRowsPerSequence(TileAxis axis) const {
    if (std::optional<int64_t> most = op.getMostQueries(); most && axis == TileAxis::Queries)
      return index(*most);
    return axis == TileAxis::Queries ? sizes.queries : sizes.keys;
  }
  /// Returns the number of tiles of `rows` rows of `axis`: of each batch or, with segments, of all
  /// segments together (see `flashattn.program`), whose tiles fill multiples of `whole` rows, a
  /// multiple of `rows`.
  Value countTiles(TileAxis axis, int64_t rows, int64_t whole) const;
  Value countTiles(TileAxis axis, int64_t rows) const { return countTiles(axis, rows, rows); }
  /// Creates programs for each batch, or segment, for `heads` heads and `tiles` tiles of `rows`
  /// rows of `axis`. `tiles` is `countTiles` of the same rows, and at least that without packed
  /// rows.
  ProgramOp createProgram(TileAxis axis, Value heads, Value tiles, int64_t rows, int64_t whole,
                          ScheduleAttr of) const;
  ProgramOp createProgram(TileAxis axis, Value heads, Value tiles, int64_t rows,
                          ScheduleAttr of) const {
    return createProgram(axis, heads, tiles, rows, rows, of);
  }
  /// Returns the tiles of `columns` keys, or the pieces of compacted keys, that the mask shows to
  /// `queries`. With `keys`, a tile, only this tile may be in the result, which then is right for
  /// it.
  SmallVector<TileInterval> findKeys(const Sequence &sequence, const RowTile &queries,
                                     int64_t columns, std::optional<RowTile> keys = {}) const;
  /// Returns the tiles of `columns` queries to which the mask shows `keys`. `queries` is as above.
  SmallVector<TileInterval> findQueries(const Sequence &sequence, const RowTile &keys,
                                        int64_t columns, std::optional<RowTile> queries = {}) const;

  /// Returns the rows of `sequence` in a memref like `q` or `k`, or like `lse`, as a memref, and
  /// the index of their batch in it. `exist`: only rows that exist.
  std::pair<Value, Value> takeRows(Value memref, TileAxis axis, const Sequence &sequence,
                                   bool exist) const;
  /// Builds the row map of the rows in `existing`, as one sequence of `segments` if there are any.
  /// Returns null if all rows of the memref exist, in order.
  Value buildRowMap(const IndexRange &existing, ArrayRef<RowSegment> segments = {}) const;
  /// Builds the row map of the keys in `existing` in the pages of `sequence` (P1), of which the
  /// numbers `pages` exist, as intervals.
  Value buildPageMap(const IndexRange &existing, const Sequence &sequence,
                     ArrayRef<TileInterval> pages) const;
  /// Loads tile `tile` of `count` rows of `sequence` in a memref like `q` or `k`, at a head, in the
  /// operand type of products. `rows` is their row map. With `ones`, columns of ones follow those
  /// of the memref. `scales` are those of the memref, an operand of the op (F1).
  Value loadRows(Value memref, TileAxis axis, const Sequence &sequence, Value head, Value tile,
                 int64_t count, Value rows = {}, bool ones = false, Value scales = {}) const;
  /// Stores a tile of rows that has the memref's element type.
  void storeRows(Value rows, Value memref, TileAxis axis, const Sequence &sequence, Value head,
                 Value tile) const;
  /// Loads the program's query tile. With `exist`, queries that do not exist, but of which memory
  /// has a row, read as 0.
  Value loadQueries(const ProgramPoint &at, bool exist = false) const;
  /// Load the query tile of a memref like `q`, or its rows of a memref like `lse` at `batch`. If
  /// several heads share a tile, the memref is one that `splitHeads` returned.
  Value loadQueryTile(Value memref, const ProgramPoint &at, Value rows = {}) const;
  Value loadQueryRows(Value memref, Value batch, const ProgramPoint &at, bool inBounds) const;
  /// S3: returns `rows`, a tile of the program's queries or one value per query, with `missing` in
  /// the rows of queries that do not exist but are stored.
  Value hideMissingQueries(Value rows, const ProgramPoint &at, double missing) const;
  /// Returns `memref`, whose query heads are along `headDim`, with these split into key/value heads
  /// and the heads of a group if several heads share a tile.
  Value splitHeads(Value memref, int64_t headDim) const;
  /// Returns the positions of the rows of a tile that several heads may share.
  RowPattern getPattern() const;
  /// Whether there are statically so few queries that rows 8 to 15 of every 16 rows of a tile are
  /// unused.
  bool leavesRowHalfUnused() const;
  /// F1: returns the scale of all of the program's keys, or values, for the operand `scales`; null
  /// if it is omitted, or if rows, or blocks of a row, have scales of their own.
  Value loadScale(Value scales, const ProgramPoint &at) const;
  /// Loads key tile `tile` of `k` or `v`. See loadRows for the other arguments.
  Value loadKeys(Value memref, const ProgramPoint &at, Value tile, Value rows, bool ones = false,
                 Value scales = {}) const;
  /// Stores the output, a vector<MxDv> of the destination's type.
  void storeOutput(Value rows, const Destination &to, const ProgramPoint &at) const;
  /// Stores f32 values, vector<M>, to a memref like that of the log-sum-exps in `to`.
  void storePerRow(Value rows, Value memref, const Destination &to, const ProgramPoint &at) const;

private:
  /// The access to a tile with several heads in a memref with split heads.
  struct Packed {
    SmallVector<Value> indices;
    SmallVector<int64_t> dims;
    SmallVector<bool> inBounds;
    Value rows; ///< `!flashattn.rows`
  };

  Packed pack(Value memref, Layout memory, Value batch, const ProgramPoint &at) const;
  /// Returns `memref`, of rank 5 for a tile of rows and 4 for a value per row, with the rows of the
  /// program's sequence alone, and their batch. See takeRows for `exist`.
  std::pair<Value, Value> takePacked(Value memref, Layout memory, const ProgramPoint &at,
                                     bool exist) const;
  /// Returns the rows of the program's batch, sequence or split in `memref`, an output of `to`, and
  /// their batch.
  std::pair<Value, Value> takeOutput(Value memref, const Destination &to,
                                     const ProgramPoint &at) const;
  /// Returns takeRows of packed rows along dimension `rowDim`.
  std::pair<Value, Value> takePackedRows(Value memref, unsigned rowDim, TileAxis axis,
                                         const Sequence &sequence, bool exist) const;
  Value toDotType(Value tile) const;
  /// F1: returns `scales`, an operand of the op, as `flashattn.load_tile` takes them; null if they
  /// are omitted, or if one for all rows is applied to the scores or to the output.
  Value takeScales(Value scales, const Sequence &sequence) const;
  /// S7: returns `count`, the number of rows of a sequence of queries, or 0 if the op leaves this
  /// sequence out. Rows of no sequence, for which `isSequence` is false, are not left out.
  Value limitQueries(Value count, Value isSequence) const;
  IndexRange getVisible(TileAxis axis, const Sequence &sequence) const;

  mutable AttentionOpInterface op; ///< a handle, whose accessors are not const
  ScheduleAttr schedule;
  Sizes sizes;
  Value q;
  SmallVector<IntegerSet> visible;
  std::shared_ptr<SymbolRanges> queryRanges, keyRanges; ///< null if they are not computed

  friend class CountedRows;
};

/// The rows that have an effect (A7): the keys from the first to the last that any query sees or,
/// for the axis Queries, the queries from the first to the last that see any key.
class CountedRows {
public:
  /// Called before any program is built. `all` is the result of Operands::getAll.
  CountedRows(const Operands &operands, TileAxis axis, const Sequence &all);

  /// Returns the rows of a batch with `keys`, in a program. The end is null if it is the memref's.
  IndexRange get(const Sequence &sequence) const;

private:
  const Operands &operands;
  TileAxis axis;
  IndexRange ofAll; ///< set if all batches have the same lengths
};

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_OPERANDS_H
