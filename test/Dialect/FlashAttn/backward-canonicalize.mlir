// RUN: flash-opt %s -canonicalize -cse | FileCheck %s

// What has no effect leaves nothing behind: a mask that hides nothing, an attn_mask of true, a bias of zeros, a score
// modification that yields its score. A scale that is constant is the attribute.

// CHECK-LABEL: func @nothing_left
// CHECK-NOT: arith.constant
// CHECK: flashattn.attention_backward scale(2.500000e-01) deterministic ins({{[^)]*}}) d_lse(%{{.*}} : tensor<1x2x8xf32>) offset(%{{.*}}) outs(
// CHECK-NOT: d_bias
func.func @nothing_left(%q: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>, %p: index) -> tensor<1x2x8x16xf32> {
  %scale = arith.constant 0.25 : f32
  %attn_mask = arith.constant dense<true> : tensor<1x1x8x8xi1>
  %bias = arith.constant dense<-0.0> : tensor<1x2x1x8xf16>
  %r:3 = flashattn.attention_backward mask(#flashattn.window) scale(%scale) deterministic
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>,
          tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8x16xf32>)
      d_lse(%lse : tensor<1x2x8xf32>) bias(%bias : tensor<1x2x1x8xf16>) attn_mask(%attn_mask : tensor<1x1x8x8xi1>) offset(%p)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %unused = math.exp %s : f32
        flashattn.yield %s : f32
      }
      outs(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>
  return %r#1 : tensor<1x2x8x16xf32>
}

// B5: the gradient of a bias of zeros is not 0. An attn_mask of false, a mask that hides something, a scale out of range
// and a score modification that does something stay.

// CHECK-LABEL: func @stays
// CHECK: flashattn.attention_backward mask(#flashattn.causal) scale(%{{.*}}) ins({{.*}}) bias(%{{.*}} : tensor<1x2x1x8xf32>) attn_mask(%{{.*}} : tensor<1x1x8x8xi1>) score_mod {
// CHECK: math.absf
// CHECK: } outs({{.*}}) d_bias(%{{.*}} : tensor<1x2x1x8xf32>)
func.func @stays(%q: tensor<1x2x8x16xf32>, %lse: tensor<1x2x8xf32>) -> tensor<1x2x1x8xf32> {
  %scale = arith.constant 0.0 : f32
  %attn_mask = arith.constant dense<false> : tensor<1x1x8x8xi1>
  %bias = arith.constant dense<0.0> : tensor<1x2x1x8xf32>
  %r:4 = flashattn.attention_backward mask(#flashattn.causal) scale(%scale)
      ins(%q, %q, %q, %q, %lse, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>,
          tensor<1x2x8x16xf32>, tensor<1x2x8xf32>, tensor<1x2x8x16xf32>)
      bias(%bias : tensor<1x2x1x8xf32>) attn_mask(%attn_mask : tensor<1x1x8x8xi1>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %y = math.absf %s : f32
        flashattn.yield %y : f32
      }
      outs(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      d_bias(%bias : tensor<1x2x1x8xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x1x8xf32>
  return %r#3 : tensor<1x2x1x8xf32>
}

// On memrefs, where constants are globals.

memref.global "private" constant @zeros : memref<1x1x8x8xbf16> = dense<0.0>
memref.global "private" constant @shown : memref<1x1x1x8xi1> = dense<true>

// CHECK-LABEL: func @globals
// CHECK: flashattn.attention_backward ins({{[^)]*}}) outs(
func.func @globals(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %dq: memref<1x2x8x16xf32>,
                   %dk: memref<1x2x8x16xf32>, %dv: memref<1x2x8x16xf32>) {
  %attn_mask = memref.get_global @shown : memref<1x1x1x8xi1>
  %bias = memref.get_global @zeros : memref<1x1x8x8xbf16>
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8x16xf32>, memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      bias(%bias : memref<1x1x8x8xbf16>) attn_mask(%attn_mask : memref<1x1x1x8xi1>)
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
  return
}

// Casts that only forget sizes fold into the op; what they leave is an op still, where the bias is static and
// its gradient is not.

// CHECK-LABEL: func @casts
// CHECK-SAME: (%[[Q:.*]]: tensor<1x2x8x16xf16>, %[[LSE:.*]]: tensor<1x2x8xf32>, %[[BIAS:.*]]: tensor<1x2x8x8xf32>, %[[DB:.*]]: tensor<?x2x8x8xf32>)
// CHECK: %[[R:.*]]:4 = flashattn.attention_backward ins(%[[Q]], %[[Q]], %[[Q]], %[[Q]], %[[LSE]], %[[Q]] : {{.*}}) bias(%[[BIAS]] : tensor<1x2x8x8xf32>)
// CHECK-SAME: outs(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) d_bias(%[[DB]] : tensor<?x2x8x8xf32>)
// CHECK: %[[DQ:.*]] = tensor.cast %[[R]]#0 : tensor<1x2x8x16xf16> to tensor<1x2x?x16xf16>
// CHECK: return %[[DQ]], %[[R]]#3
func.func @casts(%q: tensor<1x2x8x16xf16>, %lse: tensor<1x2x8xf32>, %bias: tensor<1x2x8x8xf32>,
                 %db: tensor<?x2x8x8xf32>) -> (tensor<1x2x?x16xf16>, tensor<?x2x8x8xf32>) {
  %d = tensor.cast %q : tensor<1x2x8x16xf16> to tensor<1x2x?x16xf16>
  %l = tensor.cast %lse : tensor<1x2x8xf32> to tensor<1x2x?xf32>
  %b = tensor.cast %bias : tensor<1x2x8x8xf32> to tensor<?x2x8x8xf32>
  %r:4 = flashattn.attention_backward
      ins(%d, %d, %d, %d, %l, %d : tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>,
          tensor<1x2x?x16xf16>, tensor<1x2x?xf32>, tensor<1x2x?x16xf16>)
      bias(%b : tensor<?x2x8x8xf32>)
      outs(%d, %d, %d : tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>)
      d_bias(%db : tensor<?x2x8x8xf32>)
      -> tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<?x2x8x8xf32>
  return %r#0, %r#3 : tensor<1x2x?x16xf16>, tensor<?x2x8x8xf32>
}
