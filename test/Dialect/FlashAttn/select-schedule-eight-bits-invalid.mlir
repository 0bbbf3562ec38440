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

// -----

// Products of f8 (F3).

func.func @e5m2(%q: memref<1x1x64x64xf8E5M2>, %k: memref<1x1x64x64xf8E4M3FN>, %o: memref<1x1x64x64xf16>) {
  // expected-error @+1 {{expected q of f8E4M3FN for products of f8 but got f8E5M2}}
  flashattn.attention ins(%q, %k, %k : memref<1x1x64x64xf8E5M2>, memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>)
      outs(%o : memref<1x1x64x64xf16>)
  return
}

// -----

func.func @integer_values(%q: memref<1x1x64x64xf8E4M3FN>, %v: memref<1x1x64x64xi8>, %o: memref<1x1x64x64xf16>) {
  // expected-error @+1 {{expected v of f8E4M3FN for products of f8 but got i8}}
  flashattn.attention ins(%q, %q, %v : memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xi8>)
      outs(%o : memref<1x1x64x64xf16>)
  return
}

// -----

func.func @wide(%q: memref<1x1x64x272xf8E4M3FN>, %v: memref<1x1x64x64xf8E4M3FN>, %o: memref<1x1x64x64xf16>) {
  // expected-error @+1 {{expected D to be a multiple of 8 up to 256 but got 272}}
  flashattn.attention ins(%q, %q, %v : memref<1x1x64x272xf8E4M3FN>, memref<1x1x64x272xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>)
      outs(%o : memref<1x1x64x64xf16>)
  return
}

// -----

func.func @row_scales(%q: memref<1x1x64x64xf8E4M3FN>, %s: memref<1x1x64x1xf32>, %o: memref<1x1x64x64xf16>) {
  // expected-error @+1 {{expected v_scale with one scale for all rows and columns of a sequence beside q of f8 but got more}}
  flashattn.attention ins(%q, %q, %q : memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>)
      v_scale(%s : memref<1x1x64x1xf32>) outs(%o : memref<1x1x64x64xf16>)
  return
}

// -----

func.func @tile_n(%q: memref<1x1x64x64xf8E4M3FN>, %o: memref<1x1x64x64xf16>) {
  // expected-error @+1 {{expected tile_n to be 32, 64, 128 or 256 with q of f8 but got 80}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f8E4M3FN,
      mapping = hopper<consumers = 1, along = query_tile, registers = 200, producer_registers = 56, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 1>>)
      ins(%q, %q, %q : memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>, memref<1x1x64x64xf8E4M3FN>)
      outs(%o : memref<1x1x64x64xf16>)
  return
}
