// RUN: flash-opt %s -convert-flashattn-to-cpu | FileCheck %s

// Rows of three heads, four positions of each: what is past the last position is neither read nor
// written, of any head.
// CHECK-LABEL: func.func private @packed_program
// CHECK: %[[ROWS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<8x12xf32>
// CHECK: %[[SIZE:.*]] = memref.dim %[[Q:.*]], %{{.*}} : memref<2x3x?x8xf32>
// CHECK: %[[LEFT:.*]] = arith.subi %[[SIZE]], %[[FIRST:.*]] : index
// CHECK: %[[ANY:.*]] = arith.maxsi %[[LEFT]],
// CHECK: %[[COUNT:.*]] = arith.minsi %[[ANY]], %{{.*}} : index
// CHECK: scf.for %[[HEAD:.*]] = %{{.*}} to %{{.*}} step
// CHECK: scf.for %[[POSITION:.*]] = %{{.*}} to %[[COUNT]] step
// CHECK: %[[FOUR:.*]] = arith.constant 4 : index
// CHECK: %[[BEFORE:.*]] = arith.muli %[[HEAD]], %[[FOUR]] : index
// CHECK: %[[ROW:.*]] = arith.addi %[[BEFORE]], %[[POSITION]] : index
// CHECK: scf.for %[[COLUMN:.*]] = %{{.*}} to %{{.*}} step
// CHECK: %[[AT:.*]] = arith.addi %[[FIRST]], %[[POSITION]] : index
// CHECK: %[[X:.*]] = memref.load %[[Q]][%{{.*}}, %[[HEAD]], %[[AT]], %[[COLUMN]]]
// CHECK: memref.store %[[X]], %[[ROWS]][%[[COLUMN]], %[[ROW]]]
// CHECK: arith.addf
// CHECK: scf.for %[[HEAD:.*]] = %{{.*}} to %{{.*}} step
// CHECK: scf.for %[[POSITION:.*]] = %{{.*}} to %{{.*}} step
// CHECK: %[[BEFORE:.*]] = arith.muli %[[HEAD]],
// CHECK: %[[ROW:.*]] = arith.addi %[[BEFORE]], %[[POSITION]] : index
// CHECK: scf.for %[[COLUMN:.*]] = %{{.*}} to %{{.*}} step
// CHECK: %[[Y:.*]] = memref.load %[[ROWS]][%[[COLUMN]], %[[ROW]]]
// CHECK: memref.store %[[Y]], %{{.*}}[%{{.*}}, %[[HEAD]], %{{.*}}, %[[COLUMN]]] : memref<2x3x?x8xf32>
func.func @packed(%q: memref<2x3x?x8xf32>, %o: memref<2x3x?x8xf32>, %tiles: index) {
  %c2 = arith.constant 2 : index
  %c0 = arith.constant 0 : index
  %space = flashattn.dense_space(%c2, %tiles) axes(head, query_tile)
  flashattn.program (%head, %tile) in %space
      schedule(<tile_m = 12, tile_n = 16, stages = 1, dot_type = f32, pack = 3, mapping = cpu>) {
    %packed = flashattn.packed_rows [3, 4]
    %x = flashattn.load_tile %q[%head, %c0, %tile, %c0] dims [1, 2, 3] rows %packed in_bounds [true, false, true] : memref<2x3x?x8xf32> -> vector<12x8xf32>
    %y = arith.addf %x, %x : vector<12x8xf32>
    flashattn.store_tile %y to %o[%head, %c0, %tile, %c0] dims [1, 2, 3] rows %packed in_bounds [true, false, true] : vector<12x8xf32>, memref<2x3x?x8xf32>
  }
  return
}
