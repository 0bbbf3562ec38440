// RUN: flash-opt %s -split-input-file -flashattn-tile -canonicalize -cse | FileCheck %s

// M7: an attn_mask's key tiles are listed before the programs run, those of the mask's intervals that it
// shows. Programs that share a block share a list; a batch or head that sees the same does too.
#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>
// CHECK-LABEL: func @shared
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x8x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x2x?x64xf16>, %[[ATTN_MASK:[a-z0-9]+]]: memref<1x1x?x?xi1>
// CHECK-DAG: %[[NQ:.*]] = memref.dim %[[Q]], %c2
// CHECK-DAG: %[[NK:.*]] = memref.dim %[[K]], %c2
// CHECK-DAG: %[[TILES:.*]] = arith.ceildivui %[[NQ]], %c64
// CHECK-DAG: %[[LISTS:.*]] = arith.ceildivui %[[TILES]], %c2
// CHECK-DAG: %[[KEY_TILES:.*]] = arith.ceildivui %[[NK]], %c32
// CHECK-DAG: %[[PLACES:.*]] = arith.muli %[[KEY_TILES]], %c2
// One allocation for bounds and lists.
// CHECK: %[[SHIFT:.*]] = arith.muli %[[LISTS]], %c8
// CHECK: %[[BUFFER:.*]] = memref.alloc(%{{.*}}) : memref<?xi8>
// CHECK: %[[BOUNDS:.*]] = memref.view %[[BUFFER]][%c0][%[[LISTS]]] : memref<?xi8> to memref<1x1x?x2xi32>
// CHECK: %[[LIST:.*]] = memref.view %[[BUFFER]][%[[SHIFT]]][%[[LISTS]], %[[PLACES]]] : memref<?xi8> to memref<1x1x?x?xi32>
// CHECK: flashattn.list_tiles tile [1, 128, 32] ins(%[[ATTN_MASK]] : memref<1x1x?x?xi1>) outs(%[[BOUNDS]], %[[LIST]] : memref<1x1x?x2xi32>, memref<1x1x?x?xi32>) within {
// CHECK: ^bb0(%{{.*}}: index, %{{.*}}: index, %[[T:.*]]: index):
// CHECK: arith.muli %[[T]], %c128
// CHECK: flashattn.yield_intervals %c0, %c0, %{{.*}}, %{{.*}}
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %c8, %[[TILES]])
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[TILE:.*]]) in %[[SPACE]]
// CHECK: %[[N32:.*]] = arith.divui %{{.*}}, %c2_i32
// CHECK: %[[N:.*]] = arith.index_castui %[[N32]]
// CHECK: %[[BEGIN32:.*]] = memref.load %[[BOUNDS]][%c0, %c0, %[[N]], %c0]
// CHECK: %[[BEGIN:.*]] = arith.index_cast %[[BEGIN32]]
// CHECK: %[[END32:.*]] = memref.load %[[BOUNDS]][%c0, %c0, %[[N]], %c1]
// CHECK: %[[END:.*]] = arith.index_cast %[[END32]]
// Full tiles first: no partial run stands before them. The mask and keep are for the others alone.
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%[[BEGIN]], %[[BEGIN]], %[[KEY_TILES]], %[[END]])] list(%[[LIST]][%c0, %c0, %[[N]]] : memref<1x1x?x?xi32>) iter_args
// CHECK: flashattn.load_tile %[[K]][%[[B]], %{{.*}}, %[[J]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK-NOT: flashattn.load_tile %[[ATTN_MASK]]
// CHECK: flashattn.tile_mask
// CHECK: %[[MASK_TILE:.*]] = flashattn.load_tile %[[ATTN_MASK]][%c0, %c0, %[[TILE]], %[[J]]] dims [2, 3] in_bounds [false, false]
// CHECK: %[[SHOWN:.*]] = arith.andi %{{.*}}, %[[MASK_TILE]]
// CHECK: flashattn.tile_yield %[[SHOWN]]
// CHECK-NOT: flashattn.load_tile %[[ATTN_MASK]]
// CHECK-NOT: flashattn.tile_loop
// CHECK: memref.dealloc %[[BUFFER]]
func.func @shared(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %attn_mask: memref<1x1x?x?xi1>, %o: memref<?x8x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
      ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      attn_mask(%attn_mask : memref<1x1x?x?xi1>)
      outs(%o : memref<?x8x?x64xf16>)
  return
}

// -----

// Neighbouring heads in a block: their lists are one. Without a mask all queries have one too where
// the keep is the same for them; every batch with a length of its own has its own.
#heads = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = head, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>
// CHECK-LABEL: func @heads
// CHECK: flashattn.list_tiles tile [2, 64, 32] {{.*}} outs(%[[BOUNDS:.*]], %[[LIST:.*]] : memref<?x4x1x2xi32>, memref<?x4x1x?xi32>) within {
// CHECK-NEXT: ^bb0(%[[LB:.*]]: index, %{{.*}}: index, %{{.*}}: index):
// CHECK: memref.load %{{.*}}[%[[LB]]] : memref<?xi32>
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[TILE:.*]]) in
// CHECK: %[[N32:.*]] = arith.divui %{{.*}}, %c2_i32
// CHECK: %[[N:.*]] = arith.index_castui %[[N32]]
// CHECK: memref.load %[[BOUNDS]][%[[B]], %[[N]], %c0, %c0]
// CHECK: flashattn.tile_loop {{.*}} list(%[[LIST]][%[[B]], %[[N]], %c0] : memref<?x4x1x?xi32>)
func.func @heads(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %attn_mask: memref<1x8x1x?xi1>, %len: memref<?xi32>, %o: memref<?x8x?x64xf16>) {
  flashattn.attention schedule(#heads)
      ins(%q, %k, %k : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      attn_mask(%attn_mask : memref<1x8x1x?xi1>) kv_len(%len : memref<?xi32>)
      outs(%o : memref<?x8x?x64xf16>)
  return
}

// -----

// Few queries, whose keys come in parts, read attn_mask where they stand.
#split = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, splits = 16, mapping = mma_sync<warps = 4>>
// CHECK-LABEL: func @parts
// CHECK-SAME: %[[ATTN_MASK:[a-z0-9]+]]: memref<?x1x1x?xi1>
// CHECK-NOT: {{flashattn.list_tiles|list\(}}
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in
// In full tiles of the mask too.
// CHECK: %[[MASK:.*]] = flashattn.tile_mask
// CHECK-NOT: flashattn.load_tile
// CHECK: flashattn.tile_yield
// CHECK: %[[MASK_TILE:.*]] = flashattn.load_tile %[[ATTN_MASK]][%{{.*}}, %c0, %c0, %[[J]]] dims [-1, 3] in_bounds [true, false] : memref<?x1x1x?xi1> -> vector<64x32xi1>
// CHECK: arith.andi %[[MASK]], %[[MASK_TILE]]
func.func @parts(%q: memref<?x8x3x64xf16>, %k: memref<?x2x?x64xf16>, %attn_mask: memref<?x1x1x?xi1>, %o: memref<?x8x3x64xf16>) {
  flashattn.attention schedule(#split)
      ins(%q, %k, %k : memref<?x8x3x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
      attn_mask(%attn_mask : memref<?x1x1x?xi1>)
      outs(%o : memref<?x8x3x64xf16>)
  return
}
