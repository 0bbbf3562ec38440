//===- HopperToNVVM.h - lowering of hopper device ops to PTX ----*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
#define FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H

namespace mlir {
class DialectRegistry;
class LLVMTypeConverter;
class RewritePatternSet;

namespace flashattn::hopper {

/// Adds patterns that lower each device op to inline PTX, and the conversion of tensor maps to
/// pointers.
void populateHopperToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

/// Registers the conversion of tensor maps to pointers for upstream's conversions to LLVM, so that
/// convert-gpu-to-nvvm accepts kernels with tensor map parameters.
void registerConvertTensorMapToLLVMInterface(DialectRegistry &registry);

} // namespace flashattn::hopper
} // namespace mlir

#endif // FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
