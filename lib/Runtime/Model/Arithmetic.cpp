//===- Arithmetic.cpp - arithmetic of the model's products ----------------===//

#include "Product.h"

#include <cstring>

using namespace mlir::flashattn::model;

// The host may have wider registers than those that the compiler may assume.
#if defined(__x86_64__)
#define FLASHATTN_FOR_EACH_HOST                                                                    \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLASHATTN_FOR_EACH_HOST
#endif

FLASHATTN_FOR_EACH_HOST
static void multiplyRows(float *__restrict d, const float *__restrict a, const float *__restrict b,
                         int rows, int columns, int depth) {
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; ++k) {
      float factor = a[row * depth + k];
      const float *from = b + k * columns;
      float *to = d + row * columns;
      for (int column = 0; column < columns; ++column)
        to[column] += factor * from[column];
    }
}

/// Same for the number of columns of a product of one warp.
constexpr int kFewColumns = 8;
FLASHATTN_FOR_EACH_HOST
static void multiplyFewColumns(float *__restrict d, const float *__restrict a,
                               const float *__restrict b, int rows, int depth) {
  for (int row = 0; row < rows; ++row) {
    float sums[kFewColumns];
    for (int column = 0; column < kFewColumns; ++column)
      sums[column] = d[row * kFewColumns + column];
    for (int k = 0; k < depth; ++k)
      for (int column = 0; column < kFewColumns; ++column)
        sums[column] += a[row * depth + k] * b[k * kFewColumns + column];
    for (int column = 0; column < kFewColumns; ++column)
      d[row * kFewColumns + column] = sums[column];
  }
}

void mlir::flashattn::model::multiply(float *d, const float *a, const float *b, int rows,
                                      int columns, int depth) {
  if (columns == kFewColumns)
    return multiplyFewColumns(d, a, b, rows, depth);
  multiplyRows(d, a, b, rows, columns, depth);
}

/// Moves the exponent by a multiplication, so that denormals are correct. Infinity and NaN keep
/// theirs.
FLASHATTN_FOR_EACH_HOST
static void widenF16(uint32_t *__restrict to, const uint16_t *__restrict from, int count) {
  constexpr uint32_t kBias = (254u - 15u) << 23;
  float scale;
  std::memcpy(&scale, &kBias, sizeof(scale));
  for (int i = 0; i < count; ++i) {
    uint32_t bits = uint32_t(from[i] & 0x7fff) << 13, word;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    value *= scale;
    std::memcpy(&word, &value, sizeof(word));
    if (bits >= 0x0f800000)
      word |= 0x7f800000;
    to[i] = word | uint32_t(from[i] & 0x8000) << 16;
  }
}

void mlir::flashattn::model::widen(float *to, const uint16_t *from, int count,
                                   ProductElement element) {
  if (element == ProductElement::F16)
    return widenF16(reinterpret_cast<uint32_t *>(to), from, count);
  for (int i = 0; i < count; ++i) {
    uint32_t word = uint32_t(from[i]) << 16;
    std::memcpy(to + i, &word, sizeof(word));
  }
}
