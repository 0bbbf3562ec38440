// RUN: flash-opt %s -canonicalize -cse | FileCheck %s

// On tensors the op has no effect: unused it goes, twice the same is once. Its results have the sizes of the destinations.

// CHECK-LABEL: func @unused
// CHECK-NEXT: return
func.func @unused(%q: tensor<1x2x8x16xf16>, %lse: tensor<1x2x8xf32>, %x: f32) {
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>,
          tensor<1x2x8x16xf16>, tensor<1x2x8xf32>, tensor<1x2x8x16xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %y = arith.mulf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      -> tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
  return
}

// CHECK-LABEL: func @twice
// CHECK: %[[R:.*]]:3 = flashattn.attention_backward
// CHECK-NOT: flashattn.attention_backward
// CHECK: return %[[R]]#0, %[[R]]#2
func.func @twice(%q: tensor<1x2x8x16xf16>, %lse: tensor<1x2x8xf32>) -> (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) {
  %r:3 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>,
          tensor<1x2x8x16xf16>, tensor<1x2x8xf32>, tensor<1x2x8x16xf16>)
      outs(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      -> tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
  %s:3 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>,
          tensor<1x2x8x16xf16>, tensor<1x2x8xf32>, tensor<1x2x8x16xf16>)
      outs(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      -> tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
  return %r#0, %s#2 : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
}

// CHECK-LABEL: func @deterministic_is_another
// CHECK-COUNT-2: flashattn.attention_backward
func.func @deterministic_is_another(%q: tensor<1x2x8x16xf16>, %lse: tensor<1x2x8xf32>)
    -> (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>) {
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>,
          tensor<1x2x8x16xf16>, tensor<1x2x8xf32>, tensor<1x2x8x16xf16>)
      outs(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      -> tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
  %s:3 = flashattn.attention_backward deterministic
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>,
          tensor<1x2x8x16xf16>, tensor<1x2x8xf32>, tensor<1x2x8x16xf16>)
      outs(%q, %q, %q : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>)
      -> tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
  return %r#0, %s#0 : tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>
}

// On memrefs it writes: both stay, and what was read before is read again behind it.

// CHECK-LABEL: func @memrefs
// CHECK: memref.load
// CHECK: flashattn.attention_backward
// CHECK: memref.load
// CHECK: flashattn.attention_backward
// CHECK: memref.load
func.func @memrefs(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>,
                   %dk: memref<1x2x8x16xf32>, %dv: memref<1x2x8x16xf32>, %sinks: memref<2xf32>,
                   %ds: memref<2xf32>) -> (f32, f32, f32) {
  %c0 = arith.constant 0 : index
  %x = memref.load %ds[%c0] : memref<2xf32>
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      sink_logits(%sinks : memref<2xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      d_sink_logits(%ds : memref<2xf32>)
  %y = memref.load %ds[%c0] : memref<2xf32>
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      sink_logits(%sinks : memref<2xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      d_sink_logits(%ds : memref<2xf32>)
  %z = memref.load %ds[%c0] : memref<2xf32>
  return %x, %y, %z : f32, f32, f32
}

// CHECK-LABEL: func @sizes
// CHECK-SAME: %[[DK:[a-z0-9]+]]: tensor<?x2x?x16xf32>, %[[DB:[a-z0-9]+]]: tensor<1x1x?x?xf32>)
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[C3:.*]] = arith.constant 3 : index
// CHECK-DAG: %[[NK:.*]] = tensor.dim %[[DK]], %[[C2]]
// CHECK-DAG: %[[COLUMNS:.*]] = tensor.dim %[[DB]], %[[C3]]
// CHECK-NOT: flashattn
// CHECK: return %[[NK]], %[[COLUMNS]]
func.func @sizes(%q: tensor<?x2x?x16xf32>, %lse: tensor<?x2x?xf32>, %bias: tensor<1x1x?x?xf32>,
                 %dk: tensor<?x2x?x16xf32>, %db: tensor<1x1x?x?xf32>) -> (index, index) {
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %r:4 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>,
          tensor<?x2x?x16xf32>, tensor<?x2x?xf32>, tensor<?x2x?x16xf32>)
      bias(%bias : tensor<1x1x?x?xf32>)
      outs(%q, %dk, %q : tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>)
      d_bias(%db : tensor<1x1x?x?xf32>)
      -> tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>, tensor<?x2x?x16xf32>, tensor<1x1x?x?xf32>
  %nk = tensor.dim %r#1, %c2 : tensor<?x2x?x16xf32>
  %columns = tensor.dim %r#3, %c3 : tensor<1x1x?x?xf32>
  return %nk, %columns : index, index
}
