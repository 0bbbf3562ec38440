// RUN: flash-opt %s --convert-flashattn-to-cpu --split-input-file | FileCheck %s
// RUN: flash-opt %s --flashattn-to-cpu --split-input-file | FileCheck %s --check-prefix=LLVM

// A program becomes a function of what it captures, packed, and of a number. Rows past
// the end of memory are neither read nor written (rule A7).


// CHECK-LABEL: func.func @negate(
// CHECK-SAME:      %[[X:.*]]: memref<?x?xf32>, %[[Y:.*]]: memref<?x?xf32>
// CHECK:         %[[FRAME:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(struct<(ptr, ptr, i64, array<2 x i64>, array<2 x i64>)>, {{.*}}, i64, i64)>
// CHECK-NOT:     flashattn.program
// CHECK:         llvm.store
// CHECK:         %[[COUNT:.*]] = arith.index_cast %{{.*}} : index to i64
// CHECK:         %[[BODY:.*]] = constant @negate_program : (!llvm.ptr, i64) -> ()
// CHECK:         %[[POINTER:.*]] = builtin.unrealized_conversion_cast %[[BODY]] : (!llvm.ptr, i64) -> () to !llvm.ptr
// CHECK:         call @flashattnParallelFor(%[[COUNT]], %[[POINTER]], %[[FRAME]]) : (i64, !llvm.ptr, !llvm.ptr) -> ()

// CHECK:       func.func private @negate_program(%[[CONTEXT:.*]]: !llvm.ptr, %[[I:.*]]: i64)
// CHECK:         memref.alloca() {alignment = 64 : i64} : memref<1x32xf32>
// CHECK:         llvm.getelementptr %[[CONTEXT]][0, 0]
// CHECK:         %[[LINEAR:.*]] = arith.index_cast %[[I]] : i64 to index
// The last dimension runs backwards.
// CHECK:         %[[T:.*]] = arith.remui %[[LINEAR]], %[[TILES:.*]] : index
// CHECK:         %[[B:.*]] = arith.divui %[[LINEAR]], %[[TILES]] : index
// CHECK:         %[[LEFT:.*]] = arith.subi %[[TILES]], %[[T]] : index
// CHECK:         %[[TILE:.*]] = arith.subi %[[LEFT]], %{{.*}} : index
// CHECK:         %[[ROW:.*]] = arith.muli %[[TILE]], %{{.*}} : index
// CHECK:         %[[LEFT:.*]] = arith.subi %{{.*}}, %[[ROW]] : index
// CHECK:         %[[EXISTING:.*]] = arith.maxsi %[[LEFT]], %{{.*}} : index
// CHECK:         %[[ROWS:.*]] = arith.minsi %[[EXISTING]], %{{.*}} : index
// CHECK:         scf.for %{{.*}} = %{{.*}} to %[[ROWS]]
// CHECK:           memref.load %{{.*}}[%[[B]], %{{.*}}] : memref<?x?xf32>
// CHECK:         arith.negf %{{.*}} : vector<32xf32>
// CHECK:           memref.store %{{.*}}, %{{.*}}[%[[B]], %{{.*}}] : memref<?x?xf32>
// CHECK:       func.func private @flashattnParallelFor(i64, !llvm.ptr, !llvm.ptr)

// LLVM-NOT: unrealized_conversion_cast
// LLVM: llvm.mlir.addressof @negate_program : !llvm.ptr
func.func @negate(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %b = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  %tiles = arith.ceildivui %n, %c32 : index
  %space = flashattn.dense_space(%b, %tiles) axes(head, query_tile)
  flashattn.program (%i, %t) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
    %row = arith.muli %t, %c32 : index
    %v = vector.transfer_read %x[%i, %row], %zero {in_bounds = [false]} : memref<?x?xf32>, vector<32xf32>
    %w = arith.negf %v : vector<32xf32>
    vector.transfer_write %w, %y[%i, %row] {in_bounds = [false]} : vector<32xf32>, memref<?x?xf32>
  }
  return
}

// -----

// Tiles of keys run forwards: of a causal mask the first ones have most queries.

// CHECK-LABEL: func.func private @keys_program(
// CHECK:         %[[LINEAR:.*]] = arith.index_cast %{{.*}} : i64 to index
// CHECK:         %[[TILE:.*]] = arith.remui %[[LINEAR]], %{{.*}} : index
// CHECK:         arith.muli %[[TILE]], %{{.*}} : index
func.func @keys(%x: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant dense<0.0> : vector<32xf32>
  %b = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  %tiles = arith.ceildivui %n, %c32 : index
  %space = flashattn.dense_space(%b, %tiles) axes(head, key_tile)
  flashattn.program (%i, %t) in %space
      schedule(<tile_m = 32, tile_n = 64, stages = 1, dot_type = f32, mapping = cpu>) {
    %row = arith.muli %t, %c32 : index
    vector.transfer_write %zero, %x[%i, %row] {in_bounds = [false]} : vector<32xf32>, memref<?x?xf32>
  }
  return
}

// -----

// A forall that is no tile program stays.

// CHECK-LABEL: func.func @other
// CHECK: scf.forall
func.func @other(%x: memref<8xf32>) {
  %zero = arith.constant 0.0 : f32
  scf.forall (%i) in (8) {
    memref.store %zero, %x[%i] : memref<8xf32>
  }
  return
}
