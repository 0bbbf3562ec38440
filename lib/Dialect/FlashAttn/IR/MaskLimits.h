//===- MaskLimits.h - what sets a mask may have ------------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H
#define FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// What a mask's sets, of which there are kMaxVisibleSets at most, may hold between them: names and
/// numbers, and `floordiv`, `ceildiv` and `mod`.
constexpr size_t kMaxMaskTerms = 4096, kMaxMaskDivisions = 256;

/// How much there is in a mask, within the limits.
struct MaskSize {
  size_t sets, terms, divisions;
};

/// The size of `sets`, which may be those of a mask: over `(p, k)[nq, nk]`, within the limits, of
/// pure affine constraints that evaluate in 64 bits without overflow for positions, keys and
/// lengths below 2^31. Others are an error.
FailureOr<MaskSize> verifyVisibleSets(function_ref<InFlightDiagnostic()> emitError,
                                      ArrayRef<IntegerSet> sets);

/// Each of `masks` may be one, of any dialect, and so may their union or, with `multiply`, their
/// intersection.
LogicalResult verifyMasks(function_ref<InFlightDiagnostic()> emitError, ArrayAttr masks,
                          bool multiply);

} // namespace mlir::flashattn

#endif // FLASHATTN_LIB_DIALECT_FLASHATTN_IR_MASKLIMITS_H
