//===- HopperToNVVM.h - lowering of hopper device ops to PTX ----*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
#define FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H

namespace mlir {
class DialectRegistry;
class LLVMTypeConverter;
class RewritePatternSet;

namespace flashattn::hopper {

/// Adds patterns that lower each device op to inline PTX, and a tensor map to a pointer.
void populateHopperToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

/// Lets upstream's conversions to LLVM treat a tensor map as a pointer, so that convert-gpu-to-nvvm
/// accepts kernels with tensor map parameters.
void registerConvertTensorMapToLLVMInterface(DialectRegistry &registry);

} // namespace flashattn::hopper
} // namespace mlir

#endif // FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
