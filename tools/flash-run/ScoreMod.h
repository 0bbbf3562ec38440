//===- ScoreMod.h - evaluates the region of a score modification -*- C++ -*-===//

#ifndef FLASH_RUN_SCOREMOD_H
#define FLASH_RUN_SCOREMOD_H

#include "mlir/IR/Region.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::flashattn {

/// The `score_mod` of an attention, taken apart, so that it outlives the lowering of its module.
class ScoreMod {
public:
  /// Errors: an op that is not known here.
  static llvm::Expected<ScoreMod> create(Region &region);

  /// The values from outside that are no constants; gone with the module.
  ArrayRef<Value> getCaptured() const { return captured; }
  /// Says what the value `index` of these is, a float or an integer.
  void setCaptured(unsigned index, double real, int64_t integer);

  /// The new score, with float arithmetic in T: float or double.
  template <typename T> T evaluate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;

  /// The new score, and its derivative with respect to the old one (rule B6). Where there is none,
  /// as of the larger of two equal values, that of one side.
  template <typename T>
  std::pair<T, T> differentiate(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;

private:
  struct Slot;
  struct Step {
    /// Numbers of the values that it reads; its own is its place in `steps`, behind the
    /// arguments.
    SmallVector<unsigned> operands;
    unsigned bits = 64;    ///< of an integer result
    int64_t predicate = 0; ///< of a comparison
    double constant = 0;   ///< of a constant, as a float
    int64_t integer = 0;   ///< of a constant, as an integer
    int kind = 0;          ///< which case of `evaluate`
  };
  /// The value that is yielded and, where it is asked for, its derivative.
  template <typename T, bool WithSlopes>
  Slot run(T score, int64_t b, int64_t h, int64_t p, int64_t k) const;
  /// The derivative of a step's result, `value`, by those of its operands.
  template <typename T> static T getSlope(const Step &step, ArrayRef<Slot> slots, T value);

  std::vector<Step> steps;
  unsigned result = 0;
  SmallVector<Value> captured;
  SmallVector<unsigned> capturedSteps; ///< in `steps`, for each
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_SCOREMOD_H
