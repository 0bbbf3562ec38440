// A mask of one's own: an affine_set over the query's position p and the key k. This one is causal
// attention within blocks of 128 positions, plus every 64th key before.
//
// RUN: flash-run %s --verify | FileCheck %s
// RUN: flash-run %s --verify --device=cpu | FileCheck %s
// CHECK: verify o: {{.*}}PASS
// CHECK: verify lse {{.*}}PASS

#block = affine_set<(p, k)[nq, nk] : (p - k >= 0, k - 128 * (p floordiv 128) >= 0)>
#strided = affine_set<(p, k)[nq, nk] : (p - k >= 0, k mod 64 == 0)>
func.func @attention(%q: tensor<1x4x512x64xf16>, %k: tensor<1x4x512x64xf16>, %v: tensor<1x4x512x64xf16>)
    -> (tensor<1x4x512x64xf16>, tensor<1x4x512xf32>) {
  %o_init = tensor.empty() : tensor<1x4x512x64xf16>
  %lse_init = tensor.empty() : tensor<1x4x512xf32>
  %o, %lse = flashattn.attention mask(#flashattn.any_of<[#flashattn.set<#block>, #flashattn.set<#strided>]>)
      ins(%q, %k, %v : tensor<1x4x512x64xf16>, tensor<1x4x512x64xf16>, tensor<1x4x512x64xf16>)
      outs(%o_init, %lse_init : tensor<1x4x512x64xf16>, tensor<1x4x512xf32>)
      -> tensor<1x4x512x64xf16>, tensor<1x4x512xf32>
  return %o, %lse : tensor<1x4x512x64xf16>, tensor<1x4x512xf32>
}
