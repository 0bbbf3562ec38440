// RUN: flash-opt %s -split-input-file -convert-flashattn-kernels-to-gpu -canonicalize -cse | FileCheck %s

// CHECK-LABEL: func @one
// CHECK-SAME: %[[ATTN_MASK:[a-z0-9]+]]: memref<?x1x?x?xi1>, %[[BOUNDS:[a-z0-9]+]]: memref<?x1x?x2xi32>, %[[TILES:[a-z0-9]+]]: memref<?x1x?x?xi32>, %[[N:[a-z0-9]+]]: index
// CHECK: %[[MASK_BYTES:.*]] = builtin.unrealized_conversion_cast %[[ATTN_MASK]] : memref<?x1x?x?xi1> to memref<?x1x?x?xi8>
// CHECK: %[[PLACES:.*]] = memref.dim %[[TILES]], %c3
// CHECK: %[[MIDDLE:.*]] = arith.divui %[[PLACES]], %c2

// A list a block, a key tile a warp. What was found of 32 tiles meets in shared memory, in one of two
// places in turn, behind one barrier; ballots give each its place.
// CHECK: gpu.launch {{.*}} threads(%[[THREAD:[a-z0-9]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c1024, {{.*}}) workgroup(%[[KINDS:.*]] : memref<2x32xi32, #gpu.address_space<workgroup>>)
// CHECK: %[[WARP32:.*]] = arith.divui %{{.*}}, %c32_i32
// CHECK: %[[LANE32:.*]] = arith.remui %{{.*}}, %c32_i32
// CHECK: %[[ENDS:.*]]:2 = scf.for %[[FIRST:[a-z0-9]+]] = %c0 to %[[N]] step %c32
// CHECK: scf.if
// Four elements a lane at once, until the tile is known to be neither hidden nor full.
// CHECK: scf.for {{.*}} to %c8192 step %c128 iter_args(%[[ANY:.*]] = %false, %[[ALL:.*]] = %{{.*}})
// CHECK: scf.if
// CHECK-COUNT-4: memref.load %[[MASK_BYTES]]
// CHECK: flashattn.vote any
// CHECK: flashattn.vote all
// CHECK: arith.select %{{.*}}, %c2_i32, %c1_i32
// CHECK: memref.store %{{.*}}, %[[KINDS]]
// CHECK: gpu.barrier
// CHECK-NOT: gpu.barrier
// CHECK: memref.load %[[KINDS]]
// CHECK: flashattn.vote ballot
// CHECK: memref.store %{{.*}}, %[[TILES]]
// CHECK: flashattn.vote ballot
// CHECK: memref.store %{{.*}}, %[[TILES]]
// CHECK: memref.store %[[ENDS]]#0, %[[BOUNDS]]
// CHECK: memref.store %[[ENDS]]#1, %[[BOUNDS]]
func.func @one(%attn_mask: memref<?x1x?x?xi1>, %bounds: memref<?x1x?x2xi32>, %tiles: memref<?x1x?x?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [1, 128, 64] ins(%attn_mask : memref<?x1x?x?xi1>) outs(%bounds, %tiles : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
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
// CHECK: %[[BYTES:.*]] = builtin.unrealized_conversion_cast %{{.*}} : memref<1x8x?x?xi1> to memref<1x8x?x?xi8>
// CHECK: %[[LENGTH:.*]] = arith.subi %[[N]], %[[B]]
// CHECK: %[[TOTAL:.*]] = arith.addi %[[A]], %[[LENGTH]]
// CHECK: scf.for %[[I:[a-z0-9]+]] = %c0 to %[[TOTAL]]
// CHECK: arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK-COUNT-4: vector.load %[[BYTES]]{{.*}} {alignment = 16 : i64} : memref<1x8x?x?xi8>, vector<16xi8>
// CHECK: vector.reduction <or>
// CHECK: vector.reduction <and>
// CHECK: else
// CHECK: memref.load %[[BYTES]]
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
