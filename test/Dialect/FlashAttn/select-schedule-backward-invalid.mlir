// RUN: split-file %s %t
// RUN: flash-opt %t/gradients.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_80
// RUN: flash-opt %t/others.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_80
// RUN: flash-opt %t/roles.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a
// RUN: not flash-opt %t/pinned.mlir "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 40'" 2>&1 | FileCheck %s

// CHECK: error: {{.*}} cannot be compiled for sm_80: no schedule with tile_m = 40 fits: expected tile_m to be a multiple of 16 rows times

//--- gradients.mlir
// R2: why the schedules tried were refused, each reason once.
func.func @head_dim(%q: memref<?x?x?x20xf16>, %dq: memref<?x?x?x20xf16>, %dk: memref<?x?x?x20xf16>, %dv: memref<?x?x?x20xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{op cannot be compiled for sm_80: expected D to be a multiple of 8 up to 256 but got 20}}
  flashattn.attention_backward  ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?xf32>, memref<?x?x?x20xf16>) outs(%dq, %dk, %dv : memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?x20xf16>)
  return
}

// -----

func.func @shared_memory(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{with the schedule given: needs 196608 bytes of shared memory (k 32768, v 32768, q 65536, d_o 65536) of 166912 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>) outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// -----

// Rows of queries may be others than those of keys.
func.func @queries_shared_memory(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 294912 bytes of shared memory (q 131072, d_o 131072, k 16384, v 16384) of 166912 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, dq_tile_m = 512, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @registers(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 384 registers per thread for accumulators (dk 128, scores 64, gradients 64, dv 128) of 200 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 2>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @queries_registers(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 288 registers per thread for accumulators (dq 192, scores 48, gradients 48) of 200 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, dq_tile_m = 192, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @residents(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 224 registers per thread for accumulators (dk 64, scores 16, gradients 16, dv 64, k and v 64) of 200 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4, q_in_registers = true>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @rows(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_m to be a multiple of 16 rows times 4 warps but got 48}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, dq_tile_m = 48, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @pack(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected pack 1 in a backward pass without compact_kv but got 2}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 2, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @roles(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected no dq_tile_m with warp specialization but got 128}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, dq_tile_m = 128, algorithm = separate_dq, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @deterministic(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected another algorithm for a deterministic backward pass without warp specialization but got accumulate_dq}}
  flashattn.attention_backward deterministic schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @share_rows(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_n to be below tile_m and to divide 128, the rows that 8 warps process at once, but got 48}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 48, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @all_rows(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_n to be below tile_m and to divide 128, the rows that 8 warps process at once, but got 128}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @share_columns(%q: memref<?x?x?x80xf16>, %dq: memref<?x?x?x80xf16>, %dk: memref<?x?x?x80xf16>, %dv: memref<?x?x?x80xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected D to be 2 times a power of 2 of at least 16, for 2 warps with the same rows, but got 80}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?xf32>, memref<?x?x?x80xf16>) outs(%dq, %dk, %dv : memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?x80xf16>)
  return
}

// -----

func.func @exchanged(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 180224 bytes of shared memory (k 65536, v 65536, q 16384, d_o 16384, ds 16384) of 166912 available}}
  flashattn.attention_backward schedule(<tile_m = 256, tile_n = 32, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 16>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @column_warps_apart(%q: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected column_warps 1 without algorithm accumulate_dq but got 2}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 8, column_warps = 2>>) ins(%q, %q, %v, %v, %lse, %v
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @column_warps_hold(%q: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected q_in_registers false for column_warps above 1 but got true}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2, q_in_registers = true>>) ins(%q, %q, %v, %v, %lse, %v
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @column_warps_queries(%q: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_n to be column_warps, 2, times a power of 2 of at least 16 but got 16}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 16, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>) ins(%q, %q, %v, %v, %lse, %v
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @column_warps_values(%q: memref<?x?x?x64xf16>, %v: memref<?x?x?x96xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x96xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected Dv to be column_warps, 2, times a power of 2 of at least 16 but got 96}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = mma_sync<warps = 8, column_warps = 2>>) ins(%q, %q, %v, %v, %lse, %v
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x96xf16>, memref<?x?x?x96xf16>, memref<?x?x?xf32>, memref<?x?x?x96xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x96xf16>)
  return
}

//--- others.mlir
func.func @column_warps(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected column_warps 1 outside a backward pass but got 2}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4, column_warps = 2>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @dq_tile_m(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected no dq_tile_m outside a backward pass but got 128}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, dq_tile_m = 128, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @apart(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected no algorithm outside a backward pass but got separate_dk_dv}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = mma_sync<warps = 4>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @project(%o: memref<2x8x100x64xf16>, %w: memref<8x64x512xf16>, %p: memref<2x100x512xf16>) {
  // expected-error@+1 {{expected no algorithm outside a backward pass but got separate_dq}}
  flashattn.project schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>)
    ins(%o, %w : memref<2x8x100x64xf16>, memref<8x64x512xf16>) outs(%p : memref<2x100x512xf16>)
  return
}

//--- pinned.mlir
func.func @pinned(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention_backward  ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

//--- roles.mlir
func.func @rows(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_m 128, 64 rows for each of 2 cooperative consumers, but got 192}}
  flashattn.attention_backward schedule(<tile_m = 192, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

// B4: under two intervals nobody knows whose turn it is.
func.func @deterministic(%q: memref<?x?x?x128xf16>, %dq: memref<?x?x?x128xf16>, %dk: memref<?x?x?x128xf16>, %dv: memref<?x?x?x128xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_m 64 in a deterministic backward pass, unless the mask has one exact interval of tiles and there is no attn_mask, but got 128}}
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) deterministic schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?xf32>, memref<?x?x?x128xf16>) outs(%dq, %dk, %dv : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
  return
}

// -----

func.func @fewer_rows(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_m 192, 64 rows for each of 3 cooperative consumers, but got 128}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 3, cooperative = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @lazy_rescale(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected lazy_rescale 0 for a backward pass but got 1}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, lazy_rescale = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @q_register_columns(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected q_register_columns 0 for a backward pass but got 64}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, q_register_columns = 64>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected consumers 1 with compact_kv in a backward pass but got 2}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins_heads(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected pack in a backward pass to divide 1, the query heads of each key/value head, but got 8}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, pack = 8, algorithm = separate_dq, mapping = hopper<consumers = 1, along = query_tile, registers = 136, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 3, compact_kv = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

// B4: warps that add in turns are not the consumers'.
func.func @turns_of_consumers(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected dq_reduce_stages 1 or 2 in a deterministic backward pass but got 0}}
  flashattn.attention_backward deterministic schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @nobody_adds(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected dq_reduce_stages 0 without algorithm accumulate_dq but got 1}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @claims_alone(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected dynamic_scheduler 0 with q_stages 1, unless the algorithm is accumulate_dq, but got 1}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @claims_lengths(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>, %len: memref<?xi32>) {
  // expected-error@+1 {{expected q_stages 1 and dynamic_scheduler 0 with kv_len, for cooperative consumers, but got 1 and 1}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) kv_len(%len : memref<?xi32>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @claims_query_lengths(%q: memref<1x?x?x64xf16>, %dq: memref<1x?x?x64xf16>, %dk: memref<1x?x?x64xf16>, %dv: memref<1x?x?x64xf16>, %lse: memref<1x?x?xf32>, %starts: memref<?xi32>, %len: memref<?xi32>) {
  // expected-error@+1 {{expected q_stages 1 and dynamic_scheduler 0 with q_len, for cooperative consumers, but got 1 and 1}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<1x?x?x64xf16>, memref<1x?x?x64xf16>, memref<1x?x?x64xf16>, memref<1x?x?x64xf16>, memref<1x?x?xf32>, memref<1x?x?x64xf16>) q_len(%len : memref<?xi32>) cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>) outs(%dq, %dk, %dv : memref<1x?x?x64xf16>, memref<1x?x?x64xf16>, memref<1x?x?x64xf16>)
  return
}

// -----

func.func @claims_in_turns(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected q_stages 1 and dynamic_scheduler 0 in a deterministic backward pass but got 1 and 1}}
  flashattn.attention_backward deterministic schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dynamic_scheduler = 1, dq_reduce_stages = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

func.func @add_places(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 265384 bytes of shared memory (k 16384, v 16384, q 49152, d_o 49152, ds 65536, staging 32768, staging 32768, row 1536, row 1536, barriers 160, bounds 8) of 232448 available}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 128, stages = 3, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 2>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

// Gradients of keys and values that are apart have sums of their own.
func.func @apart(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected algorithm accumulate_dq or split_dk_dv with cooperative consumers but got another one}}
  flashattn.attention_backward schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, algorithm = separate_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

// Consumers that have one of the sums each.
func.func @split_rows(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected tile_m 64, tile_n up to 64 and 2 consumers with algorithm split_dk_dv but got tile_m 64, tile_n 128 and 2 consumers}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>) outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// -----

func.func @split_stages(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected q_stages 1 with algorithm split_dk_dv but got 2}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>) outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// -----

// Programs over queries, which make dq: of keys, which two steps read at once, they have room for one tile more, and one less of
// values.
func.func @split_queries(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{needs 262232 bytes of shared memory (q 65536, d_o 65536, k 98304, v 32768, barriers 80, bounds 8) of 232448 available}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>) outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// -----

func.func @split_registers(%q: memref<?x?x?x256xf16>, %dq: memref<?x?x?x256xf16>, %dk: memref<?x?x?x256xf16>, %dv: memref<?x?x?x256xf16>, %lse: memref<?x?x?xf32>, %bias: memref<1x?x?x?xf32>) {
  // expected-error@+1 {{needs 272 registers per thread (dk or dv 128, scores 96, weights 32, other 16) of 240 that a consumer has}}
  flashattn.attention_backward softcap(50.0) schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?xf32>, memref<?x?x?x256xf16>) bias(%bias : memref<1x?x?x?xf32>) outs(%dq, %dk, %dv : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
  return
}

// -----

func.func @one_stage(%q: memref<?x?x?x64xf16>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  // expected-error@+1 {{expected stages to be at least 2 in a backward pass but got 1}}
  flashattn.attention_backward schedule(<tile_m = 64, tile_n = 64, stages = 1, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>) ins(%q, %q, %q, %q, %lse, %q
      : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}
