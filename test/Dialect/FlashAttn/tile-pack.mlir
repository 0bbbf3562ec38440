// RUN: flash-opt %s -split-input-file -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// READS-BACK-LABEL: func @packed
// Heads of a group share a tile: 16 positions of each of 4. The heads of a memref are split, so
// that those past the group's last are out of bounds like the rows past Nq.
#packed = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @packed
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>
// CHECK-DAG: %[[NQ:.*]] = memref.dim %[[Q]], %c2
// CHECK-DAG: %[[TILES:.*]] = arith.ceildivui %[[NQ]], %c16
// CHECK-DAG: %[[HKV:.*]] = memref.dim %[[K]], %c1
// CHECK-DAG: %[[GROUP:.*]] = arith.divui
// CHECK-DAG: %[[PERGROUP:.*]] = arith.ceildivui %[[GROUP]], %c4
// CHECK-DAG: %[[PROGRAMS:.*]] = arith.muli %[[HKV]], %[[PERGROUP]]
// CHECK: %[[QS:.*]] = memref.expand_shape %[[Q]] {{\[\[}}0], [1, 2], [3], [4]] output_shape [%{{.*}}, %[[HKV]], %[[GROUP]], %{{.*}}, 64]
// CHECK: %[[OS:.*]] = memref.expand_shape %[[O]] {{\[\[}}0], [1, 2], [3], [4]]
// CHECK: %[[LSES:.*]] = memref.expand_shape %[[LSE]] {{\[\[}}0], [1, 2], [3]]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %[[PROGRAMS]], %[[TILES]])
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]]
// CHECK: %[[KV:.*]] = arith.divui %[[H]], %[[PERGROUP]]
// CHECK: %[[ROW:.*]] = arith.muli %[[T]], %c16
// CHECK: arith.addi %[[ROW]], %c16
// CHECK: %[[BEFORE:.*]] = arith.muli %[[KV]], %[[PERGROUP]]
// CHECK: %[[INGROUP:.*]] = arith.subi %[[H]], %[[BEFORE]]
// CHECK: %[[ROWS4_16:.*]] = flashattn.packed_rows [4, 16]
// CHECK: %[[QT:.*]] = flashattn.load_tile %[[QS]][%[[B]], %[[KV]], %[[INGROUP]], %[[T]], %c0] dims [2, 3, 4] rows %[[ROWS4_16]] in_bounds [false, false, true] : memref<?x?x?x?x64xf16> -> vector<64x64xf16>
// CHECK: flashattn.load_tile %[[K]][%[[B]], %[[KV]],
// CHECK: vector.contract {{.*}} %[[QT]],
// The heads follow each other: positions begin anew.
// CHECK: %[[STEP:.*]] = vector.shape_cast %{{.*}} : vector<64xi32> to vector<64x1xi32>
// CHECK: arith.remui %[[STEP]], %{{.*}} : vector<64x1xi32>
// CHECK: flashattn.store_tile %{{.*}} to %[[OS]][%[[B]], %[[KV]], %[[INGROUP]], %[[T]], %c0] dims [2, 3, 4] rows %[[ROWS4_16]] in_bounds [false, false, true] : vector<64x64xf16>,
// CHECK: flashattn.store_tile %{{.*}} to %[[LSES]][%[[B]], %[[KV]], %[[INGROUP]], %[[T]]] dims [2, 3] rows %[[ROWS4_16]] in_bounds [false, false] : vector<64xf32>,
func.func @packed(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#packed)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

// In bshd the heads of a position lie next to each other, and take turns in the rows.
#packed = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @packed_bshd
// CHECK: %[[QS:.*]] = memref.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3], [4]]
// CHECK: flashattn.program (%[[B:.*]], %{{.*}}, %[[T:.*]]) in
// CHECK: %[[ROWS16_4:.*]] = flashattn.packed_rows [16, 4]
// CHECK: flashattn.load_tile %[[QS]][%[[B]], %[[T]], %[[KV:.*]], %[[INGROUP:.*]], %c0] dims [1, 3, 4] rows %[[ROWS16_4]] in_bounds [false, false, true] : memref<?x?x8x8x64xf16> -> vector<64x64xf16>
// CHECK: %[[STEP:.*]] = vector.shape_cast %{{.*}} : vector<64xi32> to vector<64x1xi32>
// CHECK: arith.divui %[[STEP]], %{{.*}} : vector<64x1xi32>
// CHECK: flashattn.store_tile %{{.*}} to %{{.*}}[%[[B]], %[[T]], %[[KV]], %[[INGROUP]], %c0] dims [1, 3, 4] rows %[[ROWS16_4]] in_bounds [false, false, true] : vector<64x64xf16>,
// CHECK: flashattn.store_tile %{{.*}} to %{{.*}}[%[[B]], %[[KV]], %[[INGROUP]], %[[T]]] dims [3, 2] rows %[[ROWS16_4]] in_bounds [false, false] : vector<64xf32>, memref<?x8x8x?xf32>
func.func @packed_bshd(%q: memref<?x?x64x64xf16>, %k: memref<?x?x8x64xf16>, %v: memref<?x?x8x64xf16>, %o: memref<?x?x64x64xf16>, %lse: memref<?x64x?xf32>) {
  flashattn.attention mask(#flashattn.causal) layout(bshd) schedule(#packed)
    ins(%q, %k, %v : memref<?x?x64x64xf16>, memref<?x?x8x64xf16>, memref<?x?x8x64xf16>)
    outs(%o, %lse : memref<?x?x64x64xf16>, memref<?x64x?xf32>)
  return
}

// -----

// A static number of heads is split to static ones only: it is forgotten where the key/value heads
// are not known.
#packed = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @packed_half_known
// CHECK: memref.expand_shape %{{.*}} {{\[\[}}0], [1, 2], [3], [4]] output_shape {{.*}} : memref<?x?x2x64xf16, strided<[8192, 128, 64, 1]>> into memref<?x?x?x2x64xf16, strided<[8192, ?, 128, 64, 1]>>
func.func @packed_half_known(%q: memref<?x64x2x64xf16, strided<[8192, 128, 64, 1]>>, %k: memref<?x?x?x64xf16>, %o: memref<?x64x2x64xf16>) {
  flashattn.attention schedule(#packed)
    ins(%q, %k, %k : memref<?x64x2x64xf16, strided<[8192, 128, 64, 1]>>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x64x2x64xf16>)
  return
}
