//===- MaskTiles.h - tile intervals of mask sets ----------------*- C++ -*-===//
//
// Implements rules M3 to M6: tiles that contain a visible pair, full tiles, the mask of a partial
// tile, and rows that see no key. Masks are unions of integer sets over (p, k)[nq, nk]
// (MaskAttrInterface). Positions, keys, lengths and the values of further symbols (rules Y1 and Y2)
// are below 2^31 in absolute value.
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

/// An interval of tiles along an axis: tiles [begin, fullBegin) are partial, [fullBegin, fullEnd)
/// full, and [fullEnd, end) partial. The index values satisfy begin <= fullBegin <= fullEnd <= end.
/// Without a full tile, fullBegin = fullEnd = begin, so that one loop runs over all tiles.
struct TileInterval {
  Value begin, fullBegin, fullEnd, end;
};

/// Indices [begin, end) along an axis. A null `begin` is 0, and a null `end` the length of the
/// axis, for all values of the operands.
struct IndexRange {
  Value begin, end;

  /// Whether the range is the whole axis.
};

/// What is known of a symbol, for the tile on the axis that is not divided.
enum class SymbolKnowledge {
  Nothing,
  Range, ///< its least and its greatest value
  Value, ///< its only value
};

/// The least and the greatest value of a symbol, index values. Both are null if nothing is known,
/// and the same Value if the symbol has one value.
struct SymbolRange {
  Value least, greatest;

  bool isKnown() const { return least != nullptr; }
  bool isValue() const { return least == greatest; }
};

/// The values of the symbols of a mask's sets.
struct SymbolValues {
  Value nq, nk;                      ///< numbers of queries and keys, index values
  SmallVector<SymbolRange> others{}; ///< of the symbols that follow, in order

  SmallVector<SymbolKnowledge> getKnowledge() const;
};

/// The axis that is divided into tiles.
enum class TileAxis {
  /// Keys of a query tile (forward, dQ).
  Keys,
  /// Queries of a key tile (dK, dV).
  Queries,
};

/// The intervals of a mask along one axis. They are computed once and are symbolic in the lengths,
/// the offset and the tile on the other axis (rules M3, M5).
///
/// The intervals are disjoint and ascending, and contain every tile with a visible pair. In a full
/// tile, every pair is visible and within the axis (rule M4). If `isExact`, a tile without a
/// visible pair is in no interval. This holds for the named masks, and for floordiv and mod if the
/// gaps between the visible indices of a tile are narrower than a tile and the set is within a
/// budget of elements. A constraint whose coefficients have a sum of absolute values above 2^31
/// bounds no interval, and no tile is full.
///
/// A tile is tested with the least and the greatest value of a symbol that varies over the tile on
/// the other axis (rule Y2). The intervals are then exact for sets in which only one such symbol,
/// with one sign, and no index of the other axis counts. A symbol of which nothing is known may
/// have any value: its constraints restrict no interval, and no tile is full.
class TileIntervalPlan {
public:
  /// `tile` is the number of keys or queries of a tile, at least 1. Of symbols past the end of
  /// `symbols`, nothing is known.
  TileIntervalPlan(ArrayRef<IntegerSet> visible, TileAxis axis, int64_t tile,
                   ArrayRef<SymbolKnowledge> symbols = {});
  TileIntervalPlan(TileIntervalPlan &&);
  ~TileIntervalPlan();

  /// Emits the bounds as `arith` ops on index values, or as constants if the operands are
  /// constants, and returns the intervals. `first` and `last` (inclusive, first <= last) are the
  /// positions of the query tile (axis Keys) or the keys of the key tile (axis Queries). The caller
  /// must clamp `last` if a tile extends past the end. `offset` is the position of query 0; it is
  /// not used for the axis Keys. `symbols` have the plan's knowledge. With `constants`, an interval
  /// that is at most one tile, and the same tile for all operands, becomes that tile, even if no
  /// pair of the tile is visible.
  SmallVector<TileInterval> emit(OpBuilder &builder, Location loc, Value first, Value last,
                                 Value offset, const SymbolValues &symbols,
                                 bool constants = false) const;

  /// Emits and returns the range from the first to the last index in any interval, for tiles of one
  /// index. `first` and `last` are those of all positions or keys. `align` is the alignment from
  /// which `offset` follows (rule A3), if any. If no pair is visible, `end` may be equal to `begin`
  /// or less.
  IndexRange emitHull(OpBuilder &builder, Location loc, Value first, Value last, Value offset,
                      const SymbolValues &symbols, std::optional<Align> align) const;

  /// Whether, for all operands, every tile in an interval contains a visible pair.
  bool isExact() const;
  /// Whether, for all operands, every tile whose pairs are all visible is full. Returns false for
  /// several sets, because a tile may be visible only through their union.
  bool findsEveryFullTile() const;

  /// Returns the number of intervals that `emit` returns: one for each set, or one for several
  /// adjacent sets if there are more than `kMostIntervals` sets.
  size_t size() const;

  struct Interval;

private:
  /// Each interval needs registers for a loop's bounds, and sorting an interval takes one
  /// compare-exchange with every other interval.
  static constexpr size_t kMostIntervals = 16;
  bool isGrouped() const { return intervals.size() > kMostIntervals; }

  std::unique_ptr<bounds::Parameters> parameters;
  SmallVector<std::unique_ptr<Interval>> intervals;
  /// ordered[i][j]: interval i begins no later than interval j, for all values.
  SmallVector<SmallVector<bool>> ordered;
  TileAxis axis;
  int64_t tile;
};

/// Returns the intervals of key tiles for the query tile with the positions [firstPosition,
/// lastPosition] (inclusive). Key tile t has the keys [t*tileN, (t+1)*tileN) below nk. `constants`
/// is that of TileIntervalPlan::emit.
SmallVector<TileInterval> buildKeyIntervals(OpBuilder &builder, Location loc,
                                            ArrayRef<IntegerSet> visible, Value firstPosition,
                                            Value lastPosition, const SymbolValues &symbols,
                                            int64_t tileN, bool constants = false);

/// Returns the sets that may show a key with index `least` or above to some query.
SmallVector<IntegerSet> selectSetsFrom(ArrayRef<IntegerSet> visible, int64_t least);

/// Returns the intervals of query tiles for the key tile with the keys [firstKey, lastKey]
/// (inclusive). Query tile t has the queries [t*tileM, (t+1)*tileM) below nq, at the positions from
/// offset + t*tileM on.
SmallVector<TileInterval> buildQueryIntervals(OpBuilder &builder, Location loc,
                                              ArrayRef<IntegerSet> visible, Value firstKey,
                                              Value lastKey, Value offset,
                                              const SymbolValues &symbols, int64_t tileM);

/// Returns the range from the first to the last key that any query sees or, for the axis Queries,
/// from the first to the last query that sees any key (rule A7). `offset` is the position of query
/// 0, and `align` the alignment from which `offset` follows, if any. If no pair is visible, `end`
/// may be equal to `begin` or less.
IndexRange buildVisibleRange(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible,
                             TileAxis axis, Value offset, const SymbolValues &symbols,
                             std::optional<Align> align);

/// The positions of the rows of a tile: row i is at position (i / repeat) mod span, relative to the
/// first position. The rows of packed heads follow each other (span) or alternate (repeat).
struct RowPattern {
  int64_t repeat = 1;
  int64_t span = std::numeric_limits<int64_t>::max();
};

/// Builds and returns the mask of a tile, vector<MxNxi1>: element (i, j) is true if the query of
/// row i sees key k0 + j, which requires k0 + j < nk. The position of row i is p0 plus that of
/// `pattern`. `p0` and `k0` are index values. `symbols` are the values of the sets' symbols: index
/// values, the first of which are nq and nk, or i32 vectors for symbols that vary over the tile:
/// vector<Mx1> for values per query, vector<1xN> for values per key, or vector<MxN>. If `columns` is
/// Queries, the mask and these vectors are transposed, vector<NxMxi1>.
///
/// Values that depend only on the row are vector<Mx1>, and values that depend only on the column
/// vector<1xN>; only values that depend on both are computed per element. A linear constraint takes
/// one 32-bit comparison per element: of each index along the axis `numbers` with a limit.
Value buildVisibleTile(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible, Value p0,
                       Value k0, ValueRange symbols, int64_t m, int64_t n, RowPattern pattern = {},
                       TileAxis columns = TileAxis::Keys, TileAxis numbers = TileAxis::Keys);

/// Whether the query at position `p` sees key `k`. `symbols` are the values of the sets' symbols:
/// the numbers of queries and keys, and those of further symbols for this query and this key.
bool isVisible(ArrayRef<IntegerSet> visible, int64_t p, int64_t k, ArrayRef<int64_t> symbols);

/// How the pairs that a set shows change if the value of a symbol grows.
enum class SymbolChange {
  None,
  Grows,   ///< no pair is hidden
  Shrinks, ///< no pair becomes visible
  Unknown, ///< no direction is known: the symbol has both signs, or is in `==`, `mod` or `floordiv`
};

/// Returns how `set` changes with symbol `i`, counted after nq and nk.
SymbolChange getSymbolChange(IntegerSet set, unsigned i);

/// The sizes for which a tile map is drawn.
struct TileMapSizes {
  int64_t nq, nk;       ///< queries and keys, at least 1
  int64_t offset;       ///< position of query 0 (rule A3)
  int64_t tileM, tileN; ///< queries and keys of a tile, at least 1
  /// Values of the first symbols after nq and nk, the same for all queries and keys. Others may
  /// have any value.
  SmallVector<int64_t> symbols = {};
};

/// Prints the tiles of a mask as described for flashattn-print-mask-tiles: one line per `tileM`
/// queries and one character per `tileN` keys; for the axis Queries, one line per `tileM` keys and
/// one character per `tileN` queries. `mask` is printed as the name of the mask (null: no mask),
/// and `visible` are its sets. A tile that is visited only for some values of symbols without a
/// value is a `?`. The arith dialect must be loaded in the context.
void printTileMap(raw_ostream &os, MaskAttrInterface mask, ArrayRef<IntegerSet> visible,
                  Location loc, const TileMapSizes &sizes, TileAxis axis = TileAxis::Keys);

/// Emits a warning at the op if its mask or constant `attn_mask` hides every pair, or if its mask
/// hides every key of some positions (rule M6). If lengths and offset are static, these are the
/// positions of the op's queries; otherwise, all p >= 0 for any lengths nq, nk >= 1.
void warnHiddenRows(AttentionOpInterface op);

/// Emits a remark at the op if the intervals of its mask along `axis` are not known to be exact
/// (rule M3) for tiles of `tile` keys or queries, because tiles without a visible pair may then be
/// visited.
void remarkInexactTiles(AttentionOpInterface op, int64_t tile, TileAxis axis = TileAxis::Keys);

/// Returns what programs of `op` know of the symbols after nq and nk for tiles along `axis`: the
/// values of symbols per sequence, and the ranges of those that vary along the other axis.
SmallVector<SymbolKnowledge> getSymbolKnowledge(AttentionOpInterface op, TileAxis axis);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKTILES_H
