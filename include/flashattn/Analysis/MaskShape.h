//===- MaskShape.h - how much of the keys a mask leaves ----------*- C++ -*-===//

#ifndef FLASHATTN_ANALYSIS_MASKSHAPE_H
#define FLASHATTN_ANALYSIS_MASKSHAPE_H

#include "mlir/IR/IntegerSet.h"
#include "mlir/Support/LLVM.h"

#include <optional>

namespace mlir::flashattn {

/// What the length of a query's interval of keys goes by: the choice of a schedule does.
enum class MaskShape {
  /// All keys, or any other number that does not follow the query.
  Full,
  /// Grows or shrinks with the query's position, as under a causal mask.
  Triangular,
  /// Bounded whatever the lengths, as in a window.
  Banded,
};

struct MaskClass {
  MaskShape shape;
  /// Of a band: no query sees more keys, below 2^31.
  std::optional<int64_t> width;
};

/// The shape of the union of `visible`: banded where every set is, and triangular where all
/// others are bounded on one side by the query's position. Where it would take long it is full.
MaskClass classifyMask(ArrayRef<IntegerSet> visible);

/// Whether no pair of such lengths, dynamic ones of any, is visible for sure.
bool hidesEveryPair(ArrayRef<IntegerSet> visible, int64_t nq, int64_t nk);

} // namespace mlir::flashattn

#endif // FLASHATTN_ANALYSIS_MASKSHAPE_H
