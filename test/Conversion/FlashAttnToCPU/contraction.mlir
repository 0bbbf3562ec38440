// RUN: flash-opt %s --convert-flashattn-to-cpu --split-input-file | FileCheck %s
// RUN: flash-opt %s --convert-flashattn-to-cpu=vector-width=8 --split-input-file | FileCheck %s --check-prefix=NARROW

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// f32 keys in bounds are broadcast straight from the caller's memory. 64 columns in blocks
// of 8: 16 accumulators of AVX-512. With 8 lanes, 16 registers hold 3 columns of 32 rows;
// 64 columns are then blocks of 2, a divisor.

// CHECK-LABEL: func.func private @in_bounds_program
// CHECK:         %[[K:.*]] = memref.subview {{.*}} : memref<?x16xf32> to memref<64x16xf32, strided<[16, 1]>>
// CHECK:         %[[C8:.*]] = arith.constant 8 : index
// CHECK:         scf.for %[[N:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %[[C8]]
// CHECK:           %[[BLOCK:.*]] = memref.subview %[[K]][%[[N]], 0] [8, 16] [1, 1]
// CHECK:           %[[SUMS:.*]]:8 = scf.for %[[D:[a-z0-9]+]] =
// CHECK:             %[[Q:.*]] = vector.load %{{.*}}[%[[D]], %{{.*}}] : memref<16x32xf32>, vector<32xf32>
// CHECK:             %[[ELEMENT:.*]] = memref.load %[[BLOCK]][%{{.*}}, %[[D]]]
// CHECK:             %[[ALL:.*]] = vector.broadcast %[[ELEMENT]] : f32 to vector<32xf32>
// CHECK:             vector.fma %[[ALL]], %[[Q]], %{{.*}} : vector<32xf32>
// CHECK-COUNT-7:     vector.fma
// CHECK-NOT:         vector.fma
// CHECK:           vector.store %[[SUMS]]#0

// NARROW-LABEL: func.func private @in_bounds_program
// NARROW:         scf.for %{{.*}} -> (vector<32xf32>, vector<32xf32>) {
// NARROW-COUNT-2:   vector.fma
// NARROW-NEXT:      scf.yield
func.func @in_bounds(%q: memref<?x16xf32>, %k: memref<?x16xf32>, %s: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<32x64xf32>
  %n = memref.dim %q, %c0 : memref<?x16xf32>
  %tiles = arith.divui %n, %c32 : index
  flashattn.program (%t) in (%tiles) axes(query_tile)
      schedule(<tile_m = 32, tile_n = 64, warps = 1, stages = 1, lanes = 1, dot_type = f32>) {
    %row = arith.muli %t, %c32 : index
    %qt = vector.transfer_read %q[%row, %c0], %pad {in_bounds = [true, true]} : memref<?x16xf32>, vector<32x16xf32>
    %kt = vector.transfer_read %k[%c0, %c0], %pad {in_bounds = [true, true]} : memref<?x16xf32>, vector<64x16xf32>
    %st = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %qt, %kt, %zero : vector<32x16xf32>, vector<64x16xf32> into vector<32x64xf32>
    vector.transfer_write %st, %s[%row, %c0] {in_bounds = [true, true]} : vector<32x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// f16 values are extended once, 8 at a time since 8 divides 24, and rows past the end read
// as 0 (rule A7). The rescaling of the accumulator is done as it is loaded, and the
// result takes its place.

// CHECK-LABEL: func.func private @tail_program
// CHECK-DAG:     %[[V:.*]] = memref.alloca() {alignment = 64 : i64} : memref<64x24xf32>
// CHECK-DAG:     %[[O:.*]] = memref.alloca() {alignment = 64 : i64} : memref<24x32xf32>
// CHECK-NOT:     memref.alloca{{.*}} : memref<24x32xf32>
// CHECK:         %[[HALF:.*]] = vector.load %{{.*}} : memref<?x24xf16>, vector<8xf16>
// CHECK:         %[[EXTENDED:.*]] = arith.extf %[[HALF]] : vector<8xf16> to vector<8xf32>
// CHECK:         vector.store %[[EXTENDED]], %[[V]]
// CHECK:         vector.store %{{.*}}, %[[V]]
// CHECK:         scf.for %[[D:[a-z0-9]+]] =
// CHECK:           %[[OLD:.*]] = vector.load %[[O]]
// CHECK:           arith.mulf %[[OLD]], %{{.*}} : vector<32xf32>
// CHECK:           %[[BLOCK:.*]] = memref.subview %[[V]][0, %[[D]]] [64, 12] [1, 1]
// CHECK:           %[[RESULT:.*]] = memref.subview %[[O]][%[[D]], 0] [12, 32] [1, 1]
// CHECK:           scf.for
// CHECK-COUNT-12:    vector.fma
// CHECK:           vector.store %{{.*}}, %[[RESULT]]
func.func @tail(%p: memref<?x64xf32>, %v: memref<?x24xf16>, %o: memref<?x24xf32>, %scale: f32) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %pad = arith.constant 0.0 : f32
  %pad16 = arith.constant 0.0 : f16
  %n = memref.dim %p, %c0 : memref<?x64xf32>
  %tiles = arith.divui %n, %c32 : index
  flashattn.program (%t) in (%tiles) axes(query_tile)
      schedule(<tile_m = 32, tile_n = 64, warps = 1, stages = 1, lanes = 1, dot_type = f32>) {
    %row = arith.muli %t, %c32 : index
    %pt = vector.transfer_read %p[%row, %c0], %pad {in_bounds = [true, true]} : memref<?x64xf32>, vector<32x64xf32>
    %ot = vector.transfer_read %o[%row, %c0], %pad {in_bounds = [true, true]} : memref<?x24xf32>, vector<32x24xf32>
    %v16 = vector.transfer_read %v[%c0, %c0], %pad16 {in_bounds = [false, true]} : memref<?x24xf16>, vector<64x24xf16>
    %vt = arith.extf %v16 : vector<64x24xf16> to vector<64x24xf32>
    %factor = vector.broadcast %scale : f32 to vector<32x24xf32>
    %scaled = arith.mulf %ot, %factor : vector<32x24xf32>
    %new = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %pt, %vt, %scaled : vector<32x64xf32>, vector<64x24xf32> into vector<32x24xf32>
    vector.transfer_write %new, %o[%row, %c0] {in_bounds = [true, true]} : vector<32x24xf32>, memref<?x24xf32>
  }
  return
}
