// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s

// Every feature's clause, in the order in which it prints.

// CHECK-LABEL: func @every_feature
// CHECK: flashattn.attention mask(#flashattn.causal) scale(1.250000e-01) softcap(5.000000e+01) align(top_left)
// CHECK-SAME: ins({{.*}}) bias(%{{.*}} : tensor<1x32x?x?xbf16>) attn_mask(%{{.*}} : tensor<2x1x1x?xi1>)
// CHECK-SAME: sink_logits(%{{.*}} : tensor<32xf32>) kv_len(%{{.*}} : tensor<2xi32>) offset(%{{.*}}) score_mod {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index):
// CHECK-NEXT:   %[[Y:.*]] = arith.mulf %[[S]], %{{.*}} : f32
// CHECK-NEXT:   flashattn.yield %[[Y]] : f32
// CHECK-NEXT: } outs(
func.func @every_feature(%q: tensor<2x32x?x64xf16>, %k: tensor<2x8x?x64xf16>,
                         %bias: tensor<1x32x?x?xbf16>, %attn_mask: tensor<2x1x1x?xi1>,
                         %sinks: tensor<32xf32>, %len: tensor<2xi32>, %p: index, %x: f32,
                         %o: tensor<2x32x?x64xf16>) -> tensor<2x32x?x64xf16> {
  %r = flashattn.attention mask(#flashattn.causal) scale(0.125) softcap(50.0) align(top_left)
      ins(%q, %k, %k : tensor<2x32x?x64xf16>, tensor<2x8x?x64xf16>, tensor<2x8x?x64xf16>)
      bias(%bias : tensor<1x32x?x?xbf16>) attn_mask(%attn_mask : tensor<2x1x1x?xi1>)
      sink_logits(%sinks : tensor<32xf32>) kv_len(%len : tensor<2xi32>) offset(%p)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %y = arith.mulf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%o : tensor<2x32x?x64xf16>) -> tensor<2x32x?x64xf16>
  return %r : tensor<2x32x?x64xf16>
}

// Memrefs; a bias of one number a head.

// CHECK-LABEL: func @memrefs
// CHECK: flashattn.attention ins({{.*}}) bias(%{{.*}} : memref<1x?x1x1xf32>) kv_len(%{{.*}} : memref<?xi32>) outs(
func.func @memrefs(%q: memref<?x?x?x16xf16>, %bias: memref<1x?x1x1xf32>, %len: memref<?xi32>, %out_q: memref<?x?x?x16xf16>) {
  flashattn.attention
      ins(%q, %q, %q : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
      bias(%bias : memref<1x?x1x1xf32>) kv_len(%len : memref<?xi32>) outs(%out_q : memref<?x?x?x16xf16>)
  return
}
