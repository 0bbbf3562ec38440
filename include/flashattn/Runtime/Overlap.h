//===- Overlap.h - whether tensors share memory ------------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_OVERLAP_H
#define FLASHATTN_RUNTIME_OVERLAP_H

#include "flashattn/Runtime/LaunchShape.h"

#include <cstdint>

namespace mlir::flashattn {

/// Where the elements of a tensor lie. Needs no LLVM.
struct TensorPlace {
  static constexpr int kMaxRank = 5;
  uintptr_t address = 0; ///< of the first element
  Sizes sizes;           ///< at most kMaxRank
  Sizes strides;         ///< in elements, not negative
  int64_t elementBytes = 0;

  /// Address behind the last byte; `address` where a size is 0.
  uintptr_t getEnd() const;
};

/// Whether a byte belongs to both tensors. Views that lie between each other, such as q and k as
/// slices of one packed array, share none. Exact but for views with strides so unlike each other
/// that the search is given up, which count as sharing. Allocates nothing.
bool shareMemory(const TensorPlace &lhs, const TensorPlace &rhs);

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_OVERLAP_H
