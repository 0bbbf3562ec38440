//===- ScoreMod.h - evaluates the region of a score_mod ---------*- C++ -*-===//

#ifndef FLASH_RUN_SCOREMOD_H
#define FLASH_RUN_SCOREMOD_H

#include "HostTensor.h"
#include "mlir/IR/Region.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::flashattn {

/// The `score_mod` of an attention, independent of its module, which may be lowered.
class ScoreMod {
public:
  /// Errors: an op that is not supported here.
  static llvm::Expected<ScoreMod> create(Region &region);

  /// Returns the captured values other than constant scalars; invalid once the module is lowered.
  ArrayRef<Value> getCaptured() const { return captured; }
  /// Sets captured value `index`, as a float and as an integer.
  void setCaptured(unsigned index, double real, int64_t integer);
  /// Sets captured value `index`, a tensor, which must outlive evaluations.
  void setCaptured(unsigned index, const HostTensor &tensor);

  /// Returns the new score, with float arithmetic in T: float or double.
  template <typename T> T evaluate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;

  /// Returns the new score and its derivative with respect to the old one (rule B6). At points
  /// without a derivative, such as the maximum of two equal values, returns a one-sided derivative.
  template <typename T>
  std::pair<T, T> differentiate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;

private:
  struct Slot;
  struct Step {
    /// Numbers of the operands: an argument's index, or the number of arguments plus an index in
    /// `steps`.
    SmallVector<unsigned> operands;
    unsigned bits = 64;                 ///< width of an integer result
    int64_t predicate = 0;              ///< predicate of a comparison
    double constant = 0;                ///< value of a constant, as a float
    int64_t integer = 0;                ///< value of a constant, as an integer
    const HostTensor *tensor = nullptr; ///< value of a captured tensor
    int kind = 0;                       ///< a `Kind`
  };
  /// Returns the yielded value and, with WithSlopes, its derivative.
  template <typename T, bool WithSlopes>
  Slot run(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;
  /// Returns the derivative of a step's result, `value`, given those of its operands.
  template <typename T> static T getSlope(const Step &step, ArrayRef<Slot> slots, T value);

  /// Returns the element that a step loads.
  Slot load(const Step &step, ArrayRef<Slot> slots) const;

  std::vector<Step> steps;
  unsigned result = 0;
  SmallVector<Value> captured;
  SmallVector<unsigned> capturedSteps; ///< index in `steps` of each captured value
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_SCOREMOD_H
