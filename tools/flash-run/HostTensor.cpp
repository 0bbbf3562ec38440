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
  case Scalar::I1:
  case Scalar::I8:
    return 1;
  case Scalar::F16:
  case Scalar::BF16:
    return 2;
  case Scalar::F32:
  case Scalar::I32:
    return 4;
  case Scalar::F64:
  case Scalar::I64:
  case Scalar::Index:
    return 8;
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
    {"f16", Scalar::F16}, {"bf16", Scalar::BF16}, {"f32", Scalar::F32},
    {"f64", Scalar::F64}, {"i1", Scalar::I1},     {"i8", Scalar::I8},
    {"i32", Scalar::I32}, {"i64", Scalar::I64},   {"index", Scalar::Index}};

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
  if (type.isF16())
    return Scalar::F16;
  if (type.isBF16())
    return Scalar::BF16;
  if (type.isF32())
    return Scalar::F32;
  if (type.isF64())
    return Scalar::F64;
  if (type.isIndex())
    return Scalar::Index;
  for (auto [width, scalar] : {std::pair(1u, Scalar::I1), std::pair(8u, Scalar::I8),
                               std::pair(32u, Scalar::I32), std::pair(64u, Scalar::I64)})
    if (type.isInteger(width))
      return scalar;
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

uint16_t flashattn::toF16(float value) {
  uint32_t word = bits<uint32_t>(value);
  uint16_t sign = word >> 16 & 0x8000;
  word &= 0x7fffffff;
  if (word > 0x7f800000)
    return sign | 0x7e00; // NaN
  if (word >= 0x477ff000)
    return sign | 0x7c00; // rounds to infinity
  if (word < 0x38800000) {
    // Subnormal: the last bit of a sum from 0.5 on is the smallest unit of f16, so that the
    // hardware rounds the value correctly.
    float sum = bits<float>(word) + 0.5f;
    return sign | (bits<uint32_t>(sum) - bits<uint32_t>(0.5f));
  }
  // Rebias the exponent and round off the lowest 13 bits.
  word += 0xc8000fff + (word >> 13 & 1);
  return sign | word >> 13;
}

uint16_t flashattn::toBF16(float value) {
  uint32_t word = bits<uint32_t>(value);
  // Keep NaN: rounding could turn it into infinity.
  if ((word & 0x7fffffff) > 0x7f800000)
    return word >> 16 | 0x40;
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

float flashattn::fromF16(uint16_t value) {
  static const std::unique_ptr<float[]> table = [] {
    auto values = std::make_unique<float[]>(1 << 16);
    for (unsigned i = 0; i < (1 << 16); ++i) {
      int exponent = i >> 10 & 0x1f;
      float mantissa = i & 0x3ff;
      float magnitude = exponent == 0x1f ? (mantissa ? NAN : INFINITY)
                        : exponent == 0  ? std::ldexp(mantissa, -24)
                                         : std::ldexp(mantissa + 1024, exponent - 25);
      values[i] = i & 0x8000 ? -magnitude : magnitude;
    }
    return values;
  }();
  return table[value];
}

float flashattn::fromBF16(uint16_t value) { return bits<float>(uint32_t(value) << 16); }

float flashattn::roundTo(Scalar scalar, float value) {
  if (scalar == Scalar::F16)
    return fromF16(toF16(value));
  if (scalar == Scalar::BF16)
    return fromBF16(toBF16(value));
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
  case Scalar::Index:
    return load(int64_t());
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
  case Scalar::Index:
    return store(int64_t(value));
  }
}

void HostTensor::getFloats(int64_t begin, int64_t count, float *out) const {
  const uint8_t *at = data() + begin * getByteWidth(scalar);
  if (scalar == Scalar::F32) {
    std::memcpy(out, at, count * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t word;
    std::memcpy(&word, at + 2 * i, 2);
    out[i] = scalar == Scalar::F16 ? fromF16(word) : fromBF16(word);
  }
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

void HostTensor::fillRandom(uint64_t seed) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  uint64_t start = mix(seed + kGolden);
  bool isFloating = isFloat(scalar);
  constexpr int64_t kChunk = 1 << 14; // even: pairs stay together
  llvm::parallelFor(0, llvm::divideCeil(numElements, kChunk), [&](size_t chunk) {
    int64_t begin = chunk * kChunk, end = std::min(numElements, begin + kChunk);
    for (int64_t i = begin; i < end; i += 2) {
      uint64_t a = mix(start + kGolden * uint64_t(i)), b = mix(start + kGolden * uint64_t(i + 1));
      double first, second;
      if (isFloating) {
        // Box-Muller transform: two uniform values in (0, 1) to two normal values.
        double u = (double(a >> 11) + 0.5) * 0x1p-53, angle = double(b >> 11) * 0x1p-52 * M_PI;
        double radius = std::sqrt(-2 * std::log(u));
        first = radius * std::cos(angle), second = radius * std::sin(angle);
      } else {
        first = a >> 63, second = b >> 63;
      }
      set(i, first);
      if (i + 1 < end)
        set(i + 1, second);
    }
  });
}

void HostTensor::fillValue(double value) {
  for (int64_t i = 0; i < numElements; ++i)
    set(i, value);
}
