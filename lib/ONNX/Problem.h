//===- Problem.h - a node with its inputs checked and laid out --*- C++ -*-===//

#ifndef FLASHATTN_LIB_ONNX_PROBLEM_H
#define FLASHATTN_LIB_ONNX_PROBLEM_H

#include "Attention.h"

#include <vector>

namespace mlir::flashattn::onnx {

/// A tensor of rank 4 with any layout; strides in elements.
struct View {
  char *data = nullptr;
  int64_t sizes[kMaxRank] = {}, strides[kMaxRank] = {};
  int32_t type = 0;
};

int64_t bytesOf(int32_t type);

/// Returns a view of a dense tensor of rank 4.
View denseView(void *data, const int64_t (&sizes)[kMaxRank], int32_t type);

/// A checked problem: all sizes and options, of which none can be rejected any more.
struct Problem {
  int32_t type;  ///< type of Q
  bool isPacked; ///< inputs of rank 3: the heads of a row are adjacent
  /// `total` is past + new keys. `seen` is the number of keys up to the end of the mask; later keys
  /// are hidden.
  int64_t batch, qHeads, kvHeads, queries, past, total, seen, headSize, valueSize;
  float scale;
  float softcap; ///< 0: none
  int64_t scoresMode;
  /// Keys from `left` before a query's position to `right` after it are visible; -1: no limit.
  /// `is_causal` means a `right` of 0.
  int64_t left, right;
  View q, k, v;                  ///< [batch, heads, length, size], k and v without the past
  View pastKey, pastValue, mask; ///< `data` is null if absent; mask: sizes are 1 or full
  std::vector<int32_t> kvLen;    ///< per batch; empty without nonpad_kv_seqlen

  bool isWindow() const { return left >= 0 || right >= 0; }
  /// Returns the position of query 0 of a batch among the keys.
  int64_t offset(int64_t b) const { return kvLen.empty() ? past : kvLen[b] - queries; }
};

/// Checks the node's attributes and inputs by the operator's rules. Errors: those of `attend`.
Result makeProblem(const Attributes &attributes, const Tensor *const inputs[kNumInputs],
                   Problem &problem);

/// Computes the content of `qk_matmul_output` into `scores`, dense [batch, qHeads, queries, total]
/// of the problem's type, in f32 and rounded once. `k` includes the past. Rows of kSoftmax that see
/// no key are 0.
void computeScores(const Problem &problem, const View &k, void *scores);

/// Computes the output into `o`, [batch, qHeads, queries, valueSize]; rows that see no key are 0.
/// `k` and `v` include the past. The first problem of each kind compiles a kernel, which is kept
/// until the process exits. Errors: those of flashattnCompile and flashattnLaunch.
Result runKernel(const Problem &problem, const View &k, const View &v, const View &o);

} // namespace mlir::flashattn::onnx

#endif // FLASHATTN_LIB_ONNX_PROBLEM_H
