//===- FlashAttn.h - the flashattn dialect ----------------------*- C++ -*-===//
//
// The dialect, its attributes, their interface and the ops.
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

namespace mlir::flashattn {
class AttentionOpInterface;
// What methods of that interface of the same names give.
int64_t getKnownGroup(AttentionOpInterface op);
double getScaleOrDefault(AttentionOpInterface op);
std::optional<bool> getConstantKeep(AttentionOpInterface op);
bool addsToScore(AttentionOpInterface op);
SmallVector<IntegerSet> getVisibleSets(AttentionOpInterface op);
} // namespace mlir::flashattn

#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOpInterfaces.h.inc"
#define GET_OP_CLASSES
#include "flashattn/Dialect/FlashAttn/IR/FlashAttnOps.h.inc"

namespace mlir::flashattn {

/// Largest absolute value of a coefficient or constant of a mask's constraints,
/// window bounds and sink counts included. Positions and keys are below 2^31, so
/// every constraint evaluates in 64 bits without overflow.
constexpr int64_t kMaxMaskCoefficient = int64_t(1) << 31;

/// Most integer sets a mask may expand to (`all_of` multiplies them).
constexpr size_t kMaxVisibleSets = 64;

/// Most masks that lie in each other, and that one is made of, each counted wherever it stands.
constexpr size_t kMaxMaskDepth = 64, kMaxMaskParts = 4096;

/// Reads a mask: an attribute of any dialect, one of this dialect's without `#flashattn.` before
/// its name, or an affine_set, which is its set.
ParseResult parseMask(AsmParser &parser, MaskAttrInterface &mask);

/// True if the memref is, but for casts, a function's argument with `flashattn.aligned_rows`.
bool isPromisedAlignedRows(Value memref);

/// True if every row of a [B, H, N, D]-like memref begins at a multiple of 16 bytes: what a
/// 16-byte copy needs. Known from a static layout, given that its allocation begins there, or
/// promised by `flashattn.aligned_rows`.
bool hasAlignedRows(Value memref);

/// Registers the bufferisation of the dialect's ops as an external model.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_IR_FLASHATTN_H
