//===- TileLists.h - lists of visible tiles ---------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H

#include "Operands.h"
#include "flashattn/Analysis/MaskTiles.h"

namespace mlir::flashattn {

/// The programs for which lists are made.
struct ListedPrograms {
  TileAxis axis;        ///< of their rows
  Value tiles;          ///< number of programs along `axis`: Operands::countTiles
  int64_t rows, whole;  ///< those of Operands::createProgram
  int64_t together = 1; ///< adjacent programs of a block, which share a list

  /// The rows of the first program that uses a list.
  struct Place {
    Sequence sequence;
    Value first; ///< row of the sequence
  };
  /// Returns the rows of the list at `place` (b, h, t). `all` is the result of Operands::getAll.
  Place locate(const Operands &operands, const Sequence &all, ValueRange place) const;
  /// Returns the number of the list, along its last dimension, of the program for `tile`.
  Value getNumber(const Operands &operands, const Sequence &sequence, Value tile) const;
};

/// Lists of key tiles, one for each batch, head tile and query tile; or lists of query tiles, one
/// for each key tile.
class TileLists {
public:
  using FindTiles = function_ref<SmallVector<TileInterval>(ValueRange list)>;
  using TestTile = function_ref<SmallVector<TileInterval>(ValueRange list, Value tile)>;

  /// Whether programs of `op` for tiles along the other axis use lists of tiles along `listed`: for
  /// `attn_mask`, or for symbols of the mask that vary along `listed` (Y2).
  static bool areUsed(AttentionOpInterface op, TileAxis listed);

  /// Allocates the lists and builds the op that writes them. `attn_mask` is broadcastable to [B, H,
  /// Nq, Nk]; if it is null, `test` is that of `flashattn.list_tiles`. `sizes` are the numbers of
  /// lists along B, H and Nq; a size of 1 is one list for the whole dimension. The listed tiles are
  /// those of `count` keys or queries. `tile` and the `intervals` of list (b, h, t) are as in
  /// `flashattn.list_tiles`. If `listed` is Queries, lists are along Nk instead of Nq.
  void build(OpBuilder &builder, Location loc, Value attnMask, ArrayRef<Value> sizes,
             TileAxis listed, Value count, ArrayRef<int64_t> tile, FindTiles intervals,
             TestTile test);

  /// Returns the interval of the list at `place` (b, h, t), as positions in its row.
  TileInterval getInterval(OpBuilder &builder, Location loc, ValueRange place) const;

  /// Returns the memref whose last dimension holds the tile indices of the list, and its other
  /// indices.
  std::pair<Value, SmallVector<Value>> getList(OpBuilder &builder, Location loc,
                                               ValueRange place) const;

  /// Deallocates the lists.
  void free(OpBuilder &builder, Location loc);

  ListedPrograms programs; ///< those that use the lists

private:
  SmallVector<Value> at(OpBuilder &builder, Location loc, ValueRange place) const;

  Value buffer, bounds, tiles, middle;
};

/// Lists the visible tiles for programs with the schedule `of`: key tiles for programs over query
/// tiles, and query tiles for programs over key tiles. `whole` is that of Operands::createProgram.
/// Returns nullopt if programs use no lists, or if a list would cover several heads whose number is
/// known only at run time. `all` is the result of Operands::getAll.
std::optional<TileLists> listGradientTiles(OpBuilder &builder, AttentionBackwardOp op,
                                           const Operands &operands, const Sequence &all,
                                           TileAxis listed, ScheduleAttr of, int64_t whole);

/// Returns the numbers of batches and heads for which lists differ, as sizes for TileLists::build.
/// `heads` is the number of heads, or of tiles of heads.
std::array<Value, 2> countLists(AttentionOpInterface op, const Operands &operands, TileAxis rows,
                                Value heads);

/// Creates a loop over `intervals` or, with `lists`, over the list at `place`, with an empty body.
/// `when` and `rounds`, which may be null, and `state` are those of `flashattn.tile_loop`.
TileLoopOp createTileLoop(OpBuilder &builder, Location loc, const std::optional<TileLists> &lists,
                          ArrayRef<TileInterval> intervals, ArrayRef<Value> place, Value when,
                          ValueRange state, Value rounds = {});

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_PROGRAM_TILELISTS_H
