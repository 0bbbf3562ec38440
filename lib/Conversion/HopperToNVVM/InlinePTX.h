//===- InlinePTX.h - inline assembly with typed operands --------*- C++ -*-===//

#ifndef LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H
#define LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H

#include "mlir/Conversion/LLVMCommon/Pattern.h"

namespace mlir::flashattn::hopper {

/// Creates inline PTX with side effects and returns its results. Placeholders number the results
/// from `$0`, then `inputs`, then `tied`. Tied value i shares its register with result i. The type
/// of a value (f32, i32, i64 or pointer) determines its register class.
SmallVector<Value> createInlinePTX(OpBuilder &builder, Location loc, StringRef text,
                                   TypeRange results, ValueRange inputs, ValueRange tied = {});

/// Returns the 32-bit shared-memory address of the first element of `memref`, or of its element at
/// `indices`. `descriptor` is the converted memref. 1-D memrefs (mbarriers) must be contiguous.
Value createSharedAddress(OpBuilder &builder, Location loc, const LLVMTypeConverter &converter,
                          Value memref, Value descriptor, ValueRange indices = {});

/// Creates `value` as an i32 constant.
Value constantI32(OpBuilder &b, Location loc, int64_t value);

/// Returns the lane of this thread, i32.
Value createLane(OpBuilder &b, Location loc);

/// Adds patterns for reducing copies and for the ops that order them (turns).
void populateAddsToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

/// Adds patterns for wgmma, its waits, and the tiles of its operands.
void populateWgmmaToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

} // namespace mlir::flashattn::hopper

#endif // LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H
