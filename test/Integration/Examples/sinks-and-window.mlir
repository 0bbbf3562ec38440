// Attention sinks: the first 4 keys stay visible beside a sliding window of 128 (rule M2). A mask is a set,
// so masks combine by union (any_of) and intersection (all_of).
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

func.func @attention(%q: tensor<1x8x1024x64xbf16>, %k: tensor<1x1x1024x64xbf16>, %v: tensor<1x1x1024x64xbf16>)
    -> (tensor<1x8x1024x64xbf16>, tensor<1x8x1024xf32>) {
  %o_init = tensor.empty() : tensor<1x8x1024x64xbf16>
  %lse_init = tensor.empty() : tensor<1x8x1024xf32>
  %o, %lse = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>,
                                                 #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %k, %v : tensor<1x8x1024x64xbf16>, tensor<1x1x1024x64xbf16>, tensor<1x1x1024x64xbf16>)
      outs(%o_init, %lse_init : tensor<1x8x1024x64xbf16>, tensor<1x8x1024xf32>)
      -> tensor<1x8x1024x64xbf16>, tensor<1x8x1024xf32>
  return %o, %lse : tensor<1x8x1024x64xbf16>, tensor<1x8x1024xf32>
}
