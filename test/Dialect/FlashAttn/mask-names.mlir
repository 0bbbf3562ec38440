// RUN: flash-opt %s | FileCheck %s
// RUN: flash-opt %s | flash-opt | FileCheck %s

// The dialect's own masks need no prefix; they print with it.

// CHECK-LABEL: func @names
// CHECK: mask(#flashattn.causal)
// CHECK: mask(#flashattn.any_of<[#flashattn.window<left = 3, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
// CHECK: mask(#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">)
// CHECK: mask(#flashattn.any_of<[#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">, #flashattn.set<"(p, k)[nq, nk] : (-k + 7 >= 0)">]>)
func.func @names(%q: tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32> {
  %0 = flashattn.attention mask(causal) ins(%q, %q, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
       outs(%q : tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %1 = flashattn.attention mask(any_of<[window<left = 3, right = 0>, all_of<[sink<4>, #flashattn.causal]>]>)
       ins(%0, %q, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
       outs(%q : tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %2 = flashattn.attention mask(affine_set<(p, k)[nq, nk] : (p - k >= 0)>)
       ins(%1, %q, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
       outs(%q : tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  %3 = flashattn.attention mask(any_of<[affine_set<(p, k)[nq, nk] : (p - k >= 0)>, set<"(p, k)[nq, nk] : (7 - k >= 0)">]>)
       ins(%2, %q, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
       outs(%q : tensor<1x1x8x16xf32>) -> tensor<1x1x8x16xf32>
  return %3 : tensor<1x1x8x16xf32>
}
