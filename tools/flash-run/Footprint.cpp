//===- Footprint.cpp ------------------------------------------------------===//

#include "Footprint.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir::flashattn;

void Footprint::setDescriptor(const int64_t *descriptor) {
  size_t rank = shape.size();
  address = uintptr_t(descriptor[1]) + descriptor[2] * getByteWidth(scalar);
  llvm::copy(llvm::ArrayRef(descriptor + 3, rank), shape.begin());
  llvm::copy(llvm::ArrayRef(descriptor + 3 + rank, rank), strides.begin());
}

int64_t Footprint::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

int64_t Footprint::getByteOffset(int64_t index) const {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0; index /= shape[d])
    offset += index % shape[d] * strides[d];
  return offset * getByteWidth(scalar);
}

int64_t Footprint::getHullBytes() const {
  if (getNumElements() == 0)
    return 0;
  return getByteOffset(getNumElements() - 1) + getByteWidth(scalar);
}

bool Footprint::isContiguous() const {
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d])
    if (shape[d] > 1 && strides[d] != stride)
      return false;
  return true;
}
