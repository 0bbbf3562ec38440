//===- Floats.cpp - conversions of narrow floats --------------------------===//
//
// For processors without instructions for them. The compiler's support library has these functions
// only in new versions.
//
//===----------------------------------------------------------------------===//

#include <cstdint>
#include <cstring>

namespace {

template <typename To, typename From> To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

/// Returns the nearest 16-bit float with that many exponent and mantissa bits, ties to even.
uint16_t narrow(double value, int exponentBits, int mantissaBits) {
  constexpr int kMantissaBits = 52, kBias = 1023;
  const uint64_t word = bits<uint64_t>(value),
                 mantissa = word & ((uint64_t(1) << kMantissaBits) - 1);
  const int exponent = int(word >> kMantissaBits & 0x7ff);
  const uint16_t sign = word >> 63 << 15;
  const int bias = (1 << (exponentBits - 1)) - 1, maxExponent = (1 << exponentBits) - 1;
  const uint16_t infinity = maxExponent << mantissaBits;
  if (exponent == 0x7ff) // a NaN remains a NaN, and becomes quiet
    return sign | infinity |
           (mantissa ? mantissa >> (kMantissaBits - mantissaBits) | 1 << (mantissaBits - 1) : 0);
  int narrowed = exponent - kBias + bias;
  // Below the smallest normal number, the mantissa includes its leading bit, and has fewer other
  // bits.
  uint64_t full = mantissa | (exponent ? uint64_t(1) << kMantissaBits : 0);
  int shift = kMantissaBits - mantissaBits;
  if (narrowed < 1) {
    shift += 1 - narrowed;
    narrowed = 0;
    if (shift > kMantissaBits + 1)
      return sign;
  } else {
    full &= (uint64_t(1) << kMantissaBits) - 1;
  }
  if (narrowed >= maxExponent)
    return sign | infinity;
  const uint64_t kept = full >> shift, rest = full & ((uint64_t(1) << shift) - 1);
  const uint64_t half = uint64_t(1) << (shift - 1);
  // A carry increments the exponent, up to infinity.
  return sign | ((uint64_t(narrowed) << mantissaBits) + kept +
                 (rest > half || (rest == half && (kept & 1))));
}

} // namespace

// A bf16 is returned in the same register as an f16.
extern "C" {
_Float16 __truncsfhf2(float value) { return bits<_Float16>(narrow(value, 5, 10)); }
_Float16 __truncdfhf2(double value) { return bits<_Float16>(narrow(value, 5, 10)); }
_Float16 __truncsfbf2(float value) { return bits<_Float16>(narrow(value, 8, 7)); }
_Float16 __truncdfbf2(double value) { return bits<_Float16>(narrow(value, 8, 7)); }
float __extendhfsf2(_Float16 half) {
  const uint16_t word = bits<uint16_t>(half);
  const uint32_t sign = uint32_t(word & 0x8000) << 16;
  uint32_t exponent = word >> 10 & 0x1f, mantissa = word & 0x3ff;
  if (exponent == 0) { // a multiple of 2^-24
    float value = float(mantissa) * 0x1p-24f;
    return bits<float>(bits<uint32_t>(value) | sign);
  }
  if (exponent == 0x1f)
    return bits<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  return bits<float>(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}
}
