//===- HostTensor.h - dense arrays in host memory ----------------*- C++ -*-===//

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

/// Bytes of one element in memory; i1 has a byte of its own.
unsigned getByteWidth(Scalar scalar);
/// "f16" and the like.
llvm::StringRef getName(Scalar scalar);
std::optional<Scalar> parseScalar(llvm::StringRef name);
/// Nothing for types that flash-run does not pass.
std::optional<Scalar> getScalar(Type type);
inline bool isFloat(Scalar scalar) { return scalar <= Scalar::F64; }
/// Whether a number is one of an integer type's.
bool canHold(Scalar scalar, double number);

/// "2x?x16xf16"; only the scalar for rank 0.
std::string formatShape(llvm::ArrayRef<int64_t> shape, Scalar scalar);

/// Bits of the nearest value, ties to even.
uint16_t toF16(float value);
uint16_t toBF16(float value);
float fromF16(uint16_t bits);
float fromBF16(uint16_t bits);

/// `value` rounded to the scalar, a float type.
float roundTo(Scalar scalar, float value);

/// A C-order array. Moves, does not copy by accident: arrays are large.
class HostTensor {
public:
  /// Errors: too many elements for memory.
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
  /// Elements [begin, begin + count) of a float tensor of at most 32 bits, exactly.
  void getFloats(int64_t begin, int64_t count, float *out) const;

  /// The same values in elements of another type. Nothing where one of them cannot be held, or
  /// between floats and integers.
  llvm::Expected<std::optional<HostTensor>> convertExactly(Scalar to) const;

  /// Standard normal values (for integers: 0 or 1) that depend on the seed and the
  /// element's index alone.
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
