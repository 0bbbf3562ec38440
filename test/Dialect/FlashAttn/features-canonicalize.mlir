// RUN: flash-opt %s -canonicalize | FileCheck %s

// What has no effect leaves nothing behind.

memref.global "private" constant @zeros : memref<1x1x8x8xbf16> = dense<0.0>
memref.global "private" constant @shown : memref<1x1x1x8xi1> = dense<true>
memref.global "private" @variable : memref<1x1x1x8xi1> = dense<true>

// CHECK-LABEL: func @tensors
// CHECK-NOT: arith.constant
// CHECK: flashattn.attention ins(%{{.*}}, %{{.*}}, %{{.*}} : {{[^)]*}}) offset(%{{.*}}) outs(
func.func @tensors(%q: tensor<1x2x8x16xf32>, %p: index) -> tensor<1x2x8x16xf32> {
  %attn_mask = arith.constant dense<true> : tensor<1x1x8x8xi1>
  %bias = arith.constant dense<-0.0> : tensor<1x2x1x8xf16>
  %r = flashattn.attention
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      bias(%bias : tensor<1x2x1x8xf16>) attn_mask(%attn_mask : tensor<1x1x8x8xi1>) offset(%p)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %unused = math.exp %s : f32
        flashattn.yield %s : f32
      }
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %r : tensor<1x2x8x16xf32>
}

// CHECK-LABEL: func @globals
// CHECK: flashattn.attention ins(%{{.*}}, %{{.*}}, %{{.*}} : {{[^)]*}}) outs(
func.func @globals(%q: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  %attn_mask = memref.get_global @shown : memref<1x1x1x8xi1>
  %bias = memref.get_global @zeros : memref<1x1x8x8xbf16>
  flashattn.attention
      ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      bias(%bias : memref<1x1x8x8xbf16>) attn_mask(%attn_mask : memref<1x1x1x8xi1>)
      outs(%o : memref<1x2x8x16xf32>)
  return
}

// All false, all ones, or what may be written to: these stay.

// CHECK-LABEL: func @stays
// CHECK: flashattn.attention {{.*}} bias(%{{.*}}) attn_mask(
func.func @stays(%q: tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32> {
  %attn_mask = arith.constant dense<false> : tensor<1x1x8x8xi1>
  %bias = arith.constant dense<1.0> : tensor<1x2x1x8xf16>
  %r = flashattn.attention
      ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      bias(%bias : tensor<1x2x1x8xf16>) attn_mask(%attn_mask : tensor<1x1x8x8xi1>)
      outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  return %r : tensor<1x2x8x16xf32>
}

// CHECK-LABEL: func @variable_stays
// CHECK: flashattn.attention {{.*}} attn_mask(
func.func @variable_stays(%q: memref<1x2x8x16xf32>, %o: memref<1x2x8x16xf32>) {
  %attn_mask = memref.get_global @variable : memref<1x1x1x8xi1>
  flashattn.attention
      ins(%q, %q, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      attn_mask(%attn_mask : memref<1x1x1x8xi1>) outs(%o : memref<1x2x8x16xf32>)
  return
}
