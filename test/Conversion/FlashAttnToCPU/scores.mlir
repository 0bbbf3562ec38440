// RUN: flash-opt %s --convert-flashattn-to-cpu --canonicalize | FileCheck %s

// Reads of what is broadcast: one element to all rows, or a row's element to every column. Elements of
// i1 take a byte each.

#keys = affine_map<(m, n) -> (0, n)>
#rows = affine_map<(m, n) -> (m, 0)>

// CHECK-LABEL: func private @reads_program
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[KEYS:.*]] = memref.alloca() {{.*}} : memref<8x16xf16>
// CHECK-DAG: %[[ROWS:.*]] = memref.alloca() {{.*}} : memref<8x16xf32>
// CHECK-DAG: %[[KEPT:.*]] = memref.alloca() {{.*}} : memref<8x16xi8>
// CHECK: scf.for %[[N:.*]] =
// CHECK:   %[[X:.*]] = memref.load %{{.*}}[%[[ZERO]], %[[N]]] : memref<1x8xf16>
// CHECK:   %[[XS:.*]] = vector.broadcast %[[X]] : f16 to vector<16xf16>
// CHECK:   vector.store %[[XS]], %[[KEYS]][%[[N]], %[[ZERO]]]
// CHECK: scf.for %[[M:.*]] =
// CHECK:   scf.for %[[N:.*]] =
// CHECK:     %[[Y:.*]] = memref.load %{{.*}}[%[[M]], %[[ZERO]]] : memref<16x1xf32>
// CHECK:     memref.store %[[Y]], %[[ROWS]][%[[N]], %[[M]]]
// What lies past the end is false.
// CHECK: scf.for
// CHECK:   vector.store %{{.*}}, %[[KEPT]]{{.*}} : memref<8x16xi8>, vector<16xi8>
// CHECK: scf.for %[[M:.*]] =
// CHECK:   scf.for %[[N:.*]] =
// CHECK:     %[[B:.*]] = memref.load %{{.*}}[%[[M]], %[[N]]] : memref<?x?xi1>
// CHECK:     %[[B8:.*]] = arith.extui %[[B]] : i1 to i8
// CHECK:     memref.store %[[B8]], %[[KEPT]][%[[N]], %[[M]]]
// A scalar of the caller's memory, a function as a polynomial.
// CHECK: memref.load %{{.*}}[%{{.*}}] : memref<4xf32>
// CHECK-NOT: math.tanh
// CHECK: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
func.func @reads(%keys: memref<1x8xf16>, %rows: memref<16x1xf32>, %kept: memref<?x?xi1>,
                 %heads: memref<4xf32>, %y: memref<16x8xf32>) {
  %c0 = arith.constant 0 : index
  %f16 = arith.constant 0.0 : f16
  %f32 = arith.constant 0.0 : f32
  %false = arith.constant false
  %n4 = arith.constant 4 : index
  %space = flashattn.dense_space(%n4) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %a = vector.transfer_read %keys[%c0, %c0], %f16 {in_bounds = [true, true], permutation_map = #keys} : memref<1x8xf16>, vector<16x8xf16>
    %b = vector.transfer_read %rows[%c0, %c0], %f32 {in_bounds = [true, true], permutation_map = #rows} : memref<16x1xf32>, vector<16x8xf32>
    %k = vector.transfer_read %kept[%c0, %c0], %false {in_bounds = [false, false]} : memref<?x?xi1>, vector<16x8xi1>
    %h = memref.load %heads[%t] : memref<4xf32>
    %x = arith.extf %a : vector<16x8xf16> to vector<16x8xf32>
    %z = arith.addf %x, %b : vector<16x8xf32>
    %u = math.tanh %z : vector<16x8xf32>
    %hs = vector.broadcast %h : f32 to vector<16x8xf32>
    %r = arith.select %k, %u, %hs : vector<16x8xi1>, vector<16x8xf32>
    vector.transfer_write %r, %y[%c0, %c0] {in_bounds = [true, true]} : vector<16x8xf32>, memref<16x8xf32>
  }
  return
}
