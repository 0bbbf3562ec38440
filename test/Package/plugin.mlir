// REQUIRES: plugin, mlir-opt
// Stock mlir-opt learns the dialect, its external models and the passes from the plugin.

// RUN: mlir-opt %s --load-dialect-plugin=%flashattn_lib/FlashAttnPlugin.so \
// RUN:   --load-pass-plugin=%flashattn_lib/FlashAttnPlugin.so \
// RUN:   --pass-pipeline="builtin.module(one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},any(flashattn-select-schedule))" \
// RUN:   | FileCheck %s

// CHECK-LABEL: func.func @causal
// CHECK: flashattn.attention mask(#flashattn.causal) schedule(<tile_m = {{[^>]*}}>)
// CHECK-SAME: outs(%{{.*}} : memref<1x2x8x16xf32>)
func.func @causal(%q: tensor<1x2x8x16xf32>, %o: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %r = flashattn.attention mask(#flashattn.causal)
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%o : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %r : tensor<1x2x8x16xf32>
}
