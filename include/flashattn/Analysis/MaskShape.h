//===- MaskShape.h - how many keys a mask shows -----------------*- C++ -*-===//

#ifndef FLASHATTN_ANALYSIS_MASKSHAPE_H
#define FLASHATTN_ANALYSIS_MASKSHAPE_H

#include "mlir/IR/IntegerSet.h"
#include "mlir/Support/LLVM.h"

#include <optional>

namespace mlir::flashattn {

/// How the number of keys that a query sees depends on its position. Schedules are selected by this
/// shape.
enum class MaskShape {
  /// All keys, or a number of keys that does not depend on the query's position.
  Full,
  /// The number grows or shrinks with the query's position, as under a causal mask.
  Triangular,
  /// The number has a bound that does not depend on the lengths, as in a window.
  Banded,
};

/// The shape of a mask and, for a band, its width.
struct MaskClass {
  MaskShape shape;
  /// Banded: the maximum number of keys that a query sees, below 2^31.
  std::optional<int64_t> width;
};

/// Returns the shape of the union of `visible`: banded if every set is banded, and triangular if
/// every set that is not banded is bounded on one side by the query's position. The shape is full
/// if the classification would take too long.
MaskClass classifyMask(ArrayRef<IntegerSet> visible);

/// Returns the number of `mod`, `floordiv` and `ceildiv` whose dividend depends on both the query
/// and the key. A kernel computes these for every pair of a partial tile.
int64_t countPairDivisions(ArrayRef<IntegerSet> visible);
int64_t countPairDivisions(AffineExpr constraint);

/// Whether it is certain that no pair is visible for the numbers of queries and keys `nq` and `nk`,
/// which may be dynamic.
bool hidesEveryPair(ArrayRef<IntegerSet> visible, int64_t nq, int64_t nk);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKSHAPE_H
