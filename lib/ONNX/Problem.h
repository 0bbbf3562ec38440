//===- Problem.h - a node with its inputs checked and laid out ---*- C++ -*-===//

#ifndef FLASHATTN_LIB_ONNX_PROBLEM_H
#define FLASHATTN_LIB_ONNX_PROBLEM_H

#include "Attention.h"

#include <vector>

namespace mlir::flashattn::onnx {

/// A tensor of rank 4 in any order of its elements; strides in elements.
struct View {
  char *data = nullptr;
  int64_t sizes[kMaxRank] = {}, strides[kMaxRank] = {};
  int32_t type = 0;
};

int64_t bytesOf(int32_t type);

/// A view of a dense tensor of rank 4.
View denseView(void *data, const int64_t (&sizes)[kMaxRank], int32_t type);

/// What is computed: every size and every option, with nothing left that could be refused.
struct Problem {
  int32_t type;  /// of Q
  bool isPacked; /// inputs of rank 3: the heads of a row lie behind each other
  /// `total` is past + new keys, `seen` those up to the end of the mask: the others are hidden.
  int64_t batch, qHeads, kvHeads, queries, past, total, seen, headSize, valueSize;
  float scale;
  float softcap; /// 0: none
  int64_t scoresMode;
  /// Keys from `left` before a query's position to `right` behind it; -1 does not bind. `is_causal`
  /// is a `right` of 0.
  int64_t left, right;
  View q, k, v;                  /// [batch, heads, length, size], k and v without the past
  View pastKey, pastValue, mask; /// `data` is null where there is none; mask: sizes are 1 or full
  std::vector<int32_t> kvLen;    /// of each batch; empty without nonpad_kv_seqlen

  bool isWindow() const { return left >= 0 || right >= 0; }
  /// Where query 0 of a batch stands among the keys.
  int64_t offset(int64_t b) const { return kvLen.empty() ? past : kvLen[b] - queries; }
};

/// Checks the node's attributes and inputs by the operator's rules. Errors: as of `attend`.
Result makeProblem(const Attributes &attributes, const Tensor *const inputs[kNumInputs],
                   Problem &problem);

/// Computes what `qk_matmul_output` holds into `scores`, dense [batch, qHeads, queries, total] of
/// the problem's type, all in f32 and rounded once. `k` has the past. Rows of kSoftmax that see no
/// key are 0.
void computeScores(const Problem &problem, const View &k, void *scores);

/// Computes the output into `o`, [batch, qHeads, queries, valueSize]; rows that see no key are 0.
/// `k` and `v` have the past. A kernel is compiled at the first problem of its kind, and kept as
/// long as the process lives. Errors: those of flashattnCompile and flashattnLaunch.
Result runKernel(const Problem &problem, const View &k, const View &v, const View &o);

} // namespace mlir::flashattn::onnx

#endif // FLASHATTN_LIB_ONNX_PROBLEM_H
