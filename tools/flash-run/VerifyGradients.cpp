//===- VerifyGradients.cpp ------------------------------------------------===//

#include "Difference.h"
#include "llvm/Support/Parallel.h"

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// Compares the gradients of an attention with the reference, one batch and key/value head at a
/// time.
class GradientComparison {
public:
  GradientComparison(const AttentionProblem &problem, const OperandValues &values, double maxWork);
  void run(Comparison &comparison);

private:
  struct Part {
    const HostTensor *tensor;
    std::vector<Difference> differences; ///< one for each chosen row
  };
  /// Compares row `i` of head `h` of a tensor with `heads` heads of `length` rows, as difference
  /// `n`.
  void addRow(Part &part, size_t n, int64_t h, int64_t i, int64_t heads, int64_t length,
              const GradientRow &row);
  void addBias(int64_t b, int64_t firstHead);

  const AttentionProblem &problem;
  Gradients gradients;
  const int64_t group, groups;
  int64_t b = 0;
  double work = 0; ///< work of the chosen rows
  std::vector<Row> queryRows, keyRows, biasRows;
  Part dq, dk, dv;
  const HostTensor *dBias, *dSinkLogits;
  /// Sums for the chosen rows of d_bias and for d_sink_logits, to which several heads or batches
  /// contribute.
  std::vector<GradientSum> biasSums, sinkSums;
};
} // namespace

/// Returns the index range of the rows of a group.
static std::pair<size_t, size_t> getRange(ArrayRef<Row> rows, int64_t group) {
  auto begin = llvm::lower_bound(rows, group, [](Row row, int64_t g) { return row.group < g; });
  auto end = llvm::upper_bound(rows, group, [](int64_t g, Row row) { return g < row.group; });
  return {begin - rows.begin(), end - rows.begin()};
}

GradientComparison::GradientComparison(const AttentionProblem &problem, const OperandValues &values,
                                       double maxWork)
    : problem(problem), gradients(problem),
      group(problem.queryHeads / std::max<int64_t>(problem.keyHeads, 1)),
      groups(problem.batch * problem.keyHeads), dq{values.get("dq"), {}}, dk{values.get("dk"), {}},
      dv{values.get("dv"), {}}, dBias(values.get("d_bias")),
      dSinkLogits(values.get("d_sink_logits")) {
  constexpr int64_t kMaxGroups = 16;
  double pairs = countVisiblePairs(problem), scores = pairs * (problem.dim + problem.valueDim);
  double queryWork = scores + pairs * problem.dim, keyWork = 2 * scores;
  double whole = queryWork + keyWork + (dBias ? scores : 0);
  // Every kind of rows is reduced by the same factor.
  double share = whole > 0 ? maxWork / whole : 1;
  auto choose = [&](int64_t groups, int64_t rowsOfGroup, double partWork, int64_t maxGroups) {
    std::vector<Row> rows = chooseRows(groups, rowsOfGroup, partWork, maxGroups, share * partWork);
    if (!rows.empty())
      work += partWork / (double(groups) * rowsOfGroup) * rows.size();
    return rows;
  };
  queryRows = choose(groups, group * problem.numQueries, queryWork, kMaxGroups);
  keyRows = choose(groups, problem.numKeys, keyWork, kMaxGroups);
  dq.differences.resize(queryRows.size());
  dk.differences.resize(keyRows.size());
  dv.differences.resize(keyRows.size());
  if (dBias) {
    ArrayRef<int64_t> shape = dBias->getShape();
    // If the bias is broadcast, one of its rows sums over many rows of scores.
    double rowWork = scores / std::max<int64_t>(shape[0] * shape[1] * shape[2], 1);
    int64_t most =
        std::clamp<double>(share * scores / std::max(rowWork, 1.0) / shape[2], 1, kMaxGroups);
    biasRows = choose(shape[0] * shape[1], shape[2], scores, most);
    biasSums.resize(biasRows.size() * shape[3]);
  }
  if (dSinkLogits)
    sinkSums.resize(problem.queryHeads);
}

/// Adds an element that is a sum. The error of plain arithmetic may be small by chance; it counts
/// as at least a rounding of the magnitude of the terms.
static void addSum(Difference &whole, const HostTensor &tensor, int64_t index,
                   const GradientSum &sum) {
  constexpr double kRounding = 0x1p-24;
  float naive = roundTo(tensor.getScalar(), sum.naive);
  whole.add(tensor.get(index), sum.exact, naive, /*unit=*/1, kRounding * sum.magnitude);
}

void GradientComparison::addRow(Part &part, size_t n, int64_t h, int64_t i, int64_t heads,
                                int64_t length, const GradientRow &row) {
  int64_t width = row.exact.size();
  int64_t start = getRowStart(problem.isBSHD, b, h, i, heads, length, width);
  for (int64_t d = 0; d < width; ++d) {
    double value = part.tensor->get(start + d);
    if (part.differences[n].takeNaN(value, row.isNaNAllowed(d)))
      continue;
    if (row.isHidden)
      part.differences[n].addZero(value);
    else
      addSum(part.differences[n], *part.tensor, start + d,
             {row.exact[d], row.naive[d], row.magnitude[d]});
  }
}

void GradientComparison::addBias(int64_t b, int64_t firstHead) {
  ArrayRef<int64_t> shape = dBias->getShape();
  auto reads = [&](int64_t size, int64_t index, int64_t of) { return size == 1 || index == of; };
  llvm::parallelFor(0, biasRows.size(), [&](size_t n) {
    auto [biasGroup, biasRow] = biasRows[n];
    if (!reads(shape[0], biasGroup / shape[1], b))
      return;
    for (int64_t h = firstHead; h < firstHead + group; ++h)
      for (int64_t i = 0; i < problem.numQueries; ++i)
        if (reads(shape[1], biasGroup % shape[1], h) && reads(shape[2], biasRow, i))
          gradients.addScoreRow(h, i, MutableArrayRef(biasSums).slice(n * shape[3], shape[3]));
  });
}

void GradientComparison::run(Comparison &comparison) {
  for (int64_t n = 0; n < groups; ++n) {
    auto [queryBegin, queryEnd] = getRange(queryRows, n);
    auto [keyBegin, keyEnd] = getRange(keyRows, n);
    if (queryBegin == queryEnd && keyBegin == keyEnd && !dBias && !dSinkLogits)
      continue;
    b = n / problem.keyHeads;
    int64_t keyHead = n % problem.keyHeads, firstHead = keyHead * group;
    gradients.load(b, keyHead);
    llvm::parallelFor(queryBegin, queryEnd, [&](size_t row) {
      int64_t h = firstHead + queryRows[row].i / problem.numQueries;
      int64_t i = queryRows[row].i % problem.numQueries;
      addRow(dq, row, h, i, problem.queryHeads, problem.numQueries,
             gradients.computeQueryRow(h, i));
    });
    llvm::parallelFor(keyBegin, keyEnd, [&](size_t row) {
      int64_t k = keyRows[row].i;
      Gradients::KeyRows rows = gradients.computeKeyRows(k);
      addRow(dk, row, keyHead, k, problem.keyHeads, problem.numKeys, rows.dk);
      addRow(dv, row, keyHead, k, problem.keyHeads, problem.numKeys, rows.dv);
    });
    if (dBias)
      addBias(b, firstHead);
    if (dSinkLogits)
      for (int64_t h = firstHead; h < firstHead + group; ++h)
        gradients.addSink(h, sinkSums[h]);
  }
  comparison.rows = queryRows.size() + keyRows.size() + biasRows.size();
  comparison.allRows = groups * (group * problem.numQueries + problem.numKeys);
  comparison.work = work;
  if (dBias)
    comparison.allRows += dBias->getNumElements() / std::max<int64_t>(dBias->getShape()[3], 1);
  // Rows outside the sample must at least be written.
  bool isSample = comparison.rows < comparison.allRows, isFinite = isSample;
  for (StringRef name : {"q", "k", "v", "d_o"})
    isFinite = isFinite && isAllFinite(*problem.getOperand(name));
  auto judge = [&](StringRef name, const HostTensor &tensor, const Difference &whole) {
    Verdict verdict = whole.judgeGradient(name, getFrobeniusBound(tensor.getScalar()));
    verdict.isUnwritten = isFinite && !isAllFinite(tensor);
    comparison.verdicts.push_back(verdict);
  };
  judge("dq", *dq.tensor, sum(dq.differences));
  judge("dk", *dk.tensor, sum(dk.differences));
  judge("dv", *dv.tensor, sum(dv.differences));
  if (dBias) {
    Difference whole;
    int64_t width = dBias->getShape()[3], rowsOfGroup = dBias->getShape()[2];
    for (auto [n, row] : llvm::enumerate(biasRows))
      for (int64_t k = 0; k < width; ++k)
        addSum(whole, *dBias, (row.group * rowsOfGroup + row.i) * width + k,
               biasSums[n * width + k]);
    judge("d_bias", *dBias, whole);
  }
  if (dSinkLogits) {
    Difference whole;
    for (int64_t h = 0; h < problem.queryHeads; ++h)
      addSum(whole, *dSinkLogits, h, sinkSums[h]);
    judge("d_sink_logits", *dSinkLogits, whole);
  }
}

void flashattn::compareGradients(const AttentionProblem &problem, const OperandValues &values,
                                 double maxWork, Comparison &comparison) {
  GradientComparison(problem, values, maxWork).run(comparison);
}
