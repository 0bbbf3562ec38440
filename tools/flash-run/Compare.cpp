//===- Compare.cpp --------------------------------------------------------===//

#include "Compare.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace mlir;
using namespace mlir::flashattn;

static double getTolerance(Scalar scalar) {
  switch (scalar) {
  case Scalar::F16:
    return 2e-3;
  case Scalar::BF16:
    return 1.6e-2;
  case Scalar::F32:
  case Scalar::F64:
    return 1e-5;
  // Two units of the last place, as for the wider types.
  case Scalar::F8E4M3FN:
    return 0.25;
  case Scalar::F8E5M2:
    return 0.5;
  case Scalar::I1:
  case Scalar::I8:
  case Scalar::I32:
  case Scalar::I64:
  case Scalar::INDEX:
    return 0;
  }
  llvm_unreachable("unknown scalar");
}

/// Returns the indices of an element of a row-major array, such as [0,1,5,7].
static std::string formatPlace(int64_t index, ArrayRef<int64_t> shape) {
  SmallVector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0; index /= shape[d])
    place[d] = index % shape[d];
  return llvm::formatv("[{0:$[,]}]", llvm::iterator_range(place));
}

llvm::Expected<FileComparison> flashattn::compareExpected(unsigned index, const HostTensor &output,
                                                          const HostTensor &expected,
                                                          Tolerance tolerance, raw_ostream &os) {
  if (output.getShape() != expected.getShape() ||
      isFloat(output.getScalar()) != isFloat(expected.getScalar()))
    return llvm::createStringError(
        llvm::formatv("--expected-output {0}: the file holds {1} but output {0} is {2}", index,
                      expected.getTypeName(), output.getTypeName())
            .str());
  double byType = getTolerance(output.getScalar());
  double absolute = tolerance.absolute.value_or(byType),
         relative = tolerance.relative.value_or(byType);
  FileComparison result;
  result.elements = output.getNumElements();
  int64_t firstWrong = -1;
  for (int64_t i = 0; i < result.elements; ++i) {
    double value = output.get(i), right = expected.get(i);
    bool holds;
    if (!std::isfinite(value) || !std::isfinite(right)) {
      ++result.notFinite;
      holds = std::isnan(right) ? std::isnan(value) : value == right;
    } else {
      result.maxError = std::max(result.maxError, std::abs(value - right));
      holds = std::abs(value - right) <= absolute + relative * std::abs(right);
    }
    if (!holds && result.wrong++ == 0)
      firstWrong = i;
  }
  os << llvm::formatv("expected-output {0}: max error {1:e3}", index, result.maxError);
  if (result.notFinite)
    os << llvm::formatv(" without the {0} elements that are not finite in either",
                        result.notFinite);
  os << llvm::formatv(", tolerance {0:e3} + {1:e3} * |expected|", absolute, relative);
  if (result.wrong)
    os << llvm::formatv(
        ", {0} of {1} elements exceed it (the first at {2}: expected {3} but got {4})",
        result.wrong, result.elements, formatPlace(firstWrong, output.getShape()),
        expected.get(firstWrong), output.get(firstWrong));
  os << (result.wrong ? ": FAIL" : ": PASS") << "\n";
  return result;
}
