// Causal attention with grouped-query heads as in Llama 3 8B: 32 query heads share 8
// key/value heads, 128 elements a head, bf16.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x32x512x128xbf16>, %k: tensor<1x8x512x128xbf16>, %v: tensor<1x8x512x128xbf16>)
    -> (tensor<1x32x512x128xbf16>, tensor<1x32x512xf32>) {
  %o_init = tensor.empty() : tensor<1x32x512x128xbf16>
  %lse_init = tensor.empty() : tensor<1x32x512xf32>
  %o, %lse = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x32x512x128xbf16>, tensor<1x8x512x128xbf16>, tensor<1x8x512x128xbf16>)
      outs(%o_init, %lse_init : tensor<1x32x512x128xbf16>, tensor<1x32x512xf32>)
      -> tensor<1x32x512x128xbf16>, tensor<1x32x512xf32>
  return %o, %lse : tensor<1x32x512x128xbf16>, tensor<1x32x512xf32>
}
