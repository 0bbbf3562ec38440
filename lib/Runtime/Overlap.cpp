//===- Overlap.cpp --------------------------------------------------------===//

#include "flashattn/Runtime/Overlap.h"

#include <algorithm>

using namespace mlir::flashattn;

/// Returns a * b + c, or the largest number if that overflows.
static uint64_t multiplyAdd(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product, sum;
  return __builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum)
             ? UINT64_MAX
             : sum;
}

/// The divisor must be positive.
static int64_t divideFloor(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t divideCeil(int64_t a, int64_t b) { return a / b + (a % b > 0); }

uintptr_t TensorPlace::getEnd() const {
  uint64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0)
      return address;
    elements = multiplyAdd(sizes[i] - 1, strides[i], elements);
  }
  return multiplyAdd(elements, elementBytes, address);
}

namespace {
/// A component of the distance between two bytes: from `low` to `high` times `stride`.
struct Steps {
  int64_t stride, low, high;
  /// The range of the sum of all later steps.
  int64_t restLow = 0, restHigh = 0;
};

/// All steps, from the longest stride to the stride of single bytes.
class Search {
public:
  /// Collects the steps from a byte of `lhs` to one of `rhs`, without the difference of addresses.
  Search(const TensorPlace &lhs, const TensorPlace &rhs) {
    add({1, -(lhs.elementBytes - 1), rhs.elementBytes - 1});
    for (size_t i = 0; i < lhs.sizes.size(); ++i)
      if (lhs.sizes[i] > 1 && lhs.strides[i] > 0)
        add({lhs.strides[i] * lhs.elementBytes, -(lhs.sizes[i] - 1), 0});
    for (size_t i = 0; i < rhs.sizes.size(); ++i)
      if (rhs.sizes[i] > 1 && rhs.strides[i] > 0)
        add({rhs.strides[i] * rhs.elementBytes, 0, rhs.sizes[i] - 1});
    std::sort(steps, steps + numSteps,
              [](const Steps &a, const Steps &b) { return a.stride > b.stride; });
    for (size_t i = numSteps - 1; i-- > 0;) {
      const Steps &next = steps[i + 1];
      steps[i].restLow = next.restLow + next.stride * next.low;
      steps[i].restHigh = next.restHigh + next.stride * next.high;
    }
  }

  /// Whether the steps from number `first` on can add up to `target`; also true if the search is
  /// given up.
  bool reaches(int64_t target, size_t first = 0) {
    const Steps &step = steps[first];
    // The last stride is 1.
    if (first + 1 == numSteps)
      return step.low <= target && target <= step.high;
    if (--patience < 0)
      return true;
    int64_t low = std::max(step.low, divideCeil(target - step.restHigh, step.stride));
    int64_t high = std::min(step.high, divideFloor(target - step.restLow, step.stride));
    for (int64_t n = low; n <= high; ++n)
      if (reaches(target - n * step.stride, first + 1))
        return true;
    return false;
  }

private:
  void add(Steps added) {
    for (size_t i = 0; i < numSteps; ++i)
      if (steps[i].stride == added.stride) {
        steps[i].low += added.low;
        steps[i].high += added.high;
        return;
      }
    steps[numSteps++] = added;
  }

  /// One for bytes, and one for each dimension of both tensors.
  Steps steps[1 + 2 * TensorPlace::kMaxRank];
  size_t numSteps = 0;
  /// Views of one array need a dozen sums. Others may take a few microseconds.
  int patience = 1000;
};
} // namespace

bool mlir::flashattn::shareMemory(const TensorPlace &lhs, const TensorPlace &rhs) {
  uintptr_t lhsEnd = lhs.getEnd(), rhsEnd = rhs.getEnd();
  if (lhsEnd == lhs.address || rhsEnd == rhs.address || lhsEnd <= rhs.address ||
      rhsEnd <= lhs.address)
    return false;
  // Memory is never that long, and sums of such extents could overflow.
  constexpr uintptr_t kLongest = uintptr_t(1) << 60;
  if (lhsEnd - lhs.address > kLongest || rhsEnd - rhs.address > kLongest)
    return true;
  return Search(lhs, rhs).reaches(int64_t(lhs.address - rhs.address));
}
