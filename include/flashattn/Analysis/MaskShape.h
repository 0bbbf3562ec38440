//===- MaskShape.h - how many keys a mask shows -----------------*- C++ -*-===//

#ifndef FLASHATTN_ANALYSIS_MASKSHAPE_H
#define FLASHATTN_ANALYSIS_MASKSHAPE_H

#include "mlir/IR/IntegerSet.h"
#include "mlir/Support/LLVM.h"

#include <optional>

namespace mlir::flashattn {

/// How the length of a query's interval of keys varies. The choice of a schedule depends on it.
enum class MaskShape {
  /// All keys, or another number of keys that does not depend on the query's position.
  Full,
  /// Grows or shrinks with the query's position, as under a causal mask.
  Triangular,
  /// Bounded independently of the lengths, as in a window.
  Banded,
};

struct MaskClass {
  MaskShape shape;
  /// For a band: the maximum number of keys that a query sees, below 2^31.
  std::optional<int64_t> width;
};

/// Returns the shape of the union of `visible`: banded if every set is banded, and triangular if
/// all other sets are bounded on one side by the query's position. The shape is full if the
/// classification would take too long.
MaskClass classifyMask(ArrayRef<IntegerSet> visible);

/// Returns the number of `mod`, `floordiv` and `ceildiv` in `visible` whose dividend depends on both
/// the query and the key. A kernel repeats them for every pair of a partial tile.
int64_t countPairDivisions(ArrayRef<IntegerSet> visible);
int64_t countPairDivisions(AffineExpr constraint);

/// Whether it is certain that no pair of these lengths, any of which may be dynamic, is visible.
bool hidesEveryPair(ArrayRef<IntegerSet> visible, int64_t nq, int64_t nk);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKSHAPE_H
