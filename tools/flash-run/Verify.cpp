//===- Verify.cpp ---------------------------------------------------------===//

#include "Difference.h"
#include "Report.h"
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

/// The expected rows of one head of attention's output.
class HeadRows {
public:
  virtual ~HeadRows() = default;
  virtual void load(int64_t b, int64_t h) = 0;
  /// Computes row `i` of the loaded head.
  virtual ReferenceRow compute(int64_t i) const = 0;
  /// Whether all inputs of the rows are finite.
  virtual bool isFinite() const = 0;
};

} // namespace

namespace {

/// Rows computed from q, k and v.
class AttentionRows final : public HeadRows {
public:
  explicit AttentionRows(const AttentionProblem &problem)
      : problem(problem), q(*problem.getOperand("q")) {}

  void load(int64_t newBatch, int64_t newHead) override {
    int64_t keyHead = newHead / (problem.queryHeads / problem.keyHeads); // rule A4
    int64_t wanted = newBatch * problem.keyHeads + keyHead;
    b = newBatch, h = newHead;
    if (loaded == wanted)
      return;
    loaded = wanted;
    keys = readScaledRows(problem, "k", b, keyHead);
    values = readScaledRows(problem, "v", b, keyHead);
    special = findSpecialRows(values.getExact(), problem.valueDim, getCountedRows(problem, b).keys);
  }
  ReferenceRow compute(int64_t i) const override {
    SmallVector<float> query(problem.dim);
    q.getFloats(
        getRowStart(problem.isBSHD, b, h, i, problem.queryHeads, problem.numQueries, problem.dim),
        problem.dim, query.data());
    return computeReferenceRow(problem, query, keys, values, special, b, h, i);
  }
  bool isFinite() const override {
    for (StringRef name : {"q", "k", "v", "k_scale", "v_scale"})
      if (const HostTensor *operand = problem.getOperand(name); operand && !isAllFinite(*operand))
        return false;
    return true;
  }

private:
  const AttentionProblem &problem;
  const HostTensor &q;
  int64_t b = 0, h = 0, loaded = -1;
  ScaledRows keys, values;
  SmallVector<int64_t> special; ///< see computeReferenceRow
};

/// Rows read from an operand o.
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

/// Calls `visit` for each group, with its index range [begin, end) in `rows`.
static void forEachGroup(ArrayRef<Row> rows,
                         llvm::function_ref<void(int64_t group, size_t begin, size_t end)> visit) {
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    while (end < rows.size() && rows[end].group == rows[begin].group)
      ++end;
    visit(rows[begin].group, begin, end);
  }
}

/// The sizes of `o` and `lse`, for attention and for combine.
struct ResultShape {
  int64_t batch, heads, numQueries, valueDim;
  bool isBSHD;
};

/// What changes scores beyond the rounding of f32 sums.
struct ScoreErrors {
  bool hasSoftcap = false, roundsKeys = false;
};

/// Returns the tolerance of lse, in units of max(1, |lse|). lse is computed in f32 for every
/// operand type, so the bound of rule A9, some eighty roundings of an f32, applies: it covers the
/// roundings of the maximum, of the logarithm, of each score, and of sums of positive terms. If
/// products cancel, the error of a score exceeds its rounding: it is that of plain f32 arithmetic.
/// For operands of 16 bits the tolerance is twice this error, as for o. On GPUs, the softcap of
/// bf16 scores uses a tanh with 11 bits. Its error affects the largest score and hence lse. So does
/// that of scaled keys that are rounded to the type of `q` (rule F2). Scores of f8 are sums with 14
/// bits.
static double getLseTolerance(const Difference &lse, Scalar inputs, ScoreErrors errors) {
  constexpr double kBent = 1e-3; // 2^-10
  if (inputs == Scalar::F32)
    return kLeastTolerance;
  if (isF8(inputs))
    return kBent;
  double plain = 2 * lse.maxNaive + kLeastTolerance;
  bool isApproximate = errors.hasSoftcap && inputs == Scalar::BF16;
  if (errors.roundsKeys)
    return plain + (isApproximate ? kBent : 0);
  return isApproximate ? kBent : std::min(kBent, plain);
}

/// Compares rows of the results o and lse, as far as present, with `compute(b, h, i)`, unless they
/// keep their values (S7). `load(b, h)` is called before the rows of a head. `bound` is that of the
/// relative Frobenius norm of o; nullopt: both bounds are 1.5 times the errors of the plain
/// computation, which rounds as much as products of f8 do (F3).
static void compareRows(const ResultShape &shape, const OperandValues &values, Scalar inputs,
                        std::optional<double> bound, ScoreErrors errors, double work,
                        double maxWork, llvm::function_ref<bool(int64_t i)> keeps,
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
      if (keeps(i))
        return;
      ReferenceRow row = compute(b, h, i);
      if (o) {
        int64_t start =
            getRowStart(shape.isBSHD, b, h, i, shape.heads, shape.numQueries, shape.valueDim);
        for (int64_t d = 0; d < shape.valueDim; ++d)
          if (!oDifferences[n].takeNaN(o->get(start + d), row.isNaNAllowed(d)))
            oDifferences[n].add(o->get(start + d), row.o[d], row.naiveO[d]);
      }
      if (lse) {
        // The unit grows with the value.
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
    constexpr double kFactor = 2, kFactorOfF8 = 1.5;
    Verdict verdict =
        whole.judge("o", (bound ? kFactor : kFactorOfF8) * whole.maxNaive + kLeastTolerance,
                    bound ? *bound : kFactorOfF8 * whole.getNaiveFrobenius() + kLeastTolerance);
    // Rows outside the sample must at least be written.
    verdict.isUnwritten = comparison.rows < comparison.allRows && isFinite() && !isAllFinite(*o);
    comparison.verdicts.push_back(verdict);
  }
  if (lse) {
    Difference whole = sum(lseDifferences);
    comparison.verdicts.push_back(
        whole.judge("lse", getLseTolerance(whole, inputs, errors), std::nullopt));
  }
}

static void compareAttention(const AttentionProblem &problem, const OperandValues &values,
                             double maxWork, Comparison &comparison) {
  AttentionRows head(problem);
  double work = double(countVisiblePairs(problem)) * (problem.dim + problem.valueDim);
  compareRows(
      {problem.batch, problem.queryHeads, problem.numQueries, problem.valueDim, problem.isBSHD},
      values, problem.scalar,
      isF8(problem.scalar) ? std::nullopt : std::optional(getFrobeniusBound(problem.scalar)),
      {problem.softcap.has_value(), roundsScaled(problem, "k")}, work, maxWork,
      [&](int64_t i) { return problem.keepsRow(i); },
      [&](int64_t b, int64_t h) { head.load(b, h); },
      [&](int64_t, int64_t, int64_t i) { return head.compute(i); },
      [&] { return !problem.leastQueries && !problem.mostQueries && head.isFinite(); }, comparison);
}

static void compareCombine(const CheckedOp &op, const CombineProblem &problem,
                           const OperandValues &values, double maxWork, Comparison &comparison) {
  const HostTensor *o = values.get("o");
  Scalar scalar = o ? o->getScalar() : Scalar::F32;
  double work =
      double(problem.batch) * problem.heads * problem.numQueries * problem.parts * problem.valueDim;
  ResultShape shape{problem.batch, problem.heads, problem.numQueries, problem.valueDim, op.isBSHD};
  const HostTensor *starts = problem.starts, *result = o ? o : values.get("lse");
  if (starts) {
    shape.batch = 1;
    shape.numQueries = result->getShape()[op.isBSHD && o ? 1 : 2];
  }
  auto find = [&](int64_t i) { return findPackedRow(*starts, i, shape.numQueries); };
  compareRows(
      shape, values, Scalar::F32, getFrobeniusBound(scalar), ScoreErrors(), work, maxWork,
      [&](int64_t i) {
        if (!starts)
          return false;
        std::optional<PackedRow> found = find(i);
        return !found || found->rows > problem.numQueries || found->rows < problem.leastQueries;
      },
      [](int64_t, int64_t) {},
      [&](int64_t b, int64_t h, int64_t i) {
        PackedRow at = starts ? *find(i) : PackedRow{b, i, 0};
        return computeCombinedRow(problem, scalar, at.sequence, h, at.row);
      },
      [&] { return !starts && isAllFinite(*problem.oParts); }, comparison);
}

/// Compares p[b,n,e] = sum over h and d of o[b,h,n,d] w[h,d,e], with o from `head`. `workOfO` is
/// the work to compute all rows of o.
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
    std::vector<char> mayBeNaN(end - begin); // not vector<bool>: threads write different elements
    for (int64_t h = 0; h < heads; ++h) {
      head.load(b, h);
      w.getFloats(h * matrixSize, matrixSize, matrix.data());
      llvm::parallelFor(begin, end, [&](size_t n) {
        ReferenceRow row = head.compute(rows[n].i);
        mayBeNaN[n - begin] |= !row.mayBeNaN.empty();
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
        double value = p.get((b * numQueries + rows[n].i) * width + e);
        if (!whole.takeNaN(value, mayBeNaN[n - begin]))
          whole.add(value, exact[at], roundTo(p.getScalar(), naive[at]));
      }
  });
  comparison.rows = rows.size();
  comparison.allRows = batch * numQueries;
  comparison.work = rows.empty() ? 0 : work / comparison.allRows * rows.size();
  // p may be much larger than 1, so that the tolerance is relative to its largest value.
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
  case CheckedOp::Kind::AttentionBackward: {
    Expected<AttentionProblem> problem = getProblem(op, values);
    if (!problem)
      return problem.takeError();
    compareGradients(*problem, values, maxWork, comparison);
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

bool flashattn::areClose(const HostTensor &a, const HostTensor &b) {
  double largest = 1, difference = 0;
  for (int64_t i = 0; i < a.getNumElements(); ++i) {
    double x = a.get(i), y = b.get(i);
    if (std::isfinite(x))
      largest = std::max(largest, std::abs(x));
    if (x == y || (std::isnan(x) && std::isnan(y)))
      continue;
    if (!std::isfinite(x) || !std::isfinite(y))
      return false;
    difference = std::max(difference, std::abs(x - y));
  }
  double rounding = a.getScalar() == Scalar::F16    ? 0x1p-10
                    : a.getScalar() == Scalar::BF16 ? 0x1p-7
                                                    : 0;
  return difference <= (kLeastTolerance + rounding) * largest;
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
    os << llvm::formatv(", {0} elements are not finite where the reference is, or finite where it "
                        "is not (the first: expected {1} but got {2})",
                        verdict.wrongKind, verdict.firstRight, verdict.firstWrong);
  if (verdict.isUnwritten)
    os << ", values that are not finite";
  os << (verdict.holds() ? ": PASS" : ": FAIL") << "\n";
}

llvm::json::Object flashattn::describe(const Verdict &verdict) {
  llvm::json::Object found{{"name", verdict.name},
                           {"elements", int64_t(verdict.elements)},
                           {"max_error", jsonNumber(verdict.maxError)},
                           {"tolerance", verdict.tolerance},
                           {"wrong_kind", int64_t(verdict.wrongKind)},
                           {"pass", verdict.holds()}};
  if (verdict.frobeniusBound) {
    found["frobenius"] = jsonNumber(verdict.frobenius);
    found["frobenius_bound"] = *verdict.frobeniusBound;
  }
  return found;
}
