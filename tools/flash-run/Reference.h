//===- Reference.h - attention in float64 -----------------------*- C++ -*-===//
//
// Implements the rules directly, row by row. Shares no code with the compiler, except the integer
// sets of masks, which it evaluates itself.
//
//===----------------------------------------------------------------------===//

#ifndef FLASH_RUN_REFERENCE_H
#define FLASH_RUN_REFERENCE_H

#include "HostTensor.h"
#include "ScoreMod.h"
#include "mlir/IR/IntegerSet.h"
#include "llvm/ADT/BitVector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace mlir::flashattn {

/// An attention with known sizes.
struct AttentionProblem {
  int64_t batch, queryHeads, keyHeads, numQueries, numKeys, dim, valueDim;
  double scale;
  /// Position of query 0 (rule A3).
  int64_t offset;
  bool isBSHD;
  /// Sets over (p, k)[nq, nk, symbols]; a pair is visible if it is in one of the sets.
  SmallVector<IntegerSet> sets;
  /// Y1, Y2: the values of the symbols. Broadcast dimensions have size 1.
  SmallVector<const HostTensor *, 2> perSequence, perQuery, perKey;
  /// Whether the rows of `perKey` are those of packed keys.
  bool hasPackedKeys = false;
  Scalar scalar;       ///< of q, and of k and v unless they have 8 bits (rule F1)
  Scalar outputScalar; ///< of o
  /// Further modifications of the scores.
  std::optional<double> softcap;
  std::optional<ScoreMod> scoreMod;
  /// The operands that are present, by name. Broadcast dimensions have size 1.
  SmallVector<std::pair<StringRef, const HostTensor *>> operands;
  /// Whether the last query is aligned with the last key of its sequence. `offset` is then ignored.
  bool followsLengths = false;
  /// S7: the numbers of rows that a computed sequence has at least and at most.
  std::optional<int64_t> leastQueries, mostQueries;
  /// F1: those of `k_scale` and `v_scale` that are arranged like the rows of `k` and `v`. The
  /// others have one row, which serves all keys of a sequence.
  SmallVector<StringRef, 2> rowScales;
  /// The operands that differ from those of the op: keys and values that were in pages.
  SmallVector<std::shared_ptr<HostTensor>> gathered;

  /// Returns the operand `name`, or null if it is absent.
  const HostTensor *getOperand(StringRef name) const {
    for (auto [given, tensor] : operands)
      if (given == name)
        return tensor;
    return nullptr;
  }
  /// The sequence of a query (rules A7, S1 to S4): a batch, or a packed sequence.
  struct Sequence {
    int64_t b;                    ///< index of the sequence
    int64_t firstQuery, firstKey; ///< rows of its first query and its first key
    int64_t numQueries = 0, numKeys = 0;
    int64_t offset; ///< position of its first query

    bool hasKey(int64_t k) const { return firstKey <= k && k < firstKey + numKeys; }
  };
  /// Whether `o` and `lse` keep the values of row `row` (S7).
  bool keepsRow(int64_t row) const;
  /// Returns the sequences of batch `b` of `q`.
  SmallVector<Sequence, 1> getSequences(int64_t b) const;
  /// Returns the sequence of query `row` of batch `b`; nullopt if the query belongs to none (S3).
  std::optional<Sequence> getSequence(int64_t b, int64_t row) const;
};

/// A row of a packed sequence.
struct PackedRow {
  int64_t sequence, row; ///< `row` counts from the first row of the sequence
  int64_t rows;          ///< number of rows of the sequence
};
/// Returns row `row` of `size` rows; nullopt if it belongs to no sequence.
std::optional<PackedRow> findPackedRow(const HostTensor &starts, int64_t row, int64_t size);

/// Returns the index of the first element of row `s` of head `h` of batch `b`, in a tensor with
/// `heads` heads, `length` rows and `width` elements per row.
inline int64_t getRowStart(bool isBSHD, int64_t b, int64_t h, int64_t s, int64_t heads,
                           int64_t length, int64_t width) {
  return (isBSHD ? (b * length + s) * heads + h : (b * heads + h) * length + s) * width;
}

/// Copies the rows of head `h` of batch `b` to `out`, contiguously, as floats.
void readHead(const HostTensor &tensor, bool isBSHD, int64_t b, int64_t h, int64_t heads,
              int64_t length, int64_t width, float *out);

/// Rows of `k` or `v` of a head, contiguously.
struct ScaledRows {
  std::vector<float> exact; ///< F1: the values, products in f32
  /// F2: what plain low-precision arithmetic multiplies, if it rounds the values. Otherwise empty.
  std::vector<float> rounded;

  const float *getExact() const { return exact.data(); }
  const float *getNaive() const { return rounded.empty() ? exact.data() : rounded.data(); }
};

/// F2: whether kernels may round the scaled values of `k` or `v`, as `name` says, to the type of
/// `q`, because rows or blocks have scales of their own.
bool roundsScaled(const AttentionProblem &problem, StringRef name);

/// Reads the rows of `k` or `v`, as `name` says, of key/value head `h` of batch `b`.
ScaledRows readScaledRows(const AttentionProblem &problem, StringRef name, int64_t b, int64_t h);

/// Keys [begin, end).
struct KeyInterval {
  int64_t begin, end;
};

/// Whether the mask has a set with mod, floordiv, multiples of p or k, or symbols per query or key,
/// for which a compiled op may use larger ranges of rows (rules A7, P2).
bool mayCountMoreRows(const AttentionProblem &problem);

/// Returns the keys that the mask shows to query `row` of batch `b` and query head `h`, as disjoint
/// intervals in order.
SmallVector<KeyInterval> getVisibleKeys(const AttentionProblem &problem, int64_t row, int64_t b,
                                        int64_t h);

/// Whether the mask shows key `k` to query `row` of batch `b` and query head `h`.
bool isVisible(const AttentionProblem &problem, int64_t b, int64_t h, int64_t row, int64_t k);

/// The rows of batch `b` that have an effect (rule A7). In each sequence, these are the keys from
/// the first to the last that any query sees, and the queries from the first to the last that see
/// any key. For masks with mod, floordiv or multiples, for which a compiled op may use larger
/// ranges, they are all keys and queries of the sequence.
struct CountedRows {
  llvm::BitVector keys, queries;
};
CountedRows getCountedRows(const AttentionProblem &problem, int64_t b);

/// Returns the number of pairs that the mask shows, ignoring `attn_mask`, in all batches and query
/// heads.
uint64_t countVisiblePairs(const AttentionProblem &problem);

/// The exact row, and the row in plain low-precision arithmetic (naive): scores in f32, P rounded
/// to the element type, products accumulated in f32, o rounded.
struct ReferenceRow {
  SmallVector<double> o;
  double lse;
  SmallVector<float> naiveO;
  float naiveLse;
  /// For each column, whether o may be NaN instead, because 0 times the value of a hidden key may
  /// be NaN (rule A8). Empty: in no column.
  SmallVector<bool> mayBeNaN;

  bool isNaNAllowed(int64_t column) const { return !mayBeNaN.empty() && mayBeNaN[column]; }
};

/// Returns those of `rows` of `of`, with `width` elements each, that are not all finite.
SmallVector<int64_t> findSpecialRows(const float *of, int64_t width, const llvm::BitVector &rows);

/// Computes row `row` of query head `h` of batch `b`. `keys` and `values` are the numKeys rows of
/// its key/value head; `special` lists the rows of `values` that have an effect and are not all
/// finite.
ReferenceRow computeReferenceRow(const AttentionProblem &problem, ArrayRef<float> query,
                                 const ScaledRows &keys, const ScaledRows &values,
                                 ArrayRef<int64_t> special, int64_t b, int64_t h, int64_t row);

/// o and lse of one row in float64. If `every` is above 1, they are estimated from one key in
/// `every`, as inputs for large problems.
struct ForwardRow {
  SmallVector<double> o;
  double lse;
};
ForwardRow computeForwardRow(const AttentionProblem &problem, ArrayRef<float> query,
                             const float *keys, const float *values, int64_t b, int64_t h,
                             int64_t row, int64_t every);

/// What a row of an operand is multiplied by: P or dS of a pair, in float64 and in plain
/// arithmetic, and the magnitude of the terms that cancel in it.
struct GradientFactor {
  double exact;
  float naive;
  double magnitude;
};

/// A row of a gradient in float64, and in plain low-precision arithmetic (naive): scores, P and dS
/// in f32; P and dS rounded to the element type as operands of products; sums in f32, and the row
/// rounded at the end.
struct GradientRow {
  explicit GradientRow(int64_t width) : exact(width), naive(width), magnitude(width) {}
  /// Adds a row times a factor.
  void add(const GradientFactor &factor, const float *row);
  /// Multiplies the row by `scale`, and rounds the naive one.
  void finish(Scalar scalar, double scale);

  SmallVector<double> exact;
  SmallVector<float> naive;
  /// Same as in GradientSum.
  SmallVector<double> magnitude;
  /// Whether no pair contributes, so that the row is exactly 0 (rule B7).
  bool isHidden = true;
  /// Same as in ReferenceRow (rule B7).
  SmallVector<bool> mayBeNaN;

  bool isNaNAllowed(int64_t column) const { return !mayBeNaN.empty() && mayBeNaN[column]; }
};

/// An element of a gradient that is a sum over many rows of scores, in float64 and in f32.
struct GradientSum {
  double exact = 0;
  float naive = 0;
  /// The sum of the magnitudes of the terms before cancellation, to which rounding errors are
  /// proportional.
  double magnitude = 0;
};

/// The gradients of an attention with respect to its operands (rules B1 to B8), for one batch and
/// one key/value head, with the query heads that read it, at a time.
class Gradients {
public:
  /// `problem` has the operands of a flashattn.attention_backward.
  explicit Gradients(const AttentionProblem &problem);

  void load(int64_t b, int64_t keyHead);
  /// For the loaded heads: computes row `i` of dq of query head `h`, or row `k` of dk and of dv.
  GradientRow computeQueryRow(int64_t h, int64_t i) const;
  struct KeyRows {
    GradientRow dk, dv;
  };
  KeyRows computeKeyRows(int64_t k) const;
  /// Adds the gradients of the final scores of row `i` of query head `h` to a row of d_bias (rule
  /// B5): that of key `k` to element `k`, or all of them to the only element.
  void addScoreRow(int64_t h, int64_t i, MutableArrayRef<GradientSum> sums) const;
  /// Adds the contributions of all rows of query head `h` to its d_sink_logits (rule B3).
  void addSink(int64_t h, GradientSum &sum) const;

private:
  /// A row's log-sum-exp as base + rest, because a single number cannot represent both a large
  /// score and the logarithm of a sum. The probability of a score is exp((score - base) - rest).
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
  /// P; the gradient of the final score; the derivative of the final score with respect to the
  /// scaled product of query and key (rule B6); and the magnitude of the terms that cancel in the
  /// gradient.
  template <typename T> struct Pair { T p, dScore, slope, magnitude; };
  Query getQuery(int64_t h, int64_t i) const;
  RowLog computeLog(int64_t h, int64_t i) const;
  /// Whether the mask and `attn_mask` show a pair, in a row that sees a key (rule A6).
  bool isShown(const Query &query, int64_t k) const;
  /// Calls `visit` for the keys that a row sees (rules B7, A6).
  void forEachKey(const Query &query, llvm::function_ref<void(int64_t k)> visit) const;
  template <typename T> Pair<T> computePair(const Query &query, T delta, int64_t k) const;
  /// P, and dS, the gradient of the scaled product of query and key, as operands of products.
  struct Factors {
    GradientFactor p, dS;
  };
  Factors computeFactors(const Query &query, int64_t k) const;

  const AttentionProblem &problem;
  const int64_t group; ///< query heads per key/value head
  int64_t b = 0, firstHead = 0;
  /// Rows of the loaded heads; those of several query heads are concatenated.
  std::vector<float> queries, outputGradients, keys, values;
  std::vector<RowLog> logs;
  std::vector<double> delta;
  std::vector<float> naiveDelta;
  /// Rows that have an effect and are not finite: keys, and queries with any operand that is not
  /// finite.
  SmallVector<int64_t> specialKeys, specialQueries;
};

/// A merge of attention outputs over splits of the keys, with known sizes.
struct CombineProblem {
  int64_t parts, batch, heads, numQueries, valueDim;
  const HostTensor *oParts, *lseParts;
  const HostTensor *lseRests;         ///< null if absent
  const HostTensor *sinkLogits;       ///< null if absent
  const HostTensor *starts = nullptr; ///< of packed sequences in the output, if it has any
  int64_t leastQueries = 0;           ///< S7: the least number of rows of a merged sequence
};

/// Computes row `row` of head `h` of batch `b`. The naive row is computed in f32 and rounded to
/// `scalar`.
ReferenceRow computeCombinedRow(const CombineProblem &problem, Scalar scalar, int64_t b, int64_t h,
                                int64_t row);

} // namespace mlir::flashattn

#endif // FLASH_RUN_REFERENCE_H
