//===- FlashAttn.h - the flashattn dialect ----------------------*- C++ -*-===//
//
// The dialect, its attributes, interfaces and ops, and limits of masks.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_IR_FLASHATTN_H
#define FLASHATTN_DIALECT_FLASHATTN_IR_FLASHATTN_H

#include "flashattn/Dialect/FlashAttn/IR/ScheduleFields.h"
#include "flashattn/Dialect/OperandSegments.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/IntegerSet.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/TilingInterface.h"

#include <optional>

#include "flashattn/Dialect/FlashAttn/IR/OperandRoles.h"

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrInterfaces.h.inc"
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnTypes.h.inc"

namespace mlir::flashattn {

/// Consecutive rows of a sequence that are consecutive in memory too.
struct RowSegment {
  Value start;        ///< index: the first row, counted along the sequence
  Value skip;         ///< index: number of rows of memory between the previous segment and this one
  int64_t lowerBound; ///< no row of the segment has a smaller number in memory
};

/// Rows in the pages of a pool (rule P1).
struct PageMap {
  Value table;             ///< memref of i32: the page in the pool, by sequence and its page
  Value sequence;          ///< index
  int64_t size;            ///< rows of a page
  Value first;             ///< index: row of the pages that is row 0 of the sequence; null for 0
  ValueRange begins, ends; ///< index: the ranges of pages of the sequence that exist
};

/// Two axes of a space that are ragged: rows, divided into segments, divided into tiles.
struct RaggedAxes {
  Value starts;         ///< memref of i32: the first row of each segment but the first
  int64_t tileRows;     ///< rows of a tile
  int64_t segmentTiles; ///< segments are numbered from multiples of this number of tiles on
  int64_t leastRows;    ///< items of segments of fewer rows, except the first and last, do nothing
};

class AttentionOpInterface;
// Implementations of the methods of AttentionOpInterface with the same names.
int64_t getKnownGroup(AttentionOpInterface op);
/// Whether some elements of the outputs of `op` keep their values (S7).
bool keepsOutputs(Operation *op);
/// Returns the integer attribute `name` of `op`, if it has one.
std::optional<int64_t> getLimit(Operation *op, StringRef name);
double getScaleOrDefault(AttentionOpInterface op);
std::optional<bool> getConstantAttnMask(AttentionOpInterface op);
bool addsToScore(AttentionOpInterface op);

/// Whether an op of a score modification loads an element of a tensor or memref (rule A10).
bool isScoreModLoad(Operation *op);
/// Whether elements of the type are converted where tiles are loaded (F1): f8E4M3FN, f8E5M2 or i8.
bool isNarrow(Type element);
/// Whether `element` is f8E4M3FN or f8E5M2.
bool isF8(Type element);
/// F1: a block of columns with a scale of its own is a multiple of this number of elements.
inline constexpr int64_t kScaleBlock = 16;
/// Whether a row of `columns` elements may have `scales` scales (F1).
bool mayHaveScales(int64_t columns, int64_t scales);
SmallVector<IntegerSet> getVisibleSets(AttentionOpInterface op);
} // namespace mlir::flashattn

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOpInterfaces.h.inc"
#define GET_OP_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.h.inc"

namespace mlir::flashattn {

/// Largest absolute value of a coefficient or constant in a mask's constraints, including window
/// bounds and counts of sink tokens. Positions and keys are below 2^31, so that every constraint
/// can be evaluated in 64 bits without overflow.
constexpr int64_t kMaxMaskCoefficient = int64_t(1) << 31;

/// Maximum number of integer sets in the expansion of a mask. For `all_of`, the numbers of sets
/// multiply.
constexpr size_t kMaxVisibleSets = 64;

/// Maximum nesting depth of masks, and maximum number of nested masks in a mask, counting each
/// occurrence.
constexpr size_t kMaxMaskDepth = 64, kMaxMaskParts = 4096;

/// Parses a mask: an attribute of any dialect, an attribute of this dialect without the prefix
/// `#flashattn.`, or an affine_set, which becomes a `#flashattn.set`.
ParseResult parseMask(AsmParser &parser, MaskAttrInterface &mask);

/// Whether `memref`, possibly after casts, is a function argument with `flashattn.aligned_rows`.
bool isPromisedAlignedRows(Value memref);

/// Whether every row of a [B, H, N, D]-like memref begins at a multiple of 16 bytes, as 16-byte
/// copies require. This follows from a static layout, if the allocation begins at such an address,
/// or from `flashattn.aligned_rows`.
bool hasAlignedRows(Value memref);

/// Registers external models of BufferizableOpInterface for the dialect's ops.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_FLASHATTN_H
