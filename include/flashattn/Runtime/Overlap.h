//===- Overlap.h - check whether tensors share memory -----------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_OVERLAP_H
#define FLASHATTN_RUNTIME_OVERLAP_H

#include "flashattn/Runtime/LaunchShape.h"

#include <cstdint>

namespace mlir::flashattn {

/// The memory layout of a tensor. Does not depend on LLVM.
struct TensorPlace {
  static constexpr int kMaxRank = 5;
  uintptr_t address = 0; ///< address of the first element
  Sizes sizes;           ///< at most kMaxRank
  Sizes strides;         ///< in elements, not negative
  int64_t elementBytes = 0;

  /// Returns the address after the last byte, or `address` if a size is 0.
  uintptr_t getEnd() const;
};

/// Whether some byte belongs to both tensors. Interleaved views, such as q and k as slices of one
/// packed array, share no bytes. The result is exact, except for views whose strides differ so much
/// that the search is abandoned; these count as sharing memory. Does not allocate.
bool shareMemory(const TensorPlace &lhs, const TensorPlace &rhs);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_OVERLAP_H
