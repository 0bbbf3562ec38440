//===- Difference.h - error statistics of comparisons -----------*- C++ -*-===//

#ifndef FLASH_RUN_DIFFERENCE_H
#define FLASH_RUN_DIFFERENCE_H

#include "Verify.h"

#include <cmath>

namespace mlir::flashattn {

constexpr unsigned kSampleSeed = 0;
constexpr double kLeastTolerance = 1e-5;

/// Statistics of the errors of an output, or of some of its elements.
struct Difference {
  double maxError = 0, maxNaive = 0, maxReference = 0;
  double sumSquaredError = 0, sumSquaredNaive = 0, sumSquared = 0;
  uint64_t elements = 0;
  uint64_t wrongKind = 0; ///< elements that are NaN, infinite or finite, unlike the reference
  double firstWrong = 0, firstRight = 0;

  /// Adds a value with its reference in float64 and in plain arithmetic. The error of plain
  /// arithmetic counts as at least `leastNaive`. Distances are in units of `unit`.
  void add(double value, double reference, double naive, double unit = 1, double leastNaive = 0) {
    ++elements;
    // Infinities and NaN must be matched exactly; they have no distance. A value may also overflow
    // where that of plain arithmetic in its type does.
    if (!std::isfinite(reference) || !std::isfinite(value)) {
      bool overflows = std::isfinite(reference) && !std::isfinite(naive);
      bool same = std::isnan(reference) ? std::isnan(value) : value == reference || overflows;
      if (!same && wrongKind++ == 0)
        firstWrong = value, firstRight = reference;
      return;
    }
    double error = std::abs(value - reference) / unit;
    maxError = std::max(maxError, error);
    maxReference = std::max(maxReference, std::abs(reference));
    if (std::isfinite(naive)) {
      double naiveError = std::max(std::abs(naive - reference) / unit, leastNaive);
      maxNaive = std::max(maxNaive, naiveError);
      sumSquaredNaive += naiveError * naiveError;
    }
    sumSquaredError += error * error;
    sumSquared += reference * reference;
  }

  /// Adds a value that must be exactly 0.
  void addZero(double value) {
    ++elements;
    if (value != 0 && wrongKind++ == 0)
      firstWrong = value, firstRight = 0;
  }

  /// Accepts a NaN if `isAllowed`. Returns whether it did.
  bool takeNaN(double value, bool isAllowed) {
    if (!isAllowed || !std::isnan(value))
      return false;
    ++elements;
    return true;
  }

  void merge(const Difference &other) {
    if (wrongKind == 0)
      firstWrong = other.firstWrong, firstRight = other.firstRight;
    elements += other.elements;
    wrongKind += other.wrongKind;
    maxError = std::max(maxError, other.maxError);
    maxNaive = std::max(maxNaive, other.maxNaive);
    maxReference = std::max(maxReference, other.maxReference);
    sumSquaredError += other.sumSquaredError;
    sumSquaredNaive += other.sumSquaredNaive;
    sumSquared += other.sumSquared;
  }

  double getFrobenius() const { return divideBySum(sumSquaredError); }
  double getNaiveFrobenius() const { return divideBySum(sumSquaredNaive); }

  /// Returns the verdict on a gradient. `frobeniusBound`, the bound on the relative norm, is
  /// increased if cancellation is so strong that plain arithmetic exceeds it. There is no bound if
  /// the gradient consists of rounding errors only.
  Verdict judgeGradient(StringRef name, double frobeniusBound) const {
    constexpr double kRounding = 1e-6;
    std::optional<double> bound;
    if (std::sqrt(sumSquared) > kRounding * std::sqrt(double(elements)))
      bound = std::max(frobeniusBound, 2 * getNaiveFrobenius());
    double least = kLeastTolerance * std::max(1.0, maxReference);
    return judge(name, 3 * maxNaive + least, bound);
  }

  Verdict judge(StringRef name, double tolerance, std::optional<double> frobeniusBound) const {
    Verdict verdict;
    verdict.name = name;
    verdict.elements = elements;
    verdict.maxError = maxError;
    verdict.tolerance = tolerance;
    verdict.frobenius = getFrobenius();
    verdict.frobeniusBound = frobeniusBound;
    verdict.wrongKind = wrongKind;
    verdict.firstWrong = firstWrong;
    verdict.firstRight = firstRight;
    return verdict;
  }

private:
  double divideBySum(double squares) const {
    return std::sqrt(sumSquared > 0 ? squares / sumSquared : squares);
  }
};

/// Row `i` of a group of consecutive rows: a head, or a batch.
struct Row {
  int64_t group, i;
};

/// Returns the bound of the relative Frobenius norm for an element type (rule A9 for f32).
inline double getFrobeniusBound(Scalar scalar) {
  return scalar == Scalar::F16 ? 1e-3 : scalar == Scalar::BF16 ? 8e-3 : 1e-5;
}

bool isAllFinite(const HostTensor &tensor);

/// Returns all rows, or a sample if `work`, the work of all rows, exceeds `maxWork`. The sample is
/// spread over at most `maxGroups` groups and includes the first and the last row of each. Rows are
/// in order.
std::vector<Row> chooseRows(int64_t groups, int64_t rowsOfGroup, double work, int64_t maxGroups,
                            double maxWork);

Difference sum(ArrayRef<Difference> parts);

/// Compares the gradients among `values` with the reference for `problem`. Adds the verdicts to
/// `comparison`.
void compareGradients(const AttentionProblem &problem, const OperandValues &values, double maxWork,
                      Comparison &comparison);

} // namespace mlir::flashattn

#endif // FLASH_RUN_DIFFERENCE_H
