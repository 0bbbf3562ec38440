// A contraction's operand in memory whose columns end anywhere, and one whose rows lie pages apart.
// RUN: flash-opt %s -split-input-file -flashattn-tile-project -flashattn-expand-loops -canonicalize -cse -convert-flashattn-to-cpu -canonicalize -cse | FileCheck %s

#schedule = #flashattn.schedule<tile_m = 32, tile_n = 48, stages = 1, dot_type = f32, mapping = cpu>

// Whole vectors of a row, what is left of it, and 0 behind that.
// CHECK-LABEL: func private @ends_program
// CHECK: scf.for %[[H:.*]] = %c0 to
// CHECK: %[[COLUMN:.*]] = arith.muli %{{.*}}, %c48
// CHECK: %[[LEFT:.*]] = arith.subi %c150, %[[COLUMN]]
// CHECK: %[[COUNT:.*]] = arith.minsi %{{.*}}, %c48
// CHECK: %[[REST:.*]] = arith.remui %[[COUNT]], %c16
// CHECK: %[[WHOLE:.*]] = arith.subi %[[COUNT]], %[[REST]]
// CHECK: scf.for %[[D:.*]] = %c0 to %c24
// CHECK: scf.for %[[E:.*]] = %c0 to %[[WHOLE]] step %c16
// CHECK: vector.load %{{.*}}[%[[H]], %[[D]], %{{.*}}] : memref<?x24x150xf16>, vector<16xf16>
// CHECK: scf.for %[[E:.*]] = %[[WHOLE]] to %[[COUNT]] step %c1
// CHECK: memref.load %{{.*}} : memref<?x24x150xf16>
// CHECK: scf.for %[[E:.*]] = %[[COUNT]] to %c48 step %c1
// CHECK: vector.store %cst{{.*}} : memref<24x48xf32>, vector<1xf32>
// CHECK: vector.fma
func.func @ends(%o: memref<?x?x?x24xf16>, %w: memref<?x24x150xf16>, %p: memref<?x?x150xf16>) {
  flashattn.project schedule(#schedule) ins(%o, %w : memref<?x?x?x24xf16>, memref<?x24x150xf16>) outs(%p : memref<?x?x150xf16>)
  return
}

// -----

#m = affine_map<(d0, d1, d2) -> (d1, d2)>
#ik = affine_map<(i, j, k) -> (i, k)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>

// Rows of 48 are read where they lie, parts of those of 1024 are copied: they share a set of the cache.
// CHECK-LABEL: func private @rows_program
// CHECK: memref.subview %{{.*}} : memref<2x8x48xf32> to memref<8x48xf32
// CHECK: vector.load %{{.*}} : memref<2x8x1024xf32>, vector<16xf32>
// CHECK-NEXT: vector.store %{{.*}} : memref<8x64xf32>
func.func @rows(%x: memref<32x8xf32>, %a: memref<2x8x48xf32>, %b: memref<2x8x1024xf32>, %y: memref<32x48xf32>, %z: memref<32x64xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %sa = arith.constant dense<0.0> : vector<32x48xf32>
  %sb = arith.constant dense<0.0> : vector<32x64xf32>
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %space = flashattn.dense_space(%two, %one, %one) axes(batch, query_tile, column_tile)
  flashattn.program (%i, %j, %k) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
    %vx = vector.transfer_read %x[%c0, %c0], %zero {in_bounds = [true, true]} : memref<32x8xf32>, vector<32x8xf32>
    %va = vector.transfer_read %a[%i, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = #m} : memref<2x8x48xf32>, vector<8x48xf32>
    %vb = vector.transfer_read %b[%i, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = #m} : memref<2x8x1024xf32>, vector<8x64xf32>
    %ra = vector.contract {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} %vx, %va, %sa : vector<32x8xf32>, vector<8x48xf32> into vector<32x48xf32>
    %rb = vector.contract {indexing_maps = [#ik, #kj, #ij], iterator_types = ["parallel", "parallel", "reduction"]} %vx, %vb, %sb : vector<32x8xf32>, vector<8x64xf32> into vector<32x64xf32>
    vector.transfer_write %ra, %y[%c0, %c0] {in_bounds = [true, true]} : vector<32x48xf32>, memref<32x48xf32>
    vector.transfer_write %rb, %z[%c0, %c0] {in_bounds = [true, true]} : vector<32x64xf32>, memref<32x64xf32>
  }
  return
}
