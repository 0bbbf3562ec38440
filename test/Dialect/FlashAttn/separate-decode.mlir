// RUN: flash-opt %s -flashattn-separate-decode | FileCheck %s
// RUN: flash-opt %s -flashattn-separate-decode -flashattn-select-schedule=chip=sm_90a -flashattn-tile | flash-opt \
// RUN:   | FileCheck %s --check-prefix=TILE

// Four query heads share a key/value head: 64 rows of a tile are 16 queries.
// CHECK-LABEL: func.func @grouped
// CHECK: flashattn.attention {{.*}} max_seqlen_q(1) {{.*}} outs(%[[O:.*]] : memref<1x8x?x64xf16>)
// CHECK: flashattn.attention {{.*}} min_seqlen_q(2) max_seqlen_q(16) {{.*}} outs(%[[O]] :
// CHECK: flashattn.attention {{.*}} min_seqlen_q(17) page_table{{.*}} outs(%[[O]] :
// CHECK-NOT: flashattn.attention
func.func @grouped(%q: memref<1x8x?x64xf16>, %k: memref<?x2x16x64xf16>, %n: memref<?xi32>, %t: memref<?x?xi32>,
                   %starts: memref<?xi32>, %o: memref<1x8x?x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<1x8x?x64xf16>, memref<?x2x16x64xf16>, memref<?x2x16x64xf16>)
      kv_len(%n : memref<?xi32>) cu_seqlens_q(%starts : memref<?xi32>) page_table(%t : memref<?x?xi32>)
      outs(%o : memref<1x8x?x64xf16>)
  return
}

// Programs for few queries are those of sequences, and split keys. Others are those of segments.
// TILE-LABEL: func.func @grouped
// TILE: flashattn.count_splits
// TILE: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// TILE: flashattn.program {{.*}} schedule({{.*}}pack = 4
// TILE: flashattn.combine {{.*}} cu_seqlens_q({{.*}}) outs
// TILE: flashattn.combine {{.*}} cu_seqlens_q({{.*}}) min_seqlen_q(2) outs
// TILE: flashattn.ragged_space{{.*}} axes(batch, head, query_tile) starts %{{.*}} rows 64 tiles {{[1-9]}} least 17 : memref<?xi32>
// TILE: flashattn.program {{.*}} schedule(

// CHECK-LABEL: func.func @many_heads
// CHECK: min_seqlen_q(2) max_seqlen_q(4)
// CHECK: min_seqlen_q(5) outs
func.func @many_heads(%q: memref<1x16x?x64xf16>, %k: memref<?x1x?x64xf16>, %starts: memref<?xi32>,
                      %o: memref<1x16x?x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<1x16x?x64xf16>, memref<?x1x?x64xf16>, memref<?x1x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>)
      outs(%o : memref<1x16x?x64xf16>)
  return
}

// CHECK-LABEL: func.func @packed_keys
// CHECK-NOT: _seqlen_q(
// CHECK: return
func.func @packed_keys(%q: memref<1x8x?x64xf16>, %k: memref<1x2x?x64xf16>, %starts: memref<?xi32>,
                       %o: memref<1x8x?x64xf16>) {
  flashattn.attention ins(%q, %k, %k : memref<1x8x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<?xi32>) cu_seqlens_k(%starts : memref<?xi32>)
      outs(%o : memref<1x8x?x64xf16>)
  return
}

// Lengths of queries of their own, a limit, and a schedule stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NEXT: flashattn.attention {{.*}} q_len({{[^)]*}}) cu_seqlens_q({{[^)]*}}) outs
// CHECK-NEXT: flashattn.attention {{.*}} max_seqlen_q(3) outs
// CHECK-NEXT: flashattn.attention schedule({{.*}}) ins({{.*}}) cu_seqlens_q({{[^)]*}}) outs
// CHECK-NEXT: return
func.func @others(%q: memref<1x8x?x64xf32>, %k: memref<?x2x?x64xf32>, %n: memref<?xi32>, %starts: memref<?xi32>,
                  %o: memref<1x8x?x64xf32>) {
  flashattn.attention ins(%q, %k, %k : memref<1x8x?x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>)
      q_len(%n : memref<?xi32>) cu_seqlens_q(%starts : memref<?xi32>)
      outs(%o : memref<1x8x?x64xf32>)
  flashattn.attention ins(%q, %k, %k : memref<1x8x?x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>)
      cu_seqlens_q(%starts : memref<?xi32>) max_seqlen_q(3)
      outs(%o : memref<1x8x?x64xf32>)
  flashattn.attention
      schedule(<tile_m = 32, tile_n = 32, stages = 2, dot_type = f32, mapping = mma_sync<warps = 2>>)
      ins(%q, %k, %k : memref<1x8x?x64xf32>, memref<?x2x?x64xf32>, memref<?x2x?x64xf32>)
      cu_seqlens_q(%starts : memref<?xi32>)
      outs(%o : memref<1x8x?x64xf32>)
  return
}
