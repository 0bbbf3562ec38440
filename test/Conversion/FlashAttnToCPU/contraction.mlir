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
  %space = flashattn.dense_space(%tiles) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
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
  %space = flashattn.dense_space(%tiles) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
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

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Two rows would leave most lanes of a register without work: dot products along D, and sums along
// Dv. The rows' elements, which alternate in a tile, are taken apart and put together again. With 8
// lanes there are 16 registers, half of them for sums.

// CHECK-LABEL: func.func private @few_rows_program
// CHECK:         %[[O:.*]] = memref.alloca() {{.*}} : memref<48x2xf32>
// CHECK:         %[[ROWS:.*]] = memref.alloca() {{.*}} : memref<2x32xf32>
// CHECK:         %[[S:.*]] = memref.alloca() {{.*}} : memref<64x2xf32>
// CHECK:         %[[Q:.*]] = memref.alloca() {{.*}} : memref<32x2xf32>
// CHECK:         %[[K:.*]] = memref.subview {{.*}} : memref<64x32xf32> to
// CHECK:         %[[V:.*]] = memref.subview {{.*}} : memref<64x48xf32> to
// CHECK:           %[[FLAT:.*]] = memref.collapse_shape %[[Q]]
// CHECK:           %[[BOTH:.*]] = vector.load %[[FLAT]][{{.*}}] : memref<64xf32>, vector<32xf32>
// CHECK:           %[[EVEN:.*]], %[[ODD:.*]] = vector.deinterleave %[[BOTH]]
// CHECK:           vector.store %[[EVEN]], %[[ROWS]]
// CHECK:           vector.store %[[ODD]], %[[ROWS]]
// CHECK:         %[[C8:.*]] = arith.constant 8 : index
// CHECK:         scf.for %[[N:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %[[C8]]
// CHECK:           %[[BLOCK:.*]] = memref.subview %[[K]][%[[N]], 0] [8, 32]
// CHECK:           %[[SUMS:.*]]:16 = scf.for %[[D:[a-z0-9]+]] =
// CHECK:             %[[FIRST:.*]] = vector.load %[[ROWS]][%{{.*}}, %[[D]]]
// CHECK:             %[[SECOND:.*]] = vector.load %[[ROWS]][%{{.*}}, %[[D]]]
// CHECK:             %[[KEY:.*]] = vector.load %[[BLOCK]][%{{.*}}, %[[D]]]
// CHECK:             vector.fma %[[FIRST]], %[[KEY]]
// CHECK:             vector.fma %[[SECOND]], %[[KEY]]
// CHECK-COUNT-14:    vector.fma
// CHECK-NOT:         vector.fma
// CHECK:           %[[X:.*]] = vector.reduction <add>, %[[SUMS]]#0 fastmath<reassoc>
// CHECK:           %[[Y:.*]] = vector.reduction <add>, %[[SUMS]]#1 fastmath<reassoc>
// CHECK:           %[[DOTS:.*]] = vector.from_elements %[[X]], %[[Y]]
// CHECK:           %[[ALL:.*]] = arith.addf %{{.*}}, %[[DOTS]]
// CHECK:           vector.store %[[ALL]], %[[S]]
// CHECK:         scf.for
// CHECK:           vector.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}] : memref<48x2xf32>, vector<2xf32>
// CHECK:         %[[END:.*]] = arith.constant 48 : index
// CHECK:         %[[STEP:.*]] = arith.constant 48 : index
// CHECK:         scf.for %[[N:[a-z0-9]+]] = %{{.*}} to %[[END]] step %[[STEP]]
// CHECK-COUNT-3:   vector.deinterleave
// CHECK:           %[[SUMS:.*]]:6 = scf.for %[[KEY:[a-z0-9]+]] =
// CHECK:             memref.load %[[S]][%[[KEY]], %{{.*}}]
// CHECK:             memref.load %[[S]][%[[KEY]], %{{.*}}]
// CHECK:             vector.load %[[V]][%[[KEY]], %[[N]]]
// CHECK-COUNT-6:     vector.fma
// CHECK-NOT:         vector.fma
// CHECK:           %[[BOTH:.*]] = vector.interleave %[[SUMS]]#0, %[[SUMS]]#1
// CHECK:           vector.store %[[BOTH]]

// NARROW-LABEL: func.func private @few_rows_program
// NARROW:         scf.for %{{.*}} -> (vector<8xf32>,
// NARROW-COUNT-8:   vector.fma
// NARROW-NEXT:      scf.yield
// NARROW:         %[[C24:.*]] = arith.constant 24 : index
// NARROW:         scf.for %{{.*}} = %{{.*}} to %{{.*}} step %[[C24]]
// NARROW:         scf.for %{{.*}} -> (vector<8xf32>,
// NARROW-COUNT-6:   vector.fma
// NARROW-NEXT:      scf.yield
func.func @few_rows(%q: memref<2x32xf32>, %k: memref<64x32xf32>, %v: memref<64x48xf32>, %o: memref<2x48xf32>, %programs: index) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<2x64xf32>
  %none = arith.constant dense<0.0> : vector<2x48xf32>
  %space = flashattn.dense_space(%programs) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 2, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
    %qt = vector.transfer_read %q[%c0, %c0], %pad {in_bounds = [true, true]} : memref<2x32xf32>, vector<2x32xf32>
    %kt = vector.transfer_read %k[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x32xf32>, vector<64x32xf32>
    %vt = vector.transfer_read %v[%c0, %c0], %pad {in_bounds = [true, true]} : memref<64x48xf32>, vector<64x48xf32>
    %st = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %qt, %kt, %zero : vector<2x32xf32>, vector<64x32xf32> into vector<2x64xf32>
    %ot = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}
        %st, %vt, %none : vector<2x64xf32>, vector<64x48xf32> into vector<2x48xf32>
    vector.transfer_write %ot, %o[%c0, %c0] {in_bounds = [true, true]} : vector<2x48xf32>, memref<2x48xf32>
  }
  return
}
