// RUN: flash-opt %s -canonicalize -split-input-file | FileCheck %s

// A mask that hides nothing becomes none: the unbounded window, a union with one, a set that
// always holds, an intersection of nothing.

// CHECK-LABEL: func @hides_nothing
// CHECK-NOT: mask(
// CHECK-COUNT-4: flashattn.attention ins(
func.func @hides_nothing(%q: memref<1x1x8x16xf32>, %out_q: memref<1x1x8x16xf32>) {
  flashattn.attention mask(#flashattn.window)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  flashattn.attention mask(#flashattn.any_of<[#flashattn.causal, #flashattn.window]>)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (3 >= 0, 0 == 0)">)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  flashattn.attention mask(#flashattn.all_of<[]>)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  return
}

// -----

// A mask that hides something stays, the one that hides everything included.

// CHECK-LABEL: func @hides_something
// CHECK: mask(#flashattn.window<left = 3>)
// CHECK: mask(#flashattn.any_of<[]>)
// CHECK: mask(#flashattn.set<"(p, k)[nq, nk] : (-1 >= 0)">)
func.func @hides_something(%q: memref<1x1x8x16xf32>, %out_q: memref<1x1x8x16xf32>) {
  flashattn.attention mask(#flashattn.window<left = 3>)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  flashattn.attention mask(#flashattn.any_of<[]>)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (-1 >= 0)">)
      ins(%q, %q, %q : memref<1x1x8x16xf32>, memref<1x1x8x16xf32>, memref<1x1x8x16xf32>)
      outs(%out_q : memref<1x1x8x16xf32>)
  return
}

// -----

// Casts that only forget sizes fold into the op; the results are cast back for their users.

// CHECK-LABEL: func @casts
// CHECK-SAME: (%[[Q:.*]]: tensor<1x2x8x16xf16>, %[[LSE:.*]]: tensor<1x2x8xf32>)
// CHECK: %[[R:.*]]:2 = flashattn.attention mask(#flashattn.causal) ins(%[[Q]], %[[Q]], %[[Q]] : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
// CHECK-SAME: outs(%[[Q]], %[[LSE]] : tensor<1x2x8x16xf16>, tensor<1x2x8xf32>)
// CHECK-SAME: -> tensor<1x2x8x16xf16>, tensor<1x2x8xf32>
// CHECK: %[[O:.*]] = tensor.cast %[[R]]#0 : tensor<1x2x8x16xf16> to tensor<1x2x?x16xf16>
// CHECK: return %[[O]], %[[R]]#1
func.func @casts(%q: tensor<1x2x8x16xf16>, %lse: tensor<1x2x8xf32>)
    -> (tensor<1x2x?x16xf16>, tensor<1x2x8xf32>) {
  %d = tensor.cast %q : tensor<1x2x8x16xf16> to tensor<1x2x?x16xf16>
  %dl = tensor.cast %lse : tensor<1x2x8xf32> to tensor<1x2x?xf32>
  %r:2 = flashattn.attention mask(#flashattn.causal)
      ins(%d, %d, %d : tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>)
      outs(%d, %dl : tensor<1x2x?x16xf16>, tensor<1x2x?xf32>)
      -> tensor<1x2x?x16xf16>, tensor<1x2x?xf32>
  %s = tensor.cast %r#1 : tensor<1x2x?xf32> to tensor<1x2x8xf32>
  return %r#0, %s : tensor<1x2x?x16xf16>, tensor<1x2x8xf32>
}

// -----

// An op on tensors without users has no effect and goes.

// CHECK-LABEL: func @unused
// CHECK-NEXT: return
func.func @unused(%q: tensor<1x2x8x16xf16>) {
  %r = flashattn.attention
      ins(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      outs(%q : tensor<1x2x8x16xf16>) -> tensor<1x2x8x16xf16>
  return
}
