// RUN: flash-opt %s -split-input-file -flashattn-lower-list-tiles -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,LOOPS
// RUN: flash-opt %s -split-input-file -flashattn-lower-list-tiles=gpu -canonicalize -cse | FileCheck %s --check-prefixes=CHECK,GPU

// CHECK-LABEL: func @one
// CHECK-SAME: %[[KEEP:[a-z0-9]+]]: memref<?x1x?x?xi1>, %[[BOUNDS:[a-z0-9]+]]: memref<?x1x?x2xi32>, %[[TILES:[a-z0-9]+]]: memref<?x1x?x?xi32>, %[[N:[a-z0-9]+]]: index
// GPU: %[[KEEP_BYTES:.*]] = builtin.unrealized_conversion_cast %[[KEEP]] : memref<?x1x?x?xi1> to memref<?x1x?x?xi8>
// CHECK: %[[PLACES:.*]] = memref.dim %[[TILES]], %c3
// CHECK: %[[MIDDLE:.*]] = arith.divui %[[PLACES]], %c2

// A list an iteration. Hidden tiles change nothing; full ones grow it downwards, the others upwards.
// LOOPS: scf.forall (%[[B:.*]], %[[T:.*]]) in
// LOOPS: %[[ENDS:.*]]:2 = scf.for %[[TILE:[a-z0-9]+]] = %c0 to %[[N]] step %c1 iter_args(%[[BEGIN:.*]] = %[[MIDDLE]], %[[END:.*]] = %[[MIDDLE]])
// LOOPS: %[[MASK1:.*]] = arith.cmpi slt, %[[TILE]], %[[T]]
// LOOPS: %[[FULL:.*]] = arith.andi %{{.*}}, %[[MASK1]]
// LOOPS: %[[FOUND:.*]]:2 = scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%[[ANY:.*]] = %false, %[[ALL:.*]] = %[[FULL]])
// LOOPS: scf.if
// LOOPS-NEXT: scf.yield %[[ANY]], %[[ALL]]
// LOOPS: scf.for %[[KEY:[a-z0-9]+]]
// LOOPS: memref.load %[[KEEP]][%[[B]], %c0, %[[ROW]], %[[KEY]]]
// LOOPS: scf.if %[[FOUND]]#0
// LOOPS: %[[BEFORE:.*]] = arith.subi %[[BEGIN]], %c1
// LOOPS: %[[WHERE:.*]] = arith.select %[[FOUND]]#1, %[[BEFORE]], %[[END]]
// LOOPS: memref.store %{{.*}}, %[[TILES]][%[[B]], %c0, %[[T]], %[[WHERE]]]
// LOOPS: else
// LOOPS-NEXT: scf.yield %[[BEGIN]], %[[END]]
// LOOPS: memref.store %{{.*}}, %[[BOUNDS]][%[[B]], %c0, %[[T]], %c0]
// LOOPS: memref.store %{{.*}}, %[[BOUNDS]][%[[B]], %c0, %[[T]], %c1]
// LOOPS: {flashattn.parallel}

// A list a block, a key tile a warp. What was found of 32 tiles meets in shared memory, in one of two
// places in turn, behind one barrier; ballots give each its place.
// GPU: gpu.launch {{.*}} threads(%[[THREAD:[a-z0-9]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c1024, {{.*}}) workgroup(%[[KINDS:.*]] : memref<2x32xi32, #gpu.address_space<workgroup>>)
// GPU: %[[WARP32:.*]] = arith.divui %{{.*}}, %c32_i32
// GPU: %[[LANE32:.*]] = arith.remui %{{.*}}, %c32_i32
// GPU: %[[ENDS:.*]]:2 = scf.for %[[FIRST:[a-z0-9]+]] = %c0 to %[[N]] step %c32
// GPU: scf.if
// Four elements a lane at once, until the tile is known to be neither hidden nor full.
// GPU: scf.for {{.*}} to %c8192 step %c128 iter_args(%[[ANY:.*]] = %false, %[[ALL:.*]] = %{{.*}})
// GPU: scf.if
// GPU-COUNT-4: memref.load %[[KEEP_BYTES]]
// GPU: nvvm.vote.sync any
// GPU: nvvm.vote.sync all
// GPU: arith.select %{{.*}}, %c2_i32, %c1_i32
// GPU: memref.store %{{.*}}, %[[KINDS]]
// GPU: gpu.barrier
// GPU-NOT: gpu.barrier
// GPU: memref.load %[[KINDS]]
// GPU: nvvm.vote.sync ballot
// GPU: memref.store %{{.*}}, %[[TILES]]
// GPU: nvvm.vote.sync ballot
// GPU: memref.store %{{.*}}, %[[TILES]]
// GPU: memref.store %[[ENDS]]#0, %[[BOUNDS]]
// GPU: memref.store %[[ENDS]]#1, %[[BOUNDS]]
func.func @one(%keep: memref<?x1x?x?xi1>, %bounds: memref<?x1x?x2xi32>, %tiles: memref<?x1x?x?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [1, 128, 64] ins(%keep : memref<?x1x?x?xi1>) outs(%bounds, %tiles : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %c0, %c0, %t, %n
  }
  return
}

// -----

// Two intervals, one after the other: the second's tiles begin where the first's end. Rows that are
// aligned are read as vectors of bytes, but for the last tile where it is cut short.

// CHECK-LABEL: func @two
// CHECK-SAME: %[[A:[a-z0-9]+]]: index, %[[B:[a-z0-9]+]]: index, %[[N:[a-z0-9]+]]: index
// GPU: %[[BYTES:.*]] = builtin.unrealized_conversion_cast %{{.*}} : memref<1x8x?x?xi1> to memref<1x8x?x?xi8>
// CHECK: %[[LENGTH:.*]] = arith.subi %[[N]], %[[B]]
// CHECK: %[[TOTAL:.*]] = arith.addi %[[A]], %[[LENGTH]]
// CHECK: scf.for %[[I:[a-z0-9]+]] = %c0 to %[[TOTAL]]
// LOOPS: %[[SHIFT:.*]] = arith.subi %[[B]], %[[A]]
// LOOPS: %[[IS_SECOND:.*]] = arith.cmpi sge, %[[I]], %[[A]]
// LOOPS: arith.select %[[IS_SECOND]], %[[SHIFT]], %c0
// Two heads have one list.
// LOOPS: scf.for %[[H:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %c1
// LOOPS: memref.load %{{.*}}[%c0, %[[H]], %{{.*}}, %{{.*}}]
// GPU: arith.cmpi sle, %{{.*}}, %{{.*}} : index
// GPU-COUNT-4: vector.load %[[BYTES]]{{.*}} {alignment = 16 : i64} : memref<1x8x?x?xi8>, vector<16xi8>
// GPU: vector.reduction <or>
// GPU: vector.reduction <and>
// GPU: else
// GPU: memref.load %[[BYTES]]
func.func @two(%a: index, %b: index, %n: index, %keep: memref<1x8x?x?xi1> {flashattn.aligned_rows}, %bounds: memref<1x4x?x2xi32>, %tiles: memref<1x4x?x?xi32>) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [2, 64, 80] ins(%keep : memref<1x8x?x?xi1>) outs(%bounds, %tiles : memref<1x4x?x2xi32>, memref<1x4x?x?xi32>) within {
  ^bb0(%i: index, %h: index, %t: index):
    flashattn.yield_intervals %c0, %c0, %c0, %a, %b, %b, %b, %n
  }
  return
}

// -----

// Without an interval no tile is listed.

// CHECK-LABEL: func @none
// CHECK-NOT: memref.load
// CHECK: memref.store
// CHECK: memref.store
func.func @none(%keep: memref<1x1x1x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  flashattn.list_tiles tile [1, 64, 64] ins(%keep : memref<1x1x1x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals
  }
  return
}
