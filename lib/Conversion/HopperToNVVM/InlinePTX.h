//===- InlinePTX.h - inline assembly with typed operands --------*- C++ -*-===//

#ifndef LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H
#define LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H

#include "mlir/Conversion/LLVMCommon/Pattern.h"

namespace mlir::flashattn::hopper {

/// Side-effecting inline PTX. The placeholders count from the results: `$0` is the first result,
/// after the last one come `inputs`, then `tied`. Tied value i shares its register with result i.
/// Registers are chosen by type: f32, i32, i64 and pointers. Returns the results.
SmallVector<Value> createInlinePTX(OpBuilder &builder, Location loc, StringRef text,
                                   TypeRange results, ValueRange inputs, ValueRange tied = {});

/// The 32-bit address in shared memory of where `memref`, with `descriptor`, begins, or of its
/// element at `indices`. Elements of one with one dimension, as barriers are, lie side by side.
Value createSharedAddress(OpBuilder &builder, Location loc, const LLVMTypeConverter &converter,
                          Value memref, Value descriptor, ValueRange indices = {});

/// `value` as an i32.
Value constantI32(OpBuilder &b, Location loc, int64_t value);

/// The number of this thread in its warp, i32.
Value createLane(OpBuilder &b, Location loc);

/// Adds the lowering of copies that add, and of the turns in which they do.
void populateAddsToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

/// Adds the lowering of products and of waits for them.
void populateWgmmaToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

} // namespace mlir::flashattn::hopper

#endif // LIB_CONVERSION_HOPPERTONVVM_INLINEPTX_H
