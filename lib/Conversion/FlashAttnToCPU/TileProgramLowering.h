//===- TileProgramLowering.h - lowering of tile ops to loops ----*- C++ -*-===//

#ifndef FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEPROGRAMLOWERING_H
#define FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEPROGRAMLOWERING_H

#include "MicroKernel.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::flashattn::cpu {

/// Lowers the body of a tile program on tiles of `rows` rows to the end of `function`. `mapping`
/// contains the arguments of the body and all values that it captures.
LogicalResult lowerTileProgram(Block &body, func::FuncOp function, IRMapping &mapping, int64_t rows,
                               RegisterFile registers);

} // namespace mlir::flashattn::cpu

#endif // FLASHATTN_LIB_CONVERSION_FLASHATTNTOCPU_TILEPROGRAMLOWERING_H
