// RUN: flash-opt %s -flashattn-select-schedule=chip=cpu -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-select-schedule=chip=sm_80 -flashattn-tile -canonicalize -cse | FileCheck %s --check-prefix=ADD

// M7: programs over key tiles have lists of query tiles, one for the heads of a group together, whose rounds go over
// the same list; those over query tiles have lists of key tiles, as the forward's do.
// CHECK-LABEL: func @grouped
// CHECK: flashattn.list_tiles of_queries tile [4, 64, 32] ins(%[[ATTN_MASK:.*]] : memref<1x8x?x?xi1>) outs(%[[QB:.*]], %[[QL:.*]] : memref<1x2x?x2xi32>, memref<1x2x?x?xi32>) within {
// CHECK: flashattn.list_tiles tile [1, 32, 64] ins(%[[ATTN_MASK]] : memref<1x8x?x?xi1>) outs(%[[KB:.*]], %[[KL:.*]] : memref<1x8x?x2xi32>, memref<1x8x?x?xi32>) within {
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c2, %{{.*}}) axes(batch, head, key_tile)
// CHECK: flashattn.program (%{{.*}}, %[[H:.*]], %[[T:.*]]) in %[[SPACE]]
// CHECK: memref.load %[[QB]][%c0, %[[H]], %[[T]], %c0]
// CHECK: flashattn.tile_loop {{.*}} rounds %c4 list(%[[QL]][%c0, %[[H]], %[[T]]] : memref<1x2x?x?xi32>)
// The attn_mask is loaded in tiles alone that it cuts.
// CHECK: flashattn.tile_mask
// CHECK: flashattn.load_tile %[[ATTN_MASK]]
// CHECK: flashattn.tile_yield
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c8, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%{{.*}}, %[[H:.*]], %[[T:.*]]) in %[[SPACE]] {{.*}} pdl_secondary {
// CHECK: memref.load %[[KB]][%c0, %[[H]], %[[T]], %c0]
// CHECK: flashattn.tile_loop {{.*}} list(%[[KL]][%c0, %[[H]], %[[T]]] : memref<1x8x?x?xi32>)
// CHECK: memref.dealloc
// CHECK: memref.dealloc
// CHECK: memref.dealloc

// Where programs over key tiles add up the gradients of queries there is no other list.
// ADD-LABEL: func @grouped
// ADD: flashattn.list_tiles of_queries tile [4, 32, 128]
// ADD-NOT: flashattn.list_tiles
// ADD: flashattn.add_tile
func.func @grouped(%q: memref<2x8x?x64xf16>, %k: memref<2x2x?x64xf16>, %lse: memref<2x8x?xf32>, %attn_mask: memref<1x8x?x?xi1>, %dq: memref<2x8x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>) {
  flashattn.attention_backward ins(%q, %k, %k, %q, %lse, %q
      : memref<2x8x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>, memref<2x8x?x64xf16>, memref<2x8x?xf32>, memref<2x8x?x64xf16>)
    attn_mask(%attn_mask : memref<1x8x?x?xi1>)
    outs(%dq, %dk, %dv : memref<2x8x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
  return
}

// How many heads read one tile of keys is known to the run alone: no list.
// CHECK-LABEL: func @unknown_group
// CHECK-NOT: flashattn.list_tiles of_queries
// CHECK: flashattn.list_tiles tile [1, 32, 64]
func.func @unknown_group(%q: memref<2x?x?x64xf16>, %k: memref<2x?x?x64xf16>, %lse: memref<2x?x?xf32>, %attn_mask: memref<1x?x?x?xi1>, %dq: memref<2x?x?x64xf16>, %dk: memref<2x?x?x64xf16>, %dv: memref<2x?x?x64xf16>) {
  flashattn.attention_backward ins(%q, %k, %k, %q, %lse, %q
      : memref<2x?x?x64xf16>, memref<2x?x?x64xf16>, memref<2x?x?x64xf16>, memref<2x?x?x64xf16>, memref<2x?x?xf32>, memref<2x?x?x64xf16>)
    attn_mask(%attn_mask : memref<1x?x?x?xi1>)
    outs(%dq, %dk, %dv : memref<2x?x?x64xf16>, memref<2x?x?x64xf16>, memref<2x?x?x64xf16>)
  return
}
