// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=16 tile-n=8 nk=64" | FileCheck %s

// CHECK: mask none: nq = 48, nk = 64, tile-m = 16, tile-n = 8, offset = 16
// CHECK-NEXT: {{^########$}}
// CHECK-NEXT: {{^########$}}
// CHECK-NEXT: {{^########$}}
// CHECK-NEXT: 24 full (#), 0 partial (+), 0 not visited (.); 3072 of 3072 pairs visible
func.func @none(%q: tensor<1x1x48x16xf32>, %k: tensor<1x1x?x16xf32>) -> tensor<1x1x48x16xf32> {
  %o = tensor.empty() : tensor<1x1x48x16xf32>
  %r = flashattn.attention ins(%q, %k, %k : tensor<1x1x48x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x48x16xf32>) -> tensor<1x1x48x16xf32>
  return %r : tensor<1x1x48x16xf32>
}
// CHECK: mask #flashattn.causal: nq = 48
// CHECK-NEXT: {{^##[+][+][.]{4}$}}
// CHECK-NEXT: {{^####[+][+][.][.]$}}
// CHECK-NEXT: {{^######[+][+]$}}
// CHECK-NEXT: 12 full (#), 6 partial (+), 6 not visited (.); 1944 of 3072 pairs visible
func.func @causal(%q: tensor<1x1x48x16xf32>, %k: tensor<1x1x?x16xf32>) -> tensor<1x1x48x16xf32> {
  %o = tensor.empty() : tensor<1x1x48x16xf32>
  %r = flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : tensor<1x1x48x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x48x16xf32>) -> tensor<1x1x48x16xf32>
  return %r : tensor<1x1x48x16xf32>
}
// CHECK: mask #flashattn.any_of<{{.*}}offset = 0
// CHECK-NEXT: {{^[+][+][.]{6}$}}
// CHECK-NEXT: {{^[+]#[+][+][.]{4}$}}
// CHECK-NEXT: {{^[+][+]##[+][+][.][.]$}}
// CHECK-NEXT: 3 full (#), 9 partial (+), 12 not visited (.); 1098 of 3072 pairs visible
func.func @sinks(%q: tensor<1x1x48x16xf32>, %k: tensor<1x1x?x16xf32>) -> tensor<1x1x48x16xf32> {
  %o = tensor.empty() : tensor<1x1x48x16xf32>
  %r = flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 31, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
       align(top_left) ins(%q, %k, %k : tensor<1x1x48x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
       outs(%o : tensor<1x1x48x16xf32>) -> tensor<1x1x48x16xf32>
  return %r : tensor<1x1x48x16xf32>
}
