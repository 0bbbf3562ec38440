// RUN: flash-opt %s -split-input-file -flashattn-tile | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile | flash-opt -split-input-file | FileCheck %s

// Programs of which every 16 rows of a tile have queries in the first 8 alone say so.

#one = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>
#four = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = mma_sync<warps = 4>>

// Positions of one head, or 16 of each.
// CHECK-LABEL: func @positions
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<{{.*}}>) unused_row_half {
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<{{.*}}pack = 4, mapping = {{.*}}>) unused_row_half {
func.func @positions(%q: memref<?x8x8x64xf16>, %k: memref<?x2x?x64xf16>, %out_q: memref<?x8x8x64xf16>) {
  flashattn.attention schedule(#one) ins(%q, %k, %k : memref<?x8x8x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_q : memref<?x8x8x64xf16>)
  flashattn.attention schedule(#four) ins(%q, %k, %k : memref<?x8x8x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_q : memref<?x8x8x64xf16>)
  return
}

// -----

// One more, or a number that is not known; 8 of each of 8 heads, of which every other one begins a second half.
// CHECK-LABEL: func @more
// CHECK-NOT: unused_row_half
#one = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>
#eight = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 8, mapping = mma_sync<warps = 4>>
func.func @more(%q: memref<?x8x9x64xf16>, %x: memref<?x8x?x64xf16>, %y: memref<?x16x1x64xf16>, %k: memref<?x2x?x64xf16>, %out_q: memref<?x8x9x64xf16>, %out_x: memref<?x8x?x64xf16>, %out_y: memref<?x16x1x64xf16>) {
  flashattn.attention schedule(#one) ins(%q, %k, %k : memref<?x8x9x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_q : memref<?x8x9x64xf16>)
  flashattn.attention schedule(#one) ins(%x, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_x : memref<?x8x?x64xf16>)
  flashattn.attention schedule(#eight) ins(%y, %k, %k : memref<?x16x1x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_y : memref<?x16x1x64xf16>)
  return
}

// -----

// Heads next to each other: one position of 64, of which there are 8; or where the layout has them so, if both
// positions' heads are 8 together.
#all = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 64, mapping = mma_sync<warps = 4>>
#eight = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 8, mapping = mma_sync<warps = 4>>
#four = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @heads
// CHECK-COUNT-3: unused_row_half
// CHECK-NOT: unused_row_half
func.func @heads(%q: memref<?x16x1x64xf16>, %k: memref<?x2x?x64xf16>, %x: memref<?x1x16x64xf16>, %y: memref<?x2x8x64xf16>, %z: memref<?x3x8x64xf16>, %l: memref<?x?x2x64xf16>, %d: memref<?x?x1x64xf16>, %e: memref<?x?x?x64xf16>, %out_q: memref<?x16x1x64xf16>, %out_x: memref<?x1x16x64xf16>, %out_y: memref<?x2x8x64xf16>, %out_z: memref<?x3x8x64xf16>, %out_d: memref<?x?x1x64xf16>) {
  flashattn.attention schedule(#all) ins(%q, %k, %k : memref<?x16x1x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>) outs(%out_q : memref<?x16x1x64xf16>)
  flashattn.attention layout(bshd) schedule(#eight) ins(%x, %l, %l : memref<?x1x16x64xf16>, memref<?x?x2x64xf16>, memref<?x?x2x64xf16>) outs(%out_x : memref<?x1x16x64xf16>)
  flashattn.attention layout(bshd) schedule(#four) ins(%y, %l, %l : memref<?x2x8x64xf16>, memref<?x?x2x64xf16>, memref<?x?x2x64xf16>) outs(%out_y : memref<?x2x8x64xf16>)
  // 12 rows; and of heads that are not known 64.
  flashattn.attention layout(bshd) schedule(#four) ins(%z, %l, %l : memref<?x3x8x64xf16>, memref<?x?x2x64xf16>, memref<?x?x2x64xf16>) outs(%out_z : memref<?x3x8x64xf16>)
  flashattn.attention schedule(#all) ins(%d, %e, %e : memref<?x?x1x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) outs(%out_d : memref<?x?x1x64xf16>)
  return
}
