// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_90a | FileCheck %s --check-prefixes=CHECK,HOPPER
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 | FileCheck %s --check-prefixes=CHECK,AMPERE
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=cpu vector-width=8" | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=cpu schedule='tile_m = 8'" | FileCheck %s --check-prefix=ROWS
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=cpu schedule='splits = 1'" | FileCheck %s --check-prefix=WHOLE

// Few queries, whatever the lengths: the keys in parts, and heads in the rows of a tile.
// CHECK-LABEL: func @group_unknown
// HOPPER: schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = bf16, pack = 16, splits = 128, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 3, l2_head_group = 1, blocks_per_sm = 2, prefetch_kib_per_sm = 72>>)
// AMPERE: schedule(<tile_m = 32, tile_n = 32, stages = 2, dot_type = bf16, splits = 128, mapping = mma_sync<warps = 2>>)
// CPU: schedule(<tile_m = 2, tile_n = 64, stages = 1, dot_type = f32, splits = 64, min_split_tiles = 4, mapping = cpu>)
// AVX2: schedule(<tile_m = 2,
func.func @group_unknown(%q: memref<?x?x1x128xbf16>, %k: memref<?x?x?x128xbf16>, %out_q: memref<?x?x1x128xbf16>) {
  flashattn.attention ins(%q, %k, %k : memref<?x?x1x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>) outs(%out_q : memref<?x?x1x128xbf16>)
  return
}

// -----

// As many heads as a group has, and 16 positions of each.
// CHECK-LABEL: func @group_of_four
// HOPPER: pack = 4, splits = 128
// CPU: schedule(<tile_m = 32, {{.*}}, pack = 2, splits = 64, min_split_tiles = 4, mapping = cpu>)
// AVX2-NOT: pack
// AVX2: schedule(<tile_m = 16,
func.func @group_of_four(%q: memref<?x16x32x64xf16>, %k: memref<?x?x8x64xf16>, %out_q: memref<?x16x32x64xf16>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd) ins(%q, %k, %k : memref<?x16x32x64xf16>, memref<?x?x8x64xf16>, memref<?x?x8x64xf16>) outs(%out_q : memref<?x16x32x64xf16>)
  return
}

// -----

// Of one query 8 heads are the first half of 16 rows where there is room for 64; of two, and 16 heads, they are not.
// CHECK-LABEL: func @group_of_eight
// HOPPER: pack = 64, splits = 128
// HOPPER: pack = 8, splits = 128
// HOPPER: pack = 16, splits = 128
func.func @group_of_eight(%q: memref<?x16x1x64xf16>, %r: memref<?x16x2x64xf16>, %s: memref<?x32x1x64xf16>, %k: memref<?x2x?x64xf16>, %out_q: memref<?x16x1x64xf16>, %out_r: memref<?x16x2x64xf16>, %out_s: memref<?x32x1x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<?x16x1x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_q : memref<?x16x1x64xf16>)
  flashattn.attention ins(%r, %k, %k : memref<?x16x2x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_r : memref<?x16x2x64xf16>)
  flashattn.attention ins(%s, %k, %k : memref<?x32x1x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_s : memref<?x32x1x64xf16>)
  return
}

// -----

// What is read of a query head is read for all rows of a tile at once; the sinks are for who merges.
// CHECK-LABEL: func @bias
// HOPPER-NOT: pack
// HOPPER: splits = 128
// HOPPER: pack = 4, splits = 128
// CPU: schedule(<tile_m = 2, tile_n = 64, stages = 1, dot_type = f32, splits = 64,
// CPU: schedule(<tile_m = 4, tile_n = 64, {{.*}}, pack = 4, splits = 64,
func.func @bias(%q: memref<?x32x1x64xf16>, %k: memref<?x8x?x64xf16>, %b: memref<1x32x1x?xf16>, %s: memref<32xf32>, %out_q: memref<?x32x1x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<?x32x1x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>) bias(%b : memref<1x32x1x?xf16>) outs(%out_q : memref<?x32x1x64xf16>)
  flashattn.attention ins(%q, %k, %k : memref<?x32x1x64xf16>, memref<?x8x?x64xf16>, memref<?x8x?x64xf16>) sink_logits(%s : memref<32xf32>) outs(%out_q : memref<?x32x1x64xf16>)
  return
}

// -----

// CHECK-LABEL: func @wide
// HOPPER-COUNT-2: schedule(<tile_m = 64, tile_n = 32, stages = 5, {{.*}}l2_head_group = 1, prefetch_kib_per_sm = 72
func.func @wide(%q: memref<?x?x2x256xf16>, %k: memref<?x?x?x256xf16>, %x: memref<?x?x2x192xf16>, %y: memref<?x?x?x192xf16>, %out_q: memref<?x?x2x256xf16>, %out_x: memref<?x?x2x192xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<?x?x2x256xf16>, memref<?x?x?x256xf16>, memref<?x?x?x256xf16>) outs(%out_q : memref<?x?x2x256xf16>)
  flashattn.attention ins(%x, %y, %y : memref<?x?x2x192xf16>, memref<?x?x?x192xf16>, memref<?x?x?x192xf16>) outs(%out_x : memref<?x?x2x192xf16>)
  return
}

// -----

// CHECK-LABEL: func @many
// CHECK-NOT: splits
// CPU: schedule(<tile_m = 32,
// CPU: schedule(<tile_m = 32,
// AVX2: schedule(<tile_m = 16,
// AVX2: schedule(<tile_m = 16,
func.func @many(%q: memref<?x?x17x128xbf16>, %r: memref<?x?x?x128xbf16>, %k: memref<?x?x?x128xbf16>, %out_q: memref<?x?x17x128xbf16>, %out_r: memref<?x?x?x128xbf16>) {
  flashattn.attention ins(%q, %k, %k : memref<?x?x17x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>) outs(%out_q : memref<?x?x17x128xbf16>)
  flashattn.attention ins(%r, %k, %k : memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>, memref<?x?x?x128xbf16>) outs(%out_r : memref<?x?x?x128xbf16>)
  return
}

// -----

// On the CPU one tile has the queries and as few rows without one as there are registers for.
// CHECK-LABEL: func @in_between
// CPU: schedule(<tile_m = 4,
// CPU: schedule(<tile_m = 8,
// AVX2: schedule(<tile_m = 4,
// AVX2: schedule(<tile_m = 8,
func.func @in_between(%q: memref<?x?x4x64xf32>, %r: memref<?x?x5x64xf32>, %k: memref<?x?x?x64xf32>, %out_q: memref<?x?x4x64xf32>, %out_r: memref<?x?x5x64xf32>) {
  flashattn.attention ins(%q, %k, %k : memref<?x?x4x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>) outs(%out_q : memref<?x?x4x64xf32>)
  flashattn.attention ins(%r, %k, %k : memref<?x?x5x64xf32>, memref<?x?x?x64xf32>, memref<?x?x?x64xf32>) outs(%out_r : memref<?x?x5x64xf32>)
  return
}

// -----

// Heads that share keys fill a register of the CPU, two where there are so many.
// CHECK-LABEL: func @registers
// CPU: schedule(<tile_m = 2, {{.*}}, pack = 2, splits = 64, min_split_tiles = 4, mapping = cpu>)
// CPU: schedule(<tile_m = 16, {{.*}}, pack = 4, splits = 64, min_split_tiles = 4, mapping = cpu>)
// CPU: schedule(<tile_m = 32, {{.*}}, pack = 32, splits = 64, min_split_tiles = 4, mapping = cpu>)
// AVX2: schedule(<tile_m = 2, {{.*}}, pack = 2, splits = 64, min_split_tiles = 4, mapping = cpu>)
// AVX2: schedule(<tile_m = 16, {{.*}}, pack = 4, splits = 64, min_split_tiles = 4, mapping = cpu>)
// AVX2: schedule(<tile_m = 16, {{.*}}, pack = 16, splits = 64, min_split_tiles = 4, mapping = cpu>)
// ROWS-LABEL: func @registers
// ROWS: schedule(<tile_m = 8, {{.*}}, pack = 2, splits = 64, min_split_tiles = 4, mapping = cpu>)
// ROWS: schedule(<tile_m = 8, {{.*}}, pack = 4, splits = 64, min_split_tiles = 4, mapping = cpu>)
// ROWS: schedule(<tile_m = 8, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>)
// WHOLE-LABEL: func @registers
// WHOLE: schedule(<tile_m = 2, {{.*}}, pack = 2, mapping = cpu>)
// WHOLE: schedule(<tile_m = 16, {{.*}}, pack = 4, mapping = cpu>)
// WHOLE: schedule(<tile_m = 32, {{.*}}, pack = 32, mapping = cpu>)
func.func @registers(%two: memref<?x4x1x64xf32>, %three: memref<?x6x3x64xf32>, %many: memref<?x96x1x64xf32>, %k: memref<?x2x?x64xf32>, %out_two: memref<?x4x1x64xf32>, %out_three: memref<?x6x3x64xf32>, %out_many: memref<?x96x1x64xf32>) {
  flashattn.attention ins(%two, %k, %k : memref<?x4x1x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>) outs(%out_two : memref<?x4x1x64xf32>)
  flashattn.attention ins(%three, %k, %k : memref<?x6x3x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>) outs(%out_three : memref<?x6x3x64xf32>)
  flashattn.attention ins(%many, %k, %k : memref<?x96x1x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>) outs(%out_many : memref<?x96x1x64xf32>)
  return
}
