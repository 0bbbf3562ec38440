// RUN: flash-opt %s --convert-flashattn-to-cpu | FileCheck %s

// Rows are carried as values, tiles in a buffer that the loop updates. Branches write
// their tile where the other branch does.


// CHECK-LABEL: func.func private @carried_program
// CHECK-DAG:     memref.alloca() {alignment = 64 : i64} : memref<8x16xf32>
// CHECK-DAG:     memref.alloca() {alignment = 64 : i64} : memref<8x16xf32>
// The initial tile, a constant, fills the loop's buffer.
// CHECK:         scf.for
// CHECK:           vector.store %{{.*}}, %[[CARRIED:.*]][
// CHECK:         %[[ROW:.*]] = scf.for %{{.*}} iter_args(%{{.*}} = %{{.*}}) -> (vector<16xf32>)
// CHECK:           %[[SUM:.*]] = scf.if %{{.*}} -> (vector<16xf32>)
// CHECK:             scf.for
// CHECK:               arith.addf
// CHECK:             arith.addf %{{.*}} : vector<16xf32>
// CHECK:             scf.yield %{{.*}} : vector<16xf32>
// CHECK:           } else {
// CHECK:             vector.store %{{.*}}, %[[BRANCH:.*]][
// CHECK:             scf.yield %{{.*}} : vector<16xf32>
// CHECK:           vector.load %[[BRANCH]]
// CHECK:           vector.store %{{.*}}, %[[CARRIED]]
// CHECK:           scf.yield %[[SUM]] : vector<16xf32>
// CHECK:         memref.load %[[CARRIED]]
func.func @carried(%x: memref<16x8xf32>, %y: memref<16xf32>, %steps: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %tile0 = arith.constant dense<0.0> : vector<16x8xf32>
  %row0 = arith.constant dense<0.0> : vector<16xf32>
  %ones = arith.constant dense<1.0> : vector<16x8xf32>
  %n1 = arith.constant 1 : index
  %space = flashattn.dense_space(%n1) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = cpu>) {
    %r:2 = scf.for %i = %c0 to %steps step %c1 iter_args(%tile = %tile0, %row = %row0) -> (vector<16x8xf32>, vector<16xf32>) {
      %even = arith.cmpi ult, %i, %c2 : index
      %b:2 = scf.if %even -> (vector<16x8xf32>, vector<16xf32>) {
        %more = arith.addf %tile, %ones : vector<16x8xf32>
        %sum = vector.multi_reduction <add>, %more, %row [1] : vector<16x8xf32> to vector<16xf32>
        scf.yield %more, %sum : vector<16x8xf32>, vector<16xf32>
      } else {
        scf.yield %tile, %row : vector<16x8xf32>, vector<16xf32>
      }
      scf.yield %b#0, %b#1 : vector<16x8xf32>, vector<16xf32>
    }
    vector.transfer_write %r#0, %x[%c0, %c0] {in_bounds = [true, true]} : vector<16x8xf32>, memref<16x8xf32>
    vector.transfer_write %r#1, %y[%c0] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>
  }
  return
}
