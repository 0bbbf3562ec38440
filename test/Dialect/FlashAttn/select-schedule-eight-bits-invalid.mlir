// Schedules with which spare warps cannot convert keys and values of 8 bits (F1).
// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a

func.func @eight_bits_one_slot(%q: memref<1x1x64x128xf16>, %k: memref<1x1x256x128xf8E4M3FN>, %o: memref<1x1x64x128xf16>) {
  // expected-error @+1 {{expected dynamic_scheduler 0 with q_stages 1 and k and v of 8 bits but got 1}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16,
      mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1, dynamic_scheduler = 1>>)
      ins(%q, %k, %k : memref<1x1x64x128xf16>, memref<1x1x256x128xf8E4M3FN>, memref<1x1x256x128xf8E4M3FN>)
      outs(%o : memref<1x1x64x128xf16>)
  return
}

// -----

func.func @eight_bits_compact(%q: memref<1x1x64x128xf16>, %k: memref<1x1x256x128xf8E4M3FN>, %o: memref<1x1x64x128xf16>) {
  // expected-error @+1 {{expected compact_kv 0 with k and v of 8 bits but got 1}}
  flashattn.attention mask(#flashattn.window<left = 100, right = 0>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1, compact_kv = 1>>)
      ins(%q, %k, %k : memref<1x1x64x128xf16>, memref<1x1x256x128xf8E4M3FN>, memref<1x1x256x128xf8E4M3FN>)
      outs(%o : memref<1x1x64x128xf16>)
  return
}

// -----

func.func @eight_bits_per_key(%q: memref<1x1x64x128xf16>, %k: memref<1x1x256x128xf8E4M3FN>, %e: memref<1x1x256xi32>, %o: memref<1x1x64x128xf16>) {
  // expected-error @+1 {{expected no per_key with k and v of 8 bits for warp specialization but got one}}
  flashattn.attention mask(affine_set<(p, k)[nq, nk, end] : (end - p - 1 >= 0)>)
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 1>>)
      ins(%q, %k, %k : memref<1x1x64x128xf16>, memref<1x1x256x128xf8E4M3FN>, memref<1x1x256x128xf8E4M3FN>)
      per_key(%e : memref<1x1x256xi32>) outs(%o : memref<1x1x64x128xf16>)
  return
}
