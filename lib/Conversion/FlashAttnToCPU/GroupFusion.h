//===- GroupFusion.h - one loop for many tile ops ----------------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H

#include "TileValues.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::flashattn::cpu {

/// Collects elementwise ops and row reductions over the same number of columns, to run
/// them in one loop over the columns. Values inside the group stay in registers; tiles
/// that other ops read are stored, over an operand that is not read again where there is one.
class FusionGroup {
public:
  explicit FusionGroup(TileValues &values) : values(values) {}

  /// Whether `op`, an elementwise op on tiles or a row reduction, fits the open group.
  bool accepts(Operation *op) const;
  void add(Operation *op);
  /// Whether `op` reads a row that a reduction of the open group gives.
  bool isWaitedForBy(Operation *op) const;
  /// Emits the loop and empties the group. `next` is the op of the tile program that
  /// comes after all of the group's.
  LogicalResult emit(Operation *next);

private:
  Value chooseBuffer(Operation *op, Operation *next, ArrayRef<Value> taken);
  Value findDeadOperandBuffer(Operation *op, Type type, Operation *next, ArrayRef<Value> taken);

  TileValues &values;
  llvm::SetVector<Operation *> ops;
  int64_t columns = 0;
};

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H
