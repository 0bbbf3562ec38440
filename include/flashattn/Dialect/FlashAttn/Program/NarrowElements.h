//===- NarrowElements.h - elements of 8 bits --------------------*- C++ -*-===//
//
// Rule F1: elements of 8 bits are converted to floats where a tile is loaded. Rule F3:
// probabilities are converted to f8.
//
//===----------------------------------------------------------------------===//

#ifndef FLASHATTN_DIALECT_FLASHATTN_PROGRAM_NARROWELEMENTS_H
#define FLASHATTN_DIALECT_FLASHATTN_PROGRAM_NARROWELEMENTS_H

#include "flashattn/Dialect/FlashAttn/IR/FlashAttn.h"

namespace mlir::flashattn {

/// Converts a vector of f8E4M3FN or f8E5M2 to f16, exactly.
using F8Converter = llvm::function_ref<Value(OpBuilder &builder, Location loc, Value elements)>;

/// Returns the elements of a vector of f8E4M3FN, f8E5M2 or i8 as a vector of `to`: f16, bf16 or
/// f32. They are multiplied by `scale`, an f32, if it is not null. Only a result with a scale is
/// rounded, once. Without `toF16`, builds only arithmetic that every machine has.
Value convertNarrow(OpBuilder &builder, Location loc, Value elements, Value scale, FloatType to,
                    F8Converter toF16 = {});

/// Replaces a conversion of f32 vectors to f8E4M3FN, rounded to nearest even and clamped as by the
/// GPU's instruction (PTX ISA, `cvt.rn.satfinite`), by integer arithmetic. Leaves others alone.
void expandTruncation(RewriterBase &rewriter, arith::TruncFOp op);

/// Replaces the op by loads, conversions (see convertNarrow) and stores of vectors.
void expandConversion(RewriterBase &rewriter, ConvertElementsOp op, F8Converter toF16 = {});

/// Loads the scale of column `column` of the row at `indices`, whose last index is ignored, from
/// `scales`, an operand of `flashattn.load_tile` for rows of `columns` elements.
Value loadTileScale(OpBuilder &builder, Location loc, Value scales, ValueRange indices,
                    Value column, int64_t columns);

} // namespace mlir::flashattn

#endif // FLASHATTN_DIALECT_FLASHATTN_PROGRAM_NARROWELEMENTS_H
