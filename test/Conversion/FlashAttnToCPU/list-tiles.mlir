// RUN: flash-opt %s -split-input-file -convert-flashattn-kernels-to-cpu -canonicalize -cse | FileCheck %s

// CHECK-LABEL: func @one
// CHECK-SAME: %[[ATTN_MASK:[a-z0-9]+]]: memref<?x1x?x?xi1>, %[[BOUNDS:[a-z0-9]+]]: memref<?x1x?x2xi32>, %[[TILES:[a-z0-9]+]]: memref<?x1x?x?xi32>, %[[N:[a-z0-9]+]]: index
// CHECK: %[[PLACES:.*]] = memref.dim %[[TILES]], %c3
// CHECK: %[[MIDDLE:.*]] = arith.divui %[[PLACES]], %c2

// A list a program. Hidden tiles change nothing; full ones grow it downwards, the others upwards.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space({{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]] {
// CHECK: %[[ENDS:.*]]:2 = scf.for %[[TILE:[a-z0-9]+]] = %c0 to %[[N]] step %c1 iter_args(%[[BEGIN:.*]] = %[[MIDDLE]], %[[END:.*]] = %[[MIDDLE]])
// CHECK: %[[MASK1:.*]] = arith.cmpi slt, %[[TILE]], %[[T]]
// CHECK: %[[FULL:.*]] = arith.andi %{{.*}}, %[[MASK1]]
// CHECK: %[[FOUND:.*]]:2 = scf.for %[[ROW:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%[[ANY:.*]] = %false, %[[ALL:.*]] = %[[FULL]])
// CHECK: scf.if
// CHECK-NEXT: scf.yield %[[ANY]], %[[ALL]]
// CHECK: scf.for %[[KEY:[a-z0-9]+]]
// CHECK: memref.load %[[ATTN_MASK]][%[[B]], %c0, %[[ROW]], %[[KEY]]]
// CHECK: scf.if %[[FOUND]]#0
// CHECK: %[[BEFORE:.*]] = arith.subi %[[BEGIN]], %c1
// CHECK: %[[WHERE:.*]] = arith.select %[[FOUND]]#1, %[[BEFORE]], %[[END]]
// CHECK: memref.store %{{.*}}, %[[TILES]][%[[B]], %[[H]], %[[T]], %[[WHERE]]]
// CHECK: else
// CHECK-NEXT: scf.yield %[[BEGIN]], %[[END]]
// CHECK: memref.store %{{.*}}, %[[BOUNDS]][%[[B]], %[[H]], %[[T]], %c0]
// CHECK: memref.store %{{.*}}, %[[BOUNDS]][%[[B]], %[[H]], %[[T]], %c1]
func.func @one(%attn_mask: memref<?x1x?x?xi1>, %bounds: memref<?x1x?x2xi32>, %tiles: memref<?x1x?x?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [1, 128, 64] ins(%attn_mask : memref<?x1x?x?xi1>) outs(%bounds, %tiles : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %c0, %c0, %t, %n
  }
  return
}

// -----

// Two intervals, one after the other: the second's tiles begin where the first's end.

// CHECK-LABEL: func @two
// CHECK-SAME: %[[A:[a-z0-9]+]]: index, %[[B:[a-z0-9]+]]: index, %[[N:[a-z0-9]+]]: index
// CHECK: %[[LENGTH:.*]] = arith.subi %[[N]], %[[B]]
// CHECK: %[[TOTAL:.*]] = arith.addi %[[A]], %[[LENGTH]]
// CHECK: scf.for %[[I:[a-z0-9]+]] = %c0 to %[[TOTAL]]
// CHECK: %[[SHIFT:.*]] = arith.subi %[[B]], %[[A]]
// CHECK: %[[IS_SECOND:.*]] = arith.cmpi sge, %[[I]], %[[A]]
// CHECK: arith.select %[[IS_SECOND]], %[[SHIFT]], %c0
// Two heads have one list.
// CHECK: scf.for %[[H:[a-z0-9]+]] = %{{.*}} to %{{.*}} step %c1
// CHECK: memref.load %{{.*}}[%c0, %[[H]], %{{.*}}, %{{.*}}]
func.func @two(%a: index, %b: index, %n: index, %attn_mask: memref<1x8x?x?xi1> {flashattn.aligned_rows}, %bounds: memref<1x4x?x2xi32>, %tiles: memref<1x4x?x?xi32>) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [2, 64, 80] ins(%attn_mask : memref<1x8x?x?xi1>) outs(%bounds, %tiles : memref<1x4x?x2xi32>, memref<1x4x?x?xi32>) within {
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
func.func @none(%attn_mask: memref<1x1x1x?xi1>, %bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>) {
  flashattn.list_tiles tile [1, 64, 64] ins(%attn_mask : memref<1x1x1x?xi1>) outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals
  }
  return
}
