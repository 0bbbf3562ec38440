// Causal attention in f32: query i sees the keys up to i. Full precision (rule A9).
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x8x512x64xf32>, %k: tensor<1x8x512x64xf32>, %v: tensor<1x8x512x64xf32>)
    -> (tensor<1x8x512x64xf32>, tensor<1x8x512xf32>) {
  %o_init = tensor.empty() : tensor<1x8x512x64xf32>
  %lse_init = tensor.empty() : tensor<1x8x512xf32>
  %o, %lse = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>, tensor<1x8x512x64xf32>)
      outs(%o_init, %lse_init : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>)
      -> tensor<1x8x512x64xf32>, tensor<1x8x512xf32>
  return %o, %lse : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>
}
