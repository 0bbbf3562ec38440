// RUN: flash-opt %s | FileCheck %s
// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s

// Clauses are read in any order and printed in one.

// CHECK-LABEL: func @attention
// CHECK: flashattn.attention mask(#flashattn.causal) scale(1.000000e-01) softcap(2.000000e+01) align(top_left) layout(bshd)
// CHECK-SAME: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// CHECK-SAME: ins(%[[Q:.*]], %[[Q]], %[[Q]] : memref<2x8x4x16xf16>, memref<2x8x4x16xf16>, memref<2x8x4x16xf16>)
// CHECK-SAME: bias(%{{[^ ]*}} : memref<1x4x1x8xf32>) attn_mask(%{{[^ ]*}} : memref<1x1x8x8xi1>) sink_logits(%{{[^ ]*}} : memref<4xf32>)
// CHECK-SAME: kv_len(%{{[^ ]*}} : memref<2xi32>) offset(%{{[^ ]*}}) score_mod {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{[^ ]*}}: index, %{{[^ ]*}}: index, %{{[^ ]*}}: index, %{{[^ ]*}}: index):
// CHECK-NEXT: flashattn.yield %[[S]] : f32
// CHECK-NEXT: } outs(%{{[^ ]*}}, %{{[^ ]*}} : memref<2x8x4x16xf16>, memref<2x4x8xf32>) {note = "kept"}
func.func @attention(%q: memref<2x8x4x16xf16>, %bias: memref<1x4x1x8xf32>, %attn_mask: memref<1x1x8x8xi1>, %sinks: memref<4xf32>,
                     %n: memref<2xi32>, %p: index, %o: memref<2x8x4x16xf16>, %lse: memref<2x4x8xf32>) {
  flashattn.attention outs(%o, %lse : memref<2x8x4x16xf16>, memref<2x4x8xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        flashattn.yield %s : f32
      }
      offset(%p) kv_len(%n : memref<2xi32>) sink_logits(%sinks : memref<4xf32>) attn_mask(%attn_mask : memref<1x1x8x8xi1>)
      bias(%bias : memref<1x4x1x8xf32>)
      ins(%q, %q, %q : memref<2x8x4x16xf16>, memref<2x8x4x16xf16>, memref<2x8x4x16xf16>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
      layout(bshd) align(top_left) softcap(20.0) scale(0.1) mask(causal) {note = "kept"}
  return
}

// What follows the last clause may be any op, whatever its name looks like.

// CHECK-LABEL: func @between
// CHECK: flashattn.attention scale(%{{[^ ]*}}) ins({{.*}}) kv_len(%{{[^ ]*}} : tensor<1xi32>) outs({{.*}}) -> tensor<1x2x8x16xf32>
// CHECK-NEXT: flashattn.attention mask(#flashattn.sink<4>) ins({{.*}}) outs({{.*}}) -> tensor<1x2x8x16xf32>
// CHECK-NEXT: call @mask
func.func @between(%q: tensor<1x2x8x16xf32>, %n: tensor<1xi32>, %x: f32) {
  %0 = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      outs(%q : tensor<1x2x8x16xf32>) kv_len(%n : tensor<1xi32>) scale(%x) -> tensor<1x2x8x16xf32>
  %1 = flashattn.attention ins(%q, %q, %q : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>)
      mask(sink<4>) outs(%q : tensor<1x2x8x16xf32>) -> tensor<1x2x8x16xf32>
  call @mask() : () -> ()
  return
}
func.func private @mask()

// CHECK-LABEL: func @backward
// CHECK: flashattn.attention_backward mask(#flashattn.causal) scale(5.000000e-01) deterministic
// CHECK-SAME: ins(%[[Q:.*]], %[[Q]], %[[Q]], %[[Q]], %[[LSE:.*]], %[[Q]] : {{.*}}) d_lse(%[[LSE]] : memref<1x2x8xf32>)
// CHECK-SAME: bias(%{{[^ ]*}} : memref<1x2x8x8xf32>) sink_logits(%{{[^ ]*}} : memref<2xf32>)
// CHECK-SAME: outs(%{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} : {{.*}}) d_bias(%{{[^ ]*}} : memref<1x2x8x8xf32>) d_sink_logits(%{{[^ ]*}} : memref<2xf32>)
func.func @backward(%q: memref<1x2x8x16xf32>, %lse: memref<1x2x8xf32>, %bias: memref<1x2x8x8xf32>, %sinks: memref<2xf32>,
                    %dq: memref<1x2x8x16xf32>, %dk: memref<1x2x8x16xf32>, %dv: memref<1x2x8x16xf32>, %db: memref<1x2x8x8xf32>,
                    %ds: memref<2xf32>) {
  flashattn.attention_backward d_sink_logits(%ds : memref<2xf32>) d_bias(%db : memref<1x2x8x8xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>)
      sink_logits(%sinks : memref<2xf32>) bias(%bias : memref<1x2x8x8xf32>) d_lse(%lse : memref<1x2x8xf32>)
      ins(%q, %q, %q, %q, %lse, %q : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>,
          memref<1x2x8xf32>, memref<1x2x8x16xf32>)
      deterministic scale(0.5) mask(causal)
  return
}

// CHECK-LABEL: func @combine
// CHECK: flashattn.combine layout(bshd) ins({{.*}}) sink_logits(%{{[^ ]*}} : memref<8xf32>) outs({{.*}})
// CHECK: flashattn.combine ins({{.*}}) outs({{.*}})
func.func @combine(%op: memref<3x2x8x1x64xf32>, %lp: memref<3x2x8x1xf32>, %s: memref<8xf32>, %o: memref<2x1x8x64xf16>,
                   %bhsd: memref<2x8x1x64xf16>) {
  flashattn.combine outs(%o : memref<2x1x8x64xf16>) sink_logits(%s : memref<8xf32>)
      ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) layout(bshd)
  flashattn.combine outs(%bhsd : memref<2x8x1x64xf16>) layout(bhsd)
      ins(%op, %lp : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>)
  return
}

// CHECK-LABEL: func @project
// CHECK: flashattn.project layout(bshd) schedule(<{{.*}}>) ins({{.*}}) outs({{.*}}) -> tensor<2x6x64xf16>
func.func @project(%o: tensor<2x6x4x16xf16>, %w: tensor<4x16x64xf16>, %p: tensor<2x6x64xf16>) -> tensor<2x6x64xf16> {
  %r = flashattn.project ins(%o, %w : tensor<2x6x4x16xf16>, tensor<4x16x64xf16>) outs(%p : tensor<2x6x64xf16>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) layout(bshd) -> tensor<2x6x64xf16>
  return %r : tensor<2x6x64xf16>
}
