// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-tile

func.func @tensors(%q: tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32> {
  // expected-error@+1 {{expected memrefs; bufferize before tiling}}
  %o = flashattn.attention ins(%q, %q, %q : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
    outs(%q : tensor<1x1x4x16xf32>) -> tensor<1x1x4x16xf32>
  return %o : tensor<1x1x4x16xf32>
}

// -----

func.func @no_schedule(%q: memref<1x1x4x16xf32>, %o: memref<1x1x4x16xf32>) {
  // expected-error@+1 {{expected a schedule; run flashattn-select-schedule before tiling}}
  flashattn.attention ins(%q, %q, %q : memref<1x1x4x16xf32>, memref<1x1x4x16xf32>, memref<1x1x4x16xf32>)
    outs(%o : memref<1x1x4x16xf32>)
  return
}
