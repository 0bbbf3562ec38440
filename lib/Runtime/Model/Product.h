//===- Product.h - products of warps and warpgroups -------------*- C++ -*-===//

#ifndef FLASHATTN_RUNTIME_MODEL_PRODUCT_H
#define FLASHATTN_RUNTIME_MODEL_PRODUCT_H

#include "Block.h"

namespace mlir::flashattn::model {

inline bool isF8(ProductElement element) {
  return element == ProductElement::F8E4M3FN || element == ProductElement::F8E5M2;
}

/// An operand of a product in shared memory, with a matrix descriptor of the PTX ISA.
struct SharedOperand {
  const char *base = nullptr;
  uint64_t fields = 0; ///< the descriptor without the address; 0: only in registers
  /// Steps of 32 bytes along the contraction or, if it is transposed, of 16 elements.
  int32_t stepsPerPanel = 0, stepBytes = 0, panelBytes = 0;
  int32_t transposed = 0;
  ProductElement element = ProductElement::F16; ///< also of an operand in registers
  int32_t unused = 0;

  int getElementBytes() const { return isF8(element) ? 1 : 2; }

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
  SharedOperand a, b;
  unsigned arrived = 0;
  uint32_t number = 0;
  bool isDone = false;
  Knowledge known;
  Clock begun; ///< what its threads had read before they issued it
  Thread *first = nullptr;
  int64_t begins = 0, ends = 0;    ///< in cycles of the cost table
  std::vector<char> registers;     ///< of A: held / 2 elements per thread
  std::vector<float> values;       ///< columns / 2 per thread: accumulators, then results
  std::vector<int64_t>
      accumulatorOf; ///< of each thread: the product in flight that it adds to, or -1
};

/// Computes d += a * b, with a of rows x depth and b of depth x columns, all row-major.
void multiply(float *d, const float *a, const float *b, int rows, int columns, int depth);
/// The same with the sums of a tensor core for f8, which keep few bits: the accumulator and 32
/// products are aligned at the greatest exponent and cut to 14 bits (DeepSeek-V3 technical report,
/// section 3.5.2).
void multiplyF8(float *d, const float *a, const float *b, int rows, int columns, int depth);
/// Converts `count` elements to f32.
void widen(float *to, const void *from, int count, ProductElement element);

} // namespace mlir::flashattn::model

#endif // FLASHATTN_RUNTIME_MODEL_PRODUCT_H
