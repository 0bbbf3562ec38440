//===- MaskTiles.h - tile intervals of mask sets ----------------*- C++ -*-===//
//
// Rules M3 to M6: which tiles contain a visible pair, which of them are full, the mask of a partial
// tile, and rows that see no key. Masks are unions of integer sets over (p, k)[nq, nk]
// (MaskAttrInterface). Positions, keys and lengths are below 2^31 in absolute value.
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

/// Tiles [begin, end) of one interval along an axis: [begin, fullBegin) partial, [fullBegin,
/// fullEnd) full, [fullEnd, end) partial. The index values satisfy begin <= fullBegin <= fullEnd <=
/// end. Without a full tile, fullBegin = fullEnd = begin, so that one loop runs over all tiles.
struct TileInterval {
  Value begin, fullBegin, fullEnd, end;
};

/// Indices [begin, end) along an axis. A null `begin` means 0, and a null `end` the length of the
/// axis, for all values of the operands.
struct IndexRange {
  Value begin, end;

  /// Whether the range is the whole axis.
  bool isAll() const { return !begin && !end; }
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
/// gaps between the visible indices of a tile are narrower than a tile, for sets within a budget of
/// elements. A constraint whose coefficients have absolute values with a sum above 2^31 bounds no
/// interval and leaves no tile full.
class TileIntervalPlan {
public:
  /// `tile` is the number of keys or queries of a tile, at least 1.
  TileIntervalPlan(ArrayRef<IntegerSet> visible, TileAxis axis, int64_t tile);
  TileIntervalPlan(TileIntervalPlan &&);
  ~TileIntervalPlan();

  /// Emits the bounds as `arith` ops on index values, or constants if the operands are constants.
  /// `first` and `last` (inclusive, first <= last) are the positions of the query tile (axis Keys)
  /// or the keys of the key tile (axis Queries). They are used without clamping: the caller clamps
  /// `last` if a tile extends past the end. `offset` is the position of query 0; it is not used for
  /// the axis Keys. With `constants`, an interval that is at most one tile, and the same tile for
  /// all operands, becomes that tile, even if no pair of it is visible.
  SmallVector<TileInterval> emit(OpBuilder &builder, Location loc, Value first, Value last,
                                 Value offset, Value nq, Value nk, bool constants = false) const;

  /// Emits the range from the first to the last index in any interval, with tiles of one index.
  /// `first` and `last` are those of all positions or keys. `align` is the alignment from which
  /// `offset` follows (rule A3), if any. If no pair is visible, the end may be at the beginning or
  /// before it.
  IndexRange emitHull(OpBuilder &builder, Location loc, Value first, Value last, Value offset,
                      Value nq, Value nk, std::optional<Align> align) const;

  /// Whether, for all operands, every tile in an interval contains a visible pair.
  bool isExact() const;
  /// Whether, for all operands, every tile whose pairs are all visible is full. Returns false for
  /// several sets, which may show a tile together.
  bool findsEveryFullTile() const;

  /// The number of intervals that `emit` returns: one for each set, or one for several adjacent
  /// sets if there are very many.
  size_t size() const;

  struct Interval;

private:
  /// Each interval needs registers for a loop's bounds, and as many exchanges as there are other
  /// intervals.
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
/// lastPosition] (inclusive). Key tile t has the keys [t*tileN, (t+1)*tileN) below nk. For
/// `constants`, see above.
SmallVector<TileInterval> buildKeyIntervals(OpBuilder &builder, Location loc,
                                            ArrayRef<IntegerSet> visible, Value firstPosition,
                                            Value lastPosition, Value nq, Value nk, int64_t tileN,
                                            bool constants = false);

/// Returns the sets that show some query a key with index `least` or above.
SmallVector<IntegerSet> selectSetsFrom(ArrayRef<IntegerSet> visible, int64_t least);

/// Returns the intervals of query tiles for the key tile with the keys [firstKey, lastKey]
/// (inclusive). Query tile t has the queries [t*tileM, (t+1)*tileM) below nq, at the positions from
/// offset + t*tileM on.
SmallVector<TileInterval> buildQueryIntervals(OpBuilder &builder, Location loc,
                                              ArrayRef<IntegerSet> visible, Value firstKey,
                                              Value lastKey, Value offset, Value nq, Value nk,
                                              int64_t tileM);

/// Returns the range from the first to the last key that any query sees or, for the axis Queries,
/// from the first to the last query that sees any key (rule A7). `offset` is the position of query
/// 0, and `align` the alignment from which it follows, if any. If no pair is visible, the end may
/// be at the beginning or before it.
IndexRange buildVisibleRange(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible,
                             TileAxis axis, Value offset, Value nq, Value nk,
                             std::optional<Align> align);

/// The positions of the queries of a tile: query i is at position (i / repeat) mod span after the
/// first. Several heads that share a tile follow each other (span) or alternate (repeat).
struct RowPattern {
  int64_t repeat = 1;
  int64_t span = std::numeric_limits<int64_t>::max();
};

/// Builds the mask of a tile, vector<MxNxi1>: element (i, j) says whether the query of row i, whose
/// position is given by `pattern` starting at p0, sees key k0 + j; this includes k0 + j < nk. `p0`,
/// `k0`, `nq` and `nk` are index values. If `columns` is Queries, the mask is transposed,
/// vector<NxMxi1>.
///
/// Rows are vector<Mx1> and columns vector<1xN>; only what depends on both is computed per element.
/// A linear constraint takes one 32-bit comparison with a limit, which each index along `numbers`
/// is below or above.
Value buildVisibleTile(OpBuilder &builder, Location loc, ArrayRef<IntegerSet> visible, Value p0,
                       Value k0, Value nq, Value nk, int64_t m, int64_t n, RowPattern pattern = {},
                       TileAxis columns = TileAxis::Keys, TileAxis numbers = TileAxis::Keys);

/// Whether the query at position `p` sees key `k`.
bool isVisible(ArrayRef<IntegerSet> visible, int64_t p, int64_t k, int64_t nq, int64_t nk);

/// The sizes for which a tile map is drawn.
struct TileMapSizes {
  int64_t nq, nk;       ///< queries and keys, at least 1
  int64_t offset;       ///< position of query 0 (rule A3)
  int64_t tileM, tileN; ///< queries and keys of a tile, at least 1
};

/// Draws the tiles of a mask as described for flashattn-print-mask-tiles: a line for `tileM`
/// queries and a character for `tileN` keys; for the axis Queries, a line for `tileM` keys and a
/// character for `tileN` queries. `mask` is the mask to name, or null for none, and `visible` are
/// its sets. The arith dialect must be loaded in the context.
void printTileMap(raw_ostream &os, MaskAttrInterface mask, ArrayRef<IntegerSet> visible,
                  Location loc, const TileMapSizes &sizes, TileAxis axis = TileAxis::Keys);

/// Emits a warning at the op if its mask or constant `keep` hides every pair, or if its mask hides
/// every key of some positions (rule M6). If lengths and offset are static, these are the positions
/// of the op's queries; otherwise, all p >= 0 for any lengths nq, nk >= 1.
void warnHiddenRows(AttentionOpInterface op);

/// Emits a remark at the op if the intervals of its mask along `axis` are not known to be exact
/// (rule M3) for tiles of `tile` keys or queries, so that tiles without a visible pair may be
/// visited.
void remarkInexactTiles(AttentionOpInterface op, int64_t tile, TileAxis axis = TileAxis::Keys);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKTILES_H
