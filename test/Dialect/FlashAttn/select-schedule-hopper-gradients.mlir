// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_90a | FileCheck %s --implicit-check-not=dynamic_scheduler

// Consumers share a program, whose rows are 128 keys, where both sums and what a step holds fit their registers.

// Of a score_mod that only adds the derivative is 1: there are no slopes to hold.
// CHECK-LABEL: @added
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2
func.func @added(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      %d = arith.subi %key, %p : index
      %i = arith.index_cast %d : index to i32
      %f = arith.sitofp %i : i32 to f32
      %r = arith.addf %f, %s : f32
      %r2 = arith.subf %r, %f : f32
      flashattn.yield %r2 : f32
    }
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Another has slopes, though it adds as well.
// CHECK-LABEL: @multiplied
// CHECK: schedule(<tile_m = 64, tile_n = {{32|64}}
func.func @multiplied(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      %d = arith.subi %key, %p : index
      %i = arith.index_cast %d : index to i32
      %f = arith.sitofp %i : i32 to f32
      %m = arith.mulf %s, %f : f32
      %r = arith.addf %m, %s : f32
      flashattn.yield %r : f32
    }
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// And one that subtracts the score has the slope -1.
// CHECK-LABEL: @subtracted
// CHECK: schedule(<tile_m = 64, tile_n = {{32|64}}
func.func @subtracted(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      %d = arith.subi %key, %p : index
      %i = arith.index_cast %d : index to i32
      %f = arith.sitofp %i : i32 to f32
      %r = arith.subf %f, %s : f32
      flashattn.yield %r : f32
    }
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// One that does not read it has the slope 0.
// CHECK-LABEL: @unread
// CHECK: schedule(<tile_m = 64, tile_n = {{32|64}}
func.func @unread(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      %d = arith.subi %key, %p : index
      %i = arith.index_cast %d : index to i32
      %f = arith.sitofp %i : i32 to f32
      flashattn.yield %f : f32
    }
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// A bias is loaded before its scores: half a register an element.
// CHECK-LABEL: @half_bias
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 3
func.func @half_bias(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %bias: memref<1x?x?x?xf16>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) bias(%bias : memref<1x?x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Or a whole one.
// CHECK-LABEL: @bias
// CHECK: schedule(<tile_m = 64, tile_n = {{32|64}}
func.func @bias(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %bias: memref<1x?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) bias(%bias : memref<1x?x?x?xf32>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// An attn_mask is loaded in the tiles alone that it cuts.
// CHECK-LABEL: @attn_mask
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2
func.func @attn_mask(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %attn_mask: memref<1x1x?x?xi1>) {
  flashattn.attention_backward ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) attn_mask(%attn_mask : memref<1x1x?x?xi1>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Blocks claim programs where nothing but a mask shapes the scores, and only there.
// CHECK-LABEL: @causal
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 8, dynamic_scheduler = 1, dq_reduce_stages = 2>>
func.func @causal(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Without a mask they do too, four heads at once,
// CHECK-LABEL: @none
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 4, dynamic_scheduler = 1, dq_reduce_stages = 2>>
func.func @none(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward ins(%q, %k, %k, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// as many as there are in turns.
// CHECK-LABEL: @none_in_turns
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 4, dq_reduce_stages = 2>>
func.func @none_in_turns(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward deterministic ins(%q, %k, %k, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Of large groups two at least.
// CHECK-LABEL: @causal_groups
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 2, dynamic_scheduler = 1, dq_reduce_stages = 2>>
func.func @causal_groups(%q: memref<?x64x?x128xf16>, %k: memref<?x8x?x128xf16>, %dq: memref<?x64x?x128xf16>, %dk: memref<?x8x?x128xf16>, %dv: memref<?x8x?x128xf16>, %lse: memref<?x64x?xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %k, %k, %q, %lse, %q
      : memref<?x64x?x128xf16>, memref<?x8x?x128xf16>, memref<?x8x?x128xf16>, memref<?x64x?x128xf16>, memref<?x64x?xf32>, memref<?x64x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x64x?x128xf16>, memref<?x8x?x128xf16>, memref<?x8x?x128xf16>)
  return
}

// Not of narrower heads, which gain nothing by it.
// CHECK-LABEL: @causal_narrow
// CHECK: schedule(<tile_m = 128, tile_n = 128, stages = 2
func.func @causal_narrow(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// Slopes leave no registers for so large tiles.
// CHECK-LABEL: @causal_capped
// CHECK: schedule(<tile_m = 64
func.func @causal_capped(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) softcap(30.0) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// A program would wait for one that a block may not have begun.
// CHECK-LABEL: @causal_in_turns
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2
func.func @causal_in_turns(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.causal) deterministic ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// Nor where there may be nothing to do.
// CHECK-LABEL: @causal_lengths
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2
func.func @causal_lengths(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %n: memref<?xi32>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) kv_len(%n : memref<?xi32>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// A bias,
// CHECK-LABEL: @causal_bias
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 3
func.func @causal_bias(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %bias: memref<1x?x?x?xf16>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) bias(%bias : memref<1x?x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// an attn_mask
// CHECK-LABEL: @causal_attn_mask
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2
func.func @causal_attn_mask(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %attn_mask: memref<1x1x?x?xi1>) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) attn_mask(%attn_mask : memref<1x1x?x?xi1>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// and a window. Spare warps add there too,
// CHECK-LABEL: @window
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 4, dynamic_scheduler = 1, dq_reduce_stages = 2>>
func.func @window(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.window<left = 1023, right = 0>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// but for one with sinks nobody claims,
// CHECK-LABEL: @window_sinks
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 2, {{.*}}, l2_head_group = 1, dq_reduce_stages = 2>>
func.func @window_sinks(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.all_of<[#flashattn.any_of<[#flashattn.window<left = 1023>, #flashattn.sink<4>]>, #flashattn.causal]>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// or narrow heads.
// CHECK-LABEL: @window_narrow
// CHECK: schedule(<tile_m = 128, tile_n = 128, stages = 2, {{.*}}, l2_head_group = 1, dq_reduce_stages = 2>>
func.func @window_narrow(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward mask(#flashattn.window<left = 1023, right = 0>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// A step that loads a bias waits for its tiles, so that there are three stages.
// CHECK-LABEL: @window_bias
// CHECK: schedule(<tile_m = 128, tile_n = 64, stages = 3, {{.*}}, l2_head_group = 1, dq_reduce_stages = 1>>
func.func @window_bias(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>, %bias: memref<?x?x?x?xf16>, %d_bias: memref<?x?x?x?xf16>) {
  flashattn.attention_backward mask(#flashattn.window<left = 1023, right = 0>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) bias(%bias : memref<?x?x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) d_bias(%d_bias : memref<?x?x?x?xf16>)
  return
}
