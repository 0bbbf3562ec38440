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
using llvm::Expected;

namespace {

/// What was seen of one output, or of a part of it.
struct Difference {
  double maxError = 0, maxNaive = 0, maxReference = 0;
  double sumSquaredError = 0, sumSquared = 0;
  uint64_t elements = 0;
  uint64_t wrongKind = 0; ///< NaN, infinite or finite where the reference is not so
  double firstWrong = 0, firstRight = 0;

  /// A value beside what it should be, in float64 and in plain arithmetic. Distances are
  /// in units of `unit`.
  void add(double value, double reference, double naive, double unit = 1) {
    ++elements;
    // What is infinite or NaN must be so exactly; there is no distance to it.
    if (!std::isfinite(reference) || !std::isfinite(value)) {
      bool same = std::isnan(reference) ? std::isnan(value) : value == reference;
      if (!same && wrongKind++ == 0)
        firstWrong = value, firstRight = reference;
      return;
    }
    double error = std::abs(value - reference) / unit;
    maxError = std::max(maxError, error);
    maxReference = std::max(maxReference, std::abs(reference));
    if (std::isfinite(naive))
      maxNaive = std::max(maxNaive, std::abs(naive - reference) / unit);
    sumSquaredError += error * error;
    sumSquared += reference * reference;
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
    sumSquared += other.sumSquared;
  }

  double getFrobenius() const {
    return sumSquared > 0 ? std::sqrt(sumSquaredError / sumSquared) : std::sqrt(sumSquaredError);
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
};

/// A row of a group of rows that are neighbours: those of a head, or of a batch.
struct Row {
  int64_t group, i;
};

constexpr unsigned kSampleSeed = 0;
constexpr double kLeastTolerance = 1e-5;

/// Bound of the relative Frobenius norm by element type (rule A9 for f32).
double getFrobeniusBound(Scalar scalar) {
  return scalar == Scalar::F16 ? 1e-3 : scalar == Scalar::BF16 ? 8e-3 : 1e-5;
}

/// The rows of one head of attention's output, as they should be.
class HeadRows {
public:
  virtual ~HeadRows() = default;
  virtual void load(int64_t b, int64_t h) = 0;
  /// Row `i` of the head that was loaded.
  virtual ReferenceRow compute(int64_t i) const = 0;
  /// Whether all values that they are made of are finite.
  virtual bool isFinite() const = 0;
};

} // namespace

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

namespace {

/// Computed from q, k and v.
class AttentionRows final : public HeadRows {
public:
  explicit AttentionRows(const AttentionProblem &problem)
      : problem(problem), q(*problem.getOperand("q")), k(*problem.getOperand("k")),
        v(*problem.getOperand("v")) {}

  void load(int64_t newBatch, int64_t newHead) override {
    int64_t keyHead = newHead / (problem.queryHeads / problem.keyHeads); // rule A4
    int64_t wanted = newBatch * problem.keyHeads + keyHead;
    b = newBatch, h = newHead;
    if (loaded == wanted)
      return;
    loaded = wanted;
    loadHead(k, keyHead, problem.dim, keys);
    loadHead(v, keyHead, problem.valueDim, values);
  }
  ReferenceRow compute(int64_t i) const override {
    SmallVector<float> query(problem.dim);
    q.getFloats(
        getRowStart(problem.isBSHD, b, h, i, problem.queryHeads, problem.numQueries, problem.dim),
        problem.dim, query.data());
    return computeReferenceRow(problem, query, keys.data(), values.data(), b, h, i);
  }
  bool isFinite() const override { return isAllFinite(q) && isAllFinite(k) && isAllFinite(v); }

private:
  /// The rows of one key/value head as floats.
  void loadHead(const HostTensor &tensor, int64_t keyHead, int64_t width, std::vector<float> &out) {
    out.resize(problem.numKeys * width);
    constexpr int64_t kChunk = 256;
    llvm::parallelFor(0, llvm::divideCeil(problem.numKeys, kChunk), [&](size_t chunk) {
      int64_t end = std::min(problem.numKeys, int64_t(chunk + 1) * kChunk);
      for (int64_t s = chunk * kChunk; s < end; ++s)
        tensor.getFloats(
            getRowStart(problem.isBSHD, b, keyHead, s, problem.keyHeads, problem.numKeys, width),
            width, out.data() + s * width);
    });
  }

  const AttentionProblem &problem;
  const HostTensor &q, &k, &v;
  int64_t b = 0, h = 0, loaded = -1;
  std::vector<float> keys, values;
};

/// Taken from memory.
class GivenRows final : public HeadRows {
public:
  GivenRows(const HostTensor &o, bool isBSHD, int64_t heads, int64_t numQueries)
      : o(o), isBSHD(isBSHD), heads(heads), numQueries(numQueries), width(o.getShape().back()) {}

  void load(int64_t newBatch, int64_t newHead) override { b = newBatch, h = newHead; }
  ReferenceRow compute(int64_t i) const override {
    ReferenceRow row;
    row.naiveO.resize(width);
    o.getFloats(getRowStart(isBSHD, b, h, i, heads, numQueries, width), width, row.naiveO.data());
    row.o.assign(row.naiveO.begin(), row.naiveO.end());
    return row;
  }
  bool isFinite() const override { return isAllFinite(o); }

private:
  const HostTensor &o;
  bool isBSHD;
  int64_t heads, numQueries, width, b = 0, h = 0;
};

} // namespace

/// All rows, or a sample spread over at most `maxGroups` groups, each one's first and last row
/// included. `work` is that of all rows.
static std::vector<Row> chooseRows(int64_t groups, int64_t rowsOfGroup, double work,
                                   int64_t maxGroups, double maxWork) {
  std::vector<Row> rows;
  if (groups * rowsOfGroup == 0)
    return rows;
  if (work <= maxWork) {
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t i = 0; i < rowsOfGroup; ++i)
        rows.push_back({group, i});
    return rows;
  }
  int64_t chosenGroups = std::min(groups, maxGroups);
  double workPerRow = std::max(work / groups / rowsOfGroup, 1.0);
  int64_t wanted =
      std::max<int64_t>(std::min<double>(maxWork / workPerRow / chosenGroups, rowsOfGroup), 4);
  std::mt19937_64 random(kSampleSeed);
  for (int64_t n = 0; n < chosenGroups; ++n) {
    // Spread over all groups, the last included.
    int64_t group = chosenGroups == 1 ? 0 : n * (groups - 1) / (chosenGroups - 1);
    std::vector<int64_t> chosen = {0, rowsOfGroup - 1};
    while (int64_t(chosen.size()) < wanted)
      chosen.push_back(random() % rowsOfGroup);
    llvm::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (int64_t i : chosen)
      rows.push_back({group, i});
  }
  return rows;
}

/// Calls `visit` with the group and the places [begin, end) in `rows` of each group.
static void forEachGroup(ArrayRef<Row> rows,
                         llvm::function_ref<void(int64_t group, size_t begin, size_t end)> visit) {
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].group == rows[begin].group)
      ++end;
    visit(rows[begin].group, begin, end);
  }
}

static Difference sum(ArrayRef<Difference> parts) {
  Difference whole;
  for (const Difference &part : parts)
    whole.merge(part);
  return whole;
}

/// The sizes of `o` and `lse`, which attention and combine have alike.
struct ResultShape {
  int64_t batch, heads, numQueries, valueDim;
  bool isBSHD;
};

/// Compares rows of o and lse, where they are given, with what `compute(b, h, i)` says of them;
/// `load(b, h)` comes before those of a head.
static void compareRows(const ResultShape &shape, const OperandValues &values, Scalar inputs,
                        double work, double maxWork,
                        llvm::function_ref<void(int64_t b, int64_t h)> load,
                        llvm::function_ref<ReferenceRow(int64_t b, int64_t h, int64_t i)> compute,
                        llvm::function_ref<bool()> isFinite, Comparison &comparison) {
  constexpr int64_t kMaxHeads = 16;
  const HostTensor *o = values.get("o"), *lse = values.get("lse");
  std::vector<Row> rows =
      chooseRows(shape.batch * shape.heads, shape.numQueries, work, kMaxHeads, maxWork);
  std::vector<Difference> oDifferences(rows.size()), lseDifferences(rows.size());
  forEachGroup(rows, [&](int64_t group, size_t begin, size_t end) {
    int64_t b = group / shape.heads, h = group % shape.heads;
    load(b, h);
    llvm::parallelFor(begin, end, [&](size_t n) {
      int64_t i = rows[n].i;
      ReferenceRow row = compute(b, h, i);
      if (o) {
        int64_t start =
            getRowStart(shape.isBSHD, b, h, i, shape.heads, shape.numQueries, shape.valueDim);
        for (int64_t d = 0; d < shape.valueDim; ++d)
          oDifferences[n].add(o->get(start + d), row.o[d], row.naiveO[d]);
      }
      if (lse) {
        // The tolerance grows with the value.
        double value = lse->get(group * shape.numQueries + i);
        lseDifferences[n].add(value, row.lse, row.naiveLse, std::max(1.0, std::abs(row.lse)));
      }
    });
  });
  comparison.rows = rows.size();
  comparison.allRows = shape.batch * shape.heads * shape.numQueries;
  comparison.work = rows.empty() ? 0 : work / comparison.allRows * rows.size();
  if (o) {
    Difference whole = sum(oDifferences);
    Verdict verdict =
        whole.judge("o", 2 * whole.maxNaive + kLeastTolerance, getFrobeniusBound(o->getScalar()));
    // Rows outside of the sample must at least have been written.
    verdict.isUnwritten = comparison.rows < comparison.allRows && isFinite() && !isAllFinite(*o);
    comparison.verdicts.push_back(verdict);
  }
  if (lse)
    comparison.verdicts.push_back(
        sum(lseDifferences).judge("lse", inputs == Scalar::F32 ? 1e-5 : 1e-3, std::nullopt));
}

static void compareAttention(const AttentionProblem &problem, const OperandValues &values,
                             double maxWork, Comparison &comparison) {
  AttentionRows head(problem);
  double work = double(countVisiblePairs(problem)) * (problem.dim + problem.valueDim);
  compareRows(
      {problem.batch, problem.queryHeads, problem.numQueries, problem.valueDim, problem.isBSHD},
      values, problem.scalar, work, maxWork, [&](int64_t b, int64_t h) { head.load(b, h); },
      [&](int64_t, int64_t, int64_t i) { return head.compute(i); }, [&] { return head.isFinite(); },
      comparison);
}

static void compareCombine(const CheckedOp &op, const CombineProblem &problem,
                           const OperandValues &values, double maxWork, Comparison &comparison) {
  const HostTensor *o = values.get("o");
  Scalar scalar = o ? o->getScalar() : Scalar::F32;
  double work =
      double(problem.batch) * problem.heads * problem.numQueries * problem.parts * problem.valueDim;
  compareRows(
      {problem.batch, problem.heads, problem.numQueries, problem.valueDim, op.isBSHD}, values,
      Scalar::F32, work, maxWork, [](int64_t, int64_t) {},
      [&](int64_t b, int64_t h, int64_t i) { return computeCombinedRow(problem, scalar, b, h, i); },
      [&] { return isAllFinite(*problem.oParts); }, comparison);
}

/// p[b,n,e] = sum over h and d of o[b,h,n,d] w[h,d,e], o from `head`; `workOfO` is that of all of
/// its rows.
static void compareProjection(const OperandSizes &sizes, HeadRows &head, double workOfO,
                              const HostTensor &w, const HostTensor &p, double maxWork,
                              Comparison &comparison) {
  int64_t batch = sizes.get('B'), heads = sizes.get('H'), numQueries = sizes.get('N'),
          valueDim = sizes.get('V'), width = sizes.get('E'), matrixSize = valueDim * width;
  constexpr int64_t kMaxBatches = 4;
  double work = workOfO + double(batch) * numQueries * heads * valueDim * width;
  std::vector<Row> rows = chooseRows(batch, numQueries, work, kMaxBatches, maxWork);
  std::vector<float> matrix(matrixSize);
  Difference whole;
  forEachGroup(rows, [&](int64_t b, size_t begin, size_t end) {
    std::vector<double> exact((end - begin) * width);
    std::vector<float> naive((end - begin) * width);
    for (int64_t h = 0; h < heads; ++h) {
      head.load(b, h);
      w.getFloats(h * matrixSize, matrixSize, matrix.data());
      llvm::parallelFor(begin, end, [&](size_t n) {
        ReferenceRow row = head.compute(rows[n].i);
        double *exactRow = exact.data() + (n - begin) * width;
        float *naiveRow = naive.data() + (n - begin) * width;
        for (int64_t d = 0; d < valueDim; ++d)
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
        whole.add(p.get((b * numQueries + rows[n].i) * width + e), exact[at],
                  roundTo(p.getScalar(), naive[at]));
      }
  });
  comparison.rows = rows.size();
  comparison.allRows = batch * numQueries;
  comparison.work = rows.empty() ? 0 : work / comparison.allRows * rows.size();
  // Sums of many products may be much larger than these.
  double tolerance = 2 * whole.maxNaive + kLeastTolerance * std::max(1.0, whole.maxReference);
  Verdict verdict = whole.judge("p", tolerance, getFrobeniusBound(w.getScalar()));
  verdict.isUnwritten =
      comparison.rows < comparison.allRows && head.isFinite() && isAllFinite(w) && !isAllFinite(p);
  comparison.verdicts.push_back(verdict);
}

Expected<Comparison> flashattn::compare(const CheckedOp &op, const OperandValues &values,
                                        double maxWork, const AttentionProblem *producer) {
  Comparison comparison;
  switch (op.kind) {
  case CheckedOp::Kind::Attention: {
    Expected<AttentionProblem> problem = getProblem(op, values);
    if (!problem)
      return problem.takeError();
    compareAttention(*problem, values, maxWork, comparison);
    break;
  }
  case CheckedOp::Kind::Combine: {
    Expected<CombineProblem> problem = getCombineProblem(op, values);
    if (!problem)
      return problem.takeError();
    compareCombine(op, *problem, values, maxWork, comparison);
    break;
  }
  case CheckedOp::Kind::Project: {
    Expected<OperandSizes> sizes = getSizes(op, values);
    if (!sizes)
      return sizes.takeError();
    const HostTensor *p = values.get("p"), &w = *values.get("w");
    if (producer) {
      AttentionRows head(*producer);
      double work = double(countVisiblePairs(*producer)) * (producer->dim + producer->valueDim);
      compareProjection(*sizes, head, work, w, *p, maxWork, comparison);
    } else {
      GivenRows head(*values.get("o"), op.isBSHD, sizes->get('H'), sizes->get('N'));
      compareProjection(*sizes, head, 0, w, *p, maxWork, comparison);
    }
    break;
  }
  }
  return comparison;
}

bool Verdict::holds() const {
  return wrongKind == 0 && maxError <= tolerance &&
         (!frobeniusBound || frobenius <= *frobeniusBound) && !isUnwritten;
}

void Verdict::merge(const Verdict &other) {
  auto getBadness = [](const Verdict &verdict) {
    if (verdict.wrongKind || verdict.isUnwritten)
      return HUGE_VAL;
    double bound = verdict.frobeniusBound.value_or(HUGE_VAL);
    return std::max(verdict.maxError / verdict.tolerance, verdict.frobenius / bound);
  };
  uint64_t all = elements + other.elements;
  if (elements == 0 || getBadness(*this) < getBadness(other))
    *this = other;
  elements = all;
}

std::string flashattn::describeRows(uint64_t rows, uint64_t allRows) {
  if (rows == allRows)
    return llvm::formatv("all {0} rows", rows).str();
  return llvm::formatv("a sample of {0} of {1} rows (seed {2})", rows, allRows, kSampleSeed).str();
}

void flashattn::print(const Verdict &verdict, raw_ostream &os) {
  if (verdict.elements == 0) {
    os << "verify " << verdict.name << ": no elements to compare\n";
    return;
  }
  os << llvm::formatv("verify {0}{1}: max error {2:e3}, tolerance {3:e3}", verdict.name,
                      verdict.name == "lse" ? " (relative to max(1, |lse|))" : "", verdict.maxError,
                      verdict.tolerance);
  if (verdict.frobeniusBound)
    os << llvm::formatv(", relative Frobenius norm {0:e3}, tolerance {1:e3}", verdict.frobenius,
                        *verdict.frobeniusBound);
  if (verdict.wrongKind)
    os << llvm::formatv(", {0} elements are not of the kind expected (the first: expected {1} but "
                        "got {2})",
                        verdict.wrongKind, verdict.firstRight, verdict.firstWrong);
  if (verdict.isUnwritten)
    os << ", values that are not finite";
  os << (verdict.holds() ? ": PASS" : ": FAIL") << "\n";
}
