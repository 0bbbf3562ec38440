//===- Hopper.h - the hopper dialect ----------------------------*- C++ -*-===//
//
// The dialect, its types and ops, and the layout of a tile in shared memory.
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

/// M of `wgmma`: rows of the result of one instruction.
constexpr int64_t kWarpgroupRows = 64;
/// Returns K of `wgmma`, the length of the contraction of one instruction, in elements of this
/// type: 32 bytes.
inline int64_t getWgmmaDepth(Type element) { return 256 / element.getIntOrFloatBitWidth(); }
/// Returns how many of the `columns` of P V, a product of f8, a warpgroup computes before it adds
/// them to the sums in f32 (F3). Threads lack the registers for two sums of more than 128 columns.
inline int64_t getSumColumns(int64_t columns) {
  constexpr int64_t kWhole = 128, kWidestPart = 64, kGroup = 8;
  int64_t parts = columns > kWhole ? llvm::divideCeil(columns, kWidestPart) : 1;
  return llvm::alignTo(llvm::divideCeil(columns, parts), kGroup);
}
/// Threads of a warpgroup.
constexpr int64_t kWarpgroupThreads = 128;
/// Size of a tensor map and its alignment as a kernel parameter, in bytes.
constexpr int64_t kTensorMapBytes = 128;
constexpr int64_t kTensorMapAlignment = 64;

/// The layout of a tile in shared memory, derived from its memref type: adjacent panels with rows
/// of 32, 64 or 128 bytes in the swizzle of that width.
struct SharedTile {
  /// Number of bytes that a matrix descriptor can address: 14 address bits in units of 16 bytes
  /// (PTX ISA, wgmma).
  static constexpr int64_t kMostBytes = int64_t(1) << 18;

  int64_t panels, rows, panelColumns;
  int64_t panelStride; ///< elements from one panel to the next; larger than a panel in a row slice
  Type elementType;

  /// Returns the layout of `type`, or nullopt if `type` is not the type of a tile.
  static std::optional<SharedTile> get(Type type);
  /// Returns the layout of `operand`. Emits an error at `op`, with the operand's `name`, if
  /// `operand` is not a tile.
  static FailureOr<SharedTile> verify(Operation *op, StringRef name, Value operand);

  int64_t getColumns() const { return panels * panelColumns; }
  int64_t getRowBytes() const { return panelColumns * elementType.getIntOrFloatBitWidth() / 8; }
  int64_t getPanelStrideBytes() const {
    return panelStride * elementType.getIntOrFloatBitWidth() / 8;
  }
  int64_t getBytes() const { return panels * rows * getRowBytes(); }
  /// Returns the alignment of a panel in bytes: eight rows, the period of the swizzle.
  int64_t getAlignment() const { return 8 * getRowBytes(); }
};

/// One step of `hopper.add_tile`: the elements that a thread stages before one copy. All numbers
/// count elements of one thread.
struct StagedStep {
  int64_t first, count; ///< range in the thread's fragment
  int64_t at;           ///< position in the staging buffer
  int64_t before;       ///< elements in the pieces that precede the step's piece in `target`
  /// Number of the warp's copies that may still read the staging buffer when the step begins to
  /// write; nullopt: no wait is needed.
  std::optional<int64_t> pending;
};

} // namespace mlir::flashattn::hopper

#define GET_OP_CLASSES
#include "flashattn/Dialect/Hopper/IR/HopperOps.h.inc"

#endif // FLASHATTN_DIALECT_HOPPER_IR_HOPPER_H
