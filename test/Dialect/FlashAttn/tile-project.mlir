// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile-project -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile-project -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,CPU

// A head's row of 128 comes in two parts on a GPU, in one on the CPU; the columns are whole tiles on a GPU, and
// nothing is known of the rows. The CPU pads the matrix as it copies it.
// CHECK-LABEL: func @whole
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<2x8x?x128xf16>, %[[W:[a-z0-9]+]]: memref<8x128x1024xf16>, %[[P:[a-z0-9]+]]: memref<2x?x1024xf16>
// GPU: scf.forall (%[[B:.*]], %[[I:.*]], %[[J:.*]]) in (2, %{{.*}}, 8)
// CPU: scf.forall (%[[B:.*]], %[[I:.*]], %[[J:.*]]) in (2, %{{.*}}, 2)
// CHECK: %[[ROW:.*]] = arith.muli %[[I]], %c
// CHECK: %[[COLUMN:.*]] = arith.muli %[[J]], %c
// GPU: %[[SUM:.*]] = scf.for %[[STEP:.*]] = %c0 to %c16 step %c1 iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<128x128xf32>)
// GPU: %[[H:.*]] = arith.divui %[[STEP]], %c2
// GPU: %[[PART:.*]] = arith.remui %[[STEP]], %c2
// GPU: %[[D:.*]] = arith.muli %[[PART]], %c64
// GPU: %[[X:.*]] = vector.transfer_read %[[O]][%[[B]], %[[H]], %[[ROW]], %[[D]]], %{{.*}} {in_bounds = [false, true]} : memref<2x8x?x128xf16>, vector<128x64xf16>
// GPU: %[[Y:.*]] = vector.transfer_read %[[W]][%[[H]], %[[D]], %[[COLUMN]]], %{{.*}} {in_bounds = [true, true]} : memref<8x128x1024xf16>, vector<64x128xf16>
// GPU: vector.contract {{.*}} %[[X]], %[[Y]], %[[ACC]] : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
// CPU: %[[SUM:.*]] = scf.for %[[H:.*]] = %c0 to %c8 step %c1 iter_args(%[[ACC:.*]] = %{{.*}}) -> (vector<32x512xf32>)
// CPU: vector.transfer_read %[[O]][%[[B]], %[[H]], %[[ROW]], %c0]
// CPU: arith.extf
// CPU: vector.transfer_read %[[W]][%[[H]], %c0, %[[COLUMN]]], %{{.*}} {in_bounds = [true, false]}
// CPU: arith.extf
// CPU: vector.contract {{.*}} : vector<32x128xf32>, vector<128x512xf32> into vector<32x512xf32>
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[SUM]]
// CHECK: vector.transfer_write %[[ROUNDED]], %[[P]][%[[B]], %[[ROW]], %[[COLUMN]]] {in_bounds = [false, true]}
// GPU: } {flashattn.schedule = #flashattn.schedule<tile_m = 128, tile_n = 128, warps = 4, stages = 2, lanes = 4, dot_type = f16>, mapping = [#flashattn.program_axis<batch>, #flashattn.program_axis<query_tile>, #flashattn.program_axis<column_tile>]}
func.func @whole(%o: memref<2x8x?x128xf16>, %w: memref<8x128x1024xf16>, %p: memref<2x?x1024xf16>) {
  flashattn.project ins(%o, %w : memref<2x8x?x128xf16>, memref<8x128x1024xf16>) outs(%p : memref<2x?x1024xf16>)
  return
}

// -----

// Rows of 24 are padded, on both sides of the product; an f32 result is not rounded.
// CHECK-LABEL: func @padded
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<?x?x?x24xbf16>, %[[W:[a-z0-9]+]]: memref<?x24x?xbf16>, %[[P:[a-z0-9]+]]: memref<?x?x?xf32>
// GPU: vector.transfer_read %[[O]][%[[B:.*]], %[[ROW:.*]], %[[H:.*]], %c0], %{{.*}} : memref<?x?x?x24xbf16>, vector<128x32xbf16>
// GPU: vector.transfer_read %[[W]][%[[H]], %c0, %{{.*}}], %{{.*}} : memref<?x24x?xbf16>, vector<32x128xbf16>
// CPU: vector.transfer_read %[[O]]{{.*}} {in_bounds = [false, true]{{.*}}} : memref<?x?x?x24xbf16>, vector<32x24xbf16>
// CPU: vector.transfer_read %[[W]]{{.*}} {in_bounds = [true, false]} : memref<?x24x?xbf16>, vector<24x128xbf16>
// CHECK-NOT: arith.truncf
// CHECK: vector.transfer_write %{{.*}}, %[[P]]{{.*}} : vector<{{.*}}xf32>, memref<?x?x?xf32>
func.func @padded(%o: memref<?x?x?x24xbf16>, %w: memref<?x24x?xbf16>, %p: memref<?x?x?xf32>) {
  flashattn.project layout(bshd) ins(%o, %w : memref<?x?x?x24xbf16>, memref<?x24x?xbf16>) outs(%p : memref<?x?x?xf32>)
  return
}

// -----

// The few rows of many batches fill a tile.
// CHECK-LABEL: func @few
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<?x8x3x64xf32>, %[[W:[a-z0-9]+]]: memref<8x64x256xf32>, %[[P:[a-z0-9]+]]: memref<?x3x256xf32>
// CHECK: scf.forall (%[[N:.*]], %[[I:.*]], %[[J:.*]]) in (3, %{{.*}}, {{.*}})
// CHECK: %[[BATCH:.*]] = arith.muli %[[I]], %c32
// CHECK: vector.transfer_read %[[O]][%[[BATCH]], %{{.*}}, %[[N]], %{{.*}}], {{.*}}permutation_map = #
// CHECK: vector.transfer_write %{{.*}}, %[[P]][%[[BATCH]], %[[N]], %{{.*}}] {{.*}}permutation_map = #
// CHECK: mapping = [#flashattn.program_axis<query_tile>, #flashattn.program_axis<batch>, #flashattn.program_axis<column_tile>]
func.func @few(%o: memref<?x8x3x64xf32>, %w: memref<8x64x256xf32>, %p: memref<?x3x256xf32>) {
  flashattn.project ins(%o, %w : memref<?x8x3x64xf32>, memref<8x64x256xf32>) outs(%p : memref<?x3x256xf32>)
  return
}
