//===- MaskReference.cpp - visible keys, evaluated from a mask's sets -----===//

#include "Reference.h"
#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"
#include "mlir/IR/AffineExpr.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Parallel.h"

#include <cstdlib>

using namespace mlir;
using namespace mlir::flashattn;

namespace {
/// `slope * k + constant`.
struct LinearInKey {
  int64_t slope, constant;
};

/// Values of the dimensions and symbols of a mask's set, for one query.
struct Point {
  int64_t p, nq, nk;
  SmallVector<int64_t> symbols = {}; ///< those per sequence and per query
  /// The elements of the symbols per key, for key 0 and those that follow.
  SmallVector<std::pair<const HostTensor *, int64_t>> perKey = {};

  /// Returns the value of symbol `i` after nq and nk for key `k`.
  int64_t getSymbol(unsigned i, int64_t k) const {
    if (i < symbols.size())
      return symbols[i];
    auto [tensor, first] = perKey[i - symbols.size()];
    return tensor->get(first + k);
  }
};
} // namespace

// The analysis evaluates sets too (isVisible). The reference does not use that code, because it
// must not repeat an error of the compiler.
static int64_t evaluateBinary(AffineExprKind kind, int64_t lhs, int64_t rhs) {
  switch (kind) {
  case AffineExprKind::Add:
    return lhs + rhs;
  case AffineExprKind::Mul:
    return lhs * rhs;
  case AffineExprKind::Mod:
    return llvm::mod(lhs, rhs);
  case AffineExprKind::FloorDiv:
    return llvm::divideFloorSigned(lhs, rhs);
  case AffineExprKind::CeilDiv:
    return llvm::divideCeilSigned(lhs, rhs);
  default:
    llvm_unreachable("not a binary expression");
  }
}

static int64_t evaluate(AffineExpr expr, const Point &point, int64_t k) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition() == 0 ? point.p : k;
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    unsigned i = symbol.getPosition();
    return i == 0 ? point.nq : i == 1 ? point.nk : point.getSymbol(i - 2, k);
  }
  auto binary = cast<AffineBinaryOpExpr>(expr);
  return evaluateBinary(expr.getKind(), evaluate(binary.getLHS(), point, k),
                        evaluate(binary.getRHS(), point, k));
}

/// Returns the expression as a linear function of k, if it is one.
static std::optional<LinearInKey> getLine(AffineExpr expr, const Point &point) {
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (dim && dim.getPosition() == 1)
      return LinearInKey{1, 0};
    auto symbol = dyn_cast<AffineSymbolExpr>(expr);
    if (symbol && symbol.getPosition() >= 2 + point.symbols.size())
      return std::nullopt;
    return LinearInKey{0, evaluate(expr, point, 0)};
  }
  std::optional<LinearInKey> lhs = getLine(binary.getLHS(), point);
  std::optional<LinearInKey> rhs = getLine(binary.getRHS(), point);
  if (!lhs || !rhs)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return LinearInKey{lhs->slope + rhs->slope, lhs->constant + rhs->constant};
  if (expr.getKind() == AffineExprKind::Mul && (lhs->slope == 0 || rhs->slope == 0))
    return LinearInKey{lhs->slope * rhs->constant + rhs->slope * lhs->constant,
                       lhs->constant * rhs->constant};
  if (lhs->slope || rhs->slope)
    return std::nullopt;
  return LinearInKey{0, evaluateBinary(expr.getKind(), lhs->constant, rhs->constant)};
}

/// Appends the keys of one set as intervals.
static void appendVisible(IntegerSet set, const Point &point,
                          SmallVectorImpl<KeyInterval> &intervals) {
  int64_t begin = 0, end = point.nk;
  SmallVector<unsigned> others; // constraints that are no line
  for (auto [index, expr] : llvm::enumerate(set.getConstraints())) {
    std::optional<LinearInKey> line = getLine(expr, point);
    if (!line) {
      others.push_back(index);
      continue;
    }
    auto [slope, constant] = *line;
    auto atLeastZero = [&](int64_t slope, int64_t constant) {
      if (slope == 0)
        end = constant >= 0 ? end : begin;
      else if (slope > 0)
        begin = std::max(begin, llvm::divideCeilSigned(-constant, slope));
      else
        end = std::min(end, llvm::divideFloorSigned(constant, -slope) + 1);
    };
    atLeastZero(slope, constant);
    if (set.isEq(index))
      atLeastZero(-slope, -constant);
  }
  if (begin >= end)
    return;
  if (others.empty()) {
    intervals.push_back({begin, end});
    return;
  }
  for (int64_t k = begin; k < end; ++k) {
    bool visible = llvm::all_of(others, [&](unsigned index) {
      int64_t value = evaluate(set.getConstraint(index), point, k);
      return set.isEq(index) ? value == 0 : value >= 0;
    });
    if (!visible)
      continue;
    if (!intervals.empty() && intervals.back().end == k)
      intervals.back().end = k + 1;
    else
      intervals.push_back({k, k + 1});
  }
}

std::optional<PackedRow> flashattn::findPackedRow(const HostTensor &starts, int64_t row,
                                                  int64_t size) {
  for (int64_t number = 0; number + 1 < starts.getNumElements(); ++number) {
    int64_t first = std::clamp<int64_t>(starts.get(number), 0, size);
    int64_t end = std::clamp<int64_t>(starts.get(number + 1), first, size);
    if (first <= row && row < end)
      return PackedRow{number, row - first, end - first};
  }
  return std::nullopt;
}

bool AttentionProblem::keepsRow(int64_t row) const {
  if (!leastQueries && !mostQueries)
    return false;
  std::optional<PackedRow> found = findPackedRow(*getOperand("cu_seqlens_q"), row, numQueries);
  if (!found)
    return mostQueries.has_value();
  return found->rows < leastQueries.value_or(0) || found->rows > mostQueries.value_or(numQueries);
}

SmallVector<AttentionProblem::Sequence, 1> AttentionProblem::getSequences(int64_t b) const {
  const HostTensor *starts = getOperand("cu_seqlens_q");
  int64_t first = starts ? 0 : b, end = starts ? starts->getNumElements() - 1 : b + 1;
  SmallVector<Sequence, 1> sequences;
  for (int64_t number = first; number < end; ++number) {
    Sequence &found = sequences.emplace_back(Sequence{number, 0, 0, numQueries, numKeys, offset});
    auto place = [&](StringRef startsName, StringRef lengthsName, int64_t &row, int64_t &count) {
      if (const HostTensor *given = getOperand(startsName)) {
        int64_t rows = count;
        row = std::clamp<int64_t>(given->get(number), 0, rows);
        count = std::clamp<int64_t>(given->get(number + 1), row, rows) - row;
      }
      if (const HostTensor *given = getOperand(lengthsName))
        count = std::clamp<int64_t>(given->get(number), 0, count);
    };
    place("cu_seqlens_q", "q_len", found.firstQuery, found.numQueries);
    place("cu_seqlens_k", "kv_len", found.firstKey, found.numKeys);
    if (const HostTensor *given = getOperand("offsets"))
      found.offset = given->get(number);
    else if (followsLengths)
      found.offset = found.numKeys - found.numQueries;
  }
  return sequences;
}

std::optional<AttentionProblem::Sequence> AttentionProblem::getSequence(int64_t b,
                                                                        int64_t row) const {
  for (const Sequence &found : getSequences(b))
    if (found.firstQuery <= row && row < found.firstQuery + found.numQueries)
      return found;
  return std::nullopt;
}

/// Returns the values for query `row` of batch `b` of `q`, in sequence `of`, and query head `h`.
static Point getPoint(const AttentionProblem &problem, const AttentionProblem::Sequence &of,
                      int64_t b, int64_t h, int64_t row) {
  Point point{row - of.firstQuery + of.offset, of.numQueries, of.numKeys};
  for (const HostTensor *given : problem.perSequence)
    point.symbols.push_back(given->get(given->getNumElements() == 1 ? 0 : of.b));
  auto getFirst = [](const HostTensor &given, int64_t batch, int64_t head) {
    ArrayRef<int64_t> shape = given.getShape();
    return ((shape[0] == 1 ? 0 : batch) * shape[1] + (shape[1] == 1 ? 0 : head)) * shape[2];
  };
  for (const HostTensor *given : problem.perQuery)
    point.symbols.push_back(given->get(getFirst(*given, b, h) + row));
  for (const HostTensor *given : problem.perKey) {
    int64_t kvHead = h / (problem.queryHeads / problem.keyHeads);
    point.perKey.emplace_back(given, problem.hasPackedKeys
                                         ? getFirst(*given, 0, kvHead) + of.firstKey
                                         : getFirst(*given, of.b, kvHead));
  }
  return point;
}

SmallVector<KeyInterval> flashattn::getVisibleKeys(const AttentionProblem &problem, int64_t row,
                                                   int64_t b, int64_t h) {
  SmallVector<KeyInterval> intervals, merged;
  std::optional<AttentionProblem::Sequence> of = problem.getSequence(b, row);
  if (!of)
    return {};
  Point point = getPoint(problem, *of, b, h, row);
  for (IntegerSet set : problem.sets)
    appendVisible(set, point, intervals);
  llvm::sort(intervals, [](auto a, auto b) { return a.begin < b.begin; });
  for (KeyInterval interval : intervals) {
    if (!merged.empty() && interval.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, interval.end);
    else
      merged.push_back(interval);
  }
  for (KeyInterval &interval : merged)
    interval = {interval.begin + of->firstKey, interval.end + of->firstKey};
  return merged;
}

/// Whether a constraint has a division, a multiple of p or k, or a symbol from `firstVarying` on. A
/// range of rational numbers between its bounds may then contain no integer, or the constraint may
/// not restrict the range.
static bool hasGaps(AffineExpr expr, unsigned firstVarying) {
  bool divides = false;
  expr.walk([&](AffineExpr part) {
    divides |= part.getKind() == AffineExprKind::Mod ||
               part.getKind() == AffineExprKind::FloorDiv ||
               part.getKind() == AffineExprKind::CeilDiv;
    auto symbol = dyn_cast<AffineSymbolExpr>(part);
    divides |= symbol && symbol.getPosition() >= firstVarying;
  });
  expr = expr.replaceSymbols(
      SmallVector<AffineExpr>(2 + 3 * OperandRule::kMostOperands,
                              getAffineConstantExpr(0, expr.getContext())));
  int64_t constant = evaluate(expr, {0, 0, 0}, 0);
  return divides || std::abs(evaluate(expr, {1, 0, 0}, 0) - constant) > 1 ||
         std::abs(evaluate(expr, {0, 0, 0}, 1) - constant) > 1;
}

bool flashattn::mayCountMoreRows(const AttentionProblem &problem) {
  return llvm::any_of(problem.sets, [&](IntegerSet set) {
    return llvm::any_of(set.getConstraints(), [&](AffineExpr constraint) {
      return hasGaps(constraint, 2 + problem.perSequence.size());
    });
  });
}

CountedRows flashattn::getCountedRows(const AttentionProblem &problem, int64_t b) {
  bool isWhole = mayCountMoreRows(problem);
  CountedRows rows{llvm::BitVector(problem.numKeys), llvm::BitVector(problem.numQueries)};
  for (const AttentionProblem::Sequence &of : problem.getSequences(b)) {
    int64_t firstQuery = of.firstQuery, endQuery = firstQuery + of.numQueries;
    KeyInterval counted{of.firstKey, of.firstKey + of.numKeys}, queries{firstQuery, endQuery};
    if (!isWhole) {
      counted = {counted.end, counted.begin}, queries = {endQuery, firstQuery};
      for (int64_t row = firstQuery; row < endQuery; ++row) {
        SmallVector<KeyInterval> keys = getVisibleKeys(problem, row, b, /*h=*/0);
        if (keys.empty())
          continue;
        queries = {std::min(queries.begin, row), row + 1};
        counted = {std::min(counted.begin, keys.front().begin),
                   std::max(counted.end, keys.back().end)};
      }
    }
    if (counted.begin < counted.end)
      rows.keys.set(counted.begin, counted.end);
    if (queries.begin < queries.end)
      rows.queries.set(queries.begin, queries.end);
  }
  return rows;
}

bool flashattn::isVisible(const AttentionProblem &problem, int64_t b, int64_t h, int64_t row,
                          int64_t k) {
  std::optional<AttentionProblem::Sequence> of = problem.getSequence(b, row);
  if (!of || !of->hasKey(k))
    return false;
  Point point = getPoint(problem, *of, b, h, row);
  return llvm::any_of(problem.sets, [&](IntegerSet set) {
    return llvm::all_of(llvm::enumerate(set.getConstraints()), [&](auto constraint) {
      int64_t value = evaluate(constraint.value(), point, k - of->firstKey);
      return set.isEq(constraint.index()) ? value == 0 : value >= 0;
    });
  });
}

uint64_t flashattn::countVisiblePairs(const AttentionProblem &problem) {
  std::vector<uint64_t> counts(problem.numQueries);
  // Without lengths of their own, all batches are the same.
  bool isEachOwn = problem.getOperand("kv_len") || problem.getOperand("q_len") ||
                   problem.getOperand("cu_seqlens_q") || !problem.perSequence.empty();
  // Symbols per query or key may differ between heads.
  bool areHeadsOwn = !problem.perQuery.empty() || !problem.perKey.empty();
  isEachOwn |= areHeadsOwn;
  int64_t heads = areHeadsOwn ? problem.queryHeads : 1;
  llvm::parallelFor(0, problem.numQueries, [&](size_t row) {
    for (int64_t b = 0; b < (isEachOwn ? problem.batch : 1); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (KeyInterval interval : getVisibleKeys(problem, row, b, h))
          counts[row] += interval.end - interval.begin;
  });
  uint64_t pairs = 0;
  for (uint64_t count : counts)
    pairs += count;
  return pairs * (isEachOwn ? 1 : problem.batch) * (areHeadsOwn ? 1 : problem.queryHeads);
}
