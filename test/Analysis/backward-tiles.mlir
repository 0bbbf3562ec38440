// RUN: flash-opt %s -flashattn-print-mask-tiles="tile-m=2 tile-n=4" -verify-diagnostics -o /dev/null | FileCheck %s

// The programs of the gradients go both ways (rules M3 and M4): of tile-m queries over tiles of tile-n keys, and of
// tile-m keys over tiles of tile-n queries.

// CHECK: mask #flashattn.window<left = 3, right = 0>: nq = 6, nk = 11, tile-m = 2, tile-n = 4, offset = 5
// CHECK-NEXT: {{^[+][+][.]$}}
// CHECK-NEXT: {{^[.][+][+]$}}
// CHECK-NEXT: {{^[.][+][+]$}}
// CHECK-NEXT: 0 full (#), 6 partial (+), 3 not visited (.); 24 of 66 pairs visible
// CHECK-NEXT: mask #flashattn.window<left = 3, right = 0>: nq = 6, nk = 11, tile-m = 2, tile-n = 4, offset = 5, a line for tile-m keys, a character for tile-n queries
// CHECK-NEXT: {{^[.][.]$}}
// CHECK-NEXT: {{^[+][.]$}}
// CHECK-NEXT: {{^[+][.]$}}
// CHECK-NEXT: {{^[+][+]$}}
// CHECK-NEXT: {{^[+][+]$}}
// CHECK-NEXT: {{^[.][+]$}}
// CHECK-NEXT: 0 full (#), 7 partial (+), 5 not visited (.); 24 of 66 pairs visible
func.func @window(%q: memref<1x4x6x16xf32>, %k: memref<1x2x11x16xf32>, %lse: memref<1x4x6xf32>,
                  %dq: memref<1x4x6x16xf32>, %dk: memref<1x2x11x16xf32>, %dv: memref<1x2x11x16xf32>) {
  flashattn.attention_backward mask(#flashattn.window<left = 3, right = 0>)
      ins(%q, %k, %k, %q, %lse, %q : memref<1x4x6x16xf32>, memref<1x2x11x16xf32>, memref<1x2x11x16xf32>,
          memref<1x4x6x16xf32>, memref<1x4x6xf32>, memref<1x4x6x16xf32>)
      outs(%dq, %dk, %dv : memref<1x4x6x16xf32>, memref<1x2x11x16xf32>, memref<1x2x11x16xf32>)
  return
}

// CHECK-NEXT: mask #flashattn.causal: nq = 8, nk = 8
// CHECK-NEXT: {{^[+][.]$}}
// CHECK-NEXT: {{^[+][.]$}}
// CHECK-NEXT: {{^#[+]$}}
// CHECK-NEXT: {{^#[+]$}}
// CHECK-NEXT: 2 full (#), 4 partial (+), 2 not visited (.); 36 of 64 pairs visible
// CHECK-NEXT: mask #flashattn.causal: {{.*}}, a line for tile-m keys, a character for tile-n queries
// CHECK-NEXT: {{^[+]#$}}
// CHECK-NEXT: {{^[+]#$}}
// CHECK-NEXT: {{^[.][+]$}}
// CHECK-NEXT: {{^[.][+]$}}
// CHECK-NEXT: 2 full (#), 4 partial (+), 2 not visited (.); 36 of 64 pairs visible
func.func @causal(%q: memref<1x1x8x16xf32>, %lse: memref<1x1x8xf32>, %dq: memref<1x1x8x16xf32>,
                  %dk: memref<1x1x8x16xf32>, %dv: memref<1x1x8x16xf32>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>,
          memref<1x1x8x16xf32>, memref<1x1x8xf32>, memref<1x1x8x16xf32>)
      outs(%dq, %dk, %dv : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
  return
}

// Each sixth key from the query's fourth before: tiles of either axis may lie between two of them. A row that sees no
// key is named as it is in the forward pass (rule M6): its gradients are 0.

#strided = affine_set<(p, k)[nq, nk] : (p - k - 4 >= 0, (p - k) mod 6 == 0)>
func.func @said(%q: memref<1x1x8x16xf32>, %lse: memref<1x1x8xf32>, %dq: memref<1x1x8x16xf32>,
                %dk: memref<1x1x8x16xf32>, %dv: memref<1x1x8x16xf32>) {
  // expected-warning @below {{mask hides every key from the queries at positions 0 to 5 for 8 queries and 8 keys}}
  // expected-remark @below {{tiles of 4 keys may be visited without a visible pair under mask #flashattn.set<"(p, k)[nq, nk] : (p - k - 4 >= 0, (p - k) mod 6 == 0)">}}
  // expected-remark @below {{tiles of 4 queries may be visited without a visible pair under mask #flashattn.set<"(p, k)[nq, nk] : (p - k - 4 >= 0, (p - k) mod 6 == 0)">}}
  flashattn.attention_backward mask(#flashattn.set<#strided>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>,
          memref<1x1x8x16xf32>, memref<1x1x8xf32>, memref<1x1x8x16xf32>)
      outs(%dq, %dk, %dv : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
  return
}

func.func @hidden(%q: tensor<1x1x8x16xf32>, %lse: tensor<1x1x8xf32>) -> tensor<1x1x8x16xf32> {
  %none = arith.constant dense<false> : tensor<1x1x1x8xi1>
  // expected-warning @below {{attn_mask hides every pair}}
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>,
          tensor<1x1x8x16xf32>, tensor<1x1x8xf32>, tensor<1x1x8x16xf32>)
      attn_mask(%none : tensor<1x1x1x8xi1>)
      outs(%q, %q, %q : tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>)
      -> tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>, tensor<1x1x8x16xf32>
  return %r#1 : tensor<1x1x8x16xf32>
}
