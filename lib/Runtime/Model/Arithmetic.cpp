//===- Arithmetic.cpp - arithmetic of the model's products ----------------===//

#include "Product.h"

#include <array>
#include <cmath>
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

/// Adds the products of one step for `columns` columns. `scratch` has room for as many floats.
FLASHATTN_FOR_EACH_HOST
static void addStep(float *__restrict d, const float *__restrict a, const float *__restrict b,
                    float *__restrict scratch, int columns, int depth) {
  float *most = scratch, *sums = scratch + columns;
  for (int column = 0; column < columns; ++column)
    most[column] = std::fabs(d[column]);
  for (int k = 0; k < depth; ++k)
    for (int column = 0; column < columns; ++column)
      most[column] = std::max(most[column], std::fabs(a[k] * b[k * columns + column]));
  // The unit in the last of 14 bits of the greatest exponent: a power of 2, or 0.
  for (int column = 0; column < columns; ++column) {
    uint32_t bits;
    std::memcpy(&bits, most + column, sizeof(bits));
    bits &= 0x7f800000;
    std::memcpy(most + column, &bits, sizeof(bits));
    most[column] *= 0x1p-13f;
    sums[column] = most[column] ? std::trunc(d[column] / most[column]) : 0;
  }
  for (int k = 0; k < depth; ++k)
    for (int column = 0; column < columns; ++column) {
      float product = a[k] * b[k * columns + column];
      sums[column] += most[column] ? std::trunc(product / most[column]) : 0;
    }
  for (int column = 0; column < columns; ++column)
    d[column] = sums[column] * most[column];
}

void mlir::flashattn::model::multiplyF8(float *d, const float *a, const float *b, int rows,
                                        int columns, int depth) {
  constexpr int kStep = 32;
  std::vector<float> scratch(2 * columns);
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; k += kStep)
      addStep(d + row * columns, a + row * depth + k, b + k * columns, scratch.data(), columns,
              kStep);
}

/// Returns the values of all f8 with this number of bits of the mantissa.
static std::array<float, 256> listF8(int mantissaBits, bool isFinite) {
  std::array<float, 256> values;
  int exponents = 1 << (7 - mantissaBits), bias = exponents / 2 - 1;
  for (int i = 0; i < 256; ++i) {
    int exponent = (i & 0x7f) >> mantissaBits, mantissa = i & ((1 << mantissaBits) - 1);
    float value = std::ldexp(exponent ? mantissa + (1 << mantissaBits) : mantissa,
                             std::max(exponent, 1) - bias - mantissaBits);
    if (isFinite ? (i & 0x7f) == 0x7f : exponent == exponents - 1 && mantissa)
      value = NAN;
    else if (!isFinite && exponent == exponents - 1)
      value = INFINITY;
    values[i] = i & 0x80 ? -value : value;
  }
  return values;
}

void mlir::flashattn::model::widen(float *to, const void *from, int count,
                                   ProductElement element) {
  if (isF8(element)) {
    static const std::array<float, 256> e4m3 = listF8(3, /*isFinite=*/true),
                                        e5m2 = listF8(2, /*isFinite=*/false);
    const auto &values = element == ProductElement::F8E4M3FN ? e4m3 : e5m2;
    for (int i = 0; i < count; ++i)
      to[i] = values[static_cast<const uint8_t *>(from)[i]];
    return;
  }
  auto *halves = static_cast<const uint16_t *>(from);
  if (element == ProductElement::F16)
    return widenF16(reinterpret_cast<uint32_t *>(to), halves, count);
  for (int i = 0; i < count; ++i) {
    uint32_t word = uint32_t(halves[i]) << 16;
    std::memcpy(to + i, &word, sizeof(word));
  }
}
