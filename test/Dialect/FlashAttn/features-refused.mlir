// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a

// R2: what rows of several heads cannot share is refused with them, by name.

func.func @bias(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %x: memref<1x1x1x?xf32>, %out_q: memref<?x8x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected pack 1 with bias but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = query_tile,
      registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    bias(%x : memref<1x1x1x?xf32>) outs(%out_q : memref<?x8x?x64xf16>)
  return
}

// -----

func.func @attn_mask(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %x: memref<1x1x1x?xi1>, %out_q: memref<?x8x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected pack 1 with attn_mask but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = query_tile,
      registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    attn_mask(%x : memref<1x1x1x?xi1>) outs(%out_q : memref<?x8x?x64xf16>)
  return
}

// -----

func.func @sink_logits(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %x: memref<8xf32>, %out_q: memref<?x8x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected pack 1 with sink_logits but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = query_tile,
      registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    sink_logits(%x : memref<8xf32>) outs(%out_q : memref<?x8x?x64xf16>)
  return
}

// -----

func.func @score_mod(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %out_q: memref<?x8x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected pack 1 with a score modification but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = query_tile,
      registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %t = arith.addf %s, %s : f32
      flashattn.yield %t : f32
    } outs(%out_q : memref<?x8x?x64xf16>)
  return
}

// -----

// These are taken.
func.func @kv_len(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %x: memref<?xi32>, %out_q: memref<?x8x?x64xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = query_tile,
      registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    kv_len(%x : memref<?xi32>) outs(%out_q : memref<?x8x?x64xf16>)
  return
}
