//===- Hopper.h - the hopper dialect ----------------------------*- C++ -*-===//
//
// The dialect, its types, the ops, and the shape of a tile in shared memory.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_HOPPER_IR_HOPPER_H
#define FLASHATTN_DIALECT_HOPPER_IR_HOPPER_H

#include "flashattn/Dialect/OperandSegments.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>

#include "flashattn/Dialect/Hopper/IR/HopperDialect.h.inc"
#include "flashattn/Dialect/Hopper/IR/HopperEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperTypes.h.inc"

namespace mlir::flashattn::hopper {

/// Rows of the result of a warpgroup's product.
constexpr int64_t kWarpgroupRows = 64;
/// Length of the contraction of one instruction, in 16-bit elements.
constexpr int64_t kWgmmaDepth = 16;
/// Threads of a warpgroup.
constexpr int64_t kWarpgroupThreads = 128;
/// Bytes of a tensor map, and its alignment in the kernel's parameters.
constexpr int64_t kTensorMapBytes = 128;
constexpr int64_t kTensorMapAlignment = 64;

/// A tile in shared memory, as its memref says it: panels side by side, each of rows of
/// 32, 64 or 128 bytes in the swizzle of that width.
struct SharedTile {
  /// What the 14 bits of a matrix descriptor's address, in 16 bytes each, reach (PTX ISA, wgmma).
  static constexpr int64_t kMostBytes = int64_t(1) << 18;

  int64_t panels, rows, panelColumns;
  int64_t panelStride; ///< elements from a panel to the next: more than its own in a slice of rows
  Type elementType;

  /// The tile of `type`, or none if `type` is not one.
  static std::optional<SharedTile> get(Type type);
  /// That of `operand`, called `name`. Errors, at `op`: where it is none.
  static FailureOr<SharedTile> verify(Operation *op, StringRef name, Value operand);

  int64_t getColumns() const { return panels * panelColumns; }
  int64_t getRowBytes() const { return panelColumns * elementType.getIntOrFloatBitWidth() / 8; }
  int64_t getPanelStrideBytes() const {
    return panelStride * elementType.getIntOrFloatBitWidth() / 8;
  }
  int64_t getBytes() const { return panels * rows * getRowBytes(); }
  /// What a panel's first byte must be a multiple of: eight rows, the swizzle's period.
  int64_t getAlignment() const { return 8 * getRowBytes(); }
};

/// What a thread stages at once of what it adds, in elements.
struct StagedStep {
  int64_t first, count; ///< of those that it holds
  int64_t at;           ///< where they stand in the staging
  int64_t before;       ///< those of whole parts, which all warps have added before
  /// Copies of the warp that may still read the staging; none: nothing need be waited for.
  std::optional<int64_t> pending;
};

} // namespace mlir::flashattn::hopper

#define GET_OP_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperOps.h.inc"

#endif // FLASHATTN_DIALECT_HOPPER_IR_HOPPER_H
