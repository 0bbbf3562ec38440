//===- MaskTiles.h - from mask sets to tile intervals ------------*- C++ -*-===//
//
// Rules M3 to M6: which tiles hold a visible pair, which of them are full, the
// mask of a partial tile, and rows that no key reaches. Masks are unions of
// integer sets over (p, k)[nq, nk] (MaskAttrInterface). Positions, keys and
// lengths are below 2^31 in absolute value.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_ANALYSIS_MASKTILES_H
#define FLASHATTN_ANALYSIS_MASKTILES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/Value.h"

#include <limits>
#include <memory>

namespace mlir::flashattn {

class AttentionOpInterface;
class MaskAttrInterface;
enum class Align : uint32_t;
namespace bounds {
class Parameters;
} // namespace bounds

/// Tiles [begin, end) of one interval along an axis: [begin, fullBegin) partial,
/// [fullBegin, fullEnd) full, [fullEnd, end) partial. Index values with
/// begin <= fullBegin <= fullEnd <= end; without a full tile
/// fullBegin = fullEnd = begin, so that one loop runs them all.
struct TileInterval {
  Value begin, fullBegin, fullEnd, end;
};

/// Indices [begin, end) along an axis. A null `begin` is 0, a null `end` the axis' length, whatever
/// the operands.
struct IndexRange {
  Value begin, end;

  /// Whether it is the whole axis.
  bool isAll() const { return !begin && !end; }
};

/// The axis that is cut into tiles.
enum class TileAxis {
  /// Keys of a query tile (forward, dQ).
  Keys,
  /// Queries of a key tile (dK, dV).
  Queries,
};

/// The intervals of a mask along one axis, derived once and symbolic in the
/// lengths, the offset and the tile on the other axis (rules M3, M5).
///
/// The intervals are disjoint, ascending and hold every tile with a visible
/// pair; in a full one every pair is visible and within the axis (rule M4). Where
/// `isExact` a tile without a visible pair is in no interval: so it is for the named
/// masks, and for a floordiv or mod where the visible indices of a tile leave no gap
/// as wide as a tile, of sets that a budget of elements is enough for. A constraint of coefficients
/// whose absolute values add up to more than 2^31 bounds no interval and leaves no full tile.
class TileIntervalPlan {
public:
  /// `tile` is the number of keys or queries of a tile, at least 1.
  TileIntervalPlan(ArrayRef<IntegerSet> visible, TileAxis axis, int64_t tile);
  TileIntervalPlan(TileIntervalPlan &&);
  ~TileIntervalPlan();

  /// The bounds as `arith` on index values; constants where the operands are.
  /// `first` and `last` (inclusive, first <= last) are the positions of the
  /// query tile (axis Keys) or the keys of the key tile (axis Queries), taken
  /// as they are: clamp `last` where a tile hangs over the end. `offset` is the
  /// position of query 0; the axis Keys does not read it. With `constants` an interval that is one
  /// tile at most, the same for all operands, is that tile, also where nothing of it is visible.
  SmallVector<TileInterval> emit(OpBuilder &builder, Location loc, Value first, Value last,
                                 Value offset, Value nq, Value nk, bool constants = false) const;

  /// The range from the first index in any interval up to the last, with tiles of one index; `first`
  /// and `last` are those of all positions or keys. `align` is what `offset` follows from (rule A3),
  /// if from any. Where no pair is visible the end may be at the beginning or before it.
  IndexRange emitHull(OpBuilder &builder, Location loc, Value first, Value last, Value offset,
                      Value nq, Value nk, std::optional<Align> align) const;

  /// Whether a tile is in an interval only where it holds a visible pair, whatever the operands.
  bool isExact() const;
  /// Whether each tile of visible pairs alone is full, whatever the operands; of several sets,
  /// which may show a tile together, it is not said.
  bool findsEveryFullTile() const;

  /// How many `emit` gives: one of each set, or of several neighbours of very many.
  size_t size() const;

  struct Interval;

private:
  /// Each interval is a loop's bounds in registers, and as many exchanges as there are others.
  static constexpr size_t kMostIntervals = 16;
  bool isGrouped() const { return intervals.size() > kMostIntervals; }

  std::unique_ptr<bounds::Parameters> parameters;
  SmallVector<std::unique_ptr<Interval>> intervals;
  /// ordered[i][j]: interval i begins no later than interval j, for all values.
  SmallVector<SmallVector<bool>> ordered;
  TileAxis axis;
  int64_t tile;
};

/// Key tiles of a query tile with the positions [firstPosition, lastPosition]
/// (inclusive); key tile t holds the keys [t*tileN, (t+1)*tileN) below nk. `constants` as above.
SmallVector<TileInterval> buildKeyIntervals(OpBuilder &builder, Location loc,
                                            ArrayRef<IntegerSet> visible, Value firstPosition,
                                            Value lastPosition, Value nq, Value nk, int64_t tileN,
                                            bool constants = false);

/// The sets that show some query a key from number `least` on.
SmallVector<IntegerSet> selectSetsFrom(ArrayRef<IntegerSet> visible, int64_t least);

/// Query tiles of a key tile with the keys [firstKey, lastKey] (inclusive);
/// query tile t holds the queries [t*tileM, (t+1)*tileM) below nq, at the
/// positions from offset + t*tileM.
SmallVector<TileInterval> buildQueryIntervals(OpBuilder &builder, Location loc,
                                              ArrayRef<IntegerSet> visible, Value firstKey,
                                              Value lastKey, Value offset, Value nq, Value nk,
                                              int64_t tileM);

/// The keys from the first to the last that any query sees or, along the axis Queries, the queries
/// from the first to the last that see any key (rule A7); `offset` is the position of query 0, and
/// `align` what it follows from, if from any. Where no pair is visible the end may be at the
/// beginning or before it.
IndexRange buildVisibleRange(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible,
                             TileAxis axis, Value offset, Value nq, Value nk,
                             std::optional<Align> align);

/// Where the queries of a tile are: query i at position (i / repeat) mod span after the first.
/// Several heads that share a tile follow each other (span) or take turns (repeat).
struct RowPattern {
  int64_t repeat = 1;
  int64_t span = std::numeric_limits<int64_t>::max();
};

/// The mask of a tile, vector<MxNxi1>: element (i, j) says whether the query of row i, by `pattern`
/// from position p0 on, sees key k0 + j, which includes k0 + j < nk. `p0`, `k0`, `nq` and `nk`
/// are index values. With `columns` the queries it is the transpose, vector<NxMxi1>.
///
/// Rows are vector<Mx1>, columns vector<1xN>, and only what depends on both is
/// computed per element: for a linear constraint one 32-bit compare, of a limit that each index
/// along `numbers` is below or above.
Value buildVisibleTile(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible, Value p0,
                       Value k0, Value nq, Value nk, int64_t m, int64_t n, RowPattern pattern = {},
                       TileAxis columns = TileAxis::Keys, TileAxis numbers = TileAxis::Keys);

/// Whether the query at position `p` sees key `k`.
bool isVisible(ArrayRef<IntegerSet> visible, int64_t p, int64_t k, int64_t nq, int64_t nk);

/// What a tile map is drawn for.
struct TileMapSizes {
  int64_t nq, nk;       ///< queries and keys, at least 1
  int64_t offset;       ///< position of query 0 (rule A3)
  int64_t tileM, tileN; ///< queries and keys of a tile, at least 1
};

/// Draws the tiles of a mask as flashattn-print-mask-tiles says it: a line for `tileM` queries and
/// a character for `tileN` keys, with the axis Queries a line for `tileM` keys and a character for
/// `tileN` queries. `mask` names it, null for none, and `visible` are its sets. The context must
/// have the dialect arith loaded.
void printTileMap(raw_ostream &os, MaskAttrInterface mask, ArrayRef<IntegerSet> visible,
                  Location loc, const TileMapSizes &sizes, TileAxis axis = TileAxis::Keys);

/// Warns at the op where its mask or constant `keep` hides every pair, or its mask every key of
/// some positions: of those that the op's queries have where its lengths and offset are static,
/// else of p >= 0 whatever the lengths nq, nk >= 1 (rule M6).
void warnHiddenRows(AttentionOpInterface op);

/// Remarks at the op where the intervals of its mask along `axis` are not known to be exact (rule
/// M3) for tiles of `tile` keys or queries: some without a visible pair may be visited.
void remarkInexactTiles(AttentionOpInterface op, int64_t tile, TileAxis axis = TileAxis::Keys);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKTILES_H
