// 100 queries at the end of 777 keys, as when a prompt continues a cache: by default the last query
// aligns with the last key (bottom_right, rule A3).
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x8x100x128xf16>, %k: tensor<1x2x777x128xf16>, %v: tensor<1x2x777x128xf16>)
    -> (tensor<1x8x100x128xf16>, tensor<1x8x100xf32>) {
  %o_init = tensor.empty() : tensor<1x8x100x128xf16>
  %lse_init = tensor.empty() : tensor<1x8x100xf32>
  %o, %lse = flashattn.attention mask(#flashattn.causal)
      ins(%q, %k, %v : tensor<1x8x100x128xf16>, tensor<1x2x777x128xf16>, tensor<1x2x777x128xf16>)
      outs(%o_init, %lse_init : tensor<1x8x100x128xf16>, tensor<1x8x100xf32>)
      -> tensor<1x8x100x128xf16>, tensor<1x8x100xf32>
  return %o, %lse : tensor<1x8x100x128xf16>, tensor<1x8x100xf32>
}
