//===- Overlap.cpp ---------------------------------------------------------===//

#include "flashattn/Runtime/Overlap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir::flashattn;
using llvm::divideCeilSigned;
using llvm::divideFloorSigned;

uintptr_t TensorPlace::getEnd() const {
  uint64_t elements = 1;
  for (auto [size, stride] : llvm::zip_equal(sizes, strides)) {
    if (size == 0)
      return address;
    elements = llvm::SaturatingMultiplyAdd<uint64_t>(size - 1, stride, elements);
  }
  return llvm::SaturatingMultiplyAdd<uint64_t>(elements, elementBytes, address);
}

namespace {
/// Bytes between two elements may be `low` to `high` times `stride`.
struct Steps {
  int64_t stride, low, high;
  /// What the steps behind this one reach together.
  int64_t restLow = 0, restHigh = 0;
};

/// All steps, from the longest stride to that of single bytes.
class Search {
public:
  /// The bytes from a byte of `lhs` to one of `rhs`, but for the difference of the addresses.
  Search(const TensorPlace &lhs, const TensorPlace &rhs) {
    steps.push_back({1, -(lhs.elementBytes - 1), rhs.elementBytes - 1});
    for (auto [size, stride] : llvm::zip_equal(lhs.sizes, lhs.strides))
      if (size > 1 && stride > 0)
        add({stride * lhs.elementBytes, -(size - 1), 0});
    for (auto [size, stride] : llvm::zip_equal(rhs.sizes, rhs.strides))
      if (size > 1 && stride > 0)
        add({stride * rhs.elementBytes, 0, size - 1});
    llvm::sort(steps, [](const Steps &a, const Steps &b) { return a.stride > b.stride; });
    for (size_t i = steps.size() - 1; i-- > 0;) {
      const Steps &next = steps[i + 1];
      steps[i].restLow = next.restLow + next.stride * next.low;
      steps[i].restHigh = next.restHigh + next.stride * next.high;
    }
  }

  /// Whether the steps from number `first` on come to `target`, or may.
  bool reaches(int64_t target, size_t first = 0) {
    const Steps &step = steps[first];
    // The last stride is 1.
    if (first + 1 == steps.size())
      return step.low <= target && target <= step.high;
    if (--patience < 0)
      return true;
    int64_t low = std::max(step.low, divideCeilSigned(target - step.restHigh, step.stride));
    int64_t high = std::min(step.high, divideFloorSigned(target - step.restLow, step.stride));
    for (int64_t n = low; n <= high; ++n)
      if (reaches(target - n * step.stride, first + 1))
        return true;
    return false;
  }

private:
  void add(Steps added) {
    for (Steps &known : steps)
      if (known.stride == added.stride) {
        known.low += added.low;
        known.high += added.high;
        return;
      }
    steps.push_back(added);
  }

  llvm::SmallVector<Steps, 12> steps;
  /// Views of one array take a dozen sums; a few microseconds are what others may cost.
  int patience = 1000;
};
} // namespace

bool mlir::flashattn::shareMemory(const TensorPlace &lhs, const TensorPlace &rhs) {
  uintptr_t lhsEnd = lhs.getEnd(), rhsEnd = rhs.getEnd();
  if (lhsEnd == lhs.address || rhsEnd == rhs.address || lhsEnd <= rhs.address ||
      rhsEnd <= lhs.address)
    return false;
  // No memory is as long, and sums of such extents could overflow.
  constexpr uintptr_t kLongest = uintptr_t(1) << 60;
  if (lhsEnd - lhs.address > kLongest || rhsEnd - rhs.address > kLongest)
    return true;
  return Search(lhs, rhs).reaches(int64_t(lhs.address - rhs.address));
}
