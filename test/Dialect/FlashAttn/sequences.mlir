// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_80" -flashattn-tile | FileCheck %s --check-prefix=TILE
// RUN: flash-opt %s "-flashattn-select-schedule=chip=sm_90a" -flashattn-tile | FileCheck %s --check-prefix=HOPPER
// RUN: not flash-opt %s "-flashattn-select-schedule=chip=cpu schedule='splits = 2'" 2>&1 | FileCheck %s --check-prefix=SPLITS
// SPLITS: expected splits 1 with packed sequences but got 2

// Rules S1 to S5: packed sequences. A program finds its segment, takes a view of its rows, and a store is clipped by the
// view. Programs of a block of several consumers belong to one segment.

// CHECK-LABEL: func @packed
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%{{.*}}, %{{.*}}, %{{.*}} : memref<1x8x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>) kv_len(%{{.*}} : memref<?xi32>) q_len(%{{.*}} : memref<?xi32>) cu_seqlens_q(%{{.*}} : memref<?xi32>) cu_seqlens_k(%{{.*}} : memref<?xi32>) outs(%{{.*}}, %{{.*}} : memref<1x8x?x64xf16>, memref<1x8x?xf32>)
// TILE-LABEL: func @packed
// TILE: %[[ROWS:.*]] = memref.dim %arg0
// The tiles of all segments: one segment more than starts.
// TILE: %[[STARTS:.*]] = memref.dim %arg5
// TILE: %[[SEGMENTS:.*]] = arith.addi %[[STARTS]]
// TILE: %[[UNITS:.*]] = arith.divui %[[ROWS]]
// TILE: %[[TILES:.*]] = arith.addi %[[UNITS]], %[[SEGMENTS]]
// TILE: %[[ALL:.*]] = arith.select %{{.*}}, %[[TILES]]
// TILE: %[[SPACE:.*]] = flashattn.ragged_space(%{{.*}}, %{{.*}}, %[[ALL]]) axes(batch, head, query_tile) starts %arg5 rows 128 tiles 1 : memref<?xi32>
// TILE: flashattn.program (%[[SEGMENT:.*]], %[[HEAD:.*]], %[[TILE:.*]]) in %[[SPACE]] schedule(<tile_m = 128
// TILE: memref.load %arg5
// TILE: memref.load %arg4
// TILE: memref.load %arg6
// TILE: memref.load %arg3
// Only existing rows are read.
// TILE: %[[Q:.*]] = memref.subview %arg0
// TILE: flashattn.load_tile %[[Q]][%{{.*}}, %[[HEAD]], %[[TILE]], %{{.*}}]
// TILE: flashattn.tile_loop
// TILE: memref.subview %arg1
// TILE: memref.subview %arg2
// Rows of no query are written: S3.
// TILE: arith.select
// TILE: %[[O:.*]] = memref.subview %arg7
// TILE: flashattn.store_tile %{{.*}} to %[[O]]
// HOPPER-LABEL: func @packed
// HOPPER: flashattn.ragged_space{{.*}} starts %arg5 rows 64 tiles 3 : memref<?xi32>
// HOPPER: flashattn.program {{.*}} schedule({{.*}}mapping = hopper<consumers = 3
func.func @packed(%q: memref<1x8x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %kv_len: memref<?xi32>,
                  %q_len: memref<?xi32>, %starts_q: memref<?xi32>, %starts_k: memref<?xi32>, %o: memref<1x8x?x64xf16>,
                  %lse: memref<1x8x?xf32>) {
  flashattn.attention cu_seqlens_k(%starts_k : memref<?xi32>) q_len(%q_len : memref<?xi32>)
      cu_seqlens_q(%starts_q : memref<?xi32>) kv_len(%kv_len : memref<?xi32>) mask(#flashattn.causal)
      ins(%q, %k, %v : memref<1x8x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
      outs(%o, %lse : memref<1x8x?x64xf16>, memref<1x8x?xf32>)
  return
}

// Queries alone are packed: keys have one batch for each sequence.
// CHECK-LABEL: func @packed_queries
// CHECK: cu_seqlens_q
// TILE-LABEL: func @packed_queries
// TILE: flashattn.ragged_space
// TILE: flashattn.program
// TILE-NOT: memref.subview %arg1
// TILE: memref.subview %arg4
func.func @packed_queries(%q: memref<1x2x?x64xf16>, %k: memref<3x2x?x64xf16>, %v: memref<3x2x?x64xf16>,
                          %starts: memref<4xi32>, %o: memref<1x2x?x64xf16>) {
  flashattn.attention ins(%q, %k, %v : memref<1x2x?x64xf16>, memref<3x2x?x64xf16>, memref<3x2x?x64xf16>)
      cu_seqlens_q(%starts : memref<4xi32>) outs(%o : memref<1x2x?x64xf16>)
  return
}

// Gradients: programs over keys have the segments of keys. Sums begin at whole tiles of a segment.
// CHECK-LABEL: func @gradients
// CHECK: flashattn.attention_backward {{.*}} cu_seqlens_q(%{{.*}}) cu_seqlens_k(%{{.*}}) outs(
// TILE-LABEL: func @gradients
// TILE: flashattn.ragged_space{{.*}} axes(batch, head, query_tile) starts %arg6
// TILE: flashattn.program
// TILE: flashattn.ragged_space{{.*}} axes(batch, head, key_tile) starts %arg7
// TILE: flashattn.program
// HOPPER-LABEL: func @gradients
// HOPPER: flashattn.ragged_space{{.*}} axes(batch, head, key_tile) starts %arg7
// HOPPER: flashattn.program {{.*}} mapping = hopper<
func.func @gradients(%q: memref<1x2x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %o: memref<1x2x?x64xf16>,
                     %lse: memref<1x2x?xf32>, %d_o: memref<1x2x?x64xf16>, %starts_q: memref<?xi32>, %starts_k: memref<?xi32>,
                     %dq: memref<1x2x?x64xf16>, %dk: memref<1x2x?x64xf16>, %dv: memref<1x2x?x64xf16>) {
  flashattn.attention_backward ins(%q, %k, %v, %o, %lse, %d_o : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>,
      memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?xf32>, memref<1x2x?x64xf16>)
      cu_seqlens_q(%starts_q : memref<?xi32>) cu_seqlens_k(%starts_k : memref<?xi32>)
      outs(%dq, %dk, %dv : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
  return
}
