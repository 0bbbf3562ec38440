//===- Verify.cpp ----------------------------------------------------------===//

#include "Verify.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Parallel.h"

#include <cmath>
#include <numeric>
#include <random>

using namespace mlir;
using namespace mlir::flashattn;

namespace {

/// What was seen of one output, or of a part of it.
struct Difference {
  double maxError = 0, maxNaive = 0;
  double sumSquaredError = 0, sumSquared = 0;
  uint64_t wrongKind = 0; ///< NaN, infinite or finite where the reference is not so
  double firstWrong = 0, firstRight = 0;

  /// A value beside what it should be, in float64 and in plain arithmetic. Distances are
  /// in units of `unit`.
  void add(double value, double reference, double naive, double unit = 1) {
    // What is infinite or NaN must be so exactly; there is no distance to it.
    if (!std::isfinite(reference) || !std::isfinite(value)) {
      bool same = std::isnan(reference) ? std::isnan(value) : value == reference;
      if (!same && wrongKind++ == 0)
        firstWrong = value, firstRight = reference;
      return;
    }
    double error = std::abs(value - reference) / unit;
    maxError = std::max(maxError, error);
    if (std::isfinite(naive))
      maxNaive = std::max(maxNaive, std::abs(naive - reference) / unit);
    sumSquaredError += error * error;
    sumSquared += reference * reference;
  }

  void merge(const Difference &other) {
    if (wrongKind == 0)
      firstWrong = other.firstWrong, firstRight = other.firstRight;
    wrongKind += other.wrongKind;
    maxError = std::max(maxError, other.maxError);
    maxNaive = std::max(maxNaive, other.maxNaive);
    sumSquaredError += other.sumSquaredError;
    sumSquared += other.sumSquared;
  }

  double getFrobenius() const {
    return sumSquared > 0 ? std::sqrt(sumSquaredError / sumSquared) : std::sqrt(sumSquaredError);
  }
};

struct Row {
  int64_t b, h, i;
};

constexpr unsigned kSampleSeed = 0;

/// Bound of the relative Frobenius norm by element type (rule A9 for f32).
double getFrobeniusBound(Scalar scalar) {
  return scalar == Scalar::F16 ? 1e-3 : scalar == Scalar::BF16 ? 8e-3 : 1e-5;
}

} // namespace

/// All rows, or a sample spread over a few heads, each head's first and last row included.
/// Rows of a head are neighbours.
static std::vector<Row> chooseRows(const AttentionProblem &problem, double maxWork) {
  std::vector<Row> rows;
  double pairsPerHead = 0;
  if (problem.batch * problem.queryHeads > 0)
    pairsPerHead = double(countVisiblePairs(problem)) / (problem.batch * problem.queryHeads);
  double workPerHead = pairsPerHead * (problem.dim + problem.valueDim);
  int64_t heads = problem.batch * problem.queryHeads;
  if (workPerHead * heads <= maxWork) {
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < problem.numQueries; ++i)
        rows.push_back({head / problem.queryHeads, head % problem.queryHeads, i});
    return rows;
  }
  constexpr int64_t kMaxHeads = 16;
  int64_t chosenHeads = std::min(heads, kMaxHeads);
  double workPerRow = std::max(workPerHead / problem.numQueries, 1.0);
  int64_t rowsPerHead =
      std::clamp<int64_t>(maxWork / workPerRow / chosenHeads, 4, problem.numQueries);
  std::mt19937_64 random(kSampleSeed);
  for (int64_t n = 0; n < chosenHeads; ++n) {
    // Spread over all heads, the last included.
    int64_t head = chosenHeads == 1 ? 0 : n * (heads - 1) / (chosenHeads - 1);
    std::vector<int64_t> chosen = {0, problem.numQueries - 1};
    while (int64_t(chosen.size()) < rowsPerHead)
      chosen.push_back(random() % problem.numQueries);
    llvm::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (int64_t i : chosen)
      rows.push_back({head / problem.queryHeads, head % problem.queryHeads, i});
  }
  return rows;
}

/// The rows of one key/value head as floats.
static void loadHead(const AttentionProblem &problem, const HostTensor &tensor, int64_t b,
                     int64_t h, int64_t width, std::vector<float> &out) {
  out.resize(problem.numKeys * width);
  constexpr int64_t kChunk = 256;
  llvm::parallelFor(0, llvm::divideCeil(problem.numKeys, kChunk), [&](size_t chunk) {
    for (int64_t s = chunk * kChunk; s < std::min(problem.numKeys, int64_t(chunk + 1) * kChunk);
         ++s)
      tensor.getFloats(problem.getRowStart(b, h, s, problem.keyHeads, problem.numKeys, width),
                       width, out.data() + s * width);
  });
}

static bool isAllFinite(const HostTensor &tensor) {
  std::atomic<bool> finite{true};
  constexpr int64_t kChunk = 1 << 16;
  llvm::parallelFor(0, llvm::divideCeil(tensor.getNumElements(), kChunk), [&](size_t chunk) {
    int64_t end = std::min(tensor.getNumElements(), int64_t(chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i)
      if (!std::isfinite(tensor.get(i))) {
        finite = false;
        return;
      }
  });
  return finite;
}

/// Prints the line of one output and says whether it holds.
static bool report(raw_ostream &os, StringRef name, const Difference &difference, double tolerance,
                   std::optional<double> frobeniusBound, StringRef extra) {
  bool pass = difference.wrongKind == 0 && difference.maxError <= tolerance &&
              (!frobeniusBound || difference.getFrobenius() <= *frobeniusBound) && extra.empty();
  os << llvm::formatv("verify {0}: max error {1:e3}, tolerance {2:e3}", name, difference.maxError,
                      tolerance);
  if (frobeniusBound)
    os << llvm::formatv(", relative Frobenius norm {0:e3}, tolerance {1:e3}",
                        difference.getFrobenius(), *frobeniusBound);
  if (difference.wrongKind)
    os << llvm::formatv(", {0} elements are not of the kind expected (the first: expected {1} but "
                        "got {2})",
                        difference.wrongKind, difference.firstRight, difference.firstWrong);
  os << extra << (pass ? ": PASS" : ": FAIL") << "\n";
  return pass;
}

/// Rows of the result, each with all of the heads: all, or a sample spread over a few batches, each
/// one's first and last row included. Rows of a batch are neighbours.
static std::vector<Row> chooseProjectedRows(const AttentionProblem &problem, int64_t width,
                                            double maxWork) {
  std::vector<Row> rows;
  double all = double(problem.batch) * problem.numQueries;
  if (all == 0)
    return rows;
  double work = double(countVisiblePairs(problem)) * (problem.dim + problem.valueDim) +
                all * problem.queryHeads * problem.valueDim * width;
  constexpr int64_t kMaxBatches = 4;
  int64_t batches = work <= maxWork ? problem.batch : std::min(problem.batch, kMaxBatches);
  std::mt19937_64 random(kSampleSeed);
  for (int64_t n = 0; n < batches; ++n) {
    int64_t b = batches == 1 ? 0 : n * (problem.batch - 1) / (batches - 1);
    std::vector<int64_t> chosen;
    if (work <= maxWork) {
      chosen.resize(problem.numQueries);
      std::iota(chosen.begin(), chosen.end(), 0);
    } else {
      int64_t count = std::clamp<int64_t>(maxWork / (work / all) / batches, 4, problem.numQueries);
      chosen = {0, problem.numQueries - 1};
      while (int64_t(chosen.size()) < count)
        chosen.push_back(random() % problem.numQueries);
      llvm::sort(chosen);
      chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    }
    for (int64_t i : chosen)
      rows.push_back({b, 0, i});
  }
  return rows;
}

/// p[b,n,e] = sum over h and d of o[b,h,n,d] w[h,d,e], o itself from the reference.
static bool verifyProjection(const AttentionProblem &problem, const AttentionInfo &info,
                             ArrayRef<const HostTensor *> arguments, const HostTensor &p,
                             raw_ostream &os, double maxWork) {
  const HostTensor &q = *arguments[info.q], &k = *arguments[info.k], &v = *arguments[info.v],
                   &w = *arguments[info.projection->w];
  int64_t width = p.getShape().back(), matrixSize = problem.valueDim * width;
  std::vector<Row> rows = chooseProjectedRows(problem, width, maxWork);
  std::vector<float> keys, values, matrix(matrixSize);
  Difference whole;
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    int64_t batch = rows[begin].b;
    while (end < rows.size() && rows[end].b == batch)
      ++end;
    std::vector<double> exact((end - begin) * width);
    std::vector<float> naive((end - begin) * width);
    for (int64_t head = 0; head < problem.queryHeads; ++head) {
      int64_t group = problem.queryHeads / problem.keyHeads; // rule A4
      if (head % group == 0) {
        loadHead(problem, k, batch, head / group, problem.dim, keys);
        loadHead(problem, v, batch, head / group, problem.valueDim, values);
      }
      w.getFloats(head * matrixSize, matrixSize, matrix.data());
      llvm::parallelFor(begin, end, [&](size_t n) {
        int64_t i = rows[n].i;
        SmallVector<float> query(problem.dim);
        q.getFloats(problem.getRowStart(batch, head, i, problem.queryHeads, problem.numQueries,
                                        problem.dim),
                    problem.dim, query.data());
        ReferenceRow row =
            computeReferenceRow(problem, query, keys.data(), values.data(), batch, head, i);
        double *exactRow = exact.data() + (n - begin) * width;
        float *naiveRow = naive.data() + (n - begin) * width;
        for (int64_t d = 0; d < problem.valueDim; ++d)
          for (int64_t e = 0; e < width; ++e) {
            float weight = matrix[d * width + e];
            exactRow[e] += row.o[d] * double(weight);
            naiveRow[e] += row.naiveO[d] * weight;
          }
      });
    }
    for (size_t n = begin; n < end; ++n)
      for (int64_t e = 0; e < width; ++e) {
        size_t at = (n - begin) * width + e;
        whole.add(p.get((batch * problem.numQueries + rows[n].i) * width + e), exact[at],
                  roundTo(p.getScalar(), naive[at]));
      }
  }
  bool isSample = int64_t(rows.size()) < problem.batch * problem.numQueries;
  bool finiteInputs =
      isSample && isAllFinite(q) && isAllFinite(k) && isAllFinite(v) && isAllFinite(w);
  std::string name = "p";
  if (isSample)
    name = llvm::formatv("p (a sample of {0} of {1} rows)", rows.size(),
                         problem.batch * problem.numQueries)
               .str();
  StringRef extra = finiteInputs && !isAllFinite(p) ? ", values that are not finite" : "";
  return report(os, name, whole, 2 * whole.maxNaive + 1e-5, getFrobeniusBound(problem.scalar),
                extra);
}

bool flashattn::verify(const AttentionProblem &problem, const AttentionInfo &info,
                       ArrayRef<const HostTensor *> arguments, ArrayRef<const HostTensor *> outputs,
                       raw_ostream &os, double maxWork) {
  const HostTensor &q = *arguments[info.q], &k = *arguments[info.k], &v = *arguments[info.v];
  const HostTensor *o = info.o ? outputs[*info.o] : nullptr;
  const HostTensor *lse = info.lse ? outputs[*info.lse] : nullptr;
  std::vector<Row> rows;
  if (o || lse || !info.projection)
    rows = chooseRows(problem, maxWork);
  bool isSample = int64_t(rows.size()) < problem.getNumRows();

  double lseTolerance = problem.scalar == Scalar::F32 ? 1e-5 : 1e-3;
  std::vector<Difference> oDifferences(rows.size()), lseDifferences(rows.size());
  std::vector<float> keys, values;
  for (size_t begin = 0; begin < rows.size();) {
    auto [b, h, first] = rows[begin];
    int64_t batch = b, head = h;
    size_t end = begin;
    while (end < rows.size() && rows[end].b == batch && rows[end].h == head)
      ++end;
    int64_t keyHead = head / (problem.queryHeads / problem.keyHeads); // rule A4
    loadHead(problem, k, batch, keyHead, problem.dim, keys);
    loadHead(problem, v, batch, keyHead, problem.valueDim, values);
    llvm::parallelFor(begin, end, [&](size_t n) {
      int64_t i = rows[n].i;
      SmallVector<float> query(problem.dim);
      q.getFloats(
          problem.getRowStart(batch, head, i, problem.queryHeads, problem.numQueries, problem.dim),
          problem.dim, query.data());
      ReferenceRow row =
          computeReferenceRow(problem, query, keys.data(), values.data(), batch, head, i);
      if (o) {
        int64_t start = problem.getRowStart(batch, head, i, problem.queryHeads, problem.numQueries,
                                            problem.valueDim);
        for (int64_t d = 0; d < problem.valueDim; ++d)
          oDifferences[n].add(o->get(start + d), row.o[d], row.naiveO[d]);
      }
      if (lse) {
        // The tolerance grows with the value.
        double value = lse->get((batch * problem.queryHeads + head) * problem.numQueries + i);
        lseDifferences[n].add(value, row.lse, row.naiveLse, std::max(1.0, std::abs(row.lse)));
      }
    });
    begin = end;
  }

  if (isSample && !rows.empty())
    os << llvm::formatv("verify: a sample of {0} of {1} rows (seed {2})\n", rows.size(),
                        problem.getNumRows(), kSampleSeed);
  else if (!isSample)
    os << llvm::formatv("verify: all {0} rows\n", rows.size());
  // Rows outside of the sample must at least have been written.
  bool finiteInputs = isSample && isAllFinite(q) && isAllFinite(k) && isAllFinite(v);
  bool pass = true;
  auto sum = [](ArrayRef<Difference> parts) {
    Difference whole;
    for (const Difference &part : parts)
      whole.merge(part);
    return whole;
  };
  if (o) {
    Difference whole = sum(oDifferences);
    StringRef extra = finiteInputs && !isAllFinite(*o) ? ", values that are not finite" : "";
    pass &=
        report(os, "o", whole, 2 * whole.maxNaive + 1e-5, getFrobeniusBound(problem.scalar), extra);
  }
  if (lse)
    pass &= report(os, "lse (relative to max(1, |lse|))", sum(lseDifferences), lseTolerance,
                   std::nullopt, "");
  if (info.projection && info.projection->p)
    pass &= verifyProjection(problem, info, arguments, *outputs[*info.projection->p], os, maxWork);
  return pass;
}

llvm::Expected<bool> flashattn::compareExpected(unsigned index, const HostTensor &output,
                                                const HostTensor &expected, Tolerance tolerance,
                                                raw_ostream &os) {
  if (output.getShape() != expected.getShape() || output.getScalar() != expected.getScalar())
    return llvm::createStringError(
        llvm::formatv("--expected-output {0}: the file holds {1} but output {0} is {2}", index,
                      expected.getTypeName(), output.getTypeName())
            .str());
  double byType = 0;
  switch (output.getScalar()) {
  case Scalar::F16:
    byType = 2e-3;
    break;
  case Scalar::BF16:
    byType = 1.6e-2;
    break;
  case Scalar::F32:
  case Scalar::F64:
    byType = 1e-5;
    break;
  default:
    break;
  }
  double absolute = tolerance.absolute.value_or(byType),
         relative = tolerance.relative.value_or(byType);
  uint64_t wrong = 0;
  int64_t firstWrong = -1;
  double maxError = 0;
  for (int64_t i = 0; i < output.getNumElements(); ++i) {
    double value = output.get(i), right = expected.get(i);
    bool holds;
    if (!std::isfinite(value) || !std::isfinite(right)) {
      holds = std::isnan(right) ? std::isnan(value) : value == right;
    } else {
      maxError = std::max(maxError, std::abs(value - right));
      holds = std::abs(value - right) <= absolute + relative * std::abs(right);
    }
    if (!holds && wrong++ == 0)
      firstWrong = i;
  }
  os << llvm::formatv("expected-output {0}: max error {1:e3}, tolerance {2:e3} + {3:e3} * "
                      "|expected|",
                      index, maxError, absolute, relative);
  if (wrong)
    os << llvm::formatv(", {0} of {1} elements beyond it (the first at {2}: expected {3} but got "
                        "{4})",
                        wrong, output.getNumElements(), firstWrong, expected.get(firstWrong),
                        output.get(firstWrong));
  os << (wrong ? ": FAIL" : ": PASS") << "\n";
  return wrong == 0;
}
