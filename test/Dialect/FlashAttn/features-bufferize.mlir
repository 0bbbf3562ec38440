// RUN: flash-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s

// Every operand is read where it lies; the score modification comes along.

// CHECK-LABEL: func @features
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: memref<1x2x?x?xf16>, %[[ATTN_MASK:[a-z0-9]+]]: memref<1x1x1x?xi1>, %[[SINKS:[a-z0-9]+]]: memref<2xf32>, %[[LEN:[a-z0-9]+]]: memref<1xi32>
// CHECK-NOT: alloc
// CHECK: flashattn.attention ins({{.*}}) bias(%[[BIAS]] : memref<1x2x?x?xf16>) attn_mask(%[[ATTN_MASK]] : memref<1x1x1x?xi1>) sink_logits(%[[SINKS]] : memref<2xf32>) kv_len(%[[LEN]] : memref<1xi32>) score_mod {
// CHECK: math.absf
// CHECK: } outs(
func.func @features(%q: tensor<1x2x?x16xf16>, %bias: tensor<1x2x?x?xf16>,
                    %attn_mask: tensor<1x1x1x?xi1>, %sinks: tensor<2xf32>, %len: tensor<1xi32>,
                    %o: tensor<1x2x?x16xf16>) -> tensor<1x2x?x16xf16> {
  %r = flashattn.attention
      ins(%q, %q, %q : tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>, tensor<1x2x?x16xf16>)
      bias(%bias : tensor<1x2x?x?xf16>) attn_mask(%attn_mask : tensor<1x1x1x?xi1>)
      sink_logits(%sinks : tensor<2xf32>) kv_len(%len : tensor<1xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %x = math.absf %s : f32
        flashattn.yield %x : f32
      }
      outs(%o : tensor<1x2x?x16xf16>) -> tensor<1x2x?x16xf16>
  return %r : tensor<1x2x?x16xf16>
}
