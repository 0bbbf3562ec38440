// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_90a schedule='stages = 2'" -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_80" -flashattn-tile | FileCheck %s --check-prefix=OTHER
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=cpu" -flashattn-tile | FileCheck %s --check-prefix=OTHER

// Tiles of keys that far more queries see than the others: their programs share these, and sum up in f32.

// Elsewhere a program has all of its queries: one program over keys, in which nothing but weights is in a branch. Those
// before it have branches for rows whose base lies far from 0.
// OTHER-LABEL: func @sinks
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)

// All queries see the first tile, 64 tiles of them, and of the other keys two tiles: 32 parts. Of each head, 2 sums of
// a tile.
// CHECK-LABEL: func @sinks
// CHECK-SAME: %{{[a-z0-9]+}}: memref<1x64x8192x64xbf16>, %[[K:[a-z0-9]+]]: memref<1x8x8192x64xbf16>, {{.*}}, %[[DK:[a-z0-9]+]]: memref<1x8x8192x64xbf16>, %[[DV:[a-z0-9]+]]: memref<1x8x8192x64xbf16>)
// CHECK: %[[SUMS:.*]] = memref.alloc() : memref<1x2048x64xf32>
// 16 of 4096 programs have a tile of zeros each.
// CHECK: %[[QUERIES:.*]] = flashattn.dense_space(%c1, %c64, %c64) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[QUERIES]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[H]], %c64
// CHECK: %[[N:.*]] = arith.addi %[[FIRST]], %[[I]]
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %[[N]], %c16
// CHECK: scf.if %[[ANY]] {
// CHECK-NEXT: flashattn.store_tile %{{.*}} to %[[SUMS]][%[[B]], %[[N]], %c0] dims [1, 2] in_bounds [true, true] : vector<128x64xf32>
// 63 tiles and 32 parts, which are the first.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c8, %c95) axes(batch, head, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[N:.*]]) in %[[SPACE]]
// CHECK: %[[N32:.*]] = arith.index_castui %[[N]] : index to i32
// CHECK: %[[REST32:.*]] = arith.subi %[[N32]], %c31_i32
// CHECK: %[[PART:.*]] = arith.cmpi slt, %[[REST32]], %c1_i32
// CHECK: %[[REST:.*]] = arith.index_castui %[[REST32]] : i32 to index
// CHECK: %[[TILE:.*]] = arith.select %[[PART]], %c0, %[[REST]]
// Part n has two tiles of queries from 2 n on, the last one the rest; what is no part has all.
// CHECK: %[[BEGIN:.*]] = arith.muli %[[N]], %c2
// CHECK: %[[SKIPPED:.*]] = arith.select %[[PART]], %[[BEGIN]], %c0
// CHECK: %[[BOUNDED:.*]] = arith.cmpi slt, %[[N]], %c31
// CHECK: %[[STEPS:.*]] = arith.select %[[BOUNDED]], %c2, %c2147483647
// CHECK: %[[STORED:.*]] = arith.select %[[PART]], %c64, %[[REST]]
// CHECK: flashattn.load_tile %[[K]][%[[B]], %[[H]], %[[TILE]], %c0]
// CHECK: %[[FROM:.*]] = arith.addi %{{.*}}, %[[SKIPPED]]
// CHECK: %[[TO:.*]] = arith.addi %[[FROM]], %[[STEPS]]
// CHECK: arith.minsi %{{.*}}, %[[TO]]
// CHECK: %[[R:.*]]:2 = flashattn.tile_loop {{.*}} rounds %c8
// CHECK: flashattn.add_tile %{{.*}} parts 1 order %{{.*}} : memref<1x64x64xi32> : vector<128x64xf32>, memref<1x64x8192x64xf32>
// CHECK: flashattn.tile_yield
// CHECK: scf.if %[[PART]] {
// CHECK: %[[KIND:.*]] = arith.muli %[[H]], %c2
// CHECK: %[[KPLACE:.*]] = arith.addi %[[KIND]], %[[TILE]]
// CHECK: flashattn.add_tile %[[R]]#0 to %[[SUMS]][%[[B]], %[[KPLACE]], %c0] parts 1 : vector<128x64xf32>, memref<1x2048x64xf32>
// CHECK: %[[NEXT:.*]] = arith.addi %[[TILE]], %c1
// CHECK: %[[VPLACE:.*]] = arith.addi %[[KIND]], %[[NEXT]]
// CHECK: flashattn.add_tile %[[R]]#1 to %[[SUMS]][%[[B]], %[[VPLACE]], %c0]
// CHECK: }
// A part stores to the tile past the last, which is not written.
// CHECK: flashattn.store_tile %{{.*}} to %[[DK]][%[[B]], %[[H]], %[[STORED]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK: flashattn.store_tile %{{.*}} to %[[DV]][%[[B]], %[[H]], %[[STORED]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK: flashattn.program {{.*}} in %[[QUERIES]]
// The sums: dk lacks the scale.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c8, %c1) axes(batch, head, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]] schedule(<tile_m = 128, tile_n = 128, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 8>>) {
// CHECK: %[[SUM:.*]] = flashattn.load_added %[[SUMS]][%[[B]], %{{.*}}, %c0] parts 1 : memref<1x2048x64xf32> -> vector<128x64xf32>
// CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[SUM]], %{{.*}}
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[SCALED]]
// CHECK-NEXT: flashattn.store_tile %[[ROUNDED]] to %[[DK]][%[[B]], %[[H]], %[[T]], %c0]
// CHECK: %[[SUM:.*]] = flashattn.load_added %[[SUMS]]
// CHECK-NEXT: %[[ROUNDED:.*]] = arith.truncf %[[SUM]]
// CHECK-NEXT: flashattn.store_tile %[[ROUNDED]] to %[[DV]][%[[B]], %[[H]], %[[T]], %c0]
// CHECK: memref.dealloc %[[SUMS]]
!q = memref<1x64x8192x64xbf16>
!k = memref<1x8x8192x64xbf16>
!l = memref<1x64x8192xf32>
func.func @sinks(%q: !q, %k: !k, %v: !k, %o: !q, %lse: !l, %do: !q, %dq: !q, %dk: !k, %dv: !k) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %k, %v, %o, %lse, %do : !q, !k, !k, !q, !l, !q) outs(%dq, %dk, %dv : !q, !k, !k)
  return
}

// -----

// The sums of a tile would take more than one f32 of each query, 32768 to 2048.
// OTHER-LABEL: func @no_room
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)
// CHECK-LABEL: func @no_room
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c4, %c16) axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} in %[[SPACE]]
// CHECK-NOT: scf.if
// CHECK-NOT: axes(batch, head, key_tile)
// Programs that make large rows again have 16 tiles of 64 rows each: of one head, or of all. The first 16 of the last
// ones make dk and dv, the others dq.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c4, %c2) axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} in %[[SPACE]]
// CHECK: memref.store %c1_i32, %[[LARGE:.*]][%c0] : memref<1xi32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c1, %c32) axes(batch, head, key_tile)
// CHECK: flashattn.program ({{.*}}, {{.*}}, %[[N:.*]]) in %[[SPACE]]
// CHECK: %[[NOTED:.*]] = memref.load %[[LARGE]][%c0] : memref<1xi32>
// CHECK: %[[ANY:.*]] = arith.cmpi ne, %[[NOTED]], %c0_i32
// CHECK: scf.if %[[ANY]] {
// CHECK: %[[OFKEYS:.*]] = arith.cmpi slt, %[[N]], %c16
// CHECK: scf.if %[[OFKEYS]] {
// CHECK: scf.for %[[PLACE:.*]] = %{{.*}} to %{{.*}} step %c1 {
// CHECK: %[[PLACE32:.*]] = arith.index_castui %[[PLACE]] : index to i32
// CHECK: %[[ROW32:.*]] = arith.divui %[[PLACE32]], %c32_i32
// CHECK: %[[ROW:.*]] = arith.index_castui %[[ROW32]] : i32 to index
// CHECK: %[[BATCH32:.*]] = arith.divui %{{.*}}, %c4_i32
// CHECK: %[[BATCH:.*]] = arith.index_castui %[[BATCH32]] : i32 to index
// CHECK: %[[HEADS:.*]] = arith.muli %[[BATCH]], %c4
// CHECK: %[[HEAD:.*]] = arith.subi %[[ROW]], %[[HEADS]]
// CHECK: %[[TILES:.*]] = arith.muli %[[ROW]], %c32
// CHECK: %[[TILE:.*]] = arith.subi %[[PLACE]], %[[TILES]]
// CHECK: flashattn.load_tile %{{.*}}[%[[BATCH]], %[[HEAD]], %[[TILE]], %c0]
!q = memref<2x4x2048x128xf16>
!l = memref<2x4x2048xf32>
func.func @no_room(%q: !q, %lse: !l, %dq: !q, %dk: !q, %dv: !q) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %q, %q, %q, %lse, %q : !q, !q, !q, !q, !l, !q) outs(%dq, %dk, %dv : !q, !q, !q)
  return
}

// -----

// 300 sinks are three tiles, whose parts take turns: the host counts them where lengths are known at run time only.
// OTHER-LABEL: func @lengths
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)
// CHECK-LABEL: func @lengths
// CHECK-DAG: %[[QUERIES:.*]] = memref.dim %arg0, %c2
// CHECK-DAG: %[[HEADS:.*]] = memref.dim %arg0, %c1
// CHECK-DAG: %[[KVHEADS:.*]] = memref.dim %arg1, %c1
// CHECK: %[[TILES:.*]] = arith.ceildivui %{{.*}}, %c128
// Of the others the first one's steps count, and those of the one with the middle query's own key.
// CHECK: %[[OFTEN:.*]] = arith.muli %[[OTHERS:.*]], %c2 : index
// CHECK: %[[PAYS:.*]] = arith.cmpi slt, %[[OFTEN]], %[[MOST:.*]] : index
// CHECK: %[[MANY:.*]] = arith.cmpi sgt, %[[TILES]], %c11
// CHECK: %[[BOTH:.*]] = arith.andi %[[PAYS]], %[[MANY]]
// CHECK: %[[TAKEN:.*]] = arith.muli %[[KVHEADS]], %c98304
// Less a word for each tile of queries.
// CHECK: %[[LEFT:.*]] = arith.subi %[[QUERIES]], %{{.*}}
// CHECK: %[[ROWS:.*]] = arith.muli %[[HEADS]], %[[LEFT]]
// CHECK: %[[END:.*]] = arith.addi %[[ROWS]], %c1
// CHECK: %[[FITS:.*]] = arith.cmpi slt, %[[TAKEN]], %[[END]]
// CHECK: %[[SHARED:.*]] = arith.andi %[[BOTH]], %[[FITS]]
// CHECK: %[[COUNT:.*]] = arith.select %[[SHARED]], %c3, %c0
// CHECK: %[[LEAST:.*]] = arith.maxsi %[[OTHERS]], %c1
// CHECK: %[[WANTED:.*]] = arith.ceildivui %[[MOST]], %[[LEAST]]
// CHECK: arith.minsi %[[WANTED]], %c64
// CHECK: memref.alloc(%{{.*}}) : memref<?x?x128xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(batch, head, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[N:.*]]) in %[[SPACE]]
// CHECK: %[[PART:.*]] = arith.divui %{{.*}}, %c3_i32
// CHECK: flashattn.add_tile %{{.*}} parts 2 order %{{.*}} : memref<?x?x?xi32> : vector<64x128xf32>, memref<?x?x?x128xf32>
// CHECK: scf.if
// CHECK: flashattn.add_tile %{{.*}} parts 2 : vector<128x128xf32>, memref<?x?x128xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %[[KVHEADS]], %[[COUNT]]) axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} in %[[SPACE]]
// CHECK: flashattn.load_added %{{.*}} parts 2 : memref<?x?x128xf32> -> vector<128x128xf32>
!m = memref<?x?x?x128xf16>
!l = memref<?x?x?xf32>
func.func @lengths(%q: !m, %k: !m, %lse: !l, %dq: !m, %dk: !m, %dv: !m) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<300>, #flashattn.causal]>]>)
      ins(%q, %k, %k, %q, %lse, %q : !m, !m, !m, !m, !l, !m) outs(%dq, %dk, %dv : !m, !m, !m)
  return
}

// -----

// Neither where sums are to be the same from run to run, nor where all tiles are alike, nor with kv_len, with which
// each batch has its own steps.
// OTHER-LABEL: func @whole
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary {
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary {
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program
// OTHER: %[[LARGE:.*]] = flashattn.any_row
// OTHER-NEXT: scf.if %[[LARGE]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary pdl_primary {
// OTHER: scf.if %{{[a-z0-9_]+}} {
// OTHER: scf.for
// OTHER: %[[BASED:.*]] = arith.cmpf une,
// OTHER-NEXT: scf.if %[[BASED]] {
// OTHER-NOT: scf.if
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// OTHER: flashattn.program
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// OTHER: flashattn.program {{.*}} pdl_secondary {
// OTHER-NOT: scf.if %{{[a-z0-9_]+}} {
// OTHER-NOT: axes(batch, head, key_tile)
// CHECK-LABEL: func @whole
// CHECK-NOT: memref<?x?x64xf32>
!m = memref<?x?x?x64xf16>
!l = memref<?x?x?xf32>
func.func @whole(%q: !m, %k: !m, %lse: !l, %n: memref<?xi32>, %dq: !m, %dk: !m, %dv: !m) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) deterministic
      ins(%q, %k, %k, %q, %lse, %q : !m, !m, !m, !m, !l, !m) outs(%dq, %dk, %dv : !m, !m, !m)
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.window<left = 63, right = 64>]>)
      ins(%q, %k, %k, %q, %lse, %q : !m, !m, !m, !m, !l, !m) outs(%dq, %dk, %dv : !m, !m, !m)
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 127, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
      ins(%q, %k, %k, %q, %lse, %q : !m, !m, !m, !m, !l, !m) kv_len(%n : memref<?xi32>) outs(%dq, %dk, %dv : !m, !m, !m)
  return
}
