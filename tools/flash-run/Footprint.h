//===- Footprint.h - the memory that a memref covers --------------*- C++ -*-===//

#ifndef FLASH_RUN_FOOTPRINT_H
#define FLASH_RUN_FOOTPRINT_H

#include "HostTensor.h"
#include "flashattn/Runtime/Overlap.h"

namespace mlir::flashattn {

/// Elements in memory, each `strides` elements from its neighbours; strides are at least 0.
struct Footprint {
  Scalar scalar = Scalar::F32;
  uintptr_t address = 0; ///< of the first element
  llvm::SmallVector<int64_t> shape, strides;

  /// Takes address, sizes and strides from a descriptor {T *allocated, T *aligned, int64_t offset,
  /// int64_t sizes[r], int64_t strides[r]}, r the number of `shape`'s sizes.
  void setDescriptor(const int64_t *descriptor);

  int64_t getNumElements() const;
  /// Where element `index`, counted in order, lies behind the first.
  int64_t getByteOffset(int64_t index) const;
  /// From the first element's first byte to the last one's last.
  int64_t getHullBytes() const;
  /// Whether the elements lie side by side in order.
  bool isContiguous() const;
  TensorPlace getPlace() const { return {address, shape, strides, int64_t(getByteWidth(scalar))}; }
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_FOOTPRINT_H
