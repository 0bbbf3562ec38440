//===- HostTensor.cpp -----------------------------------------------------===//

#include "HostTensor.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Parallel.h"

#include <cmath>
#include <cstring>

using namespace mlir;
using namespace mlir::flashattn;

unsigned flashattn::getByteWidth(Scalar scalar) {
  switch (scalar) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  case Scalar::NAME:                                                                               \
    return BYTES;
#include "flashattn/Pipelines/Elements.def"
  }
  llvm_unreachable("unknown scalar");
}

bool flashattn::isFloat(Scalar scalar) {
  switch (scalar) {
  case Scalar::F16:
  case Scalar::BF16:
  case Scalar::F32:
  case Scalar::F64:
  case Scalar::F8E4M3FN:
  case Scalar::F8E5M2:
    return true;
  case Scalar::I1:
  case Scalar::I8:
  case Scalar::I32:
  case Scalar::I64:
  case Scalar::INDEX:
    return false;
  }
  llvm_unreachable("unknown scalar");
}

bool flashattn::canHold(Scalar scalar, double number) {
  if (scalar == Scalar::I1)
    return number == 0 || number == 1;
  double end = std::ldexp(1, 8 * getByteWidth(scalar) - 1);
  return number == std::trunc(number) && number >= -end && number < end;
}

static constexpr std::pair<StringRef, Scalar> kScalars[] = {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C) {TEXT, Scalar::NAME},
#include "flashattn/Pipelines/Elements.def"
};

StringRef flashattn::getName(Scalar scalar) {
  for (auto &[name, candidate] : kScalars)
    if (candidate == scalar)
      return name;
  llvm_unreachable("unknown scalar");
}

std::optional<Scalar> flashattn::parseScalar(StringRef name) {
  for (auto &[candidate, scalar] : kScalars)
    if (candidate == name)
      return scalar;
  return std::nullopt;
}

std::optional<Scalar> flashattn::getScalar(Type type) {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C)                                             \
  if (CONDITION)                                                                                   \
    return Scalar::NAME;
#include "flashattn/Pipelines/Elements.def"
  return std::nullopt;
}

std::string flashattn::formatShape(ArrayRef<int64_t> shape, Scalar scalar) {
  std::string text;
  for (int64_t size : shape)
    text += (ShapedType::isDynamic(size) ? "?" : std::to_string(size)) + "x";
  return text + getName(scalar).str();
}

template <typename To, typename From> static To bits(From value) {
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

namespace {
/// A binary float of up to 16 bits.
struct Format {
  int bits, mantissaBits, bias;
  uint32_t largest;  ///< bits of the largest number
  uint32_t overflow; ///< bits of a number that rounds to more
  uint32_t nan;
};
} // namespace

static constexpr Format kF16{16, 10, 15, 0x7bff, 0x7c00, 0x7e00},
    kF8E4M3FN{8, 3, 7, 0x7e, 0x7f, 0x7f}, kF8E5M2{8, 2, 15, 0x7b, 0x7c, 0x7e};

static uint32_t narrow(const Format &format, float value) {
  uint32_t word = bits<uint32_t>(value), sign = word >> 31 << (format.bits - 1);
  word &= 0x7fffffff;
  if (word > 0x7f800000)
    return sign | format.nan;
  int shift = 23 - format.mantissaBits;
  if (word < uint32_t(128 - format.bias) << 23) {
    // Subnormal: the last bit of a sum from `one` on is the smallest unit of the format, so that
    // the hardware rounds the value correctly.
    float one = std::ldexp(1.0f, 1 - format.bias + shift);
    return sign | (bits<uint32_t>(bits<float>(word) + one) - bits<uint32_t>(one));
  }
  // Rebias the exponent and round off the lowest bits.
  word -= uint32_t(127 - format.bias) << 23;
  word = (word + (1u << (shift - 1)) - 1 + (word >> shift & 1)) >> shift;
  return sign | (word > format.largest ? format.overflow : word);
}

uint16_t flashattn::toF16(float value) { return narrow(kF16, value); }
uint8_t flashattn::toF8E4M3FN(float value) { return narrow(kF8E4M3FN, value); }
uint8_t flashattn::toF8E5M2(float value) { return narrow(kF8E5M2, value); }

uint16_t flashattn::toBF16(float value) {
  uint32_t word = bits<uint32_t>(value);
  // Keep NaN: rounding could turn it into infinity.
  if ((word & 0x7fffffff) > 0x7f800000)
    return word >> 16 | 0x40;
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

/// Returns the values of all words of a format.
static std::vector<float> listValues(const Format &format) {
  std::vector<float> values(size_t(1) << format.bits);
  uint32_t half = values.size() / 2, unit = 1u << format.mantissaBits;
  for (uint32_t word = 0; word < half; ++word) {
    int exponent = word >> format.mantissaBits;
    float mantissa = word & (unit - 1);
    float magnitude = exponent == 0 ? mantissa : std::ldexp(mantissa + float(unit), exponent - 1);
    values[word] = std::ldexp(magnitude, 1 - format.bias - format.mantissaBits);
    if (word > format.largest)
      values[word] = word == format.overflow && format.overflow != format.nan ? INFINITY : NAN;
    values[half + word] = -values[word];
  }
  return values;
}

float flashattn::fromF16(uint16_t value) {
  static const std::vector<float> values = listValues(kF16);
  return values[value];
}

float flashattn::fromF8E4M3FN(uint8_t value) {
  static const std::vector<float> values = listValues(kF8E4M3FN);
  return values[value];
}

float flashattn::fromF8E5M2(uint8_t value) {
  static const std::vector<float> values = listValues(kF8E5M2);
  return values[value];
}

float flashattn::fromBF16(uint16_t value) { return bits<float>(uint32_t(value) << 16); }

float flashattn::roundTo(Scalar scalar, float value) {
  if (scalar == Scalar::F16)
    return fromF16(toF16(value));
  if (scalar == Scalar::BF16)
    return fromBF16(toBF16(value));
  if (scalar == Scalar::F8E4M3FN)
    return fromF8E4M3FN(toF8E4M3FN(value));
  if (scalar == Scalar::F8E5M2)
    return fromF8E5M2(toF8E5M2(value));
  return value;
}

llvm::Expected<HostTensor> HostTensor::create(Scalar scalar, ArrayRef<int64_t> shape) {
  HostTensor tensor;
  tensor.scalar = scalar;
  tensor.shape.assign(shape.begin(), shape.end());
  tensor.numElements = 1;
  for (int64_t size : shape) {
    if (size < 0 || llvm::MulOverflow(tensor.numElements, size, tensor.numElements) ||
        tensor.numElements > INT64_MAX / 8)
      return llvm::createStringError("a tensor of type " + formatShape(shape, scalar) +
                                     " has too many elements to address");
  }
  // calloc: pages of large arrays cost nothing until they are touched.
  tensor.bytes.reset(
      static_cast<uint8_t *>(std::calloc(std::max<size_t>(tensor.getNumBytes(), 1), 1)));
  if (!tensor.bytes)
    return llvm::createStringError("out of host memory: a tensor of type " + tensor.getTypeName() +
                                   " needs " + std::to_string(tensor.getNumBytes()) + " bytes");
  return tensor;
}

double HostTensor::get(int64_t index) const {
  const uint8_t *at = data() + index * getByteWidth(scalar);
  auto load = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (scalar) {
  case Scalar::F16:
    return fromF16(load(uint16_t()));
  case Scalar::BF16:
    return fromBF16(load(uint16_t()));
  case Scalar::F32:
    return load(float());
  case Scalar::F64:
    return load(double());
  case Scalar::I1:
    return load(uint8_t()) & 1;
  case Scalar::I8:
    return load(int8_t());
  case Scalar::I32:
    return load(int32_t());
  case Scalar::I64:
  case Scalar::INDEX:
    return load(int64_t());
  case Scalar::F8E4M3FN:
    return fromF8E4M3FN(load(uint8_t()));
  case Scalar::F8E5M2:
    return fromF8E5M2(load(uint8_t()));
  }
  llvm_unreachable("unknown scalar");
}

void HostTensor::set(int64_t index, double value) {
  uint8_t *at = data() + index * getByteWidth(scalar);
  auto store = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (scalar) {
  case Scalar::F16:
    return store(toF16(value));
  case Scalar::BF16:
    return store(toBF16(value));
  case Scalar::F32:
    return store(float(value));
  case Scalar::F64:
    return store(value);
  case Scalar::I1:
    return store(uint8_t(value != 0));
  case Scalar::I8:
    return store(int8_t(value));
  case Scalar::I32:
    return store(int32_t(value));
  case Scalar::I64:
  case Scalar::INDEX:
    return store(int64_t(value));
  case Scalar::F8E4M3FN:
    return store(toF8E4M3FN(value));
  case Scalar::F8E5M2:
    return store(toF8E5M2(value));
  }
}

void HostTensor::getFloats(int64_t begin, int64_t count, float *out) const {
  if (scalar == Scalar::F32) {
    std::memcpy(out, data() + begin * sizeof(float), count * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    out[i] = float(get(begin + i));
}

llvm::Expected<std::optional<HostTensor>> HostTensor::convertExactly(Scalar to) const {
  // Values are converted through double, exactly for integers of up to 53 bits; larger ones fit
  // into no narrower type anyway.
  if (isFloat(scalar) != isFloat(to) || to == Scalar::I1)
    return std::nullopt;
  llvm::Expected<HostTensor> converted = create(to, shape);
  if (!converted)
    return converted.takeError();
  for (int64_t i = 0; i < numElements; ++i) {
    double value = get(i);
    if (!isFloat(to) && !canHold(to, value))
      return std::nullopt;
    converted->set(i, value);
    if (converted->get(i) != value && !std::isnan(value))
      return std::nullopt;
  }
  return std::optional(std::move(*converted));
}

/// Hashes a 64-bit counter (the finalizer of SplitMix64).
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

void HostTensor::fill(uint64_t seed, Draw draw) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  uint64_t start = mix(seed + kGolden);
  constexpr int64_t kChunk = 1 << 14; // even: pairs stay together
  llvm::parallelFor(0, llvm::divideCeil(numElements, kChunk), [&](size_t chunk) {
    int64_t begin = chunk * kChunk, end = std::min(numElements, begin + kChunk);
    for (int64_t i = begin; i < end; i += 2) {
      uint64_t a = mix(start + kGolden * uint64_t(i)), b = mix(start + kGolden * uint64_t(i + 1));
      auto [first, second] = draw(a, b);
      set(i, first);
      if (i + 1 < end)
        set(i + 1, second);
    }
  });
}

void HostTensor::fillRandom(uint64_t seed) {
  if (!isFloat(scalar))
    return fill(seed,
                [](uint64_t a, uint64_t b) { return std::pair<double, double>(a >> 63, b >> 63); });
  // Box-Muller transform: two uniform values in (0, 1) to two normal values.
  fill(seed, [](uint64_t a, uint64_t b) {
    double u = (double(a >> 11) + 0.5) * 0x1p-53, angle = double(b >> 11) * 0x1p-52 * M_PI;
    double radius = std::sqrt(-2 * std::log(u));
    return std::pair(radius * std::cos(angle), radius * std::sin(angle));
  });
}

void HostTensor::fillUniform(uint64_t seed, double low, double high) {
  bool isWhole = !isFloat(scalar);
  fill(seed, [&](uint64_t a, uint64_t b) {
    auto scale = [&](uint64_t word) {
      double value = low + double(word >> 11) * 0x1p-53 * (high - low);
      return isWhole ? std::floor(value) : value;
    };
    return std::pair(scale(a), scale(b));
  });
}

void HostTensor::fillValue(double value) {
  for (int64_t i = 0; i < numElements; ++i)
    set(i, value);
}
