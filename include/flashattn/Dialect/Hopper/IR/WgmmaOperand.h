//===- WgmmaOperand.h - operands of products in shared memory ----*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_HOPPER_IR_WGMMAOPERAND_H
#define FLASHATTN_DIALECT_HOPPER_IR_WGMMAOPERAND_H

#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn::hopper {

/// How an operand of a product is read through descriptors ("Matrix descriptor" of the PTX ISA's
/// asynchronous warpgroup instructions). Descriptors count in units of 16 bytes.
struct WgmmaOperand {
  SharedTile tile;
  /// The contraction runs along rows of the tile, not along columns ("MN-major").
  bool transposed;

  static constexpr int64_t kUnit = 16;

  /// All of the descriptor but the address. The stride offset is from 8 rows to the next 8; the
  /// leading offset is from a panel to the next where those lie along M or N, and else unused.
  uint64_t getFields() const {
    uint64_t leading = transposed ? tile.getPanelStrideBytes() / kUnit : 1;
    uint64_t stride = 8 * tile.getRowBytes() / kUnit;
    uint64_t swizzle = 1 + llvm::Log2_64(128 / tile.getRowBytes()); // 128, 64, 32 bytes
    return leading << 16 | stride << 32 | swizzle << 62;
  }

  /// Steps of 16 elements of the contraction that a panel has; 0: all.
  int64_t getStepsPerPanel() const { return transposed ? 0 : tile.panelColumns / kWgmmaDepth; }
  /// From a step to the next one of a panel.
  int64_t getStepBytes() const {
    return kWgmmaDepth * (transposed ? tile.getRowBytes() : tile.getRowBytes() / tile.panelColumns);
  }
  /// What to add to the descriptor for the step'th 16 elements of the contraction.
  int64_t getStep(int64_t step) const {
    if (transposed)
      return step * getStepBytes() / kUnit;
    int64_t perPanel = getStepsPerPanel();
    return (step / perPanel * tile.getPanelStrideBytes() + step % perPanel * getStepBytes()) /
           kUnit;
  }
};

} // namespace mlir::flashattn::hopper

#endif // FLASHATTN_DIALECT_HOPPER_IR_WGMMAOPERAND_H
