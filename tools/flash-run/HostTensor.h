//===- HostTensor.h - dense arrays in host memory ---------------*- C++ -*-===//

#ifndef FLASH_RUN_HOSTTENSOR_H
#define FLASH_RUN_HOSTTENSOR_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace mlir::flashattn {

enum class Scalar { F16, BF16, F32, F64, I1, I8, I32, I64, Index };

/// Returns the number of bytes of an element in memory; an i1 takes one byte.
unsigned getByteWidth(Scalar scalar);
/// Returns a name such as "f16".
llvm::StringRef getName(Scalar scalar);
std::optional<Scalar> parseScalar(llvm::StringRef name);
/// Returns nothing for types that flash-run does not support.
std::optional<Scalar> getScalar(Type type);
inline bool isFloat(Scalar scalar) { return scalar <= Scalar::F64; }
/// Whether an integer type can represent a number.
bool canHold(Scalar scalar, double number);

/// Returns text such as "2x?x16xf16"; only the scalar for rank 0.
std::string formatShape(llvm::ArrayRef<int64_t> shape, Scalar scalar);

/// Converts between floats and the bits of narrow floats. Rounds to nearest, ties to even.
uint16_t toF16(float value);
uint16_t toBF16(float value);
float fromF16(uint16_t bits);
float fromBF16(uint16_t bits);

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
  /// Copies elements [begin, begin + count) of a float tensor of at most 32 bits to `out`, exactly.
  void getFloats(int64_t begin, int64_t count, float *out) const;

  /// Returns the same values with another element type; nothing if a value cannot be represented,
  /// or between floats and integers.
  llvm::Expected<std::optional<HostTensor>> convertExactly(Scalar to) const;

  /// Fills the array with standard normal values (integers: 0 or 1) that depend only on the seed
  /// and the element's index.
  void fillRandom(uint64_t seed);
  void fillValue(double value);

private:
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
