//===- MaskReference.cpp - visible keys, evaluated from a mask's sets -----===//

#include "Reference.h"
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

/// Values of the dimensions and symbols of a mask's set.
struct Point {
  int64_t p, nq, nk;
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
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return symbol.getPosition() == 0 ? point.nq : point.nk;
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
  bool isInterval = true;
  for (auto [index, expr] : llvm::enumerate(set.getConstraints())) {
    std::optional<LinearInKey> line = getLine(expr, point);
    if (!line) {
      isInterval = false;
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
  if (isInterval) {
    intervals.push_back({begin, end});
    return;
  }
  for (int64_t k = begin; k < end; ++k) {
    bool visible = true;
    for (auto [index, expr] : llvm::enumerate(set.getConstraints())) {
      int64_t value = evaluate(expr, point, k);
      visible &= set.isEq(index) ? value == 0 : value >= 0;
    }
    if (!visible)
      continue;
    if (!intervals.empty() && intervals.back().end == k)
      intervals.back().end = k + 1;
    else
      intervals.push_back({k, k + 1});
  }
}

SmallVector<KeyInterval> flashattn::getVisibleKeys(const AttentionProblem &problem, int64_t row,
                                                   int64_t b) {
  Point point{row + problem.getOffset(b), problem.numQueries, problem.getNumKeys(b)};
  SmallVector<KeyInterval> intervals, merged;
  for (IntegerSet set : problem.sets)
    appendVisible(set, point, intervals);
  llvm::sort(intervals, [](auto a, auto b) { return a.begin < b.begin; });
  for (KeyInterval interval : intervals) {
    if (!merged.empty() && interval.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, interval.end);
    else
      merged.push_back(interval);
  }
  return merged;
}

/// Whether a constraint has a division or a multiple of p or k. A range of rational numbers between
/// its bounds may then contain no integer.
static bool hasGaps(AffineExpr expr) {
  bool divides = false;
  expr.walk([&](AffineExpr part) {
    divides |= part.getKind() == AffineExprKind::Mod ||
               part.getKind() == AffineExprKind::FloorDiv ||
               part.getKind() == AffineExprKind::CeilDiv;
  });
  int64_t constant = evaluate(expr, {0, 0, 0}, 0);
  return divides || std::abs(evaluate(expr, {1, 0, 0}, 0) - constant) > 1 ||
         std::abs(evaluate(expr, {0, 0, 0}, 1) - constant) > 1;
}

CountedRows flashattn::getCountedRows(const AttentionProblem &problem, int64_t b) {
  if (llvm::any_of(problem.sets,
                   [](IntegerSet set) { return llvm::any_of(set.getConstraints(), hasGaps); }))
    return {{0, problem.getNumKeys(b)}, {0, problem.numQueries}};
  CountedRows rows;
  for (int64_t row = 0; row < problem.numQueries; ++row) {
    SmallVector<KeyInterval> keys = getVisibleKeys(problem, row, b);
    if (keys.empty())
      continue;
    if (rows.queries.end == 0) {
      rows.queries.begin = row;
      rows.keys = keys.front();
    }
    rows.queries.end = row + 1;
    rows.keys.begin = std::min(rows.keys.begin, keys.front().begin);
    rows.keys.end = std::max(rows.keys.end, keys.back().end);
  }
  return rows;
}

bool flashattn::isVisible(const AttentionProblem &problem, int64_t b, int64_t row, int64_t k) {
  Point point{row + problem.getOffset(b), problem.numQueries, problem.getNumKeys(b)};
  return k < point.nk && llvm::any_of(problem.sets, [&](IntegerSet set) {
           return llvm::all_of(llvm::enumerate(set.getConstraints()), [&](auto constraint) {
             int64_t value = evaluate(constraint.value(), point, k);
             return set.isEq(constraint.index()) ? value == 0 : value >= 0;
           });
         });
}

uint64_t flashattn::countVisiblePairs(const AttentionProblem &problem) {
  std::vector<uint64_t> counts(problem.numQueries);
  // Without kv_len, all batches are the same.
  bool isEachOwn = problem.getOperand("kv_len");
  llvm::parallelFor(0, problem.numQueries, [&](size_t row) {
    for (int64_t b = 0; b < (isEachOwn ? problem.batch : 1); ++b)
      for (KeyInterval interval : getVisibleKeys(problem, row, b))
        counts[row] += interval.end - interval.begin;
  });
  uint64_t pairs = 0;
  for (uint64_t count : counts)
    pairs += count;
  return pairs * (isEachOwn ? 1 : problem.batch) * problem.queryHeads;
}
