//===- LaunchShape.h - parameters of kernel launches ------------*- C++ -*-===//
//
// Depends on neither LLVM nor compiled code of the C++ library, because programs without these
// libraries use this header too.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_RUNTIME_LAUNCHSHAPE_H
#define FLASHATTN_RUNTIME_LAUNCHSHAPE_H

#include "flashattn/Runtime/ABI.h"

#include <cstddef>
#include <optional>
#include <utility>

namespace mlir::flashattn {

/// Numbers of blocks of a grid or a cluster, or of threads of a block, along each dimension.
struct Dim3 {
  int64_t x = 1, y = 1, z = 1;
};

/// Parameters of a kernel launch. A `cluster` of (1, 1, 1) means a launch without clusters.
struct LaunchShape {
  Dim3 grid, block, cluster;
  int64_t dynamicSharedBytes = 0;
  /// The caller's CUstream (null: the legacy default stream); nullopt: the device's own stream.
  std::optional<void *> stream = std::nullopt;
  /// Programmatic dependent launch: whether the kernel, which itself waits for previous kernels,
  /// may start while the previous kernel in the stream is still running. Ignored if the driver does
  /// not support it.
  bool programmatic = false;
};

/// A view of an array of numbers, one per dimension.
class Sizes {
public:
  Sizes() = default;
  Sizes(const int64_t *data, size_t count) : data(data), count(count) {}
  template <size_t N> Sizes(const int64_t (&values)[N]) : data(values), count(N) {}
  /// Views a vector or another array, which must outlive this object.
  template <typename Array, typename = decltype(std::declval<const Array &>().data())>
  Sizes(const Array &values) : data(values.data()), count(values.size()) {}

  size_t size() const { return count; }
  int64_t operator[](size_t i) const { return data[i]; }
  const int64_t *begin() const { return data; }
  const int64_t *end() const { return data + count; }

private:
  const int64_t *data = nullptr;
  size_t count = 0;
};

/// A tensor in device memory, and the box that one TMA load copies from it to shared memory.
/// Dimensions are in the order of a memref; the last dimension is contiguous.
struct TensorMapShape {
  TensorMapElement element = TensorMapElement::F16;
  void *base = nullptr; ///< address of the first element
  /// Sizes and strides of 1 to 5 dimensions, in elements.
  Sizes sizes, strides;
  /// The box has `boxRows` elements along dimension `rowDim`, `outerRows` along `outerDim`,
  /// `boxColumns` along the last dimension, and 1 along all others. The size of a row of the box,
  /// 32, 64 or 128 bytes, is the width of the swizzle in shared memory.
  int64_t rowDim = 0, boxRows = 1, outerDim = 0, outerRows = 1, boxColumns = 1;
};

/// Returns the TensorMapShape of a memref, from the arguments of abi::kEncodeTensorMap.
inline TensorMapShape makeTensorMapShape(void *alignedPointer, int64_t offset, int64_t rank,
                                         const int64_t *sizes, const int64_t *strides,
                                         int32_t element, int64_t rowDim, int64_t boxRows,
                                         int64_t outerDim, int64_t outerRows, int64_t boxColumns) {
  auto type = static_cast<TensorMapElement>(element);
  return {type,
          static_cast<char *>(alignedPointer) + offset * getElementBytes(type),
          Sizes(sizes, rank),
          Sizes(strides, rank),
          rowDim,
          boxRows,
          outerDim,
          outerRows,
          boxColumns};
}

} // namespace mlir::flashattn

#endif // FLASHATTN_RUNTIME_LAUNCHSHAPE_H
