// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile-project -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile-project -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,CPU

// A head's row of 128 comes in two parts on a GPU, in one on the CPU; the columns are whole tiles on a GPU, and
// nothing is known of the rows. The CPU pads the matrix as it copies it.
// CHECK-LABEL: func @whole
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<2x8x?x128xf16>, %[[W:[a-z0-9]+]]: memref<8x128x1024xf16>, %[[P:[a-z0-9]+]]: memref<2x?x1024xf16>
// GPU: %[[SPACE:.*]] = flashattn.dense_space(%c2, %{{.*}}, %c8) axes(batch, query_tile, column_tile)
// GPU: flashattn.program (%[[B:.*]], %[[I:.*]], %[[J:.*]]) in %[[SPACE]] schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// CPU: %[[SPACE:.*]] = flashattn.dense_space(%c2, %{{.*}}, %c2) axes(batch, query_tile, column_tile)
// CPU: flashattn.program (%[[B:.*]], %[[I:.*]], %[[J:.*]]) in %[[SPACE]]
// GPU: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[STEP:.*]]) in [(%c0, %c0, %c16, %c16)] iter_args(%[[ACC:.*]] = %{{.*}}) -> vector<128x128xf32>
// GPU: %[[H:.*]] = arith.divui %[[STEP]], %c2
// GPU: %[[PART:.*]] = arith.remui %[[STEP]], %c2
// GPU: %[[X:.*]] = flashattn.load_tile %[[O]][%[[B]], %[[H]], %[[I]], %[[PART]]] dims [2, 3] in_bounds [false, true] : memref<2x8x?x128xf16> -> vector<128x64xf16>
// GPU: %[[Y:.*]] = flashattn.load_tile %[[W]][%[[H]], %[[PART]], %[[J]]] dims [1, 2] in_bounds [true, true] : memref<8x128x1024xf16> -> vector<64x128xf16>
// GPU: vector.contract {{.*}} %[[X]], %[[Y]], %[[ACC]] : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
// CPU: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[H:.*]]) in [(%c0, %c0, %c8, %c8)] iter_args(%[[ACC:.*]] = %{{.*}}) -> vector<32x512xf32>
// CPU: flashattn.load_tile %[[O]][%[[B]], %[[H]], %[[I]], %c0]
// CPU: arith.extf
// CPU: flashattn.load_tile %[[W]][%[[H]], %c0, %[[J]]] dims [1, 2] in_bounds [true, false]
// CPU: arith.extf
// CPU: vector.contract {{.*}} : vector<32x128xf32>, vector<128x512xf32> into vector<32x512xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[SUM]]
// CHECK: flashattn.store_tile %[[ROUNDED]] to %[[P]][%[[B]], %[[I]], %[[J]]] dims [1, 2] in_bounds [false, true]
func.func @whole(%o: memref<2x8x?x128xf16>, %w: memref<8x128x1024xf16>, %p: memref<2x?x1024xf16>) {
  flashattn.project ins(%o, %w : memref<2x8x?x128xf16>, memref<8x128x1024xf16>) outs(%p : memref<2x?x1024xf16>)
  return
}

// -----

// Rows of 24 are padded, on both sides of the product; an f32 result is not rounded.
// CHECK-LABEL: func @padded
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<?x?x?x24xbf16>, %[[W:[a-z0-9]+]]: memref<?x24x?xbf16>, %[[P:[a-z0-9]+]]: memref<?x?x?xf32>
// CHECK: flashattn.program (%[[B:.*]], %[[I:.*]], %[[J:.*]]) in
// CHECK: flashattn.tile_loop (%{{.*}}, %[[H:.*]]) in
// GPU: flashattn.load_tile %[[O]][%[[B]], %[[I]], %[[H]], %c0] dims [1, 3] in_bounds [false, false] : memref<?x?x?x24xbf16> -> vector<128x32xbf16>
// GPU: flashattn.load_tile %[[W]][%[[H]], %c0, %[[J]]] dims [1, 2] in_bounds [false, false] : memref<?x24x?xbf16> -> vector<32x128xbf16>
// CPU: flashattn.load_tile %[[O]][%[[B]], %[[I]], %[[H]], %c0] dims [1, 3] in_bounds [false, true] : memref<?x?x?x24xbf16> -> vector<32x24xbf16>
// CPU: flashattn.load_tile %[[W]][%[[H]], %c0, %[[J]]] dims [1, 2] in_bounds [true, false] : memref<?x24x?xbf16> -> vector<24x128xbf16>
// CHECK-NOT: arith.truncf
// CHECK: flashattn.store_tile %{{.*}} to %[[P]]{{.*}} : vector<{{.*}}xf32>, memref<?x?x?xf32>
func.func @padded(%o: memref<?x?x?x24xbf16>, %w: memref<?x24x?xbf16>, %p: memref<?x?x?xf32>) {
  flashattn.project layout(bshd) ins(%o, %w : memref<?x?x?x24xbf16>, memref<?x24x?xbf16>) outs(%p : memref<?x?x?xf32>)
  return
}

// -----

// The few rows of many batches fill a tile.
// CHECK-LABEL: func @few
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<?x8x3x64xf32>, %[[W:[a-z0-9]+]]: memref<8x64x256xf32>, %[[P:[a-z0-9]+]]: memref<?x3x256xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c3, %{{.*}}, %{{.*}}) axes(query_tile, batch, column_tile)
// CHECK: flashattn.program (%[[N:.*]], %[[I:.*]], %{{.*}}) in %[[SPACE]]
// CHECK: flashattn.load_tile %[[O]][%[[I]], %{{.*}}, %[[N]], %{{.*}}] dims [0, 3] {{.*}} -> vector<32x
// CHECK: flashattn.store_tile %{{.*}} to %[[P]][%[[I]], %[[N]], %{{.*}}] dims [0, 2]
func.func @few(%o: memref<?x8x3x64xf32>, %w: memref<8x64x256xf32>, %p: memref<?x3x256xf32>) {
  flashattn.project ins(%o, %w : memref<?x8x3x64xf32>, memref<8x64x256xf32>) outs(%p : memref<?x3x256xf32>)
  return
}
