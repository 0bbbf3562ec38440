// RUN: split-file %s %t
// RUN: not flash-opt %t/chip.mlir -flashattn-select-schedule=chip=h100 2>&1 | FileCheck %s --check-prefix=CHIP --implicit-check-not="current operation"
// RUN: not flash-opt %t/chip.mlir -flashattn-select-schedule=chip=sm_75 2>&1 | FileCheck %s --check-prefix=OLD
// RUN: not flash-opt %t/chip.mlir "-flashattn-select-schedule=chip=cpu vector-width=12" 2>&1 | FileCheck %s --check-prefix=WIDTH
// RUN: not flash-opt %t/chip.mlir "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 64, depth = 2'" 2>&1 | FileCheck %s --check-prefix=FIELDS --implicit-check-not="current operation"
// RUN: not flash-opt %t/head-dim.mlir -split-input-file -flashattn-to-nvvm=chip=sm_90a 2>&1 | FileCheck %s --check-prefix=HEAD --implicit-check-not="current operation"
// RUN: not flash-opt %t/head-dim.mlir -split-input-file "-flashattn-to-nvvm=chip=sm_80 schedule='tile_m = 64'" 2>&1 | FileCheck %s --check-prefix=HEAD --implicit-check-not="current operation"
// RUN: flash-opt %t/refused.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_80
// RUN: flash-opt %t/roles.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a
// RUN: flash-opt %t/cpu.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=cpu

// What was asked for is wrong at a place in the file, of which nothing is printed, and a reason that no schedule can
// change comes first.
// CHIP: chip.mlir:1:1: error: expected chip 'cpu', 'sm_80', {{.*}}'sm_90', 'sm_90a', {{.*}} but got 'h100'
// OLD: error: expected chip 'cpu', 'sm_80', {{.*}}'sm_90', 'sm_90a', {{.*}} but got 'sm_75'
// WIDTH: error: expected a vector width that is a power of two between 1 and 64 but got 12
// HEAD: head-dim.mlir:2:3: error: 'flashattn.attention' op cannot be compiled for sm_{{80|90a}}: expected D to be a multiple of 8 up to 256 but got 100
// HEAD: :10:3: error: {{.*}}: expected D to be a multiple of 8 up to 256 but got 300
// HEAD: :18:3: error: {{.*}}: expected Dv to be a multiple of 8 up to 256 but got 4
// FIELDS: chip.mlir:1:1: error: expected schedule fields tile_m, tile_n, {{.*}}, mapping but got depth

//--- chip.mlir
func.func @f(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

//--- head-dim.mlir
func.func @f(%q: memref<1x1x16x100xf16>, %v: memref<1x1x16x64xf16>, %o: memref<1x1x16x64xf16>) {
  flashattn.attention ins(%q, %q, %v : memref<1x1x16x100xf16>, memref<1x1x16x100xf16>, memref<1x1x16x64xf16>)
    outs(%o : memref<1x1x16x64xf16>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x300xf16>, %v: memref<1x1x16x64xf16>, %o: memref<1x1x16x64xf16>) {
  flashattn.attention ins(%q, %q, %v : memref<1x1x16x300xf16>, memref<1x1x16x300xf16>, memref<1x1x16x64xf16>)
    outs(%o : memref<1x1x16x64xf16>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x64xf16>, %v: memref<1x1x16x4xf16>, %o: memref<1x1x16x4xf16>) {
  flashattn.attention ins(%q, %q, %v : memref<1x1x16x64xf16>, memref<1x1x16x64xf16>, memref<1x1x16x4xf16>)
    outs(%o : memref<1x1x16x4xf16>)
  return
}

//--- refused.mlir
// R2: why the schedules tried were refused, each reason once.
func.func @head_dim(%q: memref<?x?x?x20xf16>, %o: memref<?x?x?x20xf16>) {
  // expected-error@+1 {{op cannot be compiled for sm_80: expected D to be a multiple of 8 up to 256 but got 20}}
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?x20xf16>)
    outs(%o : memref<?x?x?x20xf16>)
  return
}

// -----

func.func @shared_memory(%q: memref<?x?x?x256xf16>, %k: memref<?x?x?x256xf16>, %v: memref<?x?x?x256xf16>, %o: memref<?x?x?x256xf16>) {
  // expected-error@+1 {{with the schedule given: needs 262144 bytes of shared memory (q 131072, k 65536, v 65536) of 166912 available}}
  flashattn.attention schedule(<tile_m = 256, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 16>>)
    ins(%q, %k, %v : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
    outs(%o : memref<?x?x?x256xf16>)
  return
}

// -----

func.func @registers(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{needs 384 registers per thread for accumulators (o 256, scores 128) of 200 available}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @rows(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected tile_m to be a multiple of 16 rows times 4 warps but got 48}}
  flashattn.attention schedule(<tile_m = 48, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @keys(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected tile_n to be a multiple of 16 but got 24}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 24, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @stages(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected stages to be 1 or 2 but got 3}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 3, dot_type = f16, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @mapping(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected mapping mma_sync or hopper on a GPU but got cpu}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = cpu>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @dot_type(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected dot_type f16, the operands' element type, but got bf16}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @pack(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 without warp specialization but got 8}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 8, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @queries(%q: memref<?x?x?x128xf32>, %o: memref<?x?x?x128xf32>) {
  // expected-error@+1 {{needs 208 registers per thread for accumulators (o 64, scores 16, q 128) of 200 available}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f32, mapping = mma_sync<warps = 4, q_in_registers = true>>)
    ins(%q, %q, %q : memref<?x?x?x128xf32>, memref<?x?x?x128xf32>, memref<?x?x?x128xf32>)
    outs(%o : memref<?x?x?x128xf32>)
  // Read again at every step they need none.
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f32, mapping = mma_sync<warps = 4, q_in_registers = false>>)
    ins(%q, %q, %q : memref<?x?x?x128xf32>, memref<?x?x?x128xf32>, memref<?x?x?x128xf32>)
    outs(%o : memref<?x?x?x128xf32>)
  return
}

//--- cpu.mlir
func.func @mapping(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{cannot be compiled for cpu with the schedule given: expected mapping cpu on the CPU but got mma_sync}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @rows(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected tile_m to be at least 2 on the CPU but got 1}}
  flashattn.attention schedule(<tile_m = 1, tile_n = 32, stages = 1, dot_type = f32, mapping = cpu>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @keys(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected tile_n to be at least 2 on the CPU but got 1}}
  flashattn.attention schedule(<tile_m = 16, tile_n = 1, stages = 1, dot_type = f32, mapping = cpu>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

//--- roles.mlir
// Large weights of bf16 want sums of them as they are rounded, which are products behind whole panels.
func.func @rescale(%q: memref<?x?x?x80xbf16>, %o: memref<?x?x?x80xbf16>) {
  // expected-error@+1 {{with the schedule given: expected a rescale_threshold of at most 3 for bf16, or a Dv of 64, 128 or 192, but got 8 and Dv 80}}
  flashattn.attention
    schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x80xbf16>, memref<?x?x?x80xbf16>, memref<?x?x?x80xbf16>)
    outs(%o : memref<?x?x?x80xbf16>)
  return
}

// -----

func.func @reloads_attn_mask(%q: memref<1x2x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %attn_mask: memref<1x1x?x?xi1>, %o: memref<1x2x?x64xf16>) {
  // expected-error@+1 {{with the schedule given: expected dynamic_scheduler 0 with q_stages 1 and an attn_mask but got 1}}
  flashattn.attention
    schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, dynamic_scheduler = 1>>)
    ins(%q, %k, %v : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
    attn_mask(%attn_mask : memref<1x1x?x?xi1>)
    outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

func.func @reloads_joins(%q: memref<1x2x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>) {
  // expected-error@+1 {{with the schedule given: expected dynamic_scheduler 0 with q_stages 1 and compact_kv but got 1}}
  flashattn.attention mask(#flashattn.window<left = 40, right = 0>)
    schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, dynamic_scheduler = 1, compact_kv = 1>>)
    ins(%q, %k, %v : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
    outs(%o : memref<1x2x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>>

// A producer without a key to bring: a mask that shows none, and no keys at all.
func.func @hidden(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{with the schedule given: expected a mask that shows at least one key but got one that hides all}}
  flashattn.attention mask(#flashattn.sink<0>) schedule(#roles)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>>

func.func @past_the_end(%q: memref<1x1x128x64xf16>, %o: memref<1x1x128x64xf16>) {
  // expected-error@+1 {{expected a mask that shows at least one key but got one that hides all}}
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (k - 128 >= 0)">) schedule(#roles)
    ins(%q, %q, %q : memref<1x1x128x64xf16>, memref<1x1x128x64xf16>, memref<1x1x128x64xf16>)
    outs(%o : memref<1x1x128x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 1, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1>>

// Consumers would wait for values per key behind those that they still read.
func.func @one_stage(%q: memref<1x1x128x64xf16>, %end: memref<1x1x128xi32>, %o: memref<1x1x128x64xf16>) {
  // expected-error@+1 {{expected stages to be at least 2 with per_key but got 1}}
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk, end] : (end - 1 - p >= 0)">) schedule(#roles)
    ins(%q, %q, %q : memref<1x1x128x64xf16>, memref<1x1x128x64xf16>, memref<1x1x128x64xf16>)
    per_key(%end : memref<1x1x128xi32>) outs(%o : memref<1x1x128x64xf16>)
  return
}
