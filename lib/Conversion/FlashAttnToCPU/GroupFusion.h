//===- GroupFusion.h - fusion of tile ops into one loop ---------*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H

#include "TileValues.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::flashattn::cpu {

/// Collects elementwise ops and row reductions over the same number of columns, to run them in one
/// loop over the columns. Values inside the group stay in registers. Tiles that other ops read are
/// stored, if possible over an operand that is not read again.
class FusionGroup {
public:
  explicit FusionGroup(TileValues &values) : values(values) {}

  /// Whether `op`, an elementwise op on tiles or a row reduction, fits the current group.
  bool accepts(Operation *op) const;
  void add(Operation *op);
  /// Whether `op` reads a result of a reduction in the current group.
  bool isWaitedForBy(Operation *op) const;
  /// Emits the loop and empties the group. `next` is the tile program's first op after the group.
  LogicalResult emit(Operation *next);

private:
  Value chooseBuffer(Operation *op, Operation *next, ArrayRef<Value> taken);
  Value findDeadOperandBuffer(Operation *op, Type type, Operation *next, ArrayRef<Value> taken,
                              SmallPtrSetImpl<Operation *> &seen);

  TileValues &values;
  llvm::SetVector<Operation *> ops;
  int64_t columns = 0;
};

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_GROUPFUSION_H
