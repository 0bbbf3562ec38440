// RUN: flash-opt %s -split-input-file -flashattn-tile -canonicalize -cse | FileCheck %s

// Parts of the keys: programs of their own whose outputs are one more batch each, and an op that
// merges them.
#split = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, splits = 16, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @parts
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x8x3x64xf16>, %[[K:[a-z0-9]+]]: memref<?x2x?x64xf16>, %[[O:[a-z0-9]+]]: memref<?x8x3x64xf16>
// CHECK-DAG: %[[NK:.*]] = memref.dim %[[K]], %c2
// CHECK-DAG: %[[B:.*]] = memref.dim %[[Q]], %c0
// CHECK-DAG: %[[PROGRAMS:.*]] = arith.muli %[[B]], %c8
// CHECK-DAG: %[[TILES:.*]] = arith.ceildivui %[[NK]], %c32
// CHECK: %[[S:.*]] = flashattn.count_splits %[[PROGRAMS]], %[[TILES]] schedule(<tile_m = 64, {{.*}}splits = 16, mapping = {{.*}}>)
// Where that is one part, the op's own program.
// CHECK: %[[ONE:.*]] = arith.cmpi eq, %[[S]], %c1
// CHECK: scf.if %[[ONE]] {
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%[[B]], %c8, %c1) axes(batch, head, query_tile)
// CHECK: flashattn.program (%{{.*}}, %{{.*}}, %{{.*}}) in %[[SPACE]] schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>)
// CHECK: flashattn.store_tile %{{.*}} to %[[O]][
// CHECK: } else {
// One allocation for the outputs and, behind them, the log-sum-exps, each in two numbers.
// CHECK: %[[BYTES:.*]] = arith.muli %{{.*}}, %c6336
// CHECK: %[[BUFFER:.*]] = memref.alloc(%[[BYTES]]) : memref<?xi8>
// CHECK: %[[SHIFT:.*]] = arith.muli %{{.*}}, %c6144
// CHECK: %[[LP:.*]] = memref.view %[[BUFFER]][%[[SHIFT]]][%[[S]], %[[B]]] : memref<?xi8> to memref<?x?x8x3xf32>
// CHECK: %[[RESTSHIFT:.*]] = arith.muli %{{.*}}, %c6240
// CHECK: %[[RP:.*]] = memref.view %[[BUFFER]][%[[RESTSHIFT]]][%[[S]], %[[B]]] : memref<?xi8> to memref<?x?x8x3xf32>
// CHECK: %[[OP:.*]] = memref.view %[[BUFFER]][%c0][%[[S]], %[[B]]] : memref<?xi8> to memref<?x?x8x3x64xf32>
// CHECK: %[[OB:.*]] = memref.collapse_shape %[[OP]] {{\[\[}}0, 1], [2], [3], [4]]
// CHECK: %[[LB:.*]] = memref.collapse_shape %[[LP]] {{\[\[}}0, 1], [2], [3]]
// CHECK: %[[RB:.*]] = memref.collapse_shape %[[RP]] {{\[\[}}0, 1], [2], [3]]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%[[B]], %c8, %[[S]]) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[BATCH:.*]], %[[HEAD:.*]], %[[T:.*]]) in %[[SPACE]] schedule(<tile_m = 64, {{.*}}splits = 16, mapping = {{.*}}>)
// Its number counts the parts fastest.
// CHECK: %[[TILE32:.*]] = arith.divui %{{.*}}, %{{.*}} : i32
// CHECK: %[[TILE:.*]] = arith.index_castui %[[TILE32]]
// CHECK: %[[PART:.*]] = arith.subi %[[T]], %{{.*}}
// CHECK: %[[FIRST:.*]] = arith.muli %[[PART]], %[[B]]
// CHECK: %[[OUT:.*]] = arith.addi %[[FIRST]], %[[BATCH]]
// CHECK: flashattn.load_tile %[[Q]][%[[BATCH]], %[[HEAD]], %[[TILE]], %c0]
// The part's share of the tiles, rounded up; full tiles stay apart from the last one.
// CHECK: %[[SHARE32:.*]] = arith.divui %{{.*}}, %{{.*}} : i32
// CHECK: %[[SHARE:.*]] = arith.index_castui %[[SHARE32]]
// CHECK: %[[FROM:.*]] = arith.muli %[[PART]], %[[SHARE]]
// CHECK: %[[TO:.*]] = arith.addi %[[FROM]], %[[SHARE]]
// CHECK: %[[LOW:.*]] = arith.minsi %[[TO]], %c0
// CHECK: %[[BEGIN:.*]] = arith.maxsi %[[LOW]], %[[FROM]]
// CHECK: %[[FULL_TO:.*]] = arith.minsi %{{.*}}, %[[TO]]
// CHECK: %[[FULL:.*]] = arith.maxsi %[[FULL_TO]], %[[FROM]]
// CHECK: %[[END_TO:.*]] = arith.minsi %{{.*}}, %[[TO]]
// CHECK: %[[END:.*]] = arith.maxsi %[[END_TO]], %[[FROM]]
// CHECK: flashattn.tile_loop (%{{.*}}, %{{.*}}) in [(%[[BEGIN]], %[[BEGIN]], %[[FULL]], %[[END]])] iter_args
// CHECK: flashattn.store_tile %{{.*}} to %[[OB]][%[[OUT]], %[[HEAD]], %[[TILE]], %c0] {{.*}} : vector<64x64xf32>, memref<?x8x3x64xf32>
// CHECK: flashattn.store_tile %{{.*}} to %[[LB]][%[[OUT]], %[[HEAD]], %[[TILE]]] {{.*}} : vector<64xf32>, memref<?x8x3xf32>
// CHECK: flashattn.store_tile %{{.*}} to %[[RB]][%[[OUT]], %[[HEAD]], %[[TILE]]] {{.*}} : vector<64xf32>, memref<?x8x3xf32>
// CHECK: flashattn.combine ins(%[[OP]], %[[LP]] : {{.*}}) lse_rests(%[[RP]] : memref<?x?x8x3xf32>) outs(%[[O]] : memref<?x8x3x64xf16>)
// CHECK: memref.dealloc %[[BUFFER]]
func.func @parts(%q: memref<?x8x3x64xf16>, %k: memref<?x2x?x64xf16>, %o: memref<?x8x3x64xf16>) {
  flashattn.attention schedule(#split)
      ins(%q, %k, %k : memref<?x8x3x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      outs(%o : memref<?x8x3x64xf16>)
  return
}

// -----

// Parts in small blocks, and whole programs too, with half as many keys a tile and their share of the registers.
#narrow = #flashattn.schedule<tile_m = 64, tile_n = 128, stages = 3, dot_type = f16, splits = 16, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 2, small_blocks_per_sm = 3>>
// CHECK-LABEL: func @narrow
// CHECK: %[[TILES:.*]] = arith.ceildivui %{{.*}}, %c64
// CHECK: %[[PARTS:.*]] = flashattn.count_splits %{{.*}}, %[[TILES]] schedule(<tile_m = 64, tile_n = 128, {{.*}}small_blocks_per_sm = 3>>)
// CHECK: %[[ONE:.*]] = arith.cmpi eq, %[[PARTS]], %c1
// CHECK: scf.if %[[ONE]] {
// CHECK: %[[WIDE:.*]] = arith.ceildivui %{{.*}}, %c128
// CHECK: %[[NARROW:.*]] = flashattn.prefers_small_blocks %{{.*}}, %[[WIDE]] schedule(<{{.*}}small_blocks_per_sm = 3>>)
// CHECK: scf.if %[[NARROW]] {
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 64, stages = 3, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 120, producer_registers = 40, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 3>>)
// CHECK: } else {
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 128, stages = 3, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 208, producer_registers = 48, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 2>>)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 64, {{.*}}splits = 16, min_split_tiles = 1, mapping = hopper<consumers = 1, along = query_tile, registers = 120, producer_registers = 40, rescale_threshold = 4, l2_head_group = 1, blocks_per_sm = 3>>)
// CHECK: flashattn.combine
func.func @narrow(%q: memref<?x8x1x64xf16>, %k: memref<?x2x?x64xf16>, %o: memref<?x8x1x64xf16>) {
  flashattn.attention schedule(#narrow)
      ins(%q, %k, %k : memref<?x8x1x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      outs(%o : memref<?x8x1x64xf16>)
  return
}

// -----

// Heads that share a tile; the parts' outputs are [B, H, N] whatever the op's layout. A sink is for
// who merges.
#packed = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, pack = 4, splits = 16, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @packed
// CHECK-SAME: %[[SINKS:[a-z0-9]+]]: memref<8xf32>
// CHECK: memref.expand_shape %{{.*}} {{\[\[}}0], [1], [2, 3], [4]] {{.*}} : memref<?x16x8x64xbf16> into memref<?x16x2x4x64xbf16>
// CHECK: %[[OS:.*]] = memref.expand_shape %{{.*}} {{\[\[}}0], [1, 2], [3], [4]] {{.*}} : memref<?x8x16x64xf32> into memref<?x2x4x16x64xf32>
// CHECK: %[[LS:.*]] = memref.expand_shape %{{.*}} {{\[\[}}0], [1, 2], [3]] {{.*}} : memref<?x8x16xf32> into memref<?x2x4x16xf32>
// CHECK: flashattn.program
// CHECK-NOT: memref.load
// CHECK: %[[ROWS16_4:.*]] = flashattn.packed_rows [16, 4]
// CHECK: flashattn.store_tile %{{.*}} to %[[OS]][{{.*}}] dims [3, 2, 4] rows %[[ROWS16_4]] in_bounds [false, false, true] : vector<64x64xf32>, memref<?x2x4x16x64xf32>
// CHECK: flashattn.store_tile %{{.*}} to %[[LS]][{{.*}}] dims [3, 2] rows %[[ROWS16_4]] in_bounds [false, false] : vector<64xf32>, memref<?x2x4x16xf32>
// CHECK: flashattn.combine layout(bshd) ins({{.*}}) sink_logits(%[[SINKS]] : memref<8xf32>) outs(%{{.*}}, %{{.*}} : memref<?x16x8x64xbf16>, memref<?x8x16xf32>)
func.func @packed(%q: memref<?x16x8x64xbf16>, %k: memref<?x?x2x64xbf16>, %s: memref<8xf32>, %o: memref<?x16x8x64xbf16>, %l: memref<?x8x16xf32>) {
  flashattn.attention layout(bshd) schedule(#packed)
      ins(%q, %k, %k : memref<?x16x8x64xbf16>, memref<?x?x2x64xbf16>, memref<?x?x2x64xbf16>)
      sink_logits(%s : memref<8xf32>)
      outs(%o, %l : memref<?x16x8x64xbf16>, memref<?x8x16xf32>)
  return
}
