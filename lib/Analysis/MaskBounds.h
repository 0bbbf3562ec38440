//===- MaskBounds.h - bounds of visible indices along an axis ---*- C++ -*-===//
//
// The visible indices of a convex set along the tiled axis lie between a maximum of lower bounds
// and a minimum of upper bounds. The bounds are affine in the ends of the tile on the other axis,
// in the lengths and in quotients of these. They are the projection of the set: Fourier-Motzkin
// elimination, exact over the integers under the conditions of the Omega test. The indices that see
// the whole tile have bounds of the same form: each constraint is evaluated at its worst end of the
// tile (rules M3 to M5).
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
#define FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H

#include "flashattn/Analysis/MaskTiles.h"
#include "mlir/Analysis/Presburger/IntegerRelation.h"
#include "llvm/ADT/DynamicAPInt.h"

namespace mlir::flashattn::bounds {

/// Coefficients and constant of the constraint `row >= 0`.
using Row = SmallVector<llvm::DynamicAPInt, 8>;

/// Limits the total cost of proofs, in visited elements. A fact whose proof would exceed the budget
/// counts as unproven. Analyses are correct without it.
class Budget {
public:
  explicit Budget(int64_t elements = kElements) : left(elements) {}

  /// Deducts the cost of a proof over `rows` x `columns` elements. Returns whether the budget
  /// sufficed.
  bool take(int64_t rows, int64_t columns);

private:
  /// A few tenths of a second.
  static constexpr int64_t kElements = int64_t(1) << 24;

  int64_t left;
};

/// Limits of a set, beyond which constraints are dropped, and of the inequalities of a projection.
constexpr unsigned kMostConstraints = 32, kMostQuotients = 8, kMostBounds = 96;

/// Columns of a set: the index X along the tiled axis, the parameters that a bound may depend on,
/// and the columns that are projected out (see Columns). The constant is last. The parameters of
/// the symbols after nq and nk begin at Symbols.
enum Column : unsigned { X, First, Last, Nq, Nk, Offset, Symbols };

/// The columns that the symbols of a mask add. A symbol with one value for a tile is a parameter. A
/// symbol with a range adds two parameters, its least and its greatest value, and a column that is
/// projected out, as does a symbol of which nothing is known.
class Columns {
public:
  explicit Columns(ArrayRef<SymbolKnowledge> known);

  /// Returns the index Y along the other axis, the first column that is projected out. In a bound,
  /// this is the first quotient of parameters.
  unsigned getY() const { return numParameters; }
  /// Returns the first quotient (local) of mod and floordiv in a set.
  unsigned getLocals() const { return numParameters + 1 + ranges.size(); }
  /// Returns the column of symbol `i` in a set, counted after nq and nk.
  unsigned getSymbol(unsigned i) const { return columns[i]; }
  unsigned getNumSymbols() const { return columns.size(); }
  /// Returns, for each column that follows Y, the parameter of the symbol's least value, which is
  /// followed by that of its greatest value; nullopt if nothing is known.
  ArrayRef<std::optional<unsigned>> getRanges() const { return ranges; }

private:
  unsigned numParameters = Symbols;
  SmallVector<unsigned> columns;
  SmallVector<std::optional<unsigned>> ranges;
};

/// The parameters of a plan's bounds: First to Offset and those of symbols, followed by quotients
/// of earlier parameters by constants. Each quotient costs a division at run time.
class Parameters {
public:
  explicit Parameters(Columns columns = Columns({})) : columns(std::move(columns)) {}

  struct Quotient {
    Row dividend;
    llvm::DynamicAPInt divisor;
    /// The absolute value is at most this times 2^31.
    llvm::DynamicAPInt magnitude;
  };

  /// Returns the number of columns of a bound.
  unsigned getNumColumns() const { return getFirstQuotient() + quotients.size() + 1; }
  unsigned getFirstQuotient() const { return columns.getY(); }
  const Columns &getColumns() const { return columns; }
  ArrayRef<Quotient> getQuotients() const { return quotients; }

  /// Returns floor(dividend / divisor) as a row. `dividend` is a bound without X. A new quotient is
  /// added to the parameters. Returns nullopt if the dividend may not fit 64 bits.
  std::optional<Row> getFloor(Row dividend, llvm::DynamicAPInt divisor);

  /// Returns the first `numKept` columns and the constant of `row` at the width of a bound.
  Row widen(ArrayRef<llvm::DynamicAPInt> row, unsigned numKept) const;
  Row widen(const Row &row) const { return widen(row, row.size() - 1); }

  /// Whether the row's value fits 64 bits for operands below 2^31, with a margin for the additions
  /// of a ceiling division.
  bool fits(const Row &row) const;

  /// Returns all constraints on the parameters: first <= last, nq >= 0, nk >= 0, the order of each
  /// symbol's least and greatest value, and the definitions of the quotients.
  SmallVector<Row> getContext() const;

private:
  llvm::DynamicAPInt getMagnitude(const Row &row) const;

  Columns columns;
  SmallVector<Quotient> quotients;
};

/// Whether a parameter has a coefficient other than 0.
bool dependsOnParameters(const Row &row);

/// Whether it is proven that no rational point satisfies all of `rows`, which must not be empty.
bool isRationallyEmpty(ArrayRef<Row> rows, Budget &budget);

/// Whether it is proven that `row` holds at every integer point of `given` and `also`.
bool implies(ArrayRef<Row> given, ArrayRef<Row> also, const Row &row, Budget &budget);

/// Whether it is proven that a polyhedron has no integer point.
bool isKnownEmpty(const presburger::IntegerRelation &pairs, Budget &budget);

/// Adds `factor` times `other`, which may have fewer columns, to `row`.
void addMultiple(Row &row, const Row &other, const llvm::DynamicAPInt &factor);

/// Divides `row` by the greatest common divisor of its coefficients. Its integer points stay the
/// same.
void normalize(Row &row);

/// A convex set: rows that are at least 0 and rows that are equal to 0.
struct FlatSet {
  Columns columns{{}};
  SmallVector<Row> inequalities, equalities;
  /// The floor divisions that define the local columns, as rows of the set.
  SmallVector<Row> dividends;
  SmallVector<llvm::DynamicAPInt> divisors;
  /// dividend - divisor * local in [0, divisor).
  SmallVector<Row> divisionBounds;
  /// Whether no constraint was dropped.
  bool complete = true;
};

/// Returns `set` as rows of `columns`, for tiles along `axis`. Symbols without a column in `columns`
/// are unknown.
FlatSet flatten(IntegerSet set, TileAxis axis, const Columns &columns);
/// Returns `set` with nothing known of its symbols after nq and nk.
FlatSet flatten(IntegerSet set, TileAxis axis);

/// Returns how `set` changes with the symbol in column `column`. Dropped constraints do not count.
SymbolChange getChange(const FlatSet &set, unsigned column);

/// Bounds of X: rows in which the coefficient of X is positive (lower), negative (upper) or 0
/// (conditions).
struct Bounds {
  SmallVector<Row> lower, upper, conditions;

  void add(Row row);
  SmallVector<Row> all() const;
  void widen(const Parameters &parameters);
  /// Drops rows that the others imply. Lower bounds are compared only with lower bounds and upper
  /// bounds only with upper bounds, so that each end stays correct if the interval is empty.
  void simplify(ArrayRef<Row> context, Budget &budget);
  /// Whether it is proven, for all values, that every upper bound is at least every lower bound
  /// minus `slack`. Returns false if a bound has a divisor.
  bool isOrdered(ArrayRef<Row> context, int64_t slack, Budget &budget) const;
};

/// Returns 0 <= x and x <= n - 1, where n is the length of the axis.
std::array<Row, 2> getAxis(TileAxis axis);

struct Projection {
  Bounds bounds;
  /// Whether every index between the bounds is in the projected set.
  bool exact = true;
};

/// Returns the indices with a visible pair: the projection over y in [first, last]. With `tile`, X
/// counts tiles of `tile` indices, and the result is the tiles that contain such an index.
Projection projectVisible(const FlatSet &set, TileAxis axis, std::optional<int64_t> tile,
                          Parameters &parameters, Budget &budget);

/// The positions from `first` to `last`, or from `first` on without `last`; no position if `empty`.
struct PositionRange {
  bool empty = false;
  int64_t first = 0;
  std::optional<int64_t> last;
  /// Whether every position of the range sees a key. In any case, no other position does.
  bool exact = true;

  bool contains(int64_t position) const {
    return !empty && position >= first && (!last || position <= *last);
  }
};

/// Returns the positions of `within` that see a key of `set`, which is flattened along Keys, for
/// the given lengths. A length that is not given may have any value of at least 1.
PositionRange projectPositions(const FlatSet &set, std::optional<int64_t> nq,
                               std::optional<int64_t> nk, const PositionRange &within,
                               Budget &budget);

/// Returns the indices that see every y in [first, last], or nullopt if the set is not complete or
/// the bounds do not fit 64 bits.
std::optional<Projection> projectFull(const FlatSet &set, TileAxis axis, Parameters &parameters);

/// Returns the sets that are not proven to be empty or contained in another set, for 0 <= k < nk.
SmallVector<IntegerSet> dropRedundantSets(ArrayRef<IntegerSet> visible, Budget &budget);

} // namespace mlir::flashattn::bounds

#endif // FLASHATTN_LIB_ANALYSIS_MASKBOUNDS_H
