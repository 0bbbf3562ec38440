//===- Scores.cpp - the output qk_matmul_output ---------------------------===//
//
// Kernels never store the matrix of scores. If a node requests it, to inspect a model, it is
// computed here, without optimizations.
//
//===----------------------------------------------------------------------===//

#include "Problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir::flashattn::onnx;

namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

float load(const View &view, int64_t index) {
  const char *at = view.data + index * bytesOf(view.type);
  if (view.type == kFloat) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  if (view.type == kBFloat16) {
    const uint32_t word = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
  _Float16 value;
  std::memcpy(&value, &half, sizeof(value));
  return float(value);
}

void store(int32_t type, float value, char *at) {
  if (type == kFloat) {
    std::memcpy(at, &value, sizeof(value));
  } else if (type == kFloat16) {
    const _Float16 half = _Float16(value);
    std::memcpy(at, &half, sizeof(half));
  } else {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    // To nearest, ties to even. A NaN remains a NaN; rounding could carry it to infinity.
    const uint16_t half =
        std::isnan(value) ? word >> 16 | 0x40 : (word + 0x7fff + (word >> 16 & 1)) >> 16;
    std::memcpy(at, &half, sizeof(half));
  }
}

/// Returns the rows of a head as a dense array.
std::vector<float> loadHead(const View &view, int64_t b, int64_t h) {
  std::vector<float> rows;
  rows.reserve(view.sizes[2] * view.sizes[3]);
  for (int64_t n = 0; n < view.sizes[2]; ++n)
    for (int64_t d = 0; d < view.sizes[3]; ++d)
      rows.push_back(
          load(view, b * view.strides[0] + h * view.strides[1] + n * view.strides[2] + d));
  return rows;
}

/// Returns what masks add to the score of a pair: an element of a float mask, or -inf.
float biasOf(const Problem &p, int64_t b, int64_t h, int64_t query, int64_t key) {
  const int64_t position = p.offset(b) + query;
  if ((p.left >= 0 && key < position - p.left) || (p.right >= 0 && key > position + p.right) ||
      key >= p.seen || (!p.kvLen.empty() && key >= p.kvLen[b]))
    return kHidden;
  if (!p.mask.data)
    return 0;
  const int64_t *strides = p.mask.strides;
  const int64_t index = b * strides[0] + h * strides[1] + query * strides[2] + key * strides[3];
  if (p.mask.type == kBool)
    return p.mask.data[index] ? 0 : kHidden;
  return load(p.mask, index);
}

/// Replaces the scores of a row by its probabilities.
void softmax(std::vector<float> &row) {
  const float most = row.empty() ? kHidden : *std::max_element(row.begin(), row.end());
  float sum = 0;
  for (float &score : row)
    sum += score = most == kHidden ? 0 : std::exp(score - most);
  for (float &weight : row)
    weight = sum == 0 ? 0 : weight / sum;
}

} // namespace

void mlir::flashattn::onnx::computeScores(const Problem &p, const View &k, void *scores) {
  const int64_t mode = p.scoresMode, bytes = bytesOf(p.type);
  const float softcap = mode == kRaw ? 0 : p.softcap;
  auto *at = static_cast<char *>(scores);
  std::vector<float> row(p.total);
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.qHeads; ++h) {
      const std::vector<float> queries = loadHead(p.q, b, h);
      const std::vector<float> keys = loadHead(k, b, h / (p.qHeads / p.kvHeads));
      for (int64_t n = 0; n < p.queries; ++n) {
        for (int64_t m = 0; m < p.total; ++m) {
          float score = 0;
          for (int64_t d = 0; d < p.headSize; ++d)
            score += queries[n * p.headSize + d] * keys[m * p.headSize + d];
          score *= p.scale;
          if (softcap > 0)
            score = softcap * std::tanh(score / softcap);
          if (mode == kBiased || mode == kSoftmax) {
            const float bias = biasOf(p, b, h, n, m);
            // Also discards the content of hidden keys, such as NaN.
            score = bias == kHidden ? kHidden : score + bias;
          }
          row[m] = score;
        }
        if (mode == kSoftmax)
          softmax(row);
        for (float score : row) {
          store(p.type, score, at);
          at += bytes;
        }
      }
    }
}
