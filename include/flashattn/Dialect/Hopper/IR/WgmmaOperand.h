//===- WgmmaOperand.h - wgmma operands in shared memory ---------*- C++ -*-===//

#ifndef FLASHATTN_DIALECT_HOPPER_IR_WGMMAOPERAND_H
#define FLASHATTN_DIALECT_HOPPER_IR_WGMMAOPERAND_H

#include "flashattn/Dialect/Hopper/IR/Hopper.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::flashattn::hopper {

/// Computes the matrix descriptors through which `wgmma` reads an operand in shared memory (PTX
/// ISA, "Matrix descriptor" in the section on asynchronous warpgroup instructions). Addresses and
/// offsets in descriptors are in units of 16 bytes.
struct WgmmaOperand {
  SharedTile tile;
  /// Whether the contraction runs along the rows of the tile instead of its columns (MN-major).
  bool transposed;

  static constexpr int64_t kUnit = 16;

  int64_t getDepth() const { return getWgmmaDepth(tile.elementType); }
  /// Returns the descriptor without the address. The stride byte offset is the distance from 8 rows
  /// to the next 8 rows. The leading byte offset is the distance from one panel to the next if
  /// panels are arranged along M or N, and unused otherwise.
  uint64_t getFields() const {
    uint64_t leading = transposed ? tile.getPanelStrideBytes() / kUnit : 1;
    uint64_t stride = 8 * tile.getRowBytes() / kUnit;
    uint64_t swizzle = 1 + llvm::Log2_64(128 / tile.getRowBytes()); // 128, 64, 32 bytes
    return leading << 16 | stride << 32 | swizzle << 62;
  }

  /// Returns the number of K steps, of 32 bytes each, in a panel. 0: all steps are in one panel.
  int64_t getStepsPerPanel() const { return transposed ? 0 : tile.panelColumns / getDepth(); }
  /// Returns the distance in bytes from one K step to the next within a panel.
  int64_t getStepBytes() const {
    return getDepth() * (transposed ? tile.getRowBytes() : tile.getRowBytes() / tile.panelColumns);
  }
  /// Returns the increment of the descriptor for K step `step`.
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
