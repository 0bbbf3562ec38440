//===- TensorMaps.cpp - limits and encoding of tensor maps ----------------===//

#include "CUDACard.h"

#include <algorithm>

using namespace mlir::flashattn;
using namespace mlir::flashattn::cuda;

static bool isEmpty(const TensorMapShape &shape) {
  return std::find(shape.sizes.begin(), shape.sizes.end(), 0) != shape.sizes.end();
}

Fault cuda::checkTensorMap(const char *id, const TensorMapShape &shape) {
  constexpr int64_t kMaxRank = 5, kMaxSize = int64_t(1) << 32;
  constexpr int64_t kAlignment = 16, kStrideLimit = int64_t(1) << 40;
  const int64_t elementBytes = getElementBytes(shape.element);
  int64_t rank = shape.sizes.size(), last = rank - 1;
  if (rank < 1 || rank > kMaxRank)
    return Fault::format("%s cannot make a tensor map: expected 1 to %ld dimensions but got %ld",
                         id, kMaxRank, rank);
  int64_t rowBytes = shape.boxColumns * elementBytes;
  if (rowBytes != 32 && rowBytes != 64 && rowBytes != 128)
    return Fault::format("%s cannot make a tensor map: expected rows of the box of 32, 64 or 128 "
                         "bytes but got %ld",
                         id, rowBytes);
  const bool empty = isEmpty(shape);
  if (!empty && reinterpret_cast<uintptr_t>(shape.base) % kAlignment != 0)
    return Fault::format(
        "%s cannot make a tensor map: expected the tensor's first element at an address that is a "
        "multiple of %ld bytes but got %p",
        id, kAlignment, shape.base);
  if (!empty && shape.sizes[last] > 1 && shape.strides[last] != 1)
    return Fault::format("%s cannot make a tensor map: expected stride 1 of dimension %ld, the "
                         "last, but got %ld",
                         id, last, shape.strides[last]);
  for (int64_t i = 0; i < rank; ++i) {
    int64_t dim = last - i, size = shape.sizes[dim];
    if (size < 0 || size > kMaxSize)
      return Fault::format("%s cannot make a tensor map: expected at most %ld elements along "
                           "dimension %ld but got %ld",
                           id, kMaxSize, dim, size);
    if (empty || i == 0 || size <= 1)
      continue;
    int64_t stride = shape.strides[dim];
    if (stride < 0 || stride >= kStrideLimit / elementBytes ||
        stride * elementBytes % kAlignment != 0)
      return Fault::format("%s cannot make a tensor map: expected a stride of dimension %ld that "
                           "is a multiple of %ld elements from 0 to below 2^39 but got %ld",
                           id, dim, kAlignment / elementBytes, stride);
  }
  return {};
}

Fault Card::encodeTensorMap(void *map, const TensorMapShape &shape) {
  constexpr int64_t kMaxRank = 5, kAlignment = 16;
  const int64_t elementBytes = getElementBytes(shape.element);
  if (!driver.tensorMapEncodeTiled)
    return Fault::format("%s cannot make a tensor map, because the CUDA driver is too old: "
                         "expected CUDA 12.0 or newer but got CUDA %d.%d",
                         getId().chars, driver.version / 1000, driver.version % 1000 / 10);
  if (Fault fault = checkTensorMap(getId().chars, shape))
    return fault;
  const int64_t rank = shape.sizes.size(), last = rank - 1;
  const int64_t rowBytes = shape.boxColumns * elementBytes;
  const bool empty = isEmpty(shape);
  uint64_t sizes[kMaxRank], strides[kMaxRank];
  uint32_t box[kMaxRank], elementStrides[kMaxRank];
  // The stride of a dimension whose stride does not matter: that of the next inner dimension.
  int64_t validStride = kAlignment;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t dim = last - i, size = shape.sizes[dim];
    sizes[i] = empty ? 1 : size;
    box[i] = dim == last             ? shape.boxColumns
             : dim == shape.rowDim   ? shape.boxRows
             : dim == shape.outerDim ? shape.outerRows
                                     : 1;
    elementStrides[i] = 1;
    if (i == 0)
      continue;
    if (!empty && size > 1)
      validStride = shape.strides[dim] * elementBytes;
    strides[i - 1] = validStride;
  }
  // The address of a tensor without elements may be null. A block whose programs see no key may
  // load a tile of it nevertheless, to keep its barriers in step.
  void *base = shape.base;
  if (empty)
    if (Fault fault = getZeros(base))
      return fault;
  return inContext("make a tensor map", [&] {
    return driver.tensorMapEncodeTiled(
        map,
        shape.element == TensorMapElement::F16    ? kTensorMapFloat16
        : shape.element == TensorMapElement::BF16 ? kTensorMapBFloat16
                                                  : kTensorMapUInt8,
        rank, base, sizes, strides, box, elementStrides, kInterleaveNone,
        rowBytes == 32   ? kSwizzle32B
        : rowBytes == 64 ? kSwizzle64B
                         : kSwizzle128B,
        kL2Promotion256B, kFillZeros);
  });
}
