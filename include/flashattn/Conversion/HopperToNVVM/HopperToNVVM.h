//===- HopperToNVVM.h - the hopper dialect's device ops to PTX --*- C++ -*-===//

#ifndef FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
#define FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H

namespace mlir {
class DialectRegistry;
class LLVMTypeConverter;
class RewritePatternSet;

namespace flashattn::hopper {

/// Adds the lowering of each device op to inline PTX, and of a tensor map to a pointer.
void populateHopperToNVVMPatterns(LLVMTypeConverter &converter, RewritePatternSet &patterns);

/// Lets upstream's conversions to LLVM take a tensor map for a pointer, so that convert-gpu-to-nvvm
/// accepts kernels with tensor map parameters.
void registerConvertTensorMapToLLVMInterface(DialectRegistry &registry);

} // namespace flashattn::hopper
} // namespace mlir

#endif // FLASHATTN_CONVERSION_HOPPERTONVVM_HOPPERTONVVM_H
