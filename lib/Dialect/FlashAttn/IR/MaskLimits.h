//===- MaskLimits.h - limits on the sets of a mask --------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Limits for all sets of a mask together, of which there are at most kMaxVisibleSets: the number
/// of names and numbers, and the number of `floordiv`, `ceildiv` and `mod`.
constexpr size_t kMaxMaskTerms = 4096, kMaxMaskDivisions = 256;

/// The size of a mask, in the quantities that the limits restrict.
struct MaskSize {
  size_t sets, terms, divisions;
};

/// Returns the size of `sets`. Emits an error if they are not valid for a mask: over the dimensions
/// and symbols `(p, k)[nq, nk]`, within the limits, with pure affine constraints that evaluate in
/// 64 bits without overflow for positions, keys and lengths below 2^31.
FailureOr<MaskSize> verifyVisibleSets(function_ref<InFlightDiagnostic()> emitError,
                                      ArrayRef<IntegerSet> sets);

/// Verifies that each of `masks` is a valid mask, of any dialect, and that their union or, with
/// `multiply`, their intersection is within the limits.
LogicalResult verifyMasks(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks,
                          bool multiply);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H
