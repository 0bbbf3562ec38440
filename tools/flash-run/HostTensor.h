//===- HostTensor.h - dense arrays in host memory ---------------*- C++ -*-===//

#ifndef FLASH_RUN_HOSTTENSOR_H
#define FLASH_RUN_HOSTTENSOR_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace mlir::flashattn {

/// An element type; the enumerators are those of FlashAttnElementType without their prefix.
enum class Scalar {
#define ELEMENT(NAME, TEXT, BYTES, CONDITION, CODE, C) NAME,
#include "flashattn/Pipelines/Elements.def"
};

/// Returns the number of bytes of an element in memory; an i1 takes one byte.
unsigned getByteWidth(Scalar scalar);
/// Returns a name such as "f16".
llvm::StringRef getName(Scalar scalar);
std::optional<Scalar> parseScalar(llvm::StringRef name);
/// Returns nothing for types that flash-run does not support.
std::optional<Scalar> getScalar(Type type);
bool isFloat(Scalar scalar);
/// Whether the type is a float of 8 bits.
inline bool isF8(Scalar scalar) { return scalar == Scalar::F8E4M3FN || scalar == Scalar::F8E5M2; }
/// Whether an integer type can represent a number.
bool canHold(Scalar scalar, double number);

/// Returns text such as "2x?x16xf16"; only the scalar for rank 0.
std::string formatShape(llvm::ArrayRef<int64_t> shape, Scalar scalar);

/// Converts between floats and the bits of narrow floats. Rounds to nearest, ties to even, and does
/// not saturate: a number that rounds to more than the largest one becomes infinity, or NaN in
/// f8E4M3FN, which has no infinity (above 464).
uint16_t toF16(float value);
uint16_t toBF16(float value);
uint8_t toF8E4M3FN(float value);
uint8_t toF8E5M2(float value);
float fromF16(uint16_t bits);
float fromBF16(uint16_t bits);
float fromF8E4M3FN(uint8_t bits);
float fromF8E5M2(uint8_t bits);

/// Returns `value` rounded to `scalar`, a float type.
float roundTo(Scalar scalar, float value);

/// A row-major array. Movable but not copyable, because arrays are large.
class HostTensor {
public:
  /// Creates an array of zeros. Errors: too many elements for memory.
  static llvm::Expected<HostTensor> create(Scalar scalar, llvm::ArrayRef<int64_t> shape);

  Scalar getScalar() const { return scalar; }
  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  int64_t getNumElements() const { return numElements; }
  size_t getNumBytes() const { return size_t(numElements) * getByteWidth(scalar); }
  uint8_t *data() { return bytes.get(); }
  const uint8_t *data() const { return bytes.get(); }
  std::string getTypeName() const { return formatShape(shape, scalar); }

  double get(int64_t index) const;
  /// Rounds to the element type.
  void set(int64_t index, double value);
  /// Copies elements [begin, begin + count) to `out`; exactly, unless they have more than 24 bits.
  void getFloats(int64_t begin, int64_t count, float *out) const;

  /// Returns the same values with another element type; nothing if a value cannot be represented,
  /// or between floats and integers.
  llvm::Expected<std::optional<HostTensor>> convertExactly(Scalar to) const;

  /// Fills the array with standard normal values (integers: 0 or 1) that depend only on the seed
  /// and the element's index.
  void fillRandom(uint64_t seed);
  /// Fills the array with uniform values from `low` to `high`, below `high`; integers are rounded
  /// down. They depend only on the seed and the element's index too.
  void fillUniform(uint64_t seed, double low, double high);
  void fillValue(double value);

private:
  /// Sets each pair of elements to what `draw` makes of 2 random words.
  using Draw = llvm::function_ref<std::pair<double, double>(uint64_t a, uint64_t b)>;
  void fill(uint64_t seed, Draw draw);

  Scalar scalar = Scalar::F32;
  llvm::SmallVector<int64_t> shape;
  int64_t numElements = 0;
  struct Free {
    void operator()(uint8_t *pointer) const { std::free(pointer); }
  };
  std::unique_ptr<uint8_t, Free> bytes;
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_HOSTTENSOR_H
