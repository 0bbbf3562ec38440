//===- Footprint.cpp -------------------------------------------------------===//

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

std::pair<std::vector<uintptr_t>, int64_t> Footprint::getRuns() const {
  // As many of the last dimensions as lie side by side.
  int64_t elements = 1;
  size_t outer = shape.size();
  while (outer > 0 && (shape[outer - 1] == 1 || strides[outer - 1] == elements))
    elements *= shape[--outer];
  std::vector<uintptr_t> runs;
  for (int64_t i = 0; i < getNumElements(); i += elements)
    runs.push_back(address + getByteOffset(i));
  llvm::sort(runs);
  return {std::move(runs), elements * getByteWidth(scalar)};
}

bool Footprint::overlaps(const Footprint &other) const {
  int64_t bytes = getHullBytes(), otherBytes = other.getHullBytes();
  if (bytes == 0 || otherBytes == 0 || address + bytes <= other.address ||
      other.address + otherBytes <= address)
    return false;
  auto [runs, length] = getRuns();
  auto [otherRuns, otherLength] = other.getRuns();
  for (auto a = runs.begin(), b = otherRuns.begin(); a != runs.end() && b != otherRuns.end();) {
    if (*a + length <= *b)
      ++a;
    else if (*b + otherLength <= *a)
      ++b;
    else
      return true;
  }
  return false;
}
