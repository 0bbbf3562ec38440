// RUN: split-file %s %t
// RUN: flash-opt %t/defaults.mlir -flashattn-select-schedule=chip=sm_90a | FileCheck %s
// RUN: flash-opt %t/defaults.mlir -flashattn-select-schedule=chip=sm_90 | FileCheck %s --check-prefix=SM90
// RUN: flash-opt %t/falls.mlir -flashattn-select-schedule=chip=sm_90a | FileCheck %s --check-prefix=FALLS
// RUN: flash-opt %t/refused.mlir -split-input-file -verify-diagnostics -flashattn-select-schedule=chip=sm_90a
// RUN: not flash-opt %t/chip.mlir -flashattn-select-schedule=chip=sm_90 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not flash-opt %t/chip.mlir -flashattn-select-schedule=chip=cpu 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %t/op.mlir "-flashattn-select-schedule=chip=sm_90a schedule='tile_m = 64, tile_n = 48, stages = 3, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 200, producer_registers = 40, rescale_threshold = 0, l2_head_group = 2>'" \
// RUN:   | FileCheck %s --check-prefix=PINNED

// Without the suffix a chip has no warpgroups' products.
// SM90-NOT: roles =
// SM90-COUNT-15: schedule(<tile_m = {{[0-9]+}}, tile_n = {{[0-9]+}}, stages = 2, dot_type = {{b?}}f16, mapping = mma_sync<warps = {{[0-9]+}}>>)
// SM90-NOT: roles =
// CHIP: error: {{.*}}cannot be compiled for sm_90 with the schedule given: expected chip sm_90a for warp specialization but got sm_90
// CPU: error: {{.*}}cannot be compiled for cpu with the schedule given: expected mapping cpu on the CPU but got hopper
// PINNED: mapping = hopper<consumers = 2, along = query_tile, registers = 200, producer_registers = 40, rescale_threshold = 0, l2_head_group = 2>

//--- defaults.mlir
// Wider heads take narrower tiles of keys, the widest fewer programs a block. Blocks stay where
// registers and memory allow.
// CHECK-LABEL: @d16
// CHECK: schedule(<tile_m = 64, tile_n = 128, stages = 6, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, lazy_rescale = 1, q_register_columns = 32>>)
func.func @d16(%q: memref<?x?x?x16xf16>, %k: memref<?x?x?x16xf16>, %v: memref<?x?x?x16xf16>, %o: memref<?x?x?x16xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
    outs(%o : memref<?x?x?x16xf16>)
  return
}

// CHECK-LABEL: @d64
// CHECK: schedule(<tile_m = 64, tile_n = 128, stages = 6, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, lazy_rescale = 1>>)
func.func @d64(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// CHECK-LABEL: @d80
// CHECK: schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, q_stages = 2, lazy_rescale = 1>>)
func.func @d80(%q: memref<?x?x?x80xf16>, %k: memref<?x?x?x80xf16>, %v: memref<?x?x?x80xf16>, %o: memref<?x?x?x80xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?x80xf16>)
    outs(%o : memref<?x?x?x80xf16>)
  return
}

// CHECK-LABEL: @d128
// CHECK: schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, q_stages = 2, lazy_rescale = 1>>)
func.func @d128(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// CHECK-LABEL: @d192
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, q_stages = 2, q_register_columns = 64>>)
func.func @d192(%q: memref<?x?x?x192xf16>, %k: memref<?x?x?x192xf16>, %v: memref<?x?x?x192xf16>, %o: memref<?x?x?x192xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x192xf16>, memref<?x?x?x192xf16>, memref<?x?x?x192xf16>)
    outs(%o : memref<?x?x?x192xf16>)
  return
}

// CHECK-LABEL: @d256
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, dynamic_scheduler = 1, q_register_columns = 128>>)
func.func @d256(%q: memref<?x?x?x256xf16>, %k: memref<?x?x?x256xf16>, %v: memref<?x?x?x256xf16>, %o: memref<?x?x?x256xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
    outs(%o : memref<?x?x?x256xf16>)
  return
}

// Weights of bf16 keep fewer bits: it is rescaled sooner.
// CHECK-LABEL: @bf16
// CHECK: schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, q_stages = 2>>)
func.func @bf16(%q: memref<?x?x?x128xbf16>, %k: memref<?x?x?x128xbf16>, %v: memref<?x?x?x128xbf16>, %o: memref<?x?x?x128xbf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>)
    outs(%o : memref<?x?x?x128xbf16>)
  return
}

// With heads of 64 they are judged late in narrower tiles: the columns that sum them up take registers.
// CHECK-LABEL: @bf16_d64
// CHECK: schedule(<tile_m = 64, tile_n = 96, stages = 4, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 8, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>>)
func.func @bf16_d64(%q: memref<?x?x?x64xbf16>, %k: memref<?x?x?x64xbf16>, %v: memref<?x?x?x64xbf16>, %o: memref<?x?x?x64xbf16>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>)
    outs(%o : memref<?x?x?x64xbf16>)
  return
}

// Scores that more than the mask shapes cannot be made again.
// CHECK-LABEL: @bf16_d64_softcap
// CHECK: schedule(<tile_m = 64, tile_n = 128, stages = 4, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 3, l2_head_group = 1>>)
func.func @bf16_d64_softcap(%q: memref<?x?x?x64xbf16>, %k: memref<?x?x?x64xbf16>, %v: memref<?x?x?x64xbf16>, %o: memref<?x?x?x64xbf16>) {
  flashattn.attention softcap(2.0) ins(%q, %k, %v : memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>)
    outs(%o : memref<?x?x?x64xbf16>)
  return
}

// Where programs differ in length, the longest of many heads first, and blocks claim them.
// CHECK-LABEL: @triangular
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 4, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 16, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>>)
func.func @triangular(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// CHECK-LABEL: @triangular_d64
// CHECK: schedule(<tile_m = 64, tile_n = 112, stages = 6, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 8, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1, q_register_columns = 32>>)
func.func @triangular_d64(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// CHECK-LABEL: @triangular_d256
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 0, q_register_columns = 128>>)
func.func @triangular_d256(%q: memref<?x?x?x256xf16>, %k: memref<?x?x?x256xf16>, %v: memref<?x?x?x256xf16>, %o: memref<?x?x?x256xf16>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : memref<?x?x?x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>)
    outs(%o : memref<?x?x?x256xf16>)
  return
}

// Short intervals: tiles whose ends waste less.
// CHECK-LABEL: @banded
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 8, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>>)
func.func @banded(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.window<left = 1023, right = 0>) ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// Short blocks: several at once.
// CHECK-LABEL: @banded_d64
// CHECK: schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 4>>)
func.func @banded_d64(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// A group's heads fill the tile, whose keys are joined to tiles of their own; but where a key's number
// says more than whether it is hidden.
// CHECK-LABEL: @joined
// CHECK: schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 96, producer_registers = 32, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 4, q_stages = 2, dynamic_scheduler = 1, compact_kv = 1>>)
// CHECK: softcap({{.*}}) schedule(<tile_m = 64, tile_n = 48, {{.*}}pack = 8, {{.*}}compact_kv = 1>>)
// CHECK: schedule(<tile_m = 64, tile_n = 32, {{.*}}pack = 8, {{.*}}blocks_per_sm = 4>>)
func.func @joined(%q: memref<?x64x?x64xf16>, %k: memref<?x8x?x64xf16>, %v: memref<?x8x?x64xf16>, %o: memref<?x64x?x64xf16>, %lengths: memref<?xi32>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) ins(%q, %k, %v : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
    outs(%o : memref<?x64x?x64xf16>)
  flashattn.attention mask(#flashattn.window<left = 127, right = 0>) softcap(30.0) ins(%q, %k, %v : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
    outs(%o : memref<?x64x?x64xf16>)
  flashattn.attention mask(#flashattn.window<left = 127, right = 0>) ins(%q, %k, %v : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
    kv_len(%lengths : memref<?xi32>) outs(%o : memref<?x64x?x64xf16>)
  return
}

// So are those of gradients, of narrower bands, and of single heads where the group is not known to fill a tile.
// CHECK-LABEL: @joined_gradients
// CHECK: schedule(<tile_m = 64, tile_n = 48, stages = 3, dot_type = f16, pack = 8, algorithm = separate_dq, mapping = hopper<consumers = 1, along = query_tile, registers = 136, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 3, q_stages = 2, dynamic_scheduler = 1, compact_kv = 1>>)
// CHECK: schedule(<tile_m = 64, tile_n = 48, {{.*}}pack = 8, {{.*}}compact_kv = 1>>)
// CHECK: schedule(<tile_m = 128, tile_n = 128,
// CHECK: schedule(<tile_m = 64, tile_n = 64,
func.func @joined_gradients(%q: memref<?x64x?x64xf16>, %k: memref<?x8x?x64xf16>, %dq: memref<?x64x?x64xf16>, %dk: memref<?x8x?x64xf16>, %dv: memref<?x8x?x64xf16>, %lse: memref<?x64x?xf32>) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 255, right = 0>, #flashattn.all_of<[#flashattn.sink<16>, #flashattn.causal]>]>) ins(%q, %k, %k, %q, %lse, %q : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>, memref<?x64x?x64xf16>, memref<?x64x?xf32>, memref<?x64x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
  flashattn.attention_backward mask(#flashattn.window<left = 127, right = 0>) deterministic ins(%q, %k, %k, %q, %lse, %q : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>, memref<?x64x?x64xf16>, memref<?x64x?xf32>, memref<?x64x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
  flashattn.attention_backward mask(#flashattn.window<left = 511, right = 0>) ins(%q, %k, %k, %q, %lse, %q : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>, memref<?x64x?x64xf16>, memref<?x64x?xf32>, memref<?x64x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
  flashattn.attention_backward mask(#flashattn.window<left = 127, right = 0>) softcap(30.0) ins(%q, %k, %k, %q, %lse, %q : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>, memref<?x64x?x64xf16>, memref<?x64x?xf32>, memref<?x64x?x64xf16>)
    outs(%dq, %dk, %dv : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
  return
}

// The same of programs that are not short.
// CHECK-LABEL: @wide_band_d64
// CHECK: schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, lazy_rescale = 1>>)
// CHECK: schedule(<tile_m = 64, tile_n = 32, {{.*}}consumers = 1, {{.*}}blocks_per_sm = 4>>)
func.func @wide_band_d64(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 2048, right = 0>) ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  flashattn.attention mask(#flashattn.window<left = 2047, right = 0>) ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// What a mask is called changes nothing.
// CHECK-LABEL: @triangular_set
// CHECK: schedule(<tile_m = 64, tile_n = 64, stages = 4, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 16, q_stages = 2, lazy_rescale = 1, dynamic_scheduler = 1>>)
func.func @triangular_set(%q: memref<?x?x?x128xf16>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (p - k >= 0)">) ins(%q, %k, %v : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

//--- falls.mlir
// wgmma has no f32.
// FALLS-LABEL: @f32
// FALLS-NOT: roles
// FALLS: return
func.func @f32(%q: memref<?x?x?x64xf32>, %k: memref<?x?x?x64xf32>, %v: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>)
    outs(%o : memref<?x?x?x64xf32>)
  return
}

// Tensor copies need rows at multiples of 16 bytes, known from the type or promised.
// FALLS-LABEL: @unaligned
// FALLS: schedule(<tile_m = 128, tile_n = 48, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
func.func @unaligned(%q: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %k: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %v: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %o: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>)
    outs(%o : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>)
  return
}

// FALLS-LABEL: @promised
// FALLS: schedule(<tile_m = 64, tile_n = 128, stages = 6, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 15, l2_head_group = 1, lazy_rescale = 1>>)
func.func @promised(%q: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> {flashattn.aligned_rows}, %k: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> {flashattn.aligned_rows}, %v: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> {flashattn.aligned_rows}, %o: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> {flashattn.aligned_rows}) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>)
    outs(%o : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>)
  return
}

//--- refused.mlir
func.func @elements(%q: memref<?x?x?x64xf32>, %o: memref<?x?x?x64xf32>) {
  // expected-error@+1 {{cannot be compiled for sm_90a with the schedule given: expected element type f16, bf16 or f8E4M3FN for wgmma but got f32}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f32, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>)
    outs(%o : memref<?x?x?x64xf32>)
  return
}

// -----

func.func @dot_type(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected dot_type f16, the operands' element type, but got bf16}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = bf16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @head_dim(%q: memref<?x?x?x20xf16>, %o: memref<?x?x?x20xf16>) {
  // expected-error@+1 {{expected D to be a multiple of 8 up to 256 but got 20}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x20xf16>, memref<?x?x?x20xf16>, memref<?x?x?x20xf16>)
    outs(%o : memref<?x?x?x20xf16>)
  return
}

// -----

func.func @rows(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{expected tile_m 64, the rows of a warpgroup, but got 128}}
  flashattn.attention schedule(<tile_m = 128, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @warps(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{expected cooperative 0 outside a backward pass but got 1}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, cooperative = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @keys(%q: memref<?x?x?x16xf16>, %o: memref<?x?x?x16xf16>) {
  // expected-error@+1 {{expected tile_n to be a multiple of 16 up to 256 but got 272}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 272, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x16xf16>, memref<?x?x?x16xf16>, memref<?x?x?x16xf16>)
    outs(%o : memref<?x?x?x16xf16>)
  return
}

// -----

func.func @aligned_rows(%q: memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>, %o: memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>) {
  // expected-error@+1 {{expected rows of q that begin at multiples of 16 bytes, which tensor copies require; promise this by 'flashattn.aligned_rows'}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>)
    outs(%o : memref<?x?x?x128xf16, strided<[?, ?, ?, 1], offset: ?>>)
  return
}

// -----

func.func @shared_memory(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{needs 311456 bytes of shared memory (q 49152, k 131072, v 131072, barriers 152, bounds 8) of 232448 available}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 128, stages = 4, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 248, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @registers_of_queries(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{needs 172 registers per thread (o 32, scores 64, weights 32, queries 16, other 28) of 160 that a consumer has}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, q_register_columns = 80>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @registers(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{needs 188 registers per thread (o 64, scores 64, weights 32, other 28) of 160 that a consumer has}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 128, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @register_file(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{expected at most 65536 registers for a block but got 98304}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 240, producer_registers = 48, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

// A product from registers takes keys by 16.
func.func @keys_16(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected tile_n to be a multiple of 16 up to 256 but got 72}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 72, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// What several blocks share: memory, of which each keeps a KiB beside its own, and registers.
func.func @blocks_shared_memory(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{needs 82000 bytes of shared memory (q 16384, k 32768, v 32768, barriers 72, bounds 8) of 76800 available}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 152, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @blocks_registers(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected at most 20480 registers for a block but got 24576}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @blocks_of_four(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected at most 32768 registers for a block but got 65536}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// ptxas takes a product only where its accumulators fit what threads begin with.
func.func @product(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{needs 94 registers per thread (product 64, other 30) of 80 available to 3 blocks at launch}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

// These are taken, the second to the last register.
func.func @two_blocks(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 2>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// Programs of one block read the same key/value head.
func.func @dynamic_heads(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  // expected-error@+1 {{expected a static number of query heads for each key/value head that is a multiple of 3, the number of consumers}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = head, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

// -----

func.func @group_of_four(%q: memref<?x32x?x128xf16>, %k: memref<?x8x?x128xf16>, %o: memref<?x32x?x128xf16>) {
  // expected-error@+1 {{expected a static number of query heads for each key/value head that is a multiple of 3, the number of consumers}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = head, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x32x?x128xf16>, memref<?x8x?x128xf16>, memref<?x8x?x128xf16>)
    outs(%o : memref<?x32x?x128xf16>)
  return
}

// -----

// This one is taken.
func.func @group_of_three(%q: memref<?x24x?x128xf16>, %k: memref<?x8x?x128xf16>, %o: memref<?x24x?x128xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = head, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x24x?x128xf16>, memref<?x8x?x128xf16>, memref<?x8x?x128xf16>)
    outs(%o : memref<?x24x?x128xf16>)
  return
}

// -----

// Two programs of four packed heads make a group of eight; one of eight has no neighbour.
func.func @packed_group(%q: memref<?x64x?x64xf16>, %k: memref<?x8x?x64xf16>, %o: memref<?x64x?x64xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 2, along = head, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
    outs(%o : memref<?x64x?x64xf16>)
  // expected-error@+1 {{expected a static number of query heads for each key/value head that is a multiple of 2, the number of consumers, in units of 8 packed heads}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 2, along = head, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %k, %k : memref<?x64x?x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>)
    outs(%o : memref<?x64x?x64xf16>)
  return
}

// -----

// What is read of a head is read for all rows of a tile.
#packed = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>
func.func @packed_bias(%q: memref<1x8x?x64xf16>, %bias: memref<1x8x?x?xf16>, %out_q: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with bias but got 8}}
  flashattn.attention schedule(#packed) ins(%q, %q, %q : memref<1x8x?x64xf16>, memref<1x8x?x64xf16>, memref<1x8x?x64xf16>)
      bias(%bias : memref<1x8x?x?xf16>) outs(%out_q : memref<1x8x?x64xf16>)
  return
}

// -----

#packed = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>
func.func @packed_attn_mask(%q: memref<1x8x?x64xf16>, %attn_mask: memref<1x1x1x?xi1>, %out_q: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with attn_mask but got 8}}
  flashattn.attention schedule(#packed) ins(%q, %q, %q : memref<1x8x?x64xf16>, memref<1x8x?x64xf16>, memref<1x8x?x64xf16>)
      attn_mask(%attn_mask : memref<1x1x1x?xi1>) outs(%out_q : memref<1x8x?x64xf16>)
  return
}

// -----

#packed = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>
func.func @packed_sinks(%q: memref<1x8x?x64xf16>, %sinks: memref<8xf32>, %out_q: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with sink_logits but got 8}}
  flashattn.attention schedule(#packed) ins(%q, %q, %q : memref<1x8x?x64xf16>, memref<1x8x?x64xf16>, memref<1x8x?x64xf16>)
      sink_logits(%sinks : memref<8xf32>) outs(%out_q : memref<1x8x?x64xf16>)
  return
}

// -----

#packed = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, blocks_per_sm = 3>>
func.func @packed_score_mod(%q: memref<1x8x?x64xf16>, %out_q: memref<1x8x?x64xf16>) {
  // expected-error@+1 {{expected pack 1 with a score modification but got 8}}
  flashattn.attention schedule(#packed) ins(%q, %q, %q : memref<1x8x?x64xf16>, memref<1x8x?x64xf16>, memref<1x8x?x64xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        flashattn.yield %s : f32
      } outs(%out_q : memref<1x8x?x64xf16>)
  return
}

// -----

func.func @dq_reduce_stages(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected dq_reduce_stages 0 in a forward pass but got 1}}
  flashattn.attention schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

// Scores that are made again are products and nothing else.
#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_softcap(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected lazy_rescale 0 with a softcap but got 1}}
  flashattn.attention softcap(2.0) schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_score_mod(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected lazy_rescale 0 with a score_mod but got 1}}
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        flashattn.yield %s : f32
      } outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_bias(%q: memref<?x?x?x64xf16>, %bias: memref<?x?x?x?xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected lazy_rescale 0 with a bias but got 1}}
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      bias(%bias : memref<?x?x?x?xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_attn_mask(%q: memref<?x?x?x64xf16>, %attn_mask: memref<?x?x?x?xi1>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected lazy_rescale 0 with an attn_mask but got 1}}
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
      attn_mask(%attn_mask : memref<?x?x?x?xi1>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

// A lane sums up 16 weights: 1 each where scores are equal.
#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 1, lazy_rescale = 1>>
func.func @lazy_rescale(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected a rescale_threshold of at least 5 with lazy_rescale and tile_n 64 but got 4}}
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 5, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_rescale_wide(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected a rescale_threshold of at least 6 with lazy_rescale and tile_n 80 but got 5}}
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

// Enough.
#late = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 5, l2_head_group = 1, lazy_rescale = 1>>
func.func @late_enough(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#late) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins_splits(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected splits 1 with compact_kv but got 4}}
  flashattn.attention mask(#flashattn.causal) schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, splits = 4, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins_bias(%q: memref<?x?x?x64xf16>, %bias: memref<1x1x?x?xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected compact_kv 0 with a bias, which depends on the key's position, but got 1}}
  flashattn.attention mask(#flashattn.causal) schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) bias(%bias : memref<1x1x?x?xf16>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @compact_attn_mask(%q: memref<?x?x?x64xf16>, %attn_mask: memref<1x1x?x?xi1> {flashattn.aligned_rows}, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected compact_kv 0 with an attn_mask, which depends on the key's position, but got 1}}
  flashattn.attention mask(#flashattn.causal) schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) attn_mask(%attn_mask : memref<1x1x?x?xi1>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins_score_mod(%q: memref<?x?x?x64xf16>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected compact_kv 0 with a score_mod, which depends on the key's position, but got 1}}
  flashattn.attention mask(#flashattn.causal) schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      flashattn.yield %s : f32
    }
    outs(%out_q : memref<?x?x?x64xf16>)
  return
}

// -----

func.func @joins_kv_len(%q: memref<?x?x?x64xf16>, %n: memref<?xi32>, %out_q: memref<?x?x?x64xf16>) {
  // expected-error@+1 {{expected compact_kv 0 with a kv_len, which depends on the key's position, but got 1}}
  flashattn.attention mask(#flashattn.causal) schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1, compact_kv = 1>>) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) kv_len(%n : memref<?xi32>) outs(%out_q : memref<?x?x?x64xf16>)
  return
}

//--- chip.mlir
func.func @chip(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention schedule(<tile_m = 64, tile_n = 80, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>)
    ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}

//--- op.mlir
func.func @pinned(%q: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}
