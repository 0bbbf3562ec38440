//===- Reference.h - attention in float64 ------------------------*- C++ -*-===//
//
// Straight from the rules, row by row: shares no code with the compiler but the mask's
// integer sets, which it evaluates on its own.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_REFERENCE_H
#define FLASH_RUN_REFERENCE_H

#include "HostTensor.h"
#include "ScoreMod.h"
#include "mlir/IR/IntegerSet.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mlir::flashattn {

/// One attention with its sizes filled in.
struct AttentionProblem {
  int64_t batch, queryHeads, keyHeads, numQueries, numKeys, dim, valueDim;
  double scale;
  /// Position of query 0 (rule A3).
  int64_t offset;
  bool isBSHD;
  /// Over (p, k)[nq, nk]; a pair is visible where one of them holds it.
  SmallVector<IntegerSet> sets;
  Scalar scalar;
  /// What else shapes the scores.
  std::optional<double> softcap;
  std::optional<ScoreMod> scoreMod;
  /// The operands that are given, by their names. Those that broadcast have sizes of 1 where they
  /// do.
  SmallVector<std::pair<StringRef, const HostTensor *>> operands;
  /// The last query stands at the last key of its batch, whatever `offset` says.
  bool followsKvLen = false;

  /// The operand `name`, null where it is left out.
  const HostTensor *getOperand(StringRef name) const {
    for (auto [given, tensor] : operands)
      if (given == name)
        return tensor;
    return nullptr;
  }
  /// Keys of batch `b` that exist (rule A7).
  int64_t getNumKeys(int64_t b) const {
    const HostTensor *kvLen = getOperand("kv_len");
    return kvLen ? std::clamp<int64_t>(kvLen->get(b), 0, numKeys) : numKeys;
  }
  /// Position of query 0 of batch `b`.
  int64_t getOffset(int64_t b) const { return followsKvLen ? getNumKeys(b) - numQueries : offset; }
};

/// Where row `s` of head `h` starts in a tensor with `heads` heads, `length` rows and `width`
/// elements a row.
inline int64_t getRowStart(bool isBSHD, int64_t b, int64_t h, int64_t s, int64_t heads,
                           int64_t length, int64_t width) {
  return (isBSHD ? (b * length + s) * heads + h : (b * heads + h) * length + s) * width;
}

/// Rows of head `h` of batch `b`, side by side, as floats.
void readHead(const HostTensor &tensor, bool isBSHD, int64_t b, int64_t h, int64_t heads,
              int64_t length, int64_t width, float *out);

/// Keys [begin, end).
struct KeyInterval {
  int64_t begin, end;
};

/// The keys that query `row` of batch `b` sees through the mask, as disjoint intervals in order.
SmallVector<KeyInterval> getVisibleKeys(const AttentionProblem &problem, int64_t row,
                                        int64_t b = 0);

/// Whether the mask shows key `k` to query `row` of batch `b`.
bool isVisible(const AttentionProblem &problem, int64_t b, int64_t row, int64_t k);

/// What the mask leaves of batch `b` (rule A7): the keys from the first to the last that any query
/// sees, and the queries from the first to the last that see any; all of them where a compiled op
/// may count more, with mod, floordiv or multiples. What lies elsewhere counts for nothing.
struct CountedRows {
  KeyInterval keys{0, 0}, queries{0, 0};
};
CountedRows getCountedRows(const AttentionProblem &problem, int64_t b);

/// Pairs of all batches and query heads that the mask shows, whatever `keep` does.
uint64_t countVisiblePairs(const AttentionProblem &problem);

/// What a row should be, and what plain low-precision arithmetic makes of it: scores in
/// f32, P rounded to the element type, products accumulated in f32, o rounded.
struct ReferenceRow {
  SmallVector<double> o;
  double lse;
  SmallVector<float> naiveO;
  float naiveLse;
  /// Where not empty, by column: whether o may be NaN instead, as 0 times what a hidden key has in
  /// V is (rule A8).
  SmallVector<bool> mayBeNaN;

  bool isNaNAllowed(int64_t column) const { return !mayBeNaN.empty() && mayBeNaN[column]; }
};

/// The rows of `of` elements, `width` each, in [begin, end) that are not all finite.
SmallVector<int64_t> findSpecialRows(const float *of, int64_t width, KeyInterval rows);

/// Row `row` of query head `h` of batch `b`. `keys` and `values` are that head's, numKeys rows
/// each; `special` are the rows of `values` that count and are not all finite.
ReferenceRow computeReferenceRow(const AttentionProblem &problem, ArrayRef<float> query,
                                 const float *keys, const float *values, ArrayRef<int64_t> special,
                                 int64_t b, int64_t h, int64_t row);

/// What the attention itself gives: o and lse in float64. With `every` above 1 from a sample of the
/// keys only, one in so many, for inputs of large problems.
struct ForwardRow {
  SmallVector<double> o;
  double lse;
};
ForwardRow computeForwardRow(const AttentionProblem &problem, ArrayRef<float> query,
                             const float *keys, const float *values, int64_t b, int64_t h,
                             int64_t row, int64_t every);

/// A row of a gradient in float64, and what plain low-precision arithmetic makes of it: scores, P
/// and dS in f32; P and dS rounded to the element type where products take them; sums in f32, and
/// the row rounded at the end.
struct GradientRow {
  explicit GradientRow(int64_t width) : exact(width), naive(width) {}
  /// Adds a row times a factor.
  void add(double exactFactor, float naiveFactor, const float *row);
  /// What is done at the end: the naive row times a factor, rounded.
  void round(Scalar scalar, double factor);

  SmallVector<double> exact;
  SmallVector<float> naive;
  /// No pair adds anything: all of it is 0, exactly (rule B7).
  bool isHidden = true;
  /// As of ReferenceRow (rule B7).
  SmallVector<bool> mayBeNaN;

  bool isNaNAllowed(int64_t column) const { return !mayBeNaN.empty() && mayBeNaN[column]; }
};

/// An element of a gradient that many rows of scores add to, in float64 and in f32.
struct GradientSum {
  double exact = 0;
  float naive = 0;
  /// Of what is added and what that is the difference of: rounding takes its share of it.
  double magnitude = 0;
};

/// The gradients of an attention by its operands (rules B1 to B8), those of one batch and one
/// key/value head, with the query heads that read it, at a time.
class Gradients {
public:
  /// `problem` has the operands of a flashattn.attention_backward.
  explicit Gradients(const AttentionProblem &problem);

  void load(int64_t b, int64_t keyHead);
  /// Of those loaded: row `i` of dq of query head `h`, and row `k` of dk and of dv.
  GradientRow computeQueryRow(int64_t h, int64_t i) const;
  struct KeyRows {
    GradientRow dk, dv;
  };
  KeyRows computeKeyRows(int64_t k) const;
  /// Adds the gradients of the final scores of row `i` of query head `h`, for d_bias (rule B5):
  /// that of key `k` to element `k`, or all to the only one.
  void addScoreRow(int64_t h, int64_t i, MutableArrayRef<GradientSum> sums) const;
  /// Adds what all rows of query head `h` give to its d_sink_logits (rule B3).
  void addSink(int64_t h, GradientSum &sum) const;

private:
  /// A row's log-sum-exp as the sum of two numbers, as one has no room for what a large score and a
  /// sum of weights are. A score's weight is exp((score - base) - rest).
  struct RowLog {
    double base, rest;
    bool isEmpty() const { return base == -std::numeric_limits<double>::infinity(); }
    template <typename T> T weigh(T score) const { return std::exp((score - T(base)) - T(rest)); }
  };
  /// A row of queries, and its delta (rule B1).
  struct Query {
    int64_t h, i;
    const float *q, *dO;
    RowLog log;
    double delta;
    float naiveDelta;
  };
  /// P and the final score's gradient, the score's derivative by the one that the product of a
  /// query and a key gives (rule B6), and what the gradient is the difference of.
  template <typename T> struct Pair { T p, dScore, slope, magnitude; };
  Query getQuery(int64_t h, int64_t i) const;
  RowLog computeLog(int64_t h, int64_t i) const;
  /// Whether the mask and `keep` show a pair, of a row that has a key (rule A6).
  bool isShown(const Query &query, int64_t k) const;
  /// Calls `visit` for the keys that a row sees (rules B7, A6).
  void forEachKey(const Query &query, llvm::function_ref<void(int64_t k)> visit) const;
  template <typename T> Pair<T> computePair(const Query &query, T delta, int64_t k) const;
  /// The gradient of what the product of a query and a key gives, as products take it.
  double computeExactDS(const Query &query, int64_t k, double &p) const;
  float computeNaiveDS(const Query &query, int64_t k, float &p) const;

  const AttentionProblem &problem;
  const int64_t group; ///< query heads to a key/value head
  int64_t b = 0, firstHead = 0;
  /// Rows of the heads that are loaded, the query heads one behind the other.
  std::vector<float> queries, outputGradients, keys, values;
  std::vector<RowLog> logs;
  std::vector<double> delta;
  std::vector<float> naiveDelta;
  /// Rows that count and are not finite: keys, and queries with anything that is not.
  SmallVector<int64_t> specialKeys, specialQueries;
};

/// One merge of attention over parts of the keys, with its sizes filled in.
struct CombineProblem {
  int64_t parts, batch, heads, numQueries, valueDim;
  const HostTensor *oParts, *lseParts;
  const HostTensor *lseRests;   ///< null where left out
  const HostTensor *sinkLogits; ///< null where left out
};

/// Row `row` of head `h` of batch `b`; the naive one in f32, rounded to `scalar` at the end.
ReferenceRow computeCombinedRow(const CombineProblem &problem, Scalar scalar, int64_t b, int64_t h,
                                int64_t row);

} // namespace mlir::flashattn

#endif // FLASH_RUN_REFERENCE_H
