//===- Reference.cpp ------------------------------------------------------===//

#include "Reference.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Parallel.h"

#include <array>
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::flashattn;

/// Returns Σ a·b in T. Several independent partial sums hide the latency of additions.
template <typename T> static T dot(const float *a, const float *b, int64_t count) {
  constexpr int kPartial = 8;
  T sums[kPartial] = {};
  int64_t i = 0;
  for (; i + kPartial <= count; i += kPartial)
    for (int j = 0; j < kPartial; ++j)
      sums[j] += T(a[i + j]) * T(b[i + j]);
  for (; i < count; ++i)
    sums[0] += T(a[i]) * T(b[i]);
  T sum = 0;
  for (T partial : sums)
    sum += partial;
  return sum;
}

namespace {
/// The indices of a row of scores, and the operands that modify the scores; null if absent.
struct RowPlace {
  RowPlace(const AttentionProblem &problem, int64_t b, int64_t h, int64_t row)
      : b(b), h(h), row(row), bias(problem.getOperand("bias")),
        attnMask(problem.getOperand("attn_mask")), sinkLogits(problem.getOperand("sink_logits")),
        sequence(problem.getSequence(b, row)) {
    if (!sequence) // rule S3
      sinkLogits = nullptr;
  }

  int64_t b, h, row;
  const HostTensor *bias, *attnMask, *sinkLogits;
  std::optional<AttentionProblem::Sequence> sequence; ///< nullopt if the row belongs to none
};
} // namespace

/// Returns the element for key `k` of a tensor that is broadcastable to the scores.
static double getOfScores(const HostTensor &tensor, const RowPlace &place, int64_t k) {
  int64_t index = 0;
  for (auto [size, i] :
       llvm::zip_equal(tensor.getShape(), std::array<int64_t, 4>{place.b, place.h, place.row, k}))
    index = index * size + (size == 1 ? 0 : i);
  return tensor.get(index);
}

/// Computes a score by rules A1 and A2, up to the mask, in T. It is rounded to f32, like the op's
/// scores. `slope`, if not null, is set to the derivative with respect to the scaled product (rule
/// B6).
template <typename T>
static T computeScore(const AttentionProblem &problem, const RowPlace &place, int64_t k,
                      const float *query, const float *key, T *slope = nullptr) {
  T score = T(problem.scale) * dot<T>(query, key, problem.dim);
  if (slope)
    *slope = 1;
  if (problem.softcap) {
    T bent = std::tanh(score / T(*problem.softcap));
    score = T(*problem.softcap) * bent;
    if (slope)
      *slope = 1 - bent * bent;
  }
  if (problem.scoreMod) {
    const AttentionProblem::Sequence &of = *place.sequence;
    int64_t p = place.row - of.firstQuery + of.offset, j = k - of.firstKey;
    if (slope) {
      auto [value, derivative] = problem.scoreMod->differentiate<T>(score, of.b, place.h, p, j);
      score = value;
      *slope *= derivative;
    } else {
      score = problem.scoreMod->evaluate<T>(score, of.b, place.h, p, j);
    }
  }
  if (place.bias)
    score += T(getOfScores(*place.bias, place, k));
  return T(float(score));
}

/// Computes o by rule A5 in T and returns lse. `round` returns P before the product with V, from an
/// unnormalized probability of at most 1 and the sum of these.
template <typename T, typename Round>
static T computeRow(const AttentionProblem &problem, const RowPlace &place,
                    ArrayRef<KeyInterval> visible, const float *query, const float *keys,
                    const float *values, Round round, SmallVectorImpl<T> &o) {
  o.assign(problem.valueDim, T(0));
  T infinity = std::numeric_limits<T>::infinity();
  std::vector<T> scores;
  T maximum = -infinity, sink = -infinity;
  if (place.sinkLogits)
    maximum = sink = T(place.sinkLogits->get(place.h));
  for (KeyInterval interval : visible)
    for (int64_t k = interval.begin; k < interval.end; ++k) {
      scores.push_back(computeScore<T>(problem, place, k, query, keys + k * problem.dim));
      maximum = std::max(maximum, scores.back());
    }
  if (llvm::all_of(scores, [&](T score) { return score == -infinity; }))
    return sink; // rule A6
  T sum = place.sinkLogits ? std::exp(sink - maximum) : T(0);
  for (T &score : scores)
    sum += score = std::exp(score - maximum);
  const T *next = scores.data();
  for (KeyInterval interval : visible)
    for (int64_t k = interval.begin; k < interval.end; ++k) {
      T weight = round(*next++, sum);
      const float *value = values + k * problem.valueDim;
      for (int64_t d = 0; d < problem.valueDim; ++d)
        o[d] += weight * T(value[d]);
    }
  return maximum + std::log(sum);
}

/// Rule M7: returns the keys of `visible` that the tensor `attn_mask` shows too.
static SmallVector<KeyInterval> keepOnly(const RowPlace &place, ArrayRef<KeyInterval> visible) {
  SmallVector<KeyInterval> kept;
  for (KeyInterval interval : visible)
    for (int64_t k = interval.begin; k < interval.end; ++k) {
      if (getOfScores(*place.attnMask, place, k) == 0)
        continue;
      if (!kept.empty() && kept.back().end == k)
        ++kept.back().end;
      else
        kept.push_back({k, k + 1});
    }
  return kept;
}

/// Returns the keys that the mask and `attn_mask` show to a row.
static SmallVector<KeyInterval> getShownKeys(const AttentionProblem &problem,
                                             const RowPlace &place) {
  SmallVector<KeyInterval> visible = getVisibleKeys(problem, place.row, place.b, place.h);
  return place.attnMask ? keepOnly(place, visible) : visible;
}

/// Whether all `width` elements of row `row` of `of` are finite.
static bool isFiniteRow(const float *of, int64_t width, int64_t row) {
  return llvm::all_of(ArrayRef(of + row * width, width), [](float x) { return std::isfinite(x); });
}

SmallVector<int64_t> flashattn::findSpecialRows(const float *of, int64_t width,
                                                const llvm::BitVector &rows) {
  SmallVector<int64_t> special;
  for (unsigned row : rows.set_bits())
    if (!isFiniteRow(of, width, row))
      special.push_back(row);
  return special;
}

/// Marks the columns in which row `row` of `of` is not finite, so that a product with it may be
/// NaN.
static void addSpecialRow(SmallVectorImpl<bool> &mayBeNaN, const float *of, int64_t width,
                          int64_t row) {
  mayBeNaN.resize(width, false);
  for (int64_t d = 0; d < width; ++d)
    mayBeNaN[d] = mayBeNaN[d] || !std::isfinite(of[row * width + d]);
}

ReferenceRow flashattn::computeReferenceRow(const AttentionProblem &problem, ArrayRef<float> query,
                                            const ScaledRows &keys, const ScaledRows &values,
                                            ArrayRef<int64_t> special, int64_t b, int64_t h,
                                            int64_t row) {
  ReferenceRow result;
  RowPlace place(problem, b, h, row);
  SmallVector<KeyInterval> visible = getShownKeys(problem, place);
  result.lse = computeRow<double>(
      problem, place, visible, query.data(), keys.getExact(), values.getExact(),
      [](double p, double sum) { return p / sum; }, result.o);
  result.naiveLse = computeRow<float>(
      problem, place, visible, query.data(), keys.getNaive(), values.getNaive(),
      [&](float p, float sum) {
        // F3: f8 rounds unnormalized probabilities.
        constexpr float kLargest = 256;
        return isF8(problem.scalar) ? roundTo(Scalar::F8E4M3FN, kLargest * p) / (kLargest * sum)
                                    : roundTo(problem.scalar, p / sum);
      },
      result.naiveO);
  for (float &value : result.naiveO)
    value = roundTo(problem.outputScalar, value);
  for (int64_t k : special)
    if (place.sequence && place.sequence->hasKey(k) &&
        llvm::none_of(visible, [&](KeyInterval seen) { return seen.begin <= k && k < seen.end; }))
      addSpecialRow(result.mayBeNaN, values.getExact(), problem.valueDim, k);
  return result;
}

ForwardRow flashattn::computeForwardRow(const AttentionProblem &problem, ArrayRef<float> query,
                                        const float *keys, const float *values, int64_t b,
                                        int64_t h, int64_t row, int64_t every) {
  RowPlace place(problem, b, h, row);
  SmallVector<KeyInterval> some;
  int64_t count = 0;
  for (KeyInterval interval : getShownKeys(problem, place))
    for (int64_t k = interval.begin; k < interval.end; ++k)
      if (count++ % every == 0)
        some.push_back({k, k + 1});
  // Each sampled key represents `every` keys. The sink represents only itself and is added later.
  const HostTensor *sinkLogits = std::exchange(place.sinkLogits, nullptr);
  ForwardRow result;
  result.lse = computeRow<double>(
      problem, place, some, query.data(), keys, values,
      [](double p, double sum) { return p / sum; }, result.o);
  result.lse += std::log(double(every));
  if (!sinkLogits)
    return result;
  double sink = sinkLogits->get(h), larger = std::max(result.lse, sink);
  if (larger == -std::numeric_limits<double>::infinity())
    return result;
  double lse = larger + std::log(std::exp(result.lse - larger) + std::exp(sink - larger));
  for (double &value : result.o)
    value *= std::exp(result.lse - lse);
  result.lse = lse;
  return result;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

void flashattn::readHead(const HostTensor &tensor, bool isBSHD, int64_t b, int64_t h, int64_t heads,
                         int64_t length, int64_t width, float *out) {
  constexpr int64_t kChunk = 256;
  llvm::parallelFor(0, llvm::divideCeil(length, kChunk), [&](size_t chunk) {
    int64_t end = std::min(length, int64_t(chunk + 1) * kChunk);
    for (int64_t s = chunk * kChunk; s < end; ++s)
      tensor.getFloats(getRowStart(isBSHD, b, h, s, heads, length, width), width, out + s * width);
  });
}

void GradientRow::add(const GradientFactor &factor, const float *row) {
  isHidden = false;
  for (size_t d = 0; d < exact.size(); ++d) {
    exact[d] += factor.exact * double(row[d]);
    naive[d] += factor.naive * row[d];
    magnitude[d] += factor.magnitude * std::abs(double(row[d]));
  }
}

void GradientRow::finish(Scalar scalar, double scale) {
  for (size_t d = 0; d < exact.size(); ++d) {
    exact[d] *= scale;
    naive[d] = roundTo(scalar, naive[d] * float(scale));
    magnitude[d] *= std::abs(scale);
  }
}

Gradients::Gradients(const AttentionProblem &problem)
    : problem(problem), group(problem.queryHeads / std::max<int64_t>(problem.keyHeads, 1)) {}

void Gradients::load(int64_t newBatch, int64_t keyHead) {
  b = newBatch, firstHead = keyHead * group;
  auto read = [&](StringRef name, int64_t first, int64_t count, int64_t heads, int64_t length,
                  int64_t width, std::vector<float> &out) {
    out.resize(count * length * width);
    for (int64_t h = 0; h < count; ++h)
      readHead(*problem.getOperand(name), problem.isBSHD, b, first + h, heads, length, width,
               out.data() + h * length * width);
  };
  int64_t rows = problem.numQueries;
  read("k", keyHead, 1, problem.keyHeads, problem.numKeys, problem.dim, keys);
  read("v", keyHead, 1, problem.keyHeads, problem.numKeys, problem.valueDim, values);
  read("q", firstHead, group, problem.queryHeads, rows, problem.dim, queries);
  read("d_o", firstHead, group, problem.queryHeads, rows, problem.valueDim, outputGradients);
  CountedRows counted = getCountedRows(problem, b);
  specialKeys = findSpecialRows(keys.data(), problem.dim, counted.keys);
  const HostTensor *sinks = problem.getOperand("sink_logits");
  // Rule B1.
  const HostTensor &o = *problem.getOperand("o"), *dLse = problem.getOperand("d_lse");
  logs.resize(group * rows), delta.resize(group * rows), naiveDelta.resize(group * rows);
  llvm::parallelFor(0, group * rows, [&](size_t n) {
    int64_t h = firstHead + n / rows, i = n % rows;
    int64_t start =
        getRowStart(problem.isBSHD, b, h, i, problem.queryHeads, rows, problem.valueDim);
    const float *dO = outputGradients.data() + n * problem.valueDim;
    double exact = 0;
    float naive = 0;
    for (int64_t d = 0; d < problem.valueDim; ++d) {
      double value = o.get(start + d);
      exact += value * dO[d];
      naive += float(value) * dO[d];
    }
    int64_t place = (b * problem.queryHeads + h) * rows + i;
    double given = dLse ? dLse->get(place) : 0;
    double lse = problem.getOperand("lse")->get(place);
    // Rule B7: values of these queries that are not finite are replaced by those of rule A6.
    if (!counted.queries[i]) {
      if (!std::isfinite(exact))
        exact = naive = 0;
      if (!std::isfinite(lse))
        lse = sinks ? sinks->get(h) : -std::numeric_limits<double>::infinity();
    }
    delta[n] = exact - given;
    naiveDelta[n] = naive - float(given);
    // Rule B1: normally, the operand is the f32 value of the own log-sum-exp, up to the error of
    // f32 sums. Otherwise it includes more keys than these, and is used as it is.
    RowLog own = computeLog(h, i);
    bool isOwn = std::abs((own.base - lse) + own.rest) <= std::abs(lse) / (1 << 20);
    logs[n] = isOwn ? own : RowLog{lse, 0};
  });
  specialQueries.clear();
  for (int64_t n = 0; n < group * rows; ++n) {
    auto isSpecial = [&](const std::vector<float> &of, int64_t width) {
      return !isFiniteRow(of.data(), width, n);
    };
    if (counted.queries[n % rows] &&
        (isSpecial(queries, problem.dim) || isSpecial(outputGradients, problem.valueDim) ||
         std::isnan(logs[n].base) || !std::isfinite(delta[n])))
      specialQueries.push_back(n);
  }
}

/// Computes the log-sum-exp over the keys that a row sees and the sink.
Gradients::RowLog Gradients::computeLog(int64_t h, int64_t i) const {
  RowPlace place(problem, b, h, i);
  std::vector<double> scores;
  double maximum = -std::numeric_limits<double>::infinity();
  if (place.sinkLogits)
    scores.push_back(maximum = place.sinkLogits->get(h));
  const float *query = queries.data() + ((h - firstHead) * problem.numQueries + i) * problem.dim;
  for (KeyInterval interval : getShownKeys(problem, place))
    for (int64_t k = interval.begin; k < interval.end; ++k) {
      scores.push_back(
          computeScore<double>(problem, place, k, query, keys.data() + k * problem.dim));
      maximum = std::max(maximum, scores.back());
    }
  double sum = 0;
  for (double score : scores)
    sum += std::exp(score - maximum);
  return {maximum, std::log(sum)};
}

Gradients::Query Gradients::getQuery(int64_t h, int64_t i) const {
  int64_t n = (h - firstHead) * problem.numQueries + i;
  return {h,
          i,
          queries.data() + n * problem.dim,
          outputGradients.data() + n * problem.valueDim,
          logs[n],
          delta[n],
          naiveDelta[n]};
}

bool Gradients::isShown(const Query &query, int64_t k) const {
  RowPlace place(problem, b, query.h, query.i);
  return !query.log.isEmpty() && isVisible(problem, b, query.h, query.i, k) &&
         (!place.attnMask || getOfScores(*place.attnMask, place, k));
}

void Gradients::forEachKey(const Query &query, llvm::function_ref<void(int64_t k)> visit) const {
  if (query.log.isEmpty())
    return;
  for (KeyInterval interval : getShownKeys(problem, RowPlace(problem, b, query.h, query.i)))
    for (int64_t k = interval.begin; k < interval.end; ++k)
      visit(k);
}

template <typename T>
Gradients::Pair<T> Gradients::computePair(const Query &query, T delta, int64_t k) const {
  T slope;
  T score = computeScore<T>(problem, RowPlace(problem, b, query.h, query.i), k, query.q,
                            keys.data() + k * problem.dim, &slope);
  T p = query.log.weigh(score);
  // 0 even if the slope is infinite.
  if (p == 0)
    return {0, 0, 0, 0};
  const float *value = values.data() + k * problem.valueDim;
  T dP = dot<T>(query.dO, value, problem.valueDim);
  T magnitude = std::abs(delta);
  for (int64_t d = 0; d < problem.valueDim; ++d)
    magnitude += std::abs(T(query.dO[d]) * T(value[d]));
  return {p, p * (dP - delta), slope, p * magnitude};
}

Gradients::Factors Gradients::computeFactors(const Query &query, int64_t k) const {
  Pair<double> exact = computePair<double>(query, query.delta, k);
  Pair<float> naive = computePair<float>(query, query.naiveDelta, k);
  // Plain arithmetic stores P in the type of the operands, for all products.
  float p = roundTo(problem.scalar, naive.p);
  float dScore = naive.p == 0 ? 0 : naive.dScore / naive.p * p;
  return {{exact.p, p, exact.p},
          {exact.dScore * exact.slope, roundTo(problem.scalar, dScore * naive.slope),
           exact.magnitude * std::abs(exact.slope)}};
}

GradientRow Gradients::computeQueryRow(int64_t h, int64_t i) const {
  GradientRow dq(problem.dim);
  Query query = getQuery(h, i);
  forEachKey(query, [&](int64_t k) {
    dq.add(computeFactors(query, k).dS, keys.data() + k * problem.dim);
  });
  dq.finish(problem.scalar, problem.scale);
  std::optional<AttentionProblem::Sequence> sequence = problem.getSequence(b, i);
  for (int64_t k : specialKeys)
    if (sequence && sequence->hasKey(k) && !isShown(query, k))
      addSpecialRow(dq.mayBeNaN, keys.data(), problem.dim, k);
  return dq;
}

Gradients::KeyRows Gradients::computeKeyRows(int64_t k) const {
  KeyRows rows{GradientRow(problem.dim), GradientRow(problem.valueDim)};
  for (int64_t i = 0; i < problem.numQueries; ++i) {
    for (int64_t h = firstHead; h < firstHead + group; ++h) {
      if (!isVisible(problem, b, h, i, k))
        continue;
      RowPlace place(problem, b, h, i);
      Query query = getQuery(h, i);
      if (query.log.isEmpty() || (place.attnMask && getOfScores(*place.attnMask, place, k) == 0))
        continue;
      Factors factors = computeFactors(query, k);
      rows.dk.add(factors.dS, query.q);
      rows.dv.add(factors.p, query.dO);
    }
  }
  rows.dk.finish(problem.scalar, problem.scale);
  rows.dv.finish(problem.scalar, 1);
  // The values of a query in any operand affect its P or dS.
  for (int64_t n : specialQueries)
    if (Query query = getQuery(firstHead + n / problem.numQueries, n % problem.numQueries);
        problem.getSequence(b, query.i)->hasKey(k) && !isShown(query, k)) {
      rows.dk.mayBeNaN.assign(problem.dim, true);
      rows.dv.mayBeNaN.assign(problem.valueDim, true);
    }
  return rows;
}

void Gradients::addScoreRow(int64_t h, int64_t i, MutableArrayRef<GradientSum> sums) const {
  Query query = getQuery(h, i);
  forEachKey(query, [&](int64_t k) {
    GradientSum &sum = sums[sums.size() == 1 ? 0 : k];
    Pair<double> pair = computePair<double>(query, query.delta, k);
    sum.exact += pair.dScore;
    sum.naive += computePair<float>(query, query.naiveDelta, k).dScore;
    sum.magnitude += pair.magnitude;
  });
}

void Gradients::addSink(int64_t h, GradientSum &sum) const {
  double sink = problem.getOperand("sink_logits")->get(h);
  for (int64_t i = 0; i < problem.numQueries; ++i) {
    Query query = getQuery(h, i);
    if (query.log.isEmpty() || !problem.getSequence(b, i))
      continue;
    double part = query.log.weigh(sink) * query.delta;
    sum.exact -= part;
    sum.naive -= query.log.weigh(float(sink)) * query.naiveDelta;
    sum.magnitude += std::abs(part);
  }
}

//===----------------------------------------------------------------------===//
// Merges
//===----------------------------------------------------------------------===//

/// Merges one row by rules A5 and A6, in T. Returns lse.
template <typename T>
static T computeCombined(const CombineProblem &problem, int64_t b, int64_t h, int64_t row,
                         SmallVectorImpl<T> &o) {
  o.assign(problem.valueDim, T(0));
  T infinity = std::numeric_limits<T>::infinity();
  T sink = problem.sinkLogits ? T(problem.sinkLogits->get(h)) : -infinity, maximum = sink;
  SmallVector<T> logs, rests;
  auto place = [&](int64_t part) {
    return ((part * problem.batch + b) * problem.heads + h) * problem.numQueries + row;
  };
  for (int64_t part = 0; part < problem.parts; ++part) {
    logs.push_back(problem.lseParts->get(place(part)));
    bool hasRest = problem.lseRests && logs.back() != -infinity;
    rests.push_back(hasRest ? T(problem.lseRests->get(place(part))) : T(0));
    maximum = std::max(maximum, logs.back());
  }
  if (llvm::all_of(logs, [&](T log) { return log == -infinity; }))
    return sink;
  // T cannot represent maximum + rest, so the rest of the maximum is subtracted separately.
  T rest = sink == maximum ? T(0) : -infinity;
  for (auto [log, ofLog] : llvm::zip_equal(logs, rests))
    rest = log == maximum ? std::max(rest, ofLog) : rest;
  T sum = sink == -infinity ? T(0) : std::exp((sink - maximum) - rest);
  for (auto [log, ofLog] : llvm::zip_equal(logs, rests))
    sum += std::exp((log - maximum) + (ofLog - rest));
  for (auto [part, log] : llvm::enumerate(logs)) {
    T weight = std::exp((log - maximum) + (rests[part] - rest)) / sum;
    for (int64_t d = 0; d < problem.valueDim && log != -infinity; ++d)
      o[d] += weight * T(problem.oParts->get(place(part) * problem.valueDim + d));
  }
  return maximum + (rest + std::log(sum));
}

ReferenceRow flashattn::computeCombinedRow(const CombineProblem &problem, Scalar scalar, int64_t b,
                                           int64_t h, int64_t row) {
  ReferenceRow result;
  result.lse = computeCombined<double>(problem, b, h, row, result.o);
  result.naiveLse = computeCombined<float>(problem, b, h, row, result.naiveO);
  for (float &value : result.naiveO)
    value = roundTo(scalar, value);
  return result;
}
