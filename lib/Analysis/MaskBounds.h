//===- MaskBounds.h - bounds of the visible indices along an axis -*- C++ -*-===//
//
// Along the tiled axis the visible indices of a convex set lie between the
// largest of some lower and the smallest of some upper bounds, affine in the
// ends of the other axis' tile, in the lengths and in quotients of these: the
// projection of the set (Fourier-Motzkin, with the conditions of the Omega test
// under which it is exact over the integers). The indices that see the whole tile
// lie between bounds of the same form: each constraint at its worst end of the
// tile (rules M3 to M5).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
#define FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/Presburger/IntegerRelation.h"
#include "llvm/ADT/DynamicAPInt.h"

namespace mlir::flashattn::bounds {

/// Coefficients and the constant of `row >= 0`.
using Row = SmallVector<llvm::DynamicAPInt, 8>;

/// What proofs may cost between them, in elements that they go through. What is beyond it is not
/// proven, and an analysis gives what is right without.
class Budget {
public:
  explicit Budget(int64_t elements = kElements) : left(elements) {}

  /// Takes off what a proof over so many rows and columns costs. Whether there was so much.
  bool take(int64_t rows, int64_t columns);

private:
  /// Some tenths of a second.
  static constexpr int64_t kElements = int64_t(1) << 24;

  int64_t left;
};

/// Of a set with more constraints or quotients some are left out, and of more bounds that a
/// projection makes.
constexpr unsigned kMostConstraints = 32, kMostQuotients = 8, kMostBounds = 96;

/// Columns of a set: the index along the tiled axis, what a bound may depend on, and
/// what is projected out: the index along the other axis and the quotients of mod and
/// floordiv. The constant is last. In a bound the parameters' quotients follow Offset.
enum Column : unsigned { X, First, Last, Nq, Nk, Offset, Y, Locals, Quotients = Y };

/// What the bounds of a plan depend on: First to Offset, and quotients of what stands before them
/// by constants, which are a division each at run time.
class Parameters {
public:
  struct Quotient {
    Row dividend;
    llvm::DynamicAPInt divisor;
    /// No absolute value is above this many times 2^31.
    llvm::DynamicAPInt magnitude;
  };

  /// Width of a bound.
  unsigned getNumColumns() const { return Quotients + quotients.size() + 1; }
  ArrayRef<Quotient> getQuotients() const { return quotients; }

  /// floor(dividend / divisor) as a row, `dividend` a bound without X; a quotient that is not yet
  /// there becomes a parameter. Nothing if the dividend may not fit 64 bits.
  std::optional<Row> getFloor(Row dividend, llvm::DynamicAPInt divisor);

  /// `row` of fewer quotients, or of other columns behind them, which are left out.
  Row widen(ArrayRef<llvm::DynamicAPInt> row, unsigned numKept) const;
  Row widen(const Row &row) const { return widen(row, row.size() - 1); }

  /// Whether the row's value fits 64 bits for operands below 2^31, with room for
  /// the additions of a ceiling division.
  bool fits(const Row &row) const;

  /// Everything that holds for the parameters: first <= last, nq >= 0, nk >= 0, and what the
  /// quotients are.
  SmallVector<Row> getContext() const;

private:
  llvm::DynamicAPInt getMagnitude(const Row &row) const;

  SmallVector<Quotient> quotients;
};

/// Whether a coefficient of a parameter is not 0.
bool dependsOnParameters(const Row &row);

/// Whether no rational point fulfils all of `rows`, of which there is one at least: a proof, not a
/// decision.
bool isRationallyEmpty(ArrayRef<Row> rows, Budget &budget);

/// Whether `row` holds at every integer point of `given` and `also`: a proof, not
/// a decision.
bool implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row, Budget &budget);

/// Whether a polyhedron has no integer point: a proof, not a decision.
bool isKnownEmpty(const presburger::IntegerRelation &pairs, Budget &budget);

/// Adds `factor` times a row of as many columns or fewer.
void addMultiple(Row &row, const Row &other, const llvm::DynamicAPInt &factor);

/// Divides by the greatest common divisor of the coefficients; the integer
/// points stay the same.
void normalize(Row &row);

/// A convex set, its constraints at least 0 or equal to 0.
struct FlatSet {
  SmallVector<Row> inequalities, equalities;
  /// The floor divisions behind the local columns, over the columns of the set.
  SmallVector<Row> dividends;
  SmallVector<llvm::DynamicAPInt> divisors;
  /// dividend - divisor * local in [0, divisor).
  SmallVector<Row> divisionBounds;
  /// Whether no constraint was left out.
  bool complete = true;
};

/// The set with its columns in order for tiles along `axis`.
FlatSet flatten(IntegerSet set, TileAxis axis);

/// Bounds of X: rows with a positive, a negative and no coefficient of X.
struct Bounds {
  SmallVector<Row> lower, upper, conditions;

  void add(Row row);
  SmallVector<Row> all() const;
  void widen(const Parameters &parameters);
  /// Drops what the rest implies. Lower bounds are only compared with lower and
  /// upper ones with upper ones: each end stays right where the interval is empty.
  void simplify(ArrayRef<Row> context, Budget &budget);
  /// Whether every upper bound is at least the lower bounds less `slack`, for
  /// all values. Bounds with a divisor are not tried.
  bool isOrdered(ArrayRef<Row> context, int64_t slack, Budget &budget) const;
};

/// 0 <= x and x <= n - 1, n the length of the axis.
std::array<Row, 2> getAxis(TileAxis axis);

struct Projection {
  Bounds bounds;
  /// Whether nothing else lies between the bounds.
  bool exact = true;
};

/// The indices with a visible pair: the projection over y in [first, last]. With `tile` X is not
/// an index but a tile of so many that holds one.
Projection projectVisible(const FlatSet &set, TileAxis axis, std::optional<int64_t> tile,
                          Parameters &parameters, Budget &budget);

/// Positions from `first` to `last`, without it to infinity; none with `empty`.
struct PositionRange {
  bool empty = false;
  int64_t first = 0;
  std::optional<int64_t> last;
  /// Whether each of them sees a key; if not, no other does.
  bool exact = true;

  bool contains(int64_t position) const {
    return !empty && position >= first && (!last || position <= *last);
  }
};

/// The positions of `within` that see a key of a set, which is flat along the axis Keys, for some
/// lengths of at least 1 or for those that are given.
PositionRange projectPositions(const FlatSet &set, std::optional<int64_t> nq,
                               std::optional<int64_t> nk, const PositionRange &within,
                               Budget &budget);

/// The indices that see every y in [first, last]; nothing if their bounds do not
/// fit 64 bits.
std::optional<Projection> projectFull(const FlatSet &set, TileAxis axis, Parameters &parameters);

/// The sets that are not known to be empty or within another one, for 0 <= k < nk.
SmallVector<IntegerSet> dropRedundantSets(ArrayRef<IntegerSet> visible, Budget &budget);

} // namespace mlir::flashattn::bounds

#endif // FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
