//===- Footprint.h - the memory that a memref covers ------------*- C++ -*-===//

#ifndef FLASH_RUN_FOOTPRINT_H
#define FLASH_RUN_FOOTPRINT_H

#include "HostTensor.h"
#include "flashattn/Runtime/Overlap.h"

namespace mlir::flashattn {

/// The memory locations of a memref's elements. Strides are in elements and not negative.
struct Footprint {
  Scalar scalar = Scalar::F32;
  uintptr_t address = 0; ///< of the first element
  llvm::SmallVector<int64_t> shape, strides;

  /// Reads address, sizes and strides from a descriptor {T *allocated, T *aligned, int64_t offset,
  /// int64_t sizes[r], int64_t strides[r]}, where r is the number of sizes in `shape`.
  void setDescriptor(const int64_t *descriptor);

  int64_t getNumElements() const;
  /// Returns the byte offset of element `index`, in row-major order, from the first element.
  int64_t getByteOffset(int64_t index) const;
  /// Returns the number of bytes from the first byte of the first element to the last byte of the
  /// last element.
  int64_t getHullBytes() const;
  /// Whether the elements are contiguous in row-major order.
  bool isContiguous() const;
  TensorPlace getPlace() const { return {address, shape, strides, int64_t(getByteWidth(scalar))}; }
};

} // namespace mlir::flashattn

#endif // FLASH_RUN_FOOTPRINT_H
