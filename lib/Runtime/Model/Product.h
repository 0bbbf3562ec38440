//===- Product.h - products of warps and warpgroups -------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_PRODUCT_H
#define FLASHATTN_RUNTIME_MODEL_PRODUCT_H

#include "Block.h"

namespace mlir::flashattn::model {

/// An operand of a product in shared memory, with a matrix descriptor of the PTX ISA.
struct SharedOperand {
  const char *base = nullptr;
  uint64_t fields = 0; ///< the descriptor without the address; 0: only in registers
  int32_t stepsPerPanel = 0, stepBytes = 0, panelBytes = 0; ///< steps of 16 along the contraction
  int32_t transposed = 0;

  /// Returns the offset from `base`, before the swizzle, of element (row, k).
  uint32_t getOffset(uint32_t row, uint32_t k) const;
  /// Returns where the hardware reads the bytes whose unswizzled address is `address`.
  uint32_t swizzle(uint32_t address) const;
};

/// An asynchronous product of a warpgroup. Each thread passes its fragments, and receives its
/// results after the wait.
struct Product {
  uint16_t place = 0;
  int32_t columns = 0, depth = 0;
  int32_t held = 0; ///< leading columns of A that are in registers
  ProductElement element = ProductElement::F16;
  SharedOperand a, b;
  unsigned arrived = 0;
  uint32_t number = 0;
  bool isDone = false;
  Knowledge known;
  Clock begun; ///< what its threads had read before they issued it
  Thread *first = nullptr;
  int64_t begins = 0, ends = 0;    ///< in cycles of the cost table
  std::vector<uint16_t> registers; ///< of A: held / 2 per thread
  std::vector<float> values;       ///< columns / 2 per thread: accumulators, then results
  std::vector<int64_t>
      accumulatorOf; ///< of each thread: the product in flight that it adds to, or -1
};

/// Computes d += a * b, with a of rows x depth and b of depth x columns, all row-major.
void multiply(float *d, const float *a, const float *b, int rows, int columns, int depth);
/// Converts `count` elements to f32.
void widen(float *to, const uint16_t *from, int count, ProductElement element);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_PRODUCT_H
