// RUN: flash-opt %s -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a

func.func @product(%q: memref<?x?x?x256xf16>, %out_q: memref<?x?x?x256xf16>) {
  // expected-error@+1 {{needs 158 registers per thread (product 128, other 30) of 128 available to 2 blocks at launch}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %q, %q : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>) outs(%out_q : memref<?x?x?x256xf16>)
  return
}

// -----

func.func @sinks(%q: memref<?x?x?x64xf16>, %s: memref<?xf32>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with sink_logits but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) sink_logits(%s : memref<?xf32>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @narrow(%q: memref<?x?x1x128xf16>, %k: memref<?x?x?x128xf16>, %out_q: memref<?x?x1x128xf16>) {
  // expected-error@+1 {{in 3 small blocks: needs 94 registers per thread (product 64, other 30) of 80 available to 3 blocks at launch}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3>>)
    ins(%q, %k, %k : memref<?x?x1x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) outs(%out_q : memref<?x?x1x128xf16>)
  return
}

// -----

// Few registers shared by many blocks: no thread has fewer than 24.
func.func @many_narrow_blocks(%q: memref<?x?x1x64xf16>, %k: memref<?x?x?x64xf16>, %out_q: memref<?x?x1x64xf16>) {
  // expected-error@+1 {{in 8 small blocks: needs 84 registers per thread (o 32, scores 16, weights 8, other 28) of 24 that a consumer has}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 1, dot_type = f16, splits = 16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, small_blocks_per_sm = 8>>)
    ins(%q, %k, %k : memref<?x?x1x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x1x64xf16>)
  return
}

// -----

// Alone on a multiprocessor a thread has no more registers than a thread can have.
func.func @one_narrow_block(%q: memref<?x?x1x64xf16>, %k: memref<?x?x?x64xf16>, %out_q: memref<?x?x1x64xf16>) {
  // expected-error@+1 {{in 1 small blocks: expected tile_n to be a multiple of 16 up to 256 but got 24}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, splits = 16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 1>>)
    ins(%q, %k, %k : memref<?x?x1x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x1x64xf16>)
  return
}

// -----

// S8: a tile of packed heads has rows of the next sequence, which must not vote on new exponents.
func.func @votes(%q: memref<1x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected rescale_threshold 0 with invariant, packed sequences and pack 4 but got 8}}
  flashattn.attention invariant schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, splits = 16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %k, %k : memref<1x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q(16) outs(%o : memref<1x8x?x64xf16>)
  return
}

// -----

// S7: with more queries, heads are not packed.
func.func @many_queries(%q: memref<1x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %starts: memref<?xi32>, %o: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with packed sequences but got 4}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, splits = 16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %k, %k : memref<1x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
    cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q(17) outs(%o : memref<1x8x?x64xf16>)
  return
}
