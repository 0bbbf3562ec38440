//===- Verify.h - comparison of results with the reference ------*- C++ -*-===//

#ifndef FLASH_RUN_VERIFY_H
#define FLASH_RUN_VERIFY_H

#include "CheckedOp.h"
#include "llvm/Support/JSON.h"

namespace mlir::flashattn {

/// Number of multiplications that take the reference about two seconds on two processors.
constexpr double kDefaultVerifyWork = 4e9;

/// The comparison of one result of an op with the reference.
struct Verdict {
  std::string name;      ///< name of the result
  uint64_t elements = 0; ///< number of compared elements
  double maxError = 0, tolerance = 0;
  /// Relative Frobenius norm of the error, and its bound; lse has no bound.
  double frobenius = 0;
  std::optional<double> frobeniusBound;
  /// Number of elements whose kind (NaN, infinite or finite) differs from the reference, and the
  /// first of these elements with its reference.
  uint64_t wrongKind = 0;
  double firstWrong = 0, firstRight = 0;
  bool isUnwritten = false; ///< an element outside the sample is not finite

  bool holds() const;
  /// Keeps the worse of this verdict and `other`, the verdict of another run.
  void merge(const Verdict &other);
};

/// The comparison of all results of an op.
struct Comparison {
  uint64_t rows = 0, allRows = 0; ///< compared rows, and all rows
  double work = 0;                ///< multiplications
  SmallVector<Verdict> verdicts;  ///< one for each result that is present
};

/// Compares the results among `values` with the float64 reference computed from the inputs: all
/// rows, or a sample of rows if all take more than `maxWork` multiplications. The input o of a
/// `project` may be absent; it is then computed from the attention `producer`. Errors: sizes that
/// do not fit.
llvm::Expected<Comparison> compare(const CheckedOp &op, const OperandValues &values, double maxWork,
                                   const AttentionProblem *producer = nullptr);

/// Whether two float tensors of one type differ at most as much as sums in another order: by 1e-5
/// plus two roundings of their type, relative to the largest value, or to 1 if that is larger.
bool areClose(const HostTensor &a, const HostTensor &b);

/// Returns text such as "all 264 rows".
std::string describeRows(uint64_t rows, uint64_t allRows);
void print(const Verdict &verdict, raw_ostream &os);
llvm::json::Object describe(const Verdict &verdict);

} // namespace mlir::flashattn

#endif // FLASH_RUN_VERIFY_H
