//===- TensorMaps.cpp - what a tensor map can describe ---------------------===//

#include "TensorMaps.h"
#include "Errors.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir::flashattn;
using llvm::Error;

Error mlir::flashattn::checkTensorMap(const Device &device, const TensorMapShape &shape) {
  constexpr int64_t kMaxRank = 5, kMaxSize = int64_t(1) << 32;
  constexpr int64_t kAlignment = 16, kStrideLimit = int64_t(1) << 40;
  const int64_t elementBytes = getElementBytes(shape.element);
  int64_t rank = shape.sizes.size(), last = rank - 1;
  if (rank < 1 || rank > kMaxRank)
    return formatError("{0} cannot make a tensor map: expected 1 to {1} dimensions but got {2}",
                       device.getId(), kMaxRank, rank);
  int64_t rowBytes = shape.boxColumns * elementBytes;
  if (rowBytes != 32 && rowBytes != 64 && rowBytes != 128)
    return formatError("{0} cannot make a tensor map: expected rows of the box of 32, 64 or 128 "
                       "bytes but got {1}",
                       device.getId(), rowBytes);
  bool empty = llvm::is_contained(shape.sizes, 0);
  if (!empty && reinterpret_cast<uintptr_t>(shape.base) % kAlignment != 0)
    return formatError("{0} cannot make a tensor map: expected the tensor's first element at a "
                       "multiple of {1} bytes but got address {2}",
                       device.getId(), kAlignment, shape.base);
  if (!empty && shape.sizes[last] > 1 && shape.strides[last] != 1)
    return formatError("{0} cannot make a tensor map: expected stride 1 of dimension {1}, the "
                       "last, but got {2}",
                       device.getId(), last, shape.strides[last]);
  for (int64_t i = 0; i < rank; ++i) {
    int64_t dim = last - i, size = shape.sizes[dim];
    if (size < 0 || size > kMaxSize)
      return formatError("{0} cannot make a tensor map: expected at most {1} elements along "
                         "dimension {2} but got {3}",
                         device.getId(), kMaxSize, dim, size);
    if (empty || i == 0 || size <= 1)
      continue;
    int64_t stride = shape.strides[dim];
    if (stride < 0 || stride >= kStrideLimit / elementBytes ||
        stride * elementBytes % kAlignment != 0)
      return formatError("{0} cannot make a tensor map: expected a stride of dimension {1} that "
                         "is a multiple of {2} elements from 0 to below 2^39 but got {3}",
                         device.getId(), dim, kAlignment / elementBytes, stride);
  }
  return Error::success();
}
