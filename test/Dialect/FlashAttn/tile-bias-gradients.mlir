// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_80" -flashattn-tile -canonicalize -cse -mlir-print-local-scope | FileCheck %s

// The gradients of a bias and of sinks: programs of their own without warp specialization, each with all that its
// elements are sums of, so that nothing of a score is in memory and a sum has one order.

// B5: a bias with queries and keys: a program for each tile of both, whose steps are the batches that
// it is summed over. A tile that the mask hides has none, and a sum is rounded once.
// CHECK-LABEL: func @elements
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[K:[a-z0-9]+]]: memref<2x2x?x64xf16>, %{{[a-z0-9]+}}: memref<2x4x?x64xf16>, %[[GIVEN:[a-z0-9]+]]: memref<2x4x?xf32>
// The queries of each batch have exponents, deltas and bases, and each tile of them says whether it has any base.
// CHECK: %[[QUERIES:.*]] = memref.alloc(%{{.*}}) : memref<8x4x?xf32>
// Rows have no base at first, and a tile's flag says whether a log-sum-exp is so far from 0 that one may be needed.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c4, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[SPACE]] schedule(<tile_m = 128, tile_n = 32, {{.*}}>) pdl_primary {
// CHECK: %[[LOADED:.*]] = flashattn.load_tile %[[GIVEN]][%[[B]], %[[H]], %[[I]]] dims [2]
// Queries that see no key count as such where what lies there is no number.
// CHECK: %[[SIZE:.*]] = math.absf %[[LOADED]]
// CHECK: arith.cmpf olt, %[[SIZE]],
// CHECK: %[[LSE:.*]] = arith.select %{{.*}}, %[[LOADED]], %{{.*}} : vector<128xi1>, vector<128xf32>
// CHECK: %[[EXISTS:.*]] = vector.shape_cast %{{.*}} : vector<128x1xi1> to vector<128xi1>
// CHECK: flashattn.store_tile %{{.*}} to %[[QUERIES]][%[[B]], %[[H]], %[[I]]] dims [2] in_bounds [true]
// CHECK: %[[DELTAS:.*]] = arith.addi %[[B]], %c2
// CHECK: flashattn.store_tile %{{.*}} to %[[QUERIES]][%[[DELTAS]], %[[H]], %[[I]]] dims [2] in_bounds [true]
// CHECK: %[[BASES:.*]] = arith.addi %[[B]], %c4
// CHECK: flashattn.store_tile %[[NONE:.*]] to %[[QUERIES]][%[[BASES]], %[[H]], %[[I]]] dims [2] in_bounds [true] : vector<128xf32>
// CHECK: %[[SIZE:.*]] = math.absf %[[LSE]]
// CHECK: %[[FAR:.*]] = arith.cmpf ogt, %[[SIZE]],
// CHECK: %[[FINITE:.*]] = arith.cmpf olt, %[[SIZE]],
// CHECK: %[[FARFINITE:.*]] = arith.andi %[[FAR]], %[[FINITE]]
// CHECK: %[[LARGE:.*]] = arith.andi %[[EXISTS]], %[[FARFINITE]]
// CHECK: %[[FLAGS:.*]] = arith.addi %[[B]], %c6
// CHECK: memref.store %[[NO:.*]], %[[QUERIES]][%[[FLAGS]], %[[H]], %[[I]]]
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: %[[ANY:.*]] = flashattn.any_row %[[LARGE]] : vector<128xi1>
// CHECK-NEXT: scf.if %[[ANY]] {
// CHECK-NEXT: memref.store %{{.*}}, %[[QUERIES]][%[[FLAGS]], %[[H]], %[[I]]]
// CHECK-NEXT: }
// A program reads the flags of all its tiles at once. In tiles with a flag the sums are found again. A row whose
// log-sum-exp they agree with is taken against its largest score; another one stays as it is.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c4, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[N:.*]]) in %[[SPACE]] schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) pdl_secondary pdl_primary {
// CHECK: %[[FLAGS:.*]] = arith.addi %[[B]], %c6
// CHECK-COUNT-7: arith.ori %{{.*}} : i1
// CHECK: scf.if %{{.*}} {
// CHECK: %[[BEGIN:.*]] = arith.muli %[[N]], %c16
// CHECK: scf.for %[[I:.*]] = %[[BEGIN]] to %{{.*}} step %c1
// CHECK: %[[FIRST:.*]] = arith.muli %[[I]], %c64
// CHECK: %[[TILE:.*]] = arith.divui %[[FIRST]], %c128
// CHECK: %[[FLAG:.*]] = memref.load %[[QUERIES]][%[[FLAGS]], %[[H]], %[[TILE]]]
// CHECK: %[[BASED:.*]] = arith.cmpf une, %[[FLAG]], %[[NO]] : f32
// CHECK: scf.if %[[BASED]] {
// CHECK: flashattn.load_tile %[[Q]][%[[B]], %[[H]], %[[I]], %c0]
// CHECK: %[[FOUND:.*]]:2 = flashattn.tile_loop {{.*}} iter_args(%[[BASE:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}) -> (vector<64xf32>, vector<64x4xf32>) {
// CHECK: %[[SCORES:.*]] = arith.select %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK: %{{.*}}, %[[SUMS:.*]], %[[NEWBASE:.*]], %[[RESCALED:.*]] = flashattn.softmax_step %[[SCORES]] from %[[BASE]] factor(%{{.*}}) threads_per_row 4 rescale(%[[SUM]] : vector<64x4xf32>)
// CHECK: %[[NEWSUM:.*]] = arith.addf %[[RESCALED]], %[[SUMS]]
// CHECK: flashattn.tile_yield %[[NEWBASE]], %[[NEWSUM]]
// CHECK: %[[TOTAL:.*]] = vector.multi_reduction <add>, %[[FOUND]]#1,
// CHECK: %[[LOADED:.*]] = flashattn.load_tile %[[GIVEN]][%[[B]], %[[H]], %[[I]]] dims [2]
// CHECK: %[[LSE:.*]] = arith.select %{{.*}}, %[[LOADED]], %{{.*}} : vector<64xi1>, vector<64xf32>
// CHECK: %[[LOG:.*]] = math.log2 %[[TOTAL]]
// CHECK: %[[OFF:.*]] = arith.subf %{{.*}}, %[[LSE]]
// CHECK: %[[SIZE:.*]] = math.absf %[[LSE]]
// CHECK: %[[ROUNDING:.*]] = arith.mulf %[[SIZE]],
// CHECK: %[[OFFBY:.*]] = math.absf %[[OFF]]
// CHECK: %[[AGREES:.*]] = arith.cmpf ole, %[[OFFBY]], %[[ROUNDING]]
// CHECK: %[[LARGE:.*]] = arith.andi
// CHECK: %[[ISFOUND:.*]] = arith.andi %[[LARGE]], %[[AGREES]]
// CHECK: %[[OLD:.*]] = flashattn.load_tile %[[QUERIES]][%[[B]], %[[H]], %[[I]]] dims [2]
// CHECK: %[[AGAINST:.*]] = arith.subf %[[LOG]],
// CHECK: %[[EXPONENT:.*]] = arith.select %[[ISFOUND]], %[[AGAINST]], %[[OLD]]
// CHECK: %[[KEPT:.*]] = arith.select %[[ISFOUND]], %[[FOUND]]#0, %{{.*}}
// CHECK: flashattn.store_tile %[[EXPONENT]] to %[[QUERIES]][%[[B]], %[[H]], %[[I]]] dims [2] in_bounds [true]
// CHECK: %[[BASES:.*]] = arith.addi %[[B]], %c4
// CHECK: flashattn.store_tile %[[KEPT]] to %[[QUERIES]][%[[BASES]], %[[H]], %[[I]]] dims [2] in_bounds [true]
// Programs over keys ask for each tile of queries.
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} pdl_secondary pdl_primary {
// CHECK: %[[BASED:.*]] = arith.cmpf une, %{{.*}}, %[[NO]] : f32
// CHECK: %[[SCORES:.*]] = arith.select %{{.*}} : vector<128x32xi1>, vector<128x32xf32>
// CHECK: %[[EXPONENTS:.*]] = arith.select %[[BASED]], %{{.*}} : vector<128x32xf32>
// CHECK: %[[X:.*]] = scf.if %[[BASED]] -> (vector<128x32xf32>) {
// CHECK:   arith.subf %[[SCORES]],
// CHECK:   arith.minimumf
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[SCORES]]
// CHECK-NEXT: }
// CHECK: %[[MINUS:.*]] = arith.negf %[[EXPONENTS]]
// CHECK: math.fma %[[X]], %{{.*}}, %[[MINUS]] : vector<128x32xf32>
// CHECK-NOT: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c4, %{{.*}}, %{{.*}}) axes(batch, head, query_tile, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]], %[[J:.*]]) in %[[SPACE]] schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, algorithm = separate_dq, mapping = mma_sync<warps = 4>>) {
// CHECK: %[[BELOW:.*]] = arith.cmpi slt, %[[J]], %{{.*}}
// CHECK: %[[SHOWN:.*]] = arith.andi %{{.*}}, %[[BELOW]]
// CHECK: %[[FULL:.*]] = arith.andi
// CHECK: %[[END:.*]] = arith.select %[[SHOWN]], %c2, %c0
// One that it shows whole needs no mask in any step.
// CHECK: %[[MASKED:.*]] = arith.select %[[FULL]], %c0, %[[END]]
// CHECK: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[BATCH:.*]]) in [(%c0, %[[MASKED]], %[[END]], %[[END]])] iter_args(%[[STATE:.*]] = %{{.*}}) -> vector<64x32xf32> {
// CHECK: %[[GROUP:.*]] = arith.divui %[[H]], %c2
// CHECK: %[[EXPONENT:.*]] = flashattn.load_tile %[[QUERIES]][%[[BATCH]], %[[H]], %[[I]]] dims [2]
// CHECK: flashattn.load_tile %[[Q]][%[[BATCH]], %[[H]], %[[I]], %c0]
// CHECK: flashattn.load_tile %[[K]][%[[BATCH]], %[[GROUP]], %[[J]], %c0]
// Scores of queries with a base are taken against it, and are no larger; they are then as if the exponent were 0.
// CHECK: %[[FLAGS:.*]] = arith.addi %[[BATCH]], %c6
// CHECK: %[[FLAG:.*]] = memref.load %[[QUERIES]][%[[FLAGS]], %[[H]], %{{.*}}]
// CHECK: %[[BASED:.*]] = arith.cmpf une, %[[FLAG]], %[[NO]] : f32
// CHECK: %[[SCORES:.*]] = arith.select %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK-NEXT: %[[LEFT:.*]] = arith.select %[[BASED]], %{{.*}}, %[[EXPONENT]] : vector<64xf32>
// CHECK-NEXT: %[[X:.*]] = scf.if %[[BASED]] -> (vector<64x32xf32>) {
// CHECK: %[[BASES:.*]] = arith.addi %[[BATCH]], %c4
// CHECK: flashattn.load_tile %[[QUERIES]][%[[BASES]], %[[H]], %[[I]]] dims [2]
// CHECK: %[[LESS:.*]] = arith.subf %[[SCORES]],
// CHECK: arith.negf %[[EXPONENT]]
// CHECK: %[[FMA:.*]] = math.fma %[[LESS]],
// CHECK: %[[MOST:.*]] = arith.minimumf %[[FMA]],
// CHECK: %[[BACK:.*]] = arith.mulf %[[MOST]],
// CHECK: scf.yield %[[BACK]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[SCORES]]
// CHECK-NEXT: }
// CHECK: arith.negf %[[LEFT]]
// CHECK: %[[FMA:.*]] = math.fma %[[X]],
// CHECK: %[[P:.*]] = math.exp2 %[[FMA]] : vector<64x32xf32>
// CHECK: arith.cmpf une, %[[P]], %{{.*}} : vector<64x32xf32>
// CHECK: %[[SCORES:.*]] = arith.select %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK-NEXT: %[[NEXT:.*]] = arith.addf %[[STATE]], %[[SCORES]]
// CHECK-NEXT: flashattn.tile_yield %[[NEXT]]
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[SUM]] : vector<64x32xf32> to vector<64x32xbf16>
// CHECK-NEXT: flashattn.store_tile %[[ROUNDED]] to %{{.*}}[%[[B]], %[[H]], %[[I]], %[[J]]] dims [2, 3] in_bounds [false, false]
func.func @elements(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>,
                %lse: memref<2x4x?xf32>, %bias: memref<1x4x?x?xbf16>,
                %dq: memref<2x4x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>, %d: memref<1x4x?x?xbf16>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>,
          memref<2x4x?x64xf16>, memref<2x4x?xf32>, memref<2x4x?x64xf16>)
      bias(%bias : memref<1x4x?x?xbf16>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      d_bias(%d : memref<1x4x?x?xbf16>)
  return
}

// -----

// One that is the same for all queries: rows are keys. A7: keys and positions are those of the
// round's batch, so that every tile of queries is a step, and the mask decides.
// CHECK-LABEL: func @keys
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c1, %{{.*}}) axes(batch, head, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[J:.*]]) in %[[SPACE]]
// CHECK: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[I:.*]], %[[ROUND:.*]]) in [(%c0, %c0, %c0, %{{.*}})] rounds %c8 iter_args(%[[STATE:.*]] = %{{.*}}) -> vector<64xf32> {
// CHECK: %[[BATCH:.*]] = arith.divui %[[ROUND]], %c4
// CHECK: %[[DONE:.*]] = arith.muli %[[BATCH]], %c4
// CHECK: %[[HEAD:.*]] = arith.subi %[[ROUND]], %[[DONE]]
// CHECK: memref.load %{{.*}}[%[[BATCH]]] : memref<2xi32>
// CHECK: flashattn.load_tile %{{.*}}[%[[BATCH]], %[[HEAD]], %[[I]], %c0]
// The flag and the bases are those of the round's batch and head too.
// CHECK: %[[FLAGS:.*]] = arith.addi %[[BATCH]], %c6
// CHECK: %[[FLAG:.*]] = memref.load %{{.*}}[%[[FLAGS]], %[[HEAD]], %{{.*}}] : memref<8x4x?xf32>
// CHECK: %[[BASED:.*]] = arith.cmpf une, %[[FLAG]], %{{.*}} : f32
// CHECK: %[[X:.*]] = scf.if %[[BASED]] -> (vector<64x32xf32>) {
// CHECK: %[[BASES:.*]] = arith.addi %[[BATCH]], %c4
// CHECK: flashattn.load_tile %{{.*}}[%[[BASES]], %[[HEAD]], %[[I]]] dims [-1, 2]
// CHECK: %[[FMA:.*]] = math.fma %[[X]],
// CHECK: %[[P:.*]] = math.exp2 %[[FMA]] : vector<64x32xf32>
// CHECK: arith.cmpf une, %[[P]], %{{.*}} : vector<64x32xf32>
// CHECK: %[[SCORES:.*]] = arith.select %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// B7: keys that no query sees add nothing.
// CHECK: %[[STEP:.*]] = vector.multi_reduction <add>, %[[SCORES]], %[[ZEROS:.*]] [1] : vector<64x32xf32> to vector<64xf32>
// CHECK: %[[ADDED:.*]] = arith.select %{{.*}}, %[[STEP]], %[[ZEROS]]
// CHECK: arith.addf %[[STATE]], %[[ADDED]] : vector<64xf32>
// CHECK: flashattn.store_tile %{{.*}} to %{{.*}}[%[[B]], %[[H]], %c0, %[[J]]] dims [3] in_bounds [false] : vector<64xf16>
func.func @keys(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>,
                %lse: memref<2x4x?xf32>, %bias: memref<1x1x1x?xf16>, %len: memref<2xi32>,
                %dq: memref<2x4x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>, %d: memref<1x1x1x?xf16>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>,
          memref<2x4x?x64xf16>, memref<2x4x?xf32>, memref<2x4x?x64xf16>)
      bias(%bias : memref<1x1x1x?xf16>) kv_len(%len : memref<2xi32>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      d_bias(%d : memref<1x1x1x?xf16>)
  return
}

// -----

// One that is the same for all keys: rows are queries.
// CHECK-LABEL: func @queries
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c4, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[SPACE]]
// CHECK: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%c0, %c0, %{{.*}}, %{{.*}})] iter_args
// CHECK: flashattn.store_tile %[[SUM]] to %{{.*}}[%[[B]], %[[H]], %[[I]], %c0] dims [2] in_bounds [false] : vector<64xf32>
func.func @queries(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>,
                %lse: memref<2x4x?xf32>, %bias: memref<2x4x?x1xf32>,
                %dq: memref<2x4x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>, %d: memref<2x4x?x1xf32>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>,
          memref<2x4x?x64xf16>, memref<2x4x?xf32>, memref<2x4x?x64xf16>)
      bias(%bias : memref<2x4x?x1xf32>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      d_bias(%d : memref<2x4x?x1xf32>)
  return
}

// -----

// Sums over all keys all but cancel: their scores' tanh is none that is approximated.
// CHECK-LABEL: func @capped
// CHECK: axes(batch, head, key_tile)
// CHECK: math.tanh %{{.*}} fastmath<afn>
// CHECK-COUNT-2: axes(batch, head, query_tile)
// CHECK: math.tanh %{{[0-9]+}} : vector<64x32xf32>
func.func @capped(%q: memref<2x4x?x64xbf16>, %k: memref<2x2x?x64xbf16>, %o: memref<2x4x?x64xbf16>,
                %lse: memref<2x4x?xf32>, %bias: memref<2x4x?x1xf32>,
                %dq: memref<2x4x?x64xbf16>, %dk: memref<2x2x?x64xbf16>, %dv: memref<2x2x?x64xbf16>, %d: memref<2x4x?x1xf32>) {
  flashattn.attention_backward softcap(2.0)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xbf16>, memref<2x2x?x64xbf16>, memref<2x2x?x64xbf16>,
          memref<2x4x?x64xbf16>, memref<2x4x?xf32>, memref<2x4x?x64xbf16>)
      bias(%bias : memref<2x4x?x1xf32>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xbf16>, memref<2x2x?x64xbf16>, memref<2x2x?x64xbf16>)
      d_bias(%d : memref<2x4x?x1xf32>)
  return
}

// -----

// One that is the same for both: what the queries have goes through memory, an f32 each, and rows are
// heads then.
// CHECK-LABEL: func @heads
// CHECK: %[[SUMS:.*]] = memref.alloc(%{{.*}}) : memref<1x4x?xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c4, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[SPACE]]
// CHECK: %[[SUM:.*]] = flashattn.tile_loop {{.*}} rounds %c2
// CHECK: flashattn.store_tile %[[SUM]] to %[[SUMS]][%[[B]], %[[H]], %[[I]]] dims [2]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c1) axes(batch, head)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]]) in %[[SPACE]] schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) {
// CHECK: %[[SUM:.*]] = flashattn.tile_loop (%{{.*}}, %[[I:.*]]) in [(%c0, %c0, %c0, %{{.*}})] iter_args(%[[STATE:.*]] = %{{.*}}) -> vector<16xf32> {
// CHECK: %[[TILE:.*]] = flashattn.load_tile %[[SUMS]][%[[B]], %[[H]], %[[I]]] dims [1, 2] in_bounds [false, false]
// CHECK: vector.multi_reduction <add>, %[[TILE]], %[[STATE]] [1]
// CHECK: flashattn.store_tile %[[SUM]] to %{{.*}}[%[[B]], %[[H]], %c0, %c0] dims [1] in_bounds [false]
// CHECK: memref.dealloc %[[SUMS]]
func.func @heads(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>,
                %lse: memref<2x4x?xf32>, %bias: memref<1x4x1x1xf32>,
                %dq: memref<2x4x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>, %d: memref<1x4x1x1xf32>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>,
          memref<2x4x?x64xf16>, memref<2x4x?xf32>, memref<2x4x?x64xf16>)
      bias(%bias : memref<1x4x1x1xf32>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      d_bias(%d : memref<1x4x1x1xf32>)
  return
}

// -----

// B3: rows are heads and columns queries: e^(sink - lse) of each, as an exponent of 2, times -delta. The base is taken
// off the sink, as it is off the scores.
// Tiles of queries have programs of their own; what they leave is summed last, over the batches too.
// CHECK-LABEL: func @sinks
// CHECK-SAME: %[[SINKS:[a-z0-9]+]]: memref<4xf32>, %{{[a-z0-9]+}}: memref<2x4x?x64xf16>
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant dense<1.44269502> : vector<16x64xf32>
// CHECK-DAG: %[[MINUSSCALE:.*]] = arith.constant dense<-1.250000e-01> : vector<16x64xf32>
// CHECK: %[[QUERIES:.*]] = memref.alloc(%{{.*}}) : memref<8x4x?xf32>
// CHECK: %[[SUMS:.*]] = memref.alloc(%{{.*}}) : memref<2x4x?xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c2, %c1, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[SPACE]] schedule(<tile_m = 16, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 1>>) {
// CHECK: %[[SINK:.*]] = flashattn.load_tile %[[SINKS]][%[[H]]] dims [0] in_bounds [false] : memref<4xf32> -> vector<16xf32>
// CHECK: %[[LSE:.*]] = flashattn.load_tile %[[QUERIES]][%[[B]], %[[H]], %[[I]]] dims [1, 2] in_bounds [false, true]
// CHECK: %[[BASES:.*]] = arith.addi %[[B]], %c4
// CHECK: %[[BASE:.*]] = flashattn.load_tile %[[QUERIES]][%[[BASES]], %[[H]], %[[I]]] dims [1, 2] in_bounds [false, true]
// CHECK: %[[COLUMN:.*]] = vector.shape_cast %[[SINK]] : vector<16xf32> to vector<16x1xf32>
// CHECK: %[[SPREAD:.*]] = vector.broadcast %[[COLUMN]] : vector<16x1xf32> to vector<16x64xf32>
// CHECK: %[[LESS:.*]] = math.fma %[[BASE]], %[[MINUSSCALE]], %[[SPREAD]]
// CHECK: %[[MINUSLSE:.*]] = arith.negf %[[LSE]]
// CHECK: %[[EXPONENT:.*]] = math.fma %[[LESS]], %[[LOG2E]], %[[MINUSLSE]]
// CHECK: %[[WEIGHT:.*]] = math.exp2 %[[EXPONENT]]
// CHECK: %[[DELTAS:.*]] = arith.addi %[[B]], %c2
// CHECK: %[[DELTA:.*]] = flashattn.load_tile %[[QUERIES]][%[[DELTAS]], %[[H]], %[[I]]] dims [1, 2] in_bounds [false, true]
// CHECK: %[[MINUS:.*]] = arith.negf %[[DELTA]]
// CHECK: %[[GRADIENT:.*]] = arith.mulf %[[WEIGHT]], %[[MINUS]]
// CHECK: vector.multi_reduction <add>, %[[GRADIENT]]
// CHECK: flashattn.store_tile %{{.*}} to %[[SUMS]][%[[B]], %[[H]], %[[I]]] dims [1]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1) axes(head)
// CHECK: flashattn.program (%[[H:.*]]) in %[[SPACE]]
// CHECK: flashattn.tile_loop (%{{.*}}, %[[I:.*]], %[[B:.*]]) in [(%c0, %c0, %c0, %{{.*}})] rounds %c2
// CHECK: flashattn.load_tile %[[SUMS]][%[[B]], %[[H]], %[[I]]] dims [1, 2]
// CHECK: flashattn.store_tile %{{.*}} to %{{.*}}[%[[H]]] dims [0] in_bounds [false] : vector<16xf32>, memref<4xf32>
// CHECK: memref.dealloc %[[SUMS]]
func.func @sinks(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf16>, %o: memref<2x4x?x64xf16>,
                %lse: memref<2x4x?xf32>, %sinks: memref<4xf32>,
                %dq: memref<2x4x?x64xf16>, %dk: memref<2x2x?x64xf16>, %dv: memref<2x2x?x64xf16>, %d: memref<4xf32>) {
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %k, %o, %lse, %o : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>,
          memref<2x4x?x64xf16>, memref<2x4x?xf32>, memref<2x4x?x64xf16>)
      sink_logits(%sinks : memref<4xf32>)
      outs(%dq, %dk, %dv : memref<2x4x?x64xf16>, memref<2x2x?x64xf16>, memref<2x2x?x64xf16>)
      d_sink_logits(%d : memref<4xf32>)
  return
}
