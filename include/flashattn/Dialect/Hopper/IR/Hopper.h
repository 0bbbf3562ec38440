//===- Hopper.h - the hopper dialect ----------------------------*- C++ -*-===//
//
// The dialect, its types and ops, and the shape of a tile in shared memory.
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
/// Size of a tensor map in bytes, and its alignment in the parameters of a kernel.
constexpr int64_t kTensorMapBytes = 128;
constexpr int64_t kTensorMapAlignment = 64;

/// A tile in shared memory, as described by its memref: adjacent panels with rows of 32, 64 or 128
/// bytes in the swizzle of that width.
struct SharedTile {
  /// The range of the 14 address bits of a matrix descriptor, which count in units of 16 bytes (PTX
  /// ISA, wgmma).
  static constexpr int64_t kMostBytes = int64_t(1) << 18;

  int64_t panels, rows, panelColumns;
  int64_t panelStride; ///< elements from one panel to the next; larger than a panel in a row slice
  Type elementType;

  /// Returns the tile of `type`, or nullopt if `type` is not one.
  static std::optional<SharedTile> get(Type type);
  /// Returns the tile of `operand`, which messages call `name`. Emits an error at `op` if it is not
  /// a tile.
  static FailureOr<SharedTile> verify(Operation *op, StringRef name, Value operand);

  int64_t getColumns() const { return panels * panelColumns; }
  int64_t getRowBytes() const { return panelColumns * elementType.getIntOrFloatBitWidth() / 8; }
  int64_t getPanelStrideBytes() const {
    return panelStride * elementType.getIntOrFloatBitWidth() / 8;
  }
  int64_t getBytes() const { return panels * rows * getRowBytes(); }
  /// The alignment of a panel: eight rows, which are the period of the swizzle.
  int64_t getAlignment() const { return 8 * getRowBytes(); }
};

/// The elements that a thread stages at once when it adds a tile.
struct StagedStep {
  int64_t first, count; ///< range of the elements in the thread
  int64_t at;           ///< position in the staging memory
  int64_t before;       ///< elements of earlier parts, added by all warps
  /// Number of copies of the warp that may still read the staging memory; nullopt: no wait is
  /// needed.
  std::optional<int64_t> pending;
};

} // namespace mlir::flashattn::hopper

#define GET_OP_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperOps.h.inc"

#endif // FLASHATTN_DIALECT_HOPPER_IR_HOPPER_H
