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

/// Keys [begin, end).
struct KeyInterval {
  int64_t begin, end;
};

/// The keys that query `row` of batch `b` sees through the mask, as disjoint intervals in order.
SmallVector<KeyInterval> getVisibleKeys(const AttentionProblem &problem, int64_t row,
                                        int64_t b = 0);

/// Pairs of all batches and query heads that the mask shows, whatever `keep` does.
uint64_t countVisiblePairs(const AttentionProblem &problem);

/// What a row should be, and what plain low-precision arithmetic makes of it: scores in
/// f32, P rounded to the element type, products accumulated in f32, o rounded.
struct ReferenceRow {
  SmallVector<double> o;
  double lse;
  SmallVector<float> naiveO;
  float naiveLse;
};

/// Row `row` of query head `h` of batch `b`. `keys` and `values` are that head's, numKeys rows
/// each.
ReferenceRow computeReferenceRow(const AttentionProblem &problem, ArrayRef<float> query,
                                 const float *keys, const float *values, int64_t b, int64_t h,
                                 int64_t row);

/// One merge of attention over parts of the keys, with its sizes filled in.
struct CombineProblem {
  int64_t parts, batch, heads, numQueries, valueDim;
  const HostTensor *oParts, *lseParts;
  const HostTensor *sinkLogits; ///< null where left out
};

/// Row `row` of head `h` of batch `b`; the naive one in f32, rounded to `scalar` at the end.
ReferenceRow computeCombinedRow(const CombineProblem &problem, Scalar scalar, int64_t b, int64_t h,
                                int64_t row);

} // namespace mlir::flashattn

#endif // FLASH_RUN_REFERENCE_H
