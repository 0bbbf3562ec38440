// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-local-scope | flash-opt | FileCheck %s
// RUN: flash-opt %s --emit-bytecode | flash-opt | FileCheck %s

// CHECK-LABEL: func @plain
// CHECK: %{{.*}}:3 = flashattn.attention_backward ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8xf32>, tensor<1x2x8x4xf32>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>) -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>
func.func @plain(%q: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x4xf32>, %lse: tensor<1x2x8xf32>)
    -> (tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>) {
  %r:3 = flashattn.attention_backward
      ins(%q, %q, %v, %v, %lse, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>,
          tensor<1x2x8x4xf32>, tensor<1x2x8xf32>, tensor<1x2x8x4xf32>)
      outs(%q, %q, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>)
      -> tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>
  return %r#0, %r#1, %r#2 : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>
}

// Every clause, in the order in which it prints; heads grouped four to one (rule A4).

// CHECK-LABEL: func @every_clause
// CHECK: %{{.*}}:5 = flashattn.attention_backward mask(#flashattn.causal) scale(1.250000e-01) softcap(5.000000e+01) align(top_left) layout(bshd) deterministic
// CHECK-SAME: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
// CHECK-SAME: ins({{[^:]*}} : tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x32x64xbf16>, tensor<2x32x?xf32>, tensor<2x?x32x64xbf16>)
// CHECK-SAME: d_lse(%{{.*}} : tensor<2x32x?xf32>) bias(%{{.*}} : tensor<1x32x?x?xf16>) attn_mask(%{{.*}} : tensor<2x1x1x?xi1>)
// CHECK-SAME: sink_logits(%{{.*}} : tensor<32xf32>) kv_len(%{{.*}} : tensor<2xi32>) offset(%{{.*}}) score_mod {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: index):
// CHECK-NEXT:   %[[Y:.*]] = arith.mulf %[[S]], %{{.*}} : f32
// CHECK-NEXT:   flashattn.yield %[[Y]] : f32
// CHECK-NEXT: } outs({{[^:]*}} : tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>)
// CHECK-SAME: d_bias(%{{.*}} : tensor<1x32x?x?xf16>) d_sink_logits(%{{.*}} : tensor<32xf32>) {note = "kept"}
// CHECK-SAME: -> tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>, tensor<1x32x?x?xf16>, tensor<32xf32>
func.func @every_clause(%q: tensor<2x?x32x64xbf16>, %k: tensor<2x?x8x64xbf16>, %lse: tensor<2x32x?xf32>,
                        %bias: tensor<1x32x?x?xf16>, %attn_mask: tensor<2x1x1x?xi1>, %sinks: tensor<32xf32>,
                        %len: tensor<2xi32>, %p: index, %x: f32) -> (tensor<1x32x?x?xf16>, tensor<32xf32>) {
  %r:5 = flashattn.attention_backward mask(#flashattn.causal) scale(0.125) softcap(50.0) align(top_left)
      layout(bshd) deterministic
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
      ins(%q, %k, %k, %q, %lse, %q : tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>,
          tensor<2x?x32x64xbf16>, tensor<2x32x?xf32>, tensor<2x?x32x64xbf16>)
      d_lse(%lse : tensor<2x32x?xf32>) bias(%bias : tensor<1x32x?x?xf16>) attn_mask(%attn_mask : tensor<2x1x1x?xi1>)
      sink_logits(%sinks : tensor<32xf32>) kv_len(%len : tensor<2xi32>) offset(%p)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %y = arith.mulf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%q, %k, %k : tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>)
      d_bias(%bias : tensor<1x32x?x?xf16>) d_sink_logits(%sinks : tensor<32xf32>) {note = "kept"}
      -> tensor<2x?x32x64xbf16>, tensor<2x?x8x64xbf16>, tensor<2x?x8x64xbf16>, tensor<1x32x?x?xf16>, tensor<32xf32>
  return %r#3, %r#4 : tensor<1x32x?x?xf16>, tensor<32xf32>
}

// Memrefs: any strides with a unit last one, a scale at run time, each optional gradient alone, no result.

#rows = strided<[?, ?, ?, 1], offset: ?>

// CHECK-LABEL: func @memrefs
// CHECK: flashattn.attention_backward scale(%{{.*}}) ins({{.*}}) bias(%{{.*}} : memref<1x?x1x1xf32>) outs({{.*}} : memref<?x?x?x16xf16, strided<[?, ?, ?, 1], offset: ?>>{{.*}}) d_bias(%{{.*}} : memref<1x?x1x1xf32>)
// CHECK-NOT: ->
// CHECK: flashattn.attention_backward ins({{.*}}) sink_logits(%{{.*}} : memref<?xf32>) outs({{.*}}) d_sink_logits(%{{.*}} : memref<?xf32>)
// CHECK-NOT: ->
// CHECK: return
func.func @memrefs(%q: memref<?x?x?x16xf16, #rows>, %lse: memref<?x?x?xf32>, %bias: memref<1x?x1x1xf32>,
                   %sinks: memref<?xf32>, %scale: f32, %dq: memref<?x?x?x16xf16, #rows>,
                   %dk: memref<?x?x?x16xf16, #rows>, %dv: memref<?x?x?x16xf16, #rows>,
                   %db: memref<1x?x1x1xf32>, %ds: memref<?xf32>) {
  flashattn.attention_backward scale(%scale)
      ins(%q, %q, %q, %q, %lse, %q : memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>,
          memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>, memref<?x?x?xf32>, memref<?x?x?x16xf16, #rows>)
      bias(%bias : memref<1x?x1x1xf32>)
      outs(%dq, %dk, %dv : memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>)
      d_bias(%db : memref<1x?x1x1xf32>)
  flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>,
          memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>, memref<?x?x?xf32>, memref<?x?x?x16xf16, #rows>)
      sink_logits(%sinks : memref<?xf32>)
      outs(%dq, %dk, %dv : memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>, memref<?x?x?x16xf16, #rows>)
      d_sink_logits(%ds : memref<?xf32>)
  return
}

// A bias of some size beside a gradient of the same size, one of them not static.

// CHECK-LABEL: func @dynamic_beside_static
// CHECK: d_bias(%{{.*}} : tensor<?x2x8x8xf32>)
func.func @dynamic_beside_static(%q: tensor<?x2x8x16xf32>, %lse: tensor<?x2x8xf32>, %bias: tensor<1x2x8x8xf32>,
                                 %db: tensor<?x2x8x8xf32>) -> tensor<?x2x8x8xf32> {
  %r:4 = flashattn.attention_backward
      ins(%q, %q, %q, %q, %lse, %q : tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>,
          tensor<?x2x8x16xf32>, tensor<?x2x8xf32>, tensor<?x2x8x16xf32>)
      bias(%bias : tensor<1x2x8x8xf32>)
      outs(%q, %q, %q : tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>)
      d_bias(%db : tensor<?x2x8x8xf32>)
      -> tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>, tensor<?x2x8x16xf32>, tensor<?x2x8x8xf32>
  return %r#3 : tensor<?x2x8x8xf32>
}
