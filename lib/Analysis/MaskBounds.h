//===- MaskBounds.h - bounds of the visible indices along an axis -*- C++ -*-===//
//
// Along the tiled axis the visible indices of a convex set lie between the
// largest of some lower and the smallest of some upper bounds, affine in the
// ends of the other axis' tile and in the lengths: the projection of the set
// (Fourier-Motzkin). The indices that see the whole tile lie between bounds of
// the same form: each constraint at its worst end of the tile (rules M3 to M5).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
#define FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "llvm/ADT/DynamicAPInt.h"

namespace mlir::flashattn::bounds {

/// Coefficients and the constant of `row >= 0`.
using Row = SmallVector<llvm::DynamicAPInt, 8>;

/// Columns: the index along the tiled axis, what a bound may depend on, and what
/// is projected out: the index along the other axis and the quotients of mod and
/// floordiv. The constant is last.
enum Column : unsigned { X, First, Last, Nq, Nk, Offset, Y, Locals };
constexpr unsigned kNumParameters = Offset; // First to Offset
/// Width of a row after the projection.
constexpr unsigned kBoundColumns = Y + 1;

/// Whether a coefficient of First to Offset is not 0.
bool dependsOnParameters(const Row &row);

/// Everything that holds for the parameters: first <= last, nq >= 0, nk >= 0.
SmallVector<Row> getContext();

/// Whether no rational point fulfils all of `rows`, of which there is one at least.
bool isRationallyEmpty(ArrayRef<Row> rows);

/// Whether `row` holds at every integer point of `given` and `also`: a proof, not
/// a decision.
bool implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row);

/// A convex set, its constraints at least 0 or equal to 0.
struct FlatSet {
  SmallVector<Row> inequalities, equalities;
  /// The floor divisions behind the local columns, over the columns of the set.
  SmallVector<Row> dividends;
  SmallVector<llvm::DynamicAPInt> divisors;
  /// dividend - divisor * local in [0, divisor).
  SmallVector<Row> divisionBounds;
};

/// The set with its columns in order for tiles along `axis`.
FlatSet flatten(IntegerSet set, TileAxis axis);

/// Bounds of X: rows with a positive, a negative and no coefficient of X.
struct Bounds {
  SmallVector<Row> lower, upper, conditions;

  void add(Row row);
  /// 0 <= x <= n - 1, n the length of the axis.
  void addAxis(TileAxis axis);
  SmallVector<Row> all() const;
  /// Drops what the rest implies. Lower bounds are only compared with lower and
  /// upper ones with upper ones: each end stays right where the interval is empty.
  void simplify(ArrayRef<Row> context);
  /// Whether every upper bound is at least the lower bounds less `slack`, for
  /// all values. Bounds with a divisor are not tried.
  bool isOrdered(ArrayRef<Row> context, int64_t slack) const;
};

/// The indices with a visible pair: the projection over y in [first, last].
Bounds projectVisible(const FlatSet &set, TileAxis axis);

/// The indices that see every y in [first, last]; nothing if their bounds do not
/// fit 64 bits.
std::optional<Bounds> projectFull(const FlatSet &set, TileAxis axis);

/// The sets that are neither empty nor within another one, for 0 <= k < nk.
SmallVector<IntegerSet> dropRedundantSets(ArrayRef<IntegerSet> visible);

} // namespace mlir::flashattn::bounds

#endif // FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
