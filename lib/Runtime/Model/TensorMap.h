//===- TensorMap.h - the model's descriptor of a tensor ---------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_TENSORMAP_H
#define FLASHATTN_RUNTIME_MODEL_TENSORMAP_H

#include "flashattn/Runtime/Device.h"

namespace mlir::flashattn::model {

/// The content of the 128 bytes of a CUtensorMap on the model: a TensorMapShape by value.
struct TensorMap {
  static constexpr int kMaxRank = 5;
  char *base;
  int64_t sizes[kMaxRank], strides[kMaxRank]; ///< in elements, in memref order
  int16_t boxRows, outerRows, boxColumns;
  int8_t rank, rowDim, outerDim, elementBytes;

  void set(const TensorMapShape &shape);
  int64_t getRows() const { return int64_t(boxRows) * outerRows; }
  int64_t getRowBytes() const { return int64_t(boxColumns) * elementBytes; }
  /// Returns the address of the first element inside the tensor from column `column` of row `row`
  /// of the box at `coordinates` on; null if there is none. Sets `columns` to the number of
  /// elements inside, and `before` to the number of elements that precede them outside.
  char *getRow(const int64_t *coordinates, int64_t row, int64_t column, int64_t &columns,
               int64_t &before) const;
};
static_assert(sizeof(TensorMap) <= 128);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_TENSORMAP_H
