// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s

// CHECK-LABEL: func @lists
// CHECK: flashattn.list_tiles tile [1, 128, 64] ins(%{{.*}} : memref<?x1x?x?xi1>) outs(%{{.*}}, %{{.*}} : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
// CHECK-NEXT: ^bb0(%[[B:.*]]: index, %[[H:.*]]: index, %[[T:.*]]: index):
// CHECK: flashattn.yield_intervals %c0, %c0, %[[T]], %[[N:[a-z0-9]+]], %[[N]], %[[N]], %[[N]], %[[N]]
func.func @lists(%attn_mask: memref<?x1x?x?xi1>, %bounds: memref<?x1x?x2xi32>, %tiles: memref<?x1x?x?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles tile [1, 128, 64] ins(%attn_mask : memref<?x1x?x?xi1>) outs(%bounds, %tiles : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %c0, %c0, %t, %n, %n, %n, %n, %n
  }
  return
}

// CHECK-LABEL: func @of_queries
// CHECK: flashattn.list_tiles of_queries tile [4, 64, 128] ins(
func.func @of_queries(%attn_mask: memref<?x1x?x?xi1>, %bounds: memref<?x1x?x2xi32>, %tiles: memref<?x1x?x?xi32>, %n: index) {
  %c0 = arith.constant 0 : index
  flashattn.list_tiles of_queries tile [4, 64, 128] ins(%attn_mask : memref<?x1x?x?xi1>) outs(%bounds, %tiles : memref<?x1x?x2xi32>, memref<?x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %c0, %c0, %n, %n
  }
  return
}

// CHECK-LABEL: func @tested
// CHECK: flashattn.list_tiles tile [1, 128, 64] outs(%{{.*}}, %{{.*}} : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
// CHECK: } test {
// CHECK-NEXT: ^bb0(%{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %[[TILE:.*]]: index):
// CHECK-NEXT: flashattn.yield_intervals %[[TILE]]
func.func @tested(%bounds: memref<1x1x?x2xi32>, %tiles: memref<1x1x?x?xi32>, %n: index) {
  flashattn.list_tiles tile [1, 128, 64] outs(%bounds, %tiles : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %t, %n, %n, %n
  } test {
  ^bb0(%b: index, %h: index, %t: index, %tile: index):
    flashattn.yield_intervals %tile, %n, %n, %n
  }
  return
}

// CHECK-LABEL: func @ranges
// CHECK: flashattn.tile_ranges ins(%{{.*}} : memref<1x1x?xi32>) outs(%{{.*}} : memref<1x1x?x2xi32>) of {
// CHECK: flashattn.tile_ranges ins(%{{.*}} : memref<1x1x?xi32>) outs(%{{.*}}, %{{.*}} : memref<1x1x?x2xi32>, memref<1x1x?xf32>) of {
func.func @ranges(%values: memref<1x1x?xi32>, %ranges: memref<1x1x?x2xi32>, %copies: memref<1x1x?xf32>, %n: index) {
  flashattn.tile_ranges ins(%values : memref<1x1x?xi32>) outs(%ranges : memref<1x1x?x2xi32>) of {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %b, %t, %n
  }
  flashattn.tile_ranges ins(%values : memref<1x1x?xi32>) outs(%ranges, %copies : memref<1x1x?x2xi32>, memref<1x1x?xf32>) of {
  ^bb0(%b: index, %h: index, %t: index):
    flashattn.yield_intervals %b, %t, %n, %t
  }
  return
}
