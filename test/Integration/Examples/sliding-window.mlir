// A sliding window of 256 keys, the query's own included (rule M1): tiles outside of it are never loaded.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x8x1024x64xf16>, %k: tensor<1x2x1024x64xf16>, %v: tensor<1x2x1024x64xf16>)
    -> (tensor<1x8x1024x64xf16>, tensor<1x8x1024xf32>) {
  %o_init = tensor.empty() : tensor<1x8x1024x64xf16>
  %lse_init = tensor.empty() : tensor<1x8x1024xf32>
  %o, %lse = flashattn.attention mask(#flashattn.window<left = 255, right = 0>)
      ins(%q, %k, %v : tensor<1x8x1024x64xf16>, tensor<1x2x1024x64xf16>, tensor<1x2x1024x64xf16>)
      outs(%o_init, %lse_init : tensor<1x8x1024x64xf16>, tensor<1x8x1024xf32>)
      -> tensor<1x8x1024x64xf16>, tensor<1x8x1024xf32>
  return %o, %lse : tensor<1x8x1024x64xf16>, tensor<1x8x1024xf32>
}
