// RUN: flash-opt %s -convert-flashattn-kernels-to-gpu -verify-diagnostics
// RUN: flash-opt %s -convert-flashattn-kernels-to-cpu -verify-diagnostics

func.func @tensors(%op: tensor<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>, %o: tensor<2x8x1x64xf16>) {
  // expected-error@+1 {{expected memrefs; bufferize before lowering}}
  %r = flashattn.combine ins(%op, %lp : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%o : tensor<2x8x1x64xf16>) -> tensor<2x8x1x64xf16>
  return
}
