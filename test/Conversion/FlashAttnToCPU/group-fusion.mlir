// RUN: flash-opt %s --convert-flashattn-to-cpu | FileCheck %s

// Elementwise ops and row reductions share one loop over the columns until one needs the
// result of a reduction; a tile is stored only where another loop reads it.


// CHECK-LABEL: func.func private @softmax_program
// One buffer: each loop writes its tile over the one that it reads.
// CHECK-COUNT-1: memref.alloca() {alignment = 64 : i64} : memref<64x32xf32>
// CHECK-NOT:     memref.alloca
// The read transposes: rows go along the lanes.
// CHECK:         scf.for %[[R:[a-z0-9]+]] =
// CHECK:           scf.for %[[C:[a-z0-9]+]] =
// CHECK:             memref.store %{{.*}}, %[[TILE:.*]][%[[C]], %[[R]]] : memref<64x32xf32>

// First loop, four columns at a time: mask, then the maximum, with four partial ones.
// CHECK:         %[[MAX:.*]]:4 = scf.for %[[J:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args
// CHECK-SAME:        -> (vector<32xf32>, vector<32xf32>, vector<32xf32>, vector<32xf32>)
// A column index is the induction variable, a row index the lane.
// CHECK:           %[[COLUMN:.*]] = arith.index_cast %[[J]] : index to i32
// CHECK:           %[[ALL:.*]] = vector.broadcast %[[COLUMN]] : i32 to vector<32xi32>
// CHECK:           %[[SHOWN:.*]] = arith.cmpi sle, %[[ALL]], %{{.*}} : vector<32xi32>
// CHECK:           %[[SCORE:.*]] = arith.select %[[SHOWN]], %{{.*}}, %{{.*}} : vector<32xi1>, vector<32xf32>
// CHECK:           arith.cmpf ogt, %[[SCORE]], %{{.*}} : vector<32xf32>
// CHECK:           vector.store %[[SCORE]], %[[TILE]]
// CHECK:           scf.yield
// CHECK:         arith.maxnumf %[[MAX]]#0, %{{.*}} : vector<32xf32>

// Second loop, two columns at a time: the exponential and the sum.
// CHECK:         scf.for %{{.*}} iter_args({{.*}}) -> (vector<32xf32>, vector<32xf32>)
// CHECK:           vector.load %[[TILE]]
// CHECK:           arith.subf
// CHECK:           vector.fma
// CHECK:           vector.store %{{.*}}, %[[TILE]]
// CHECK:           scf.yield

// Third loop: the quotient, then rows again.
// CHECK:         scf.for
// CHECK:           arith.divf
// CHECK:           vector.store %{{.*}}, %[[TILE]]
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:             memref.load %[[TILE]]
// CHECK-NOT:     math.exp2
// CHECK:         return
func.func @softmax(%x: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %pad = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<32xf32>
  %low = arith.constant dense<0xFF800000> : vector<32xf32>
  %hidden = arith.constant dense<0xFF800000> : vector<32x64xf32>
  %n = memref.dim %x, %c0 : memref<?x64xf32>
  %tiles = arith.divui %n, %c32 : index
  %space = flashattn.dense_space(%tiles) axes(query_tile)
  flashattn.program (%t) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
    %row = arith.muli %t, %c32 : index
    %s = vector.transfer_read %x[%row, %c0], %pad {in_bounds = [true, true]} : memref<?x64xf32>, vector<32x64xf32>
    %i = vector.step : vector<32xindex>
    %i32 = arith.index_cast %i : vector<32xindex> to vector<32xi32>
    %ic = vector.shape_cast %i32 : vector<32xi32> to vector<32x1xi32>
    %ii = vector.broadcast %ic : vector<32x1xi32> to vector<32x64xi32>
    %j = vector.step : vector<64xindex>
    %j32 = arith.index_cast %j : vector<64xindex> to vector<64xi32>
    %jj = vector.broadcast %j32 : vector<64xi32> to vector<32x64xi32>
    %shown = arith.cmpi sle, %jj, %ii : vector<32x64xi32>
    %score = arith.select %shown, %s, %hidden : vector<32x64xi1>, vector<32x64xf32>
    %max = vector.multi_reduction <maxnumf>, %score, %low [1] : vector<32x64xf32> to vector<32xf32>
    %maxc = vector.shape_cast %max : vector<32xf32> to vector<32x1xf32>
    %maxt = vector.broadcast %maxc : vector<32x1xf32> to vector<32x64xf32>
    %d = arith.subf %score, %maxt : vector<32x64xf32>
    %p = math.exp2 %d : vector<32x64xf32>
    %sum = vector.multi_reduction <add>, %p, %zero [1] : vector<32x64xf32> to vector<32xf32>
    %sumc = vector.shape_cast %sum : vector<32xf32> to vector<32x1xf32>
    %sumt = vector.broadcast %sumc : vector<32x1xf32> to vector<32x64xf32>
    %y = arith.divf %p, %sumt : vector<32x64xf32>
    vector.transfer_write %y, %x[%row, %c0] {in_bounds = [true, true]} : vector<32x64xf32>, memref<?x64xf32>
  }
  return
}
