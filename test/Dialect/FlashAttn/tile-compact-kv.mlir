// RUN: flash-opt %s -split-input-file -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// Keys in pieces of 8, one interval behind the other. The sinks are the first piece for all queries, also
// for those that see none of it; the window has those behind it.
#joins = #flashattn.schedule<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, pack = 8, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>
// READS-BACK-LABEL: func @sinks
// CHECK-LABEL: func @sinks
// CHECK: %[[BEGIN:.*]] = arith.maxsi %{{.*}}, %c1 : index
// In 32 bits from here on.
// CHECK: %[[BEGIN32:.*]] = arith.index_castui %[[BEGIN]] : index to i32
// CHECK: %[[HIDDEN32:.*]] = arith.subi %[[BEGIN32]], %c1_i32
// CHECK: %[[HIDDEN:.*]] = arith.index_castui %[[HIDDEN32]] : i32 to index
// CHECK: %[[SKIP:.*]] = arith.muli %[[HIDDEN]], %c8
// CHECK: %[[SEEN:.*]] = arith.subi %{{.*}}, %[[BEGIN32]]
// CHECK: %[[ALL:.*]] = arith.addi %[[SEEN]], %c6_i32
// CHECK: %[[TILES32:.*]] = arith.divui %[[ALL]], %c6_i32
// CHECK: %[[TILES:.*]] = arith.index_castui %[[TILES32]] : i32 to index
// CHECK: %[[ROWS:.*]] = flashattn.compact_rows starts(%c0, %c8) skips(%c0, %[[SKIP]]) lower_bounds [0, 8]
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%c0, %{{.*}}, %{{.*}}, %[[TILES]])]
// CHECK: %[[PLACE:.*]] = arith.muli %[[J]], %c48
// CHECK: flashattn.load_tile %arg1[%{{.*}}, %{{.*}}, %[[J]], %c0] dims [2, 3] rows %[[ROWS]] in_bounds [false, true] : memref<1x8x?x64xbf16> -> vector<48x64xbf16>
// CHECK: flashattn.tile_mask
// The sinks alone are asked whether they are any, of the keys before the cut.
// CHECK: arith.subi %c3, %[[PLACE]]
// CHECK: %[[KEY:.*]] = arith.addi %[[PLACE]], %[[SKIP]]
// CHECK-NOT: arith.subi %c3,
// CHECK: %[[PAST:.*]] = arith.cmpi sge, %[[J]], %c1 : index
// CHECK: %[[LEFT:.*]] = arith.subi %c8, %[[PLACE]]
// CHECK: arith.select %[[PAST]], %c0, %[[LEFT]]
// CHECK: %[[BEHIND:.*]] = vector.broadcast %{{.*}} : vector<1x48xi1> to vector<64x48xi1>
// CHECK: arith.select %[[BEHIND]], %{{.*}}, %{{.*}} : vector<64x48xi1>, vector<64x48xi1>
// CHECK: flashattn.load_tile %arg2[%{{.*}}, %{{.*}}, %[[J]], %c0] dims [2, 3] rows %[[ROWS]]
func.func @sinks(%q: memref<1x64x?x64xbf16>, %k: memref<1x8x?x64xbf16>, %v: memref<1x8x?x64xbf16>, %o: memref<1x64x?x64xbf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) schedule(#joins)
    ins(%q, %k, %v : memref<1x64x?x64xbf16>, memref<1x8x?x64xbf16>, memref<1x8x?x64xbf16>)
    outs(%o : memref<1x64x?x64xbf16>)
  return
}

// -----

// One interval begins at any piece, and has no cut but at its beginning.
#joins = #flashattn.schedule<tile_m = 64, tile_n = 48, stages = 2, dot_type = bf16, mapping = hopper<consumers = 1, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 1, l2_head_group = 1, blocks_per_sm = 4, compact_kv = 1>>
// READS-BACK-LABEL: func @window
// CHECK-LABEL: func @window
// CHECK: %[[FIRST:.*]] = arith.shrsi %{{.*}}, %c3
// CHECK: %[[SKIP:.*]] = arith.muli %[[FIRST]], %c8
// CHECK: %[[ROWS:.*]] = flashattn.compact_rows starts(%c0) skips(%[[SKIP]]) lower_bounds [0]
// CHECK: flashattn.load_tile %arg1[{{.*}}] dims [2, 3] rows %[[ROWS]]
// CHECK-NOT: vector<1x48xi1>
// CHECK: flashattn.store_tile
func.func @window(%q: memref<1x8x?x64xbf16>, %k: memref<1x8x?x64xbf16>, %o: memref<1x8x?x64xbf16>) {
  flashattn.attention mask(#flashattn.window<left = 127, right = 0>) schedule(#joins)
    ins(%q, %k, %k : memref<1x8x?x64xbf16>, memref<1x8x?x64xbf16>, memref<1x8x?x64xbf16>)
    outs(%o : memref<1x8x?x64xbf16>)
  return
}
