// RUN: flash-opt %s -split-input-file -flashattn-tile-project -verify-diagnostics

func.func @tensors(%o: tensor<2x8x16x64xf16>, %w: tensor<8x64x512xf16>, %p: tensor<2x16x512xf16>) -> tensor<2x16x512xf16> {
  // expected-error@+1 {{expected memrefs; bufferize before tiling}}
  %r = flashattn.project ins(%o, %w : tensor<2x8x16x64xf16>, tensor<8x64x512xf16>) outs(%p : tensor<2x16x512xf16>) -> tensor<2x16x512xf16>
  return %r : tensor<2x16x512xf16>
}

// -----

func.func @no_schedule(%o: memref<2x8x16x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x16x512xf16>) {
  // expected-error@+1 {{expected a schedule; run flashattn-select-schedule before tiling}}
  flashattn.project ins(%o, %w : memref<2x8x16x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x16x512xf16>)
  return
}
