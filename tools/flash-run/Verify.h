//===- Verify.h - results against what they should be -------------*- C++ -*-===//

#ifndef FLASH_RUN_VERIFY_H
#define FLASH_RUN_VERIFY_H

#include "CheckedOp.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// Products of the reference that take about two seconds on two processors.
constexpr double kDefaultVerifyWork = 4e9;

/// What was seen of one result of an op.
struct Verdict {
  std::string name;      ///< of the result
  uint64_t elements = 0; ///< that were compared
  double maxError = 0, tolerance = 0;
  /// Relative Frobenius norm of the error and its bound, which lse has not.
  double frobenius = 0;
  std::optional<double> frobeniusBound;
  /// Elements that are NaN, infinite or finite where they should be something else; the first.
  uint64_t wrongKind = 0;
  double firstWrong = 0, firstRight = 0;
  bool isUnwritten = false; ///< not all finite outside of the sample

  bool holds() const;
  /// Becomes the worse of this and `other`, which is of another run.
  void merge(const Verdict &other);
};

/// What was compared.
struct Comparison {
  uint64_t rows = 0, allRows = 0; ///< fewer than all: a sample
  double work = 0;                ///< products
  SmallVector<Verdict> verdicts;  ///< one for each result that was given
};

/// Compares the results among `values` with the float64 reference of the others: all rows or,
/// where that would take more than `maxWork` products, a sample of them. Of a `project` its o may
/// be left out, which is that of the attention `producer` then. Errors: sizes that do not fit.
llvm::Expected<Comparison> compare(const CheckedOp &op, const OperandValues &values, double maxWork,
                                   const AttentionProblem *producer = nullptr);

/// Whether two float tensors of one type differ by no more than sums in another order do: 1e-5 and
/// two roundings of their type, where the largest value is 1.
bool areClose(const HostTensor &a, const HostTensor &b);

/// "all 264 rows" or the like.
std::string describeRows(uint64_t rows, uint64_t allRows);
void print(const Verdict &verdict, raw_ostream &os);
llvm::json::Object describe(const Verdict &verdict);

} // namespace mlir::flashattn

#endif // FLASH_RUN_VERIFY_H
