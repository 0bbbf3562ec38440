// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8>'" -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 8>'" -flashattn-tile -flashattn-expand-rescale -canonicalize -cse | FileCheck %s --check-prefix=EXPANDED
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile -canonicalize -cse | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// One program per batch, head and query tile; the schedule goes along. Without a mask only the
// last tile can be partial.
// CHECK-LABEL: func @no_mask
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %[[K:.*]]: memref<?x?x?x64xf16>, %[[V:.*]]: memref<?x?x?x64xf16>, %[[O:.*]]: memref<?x?x?x64xf16>, %[[LSE:.*]]: memref<?x?x?xf32>
// CHECK-DAG: %[[FACTOR:.*]] = arith.constant 0.180336878 : f32
// CHECK-DAG: %[[NQ:.*]] = memref.dim %[[Q]], %c2
// CHECK-DAG: %[[NK:.*]] = memref.dim %[[K]], %c2
// CHECK-DAG: %[[TILES:.*]] = arith.ceildivui %[[NQ]], %c128
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %{{.*}}, %[[TILES]]) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]] schedule(<tile_m = 128, tile_n = 64,
// A4: the key/value head.
// CHECK: %[[HKV:.*]] = arith.divui %[[H]], %{{.*}} : index
// A7: rows past Nq are read as 0.
// CHECK: %[[QT:.*]] = flashattn.load_tile %[[Q]][%[[B]], %[[H]], %[[T]], %c0] dims [2, 3] in_bounds [false, true] : memref<?x?x?x64xf16> -> vector<128x64xf16>
// The full tiles are those that end before the keys do.
// CHECK: %[[PAST:.*]] = arith.addi %[[NK]], %c63
// CHECK: %[[END:.*]] = arith.shrsi %[[PAST]], %c6
// CHECK: %[[FULLEND:.*]] = arith.shrsi %[[NK]], %c6
// CHECK: %[[R:.*]]:3 = flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%c0, %c0, %[[FULLEND]], %[[END]])] iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}}) -> (vector<128xf32>, vector<128x4xf32>, vector<128x64xf32>)
// CHECK:   %[[KT:.*]] = flashattn.load_tile %[[K]][%[[B]], %[[HKV]], %[[J]], %c0] dims [2, 3] in_bounds [false, true]
// A1: scores in f32.
// CHECK:   %[[S:.*]] = vector.contract {{.*}} %[[QT]], %[[KT]], %{{.*}} : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
// CHECK:   flashattn.stage{{$}}
// CHECK:   %[[SHOWN:.*]] = flashattn.tile_mask -> vector<128x64xi1>
// CHECK:   %[[MASKED:.*]] = arith.select %[[SHOWN]], %[[S]], %{{.*}} : vector<128x64xi1>, vector<128x64xf32>
// On this chip the base is the largest score, without threshold, and what was summed is always rescaled. The sum stays in
// 4 parts until the end.
// CHECK-NEXT: %[[P:.*]], %[[SUMS:.*]], %[[MAX:.*]], %[[RESCALED:.*]]:2 = flashattn.softmax_step %[[MASKED]] from %[[M]] factor(%[[FACTOR]]) threads_per_row 4 rescale(%[[L]], %[[ACC]] : vector<128x4xf32>, vector<128x64xf32>) : vector<128x64xf32>, vector<128xf32> -> vector<128x4xf32>
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[RESCALED]]#0, %[[SUMS]] : vector<128x4xf32>
// CHECK-NEXT: %[[P16:.*]] = arith.truncf %[[P]]
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK:   %[[VT:.*]] = flashattn.load_tile %[[V]][%[[B]], %[[HKV]], %[[J]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK:   %[[NEXT:.*]] = vector.contract {{.*}} %[[P16]], %[[VT]], %[[RESCALED]]#1 : {{.*}} into vector<128x64xf32>
// CHECK:   flashattn.tile_yield %[[MAX]], %[[SUM]], %[[NEXT]]
// A5, A6.
// CHECK: %[[TOTAL:.*]] = vector.multi_reduction <add>, %[[R]]#1, %{{.*}} [1] : vector<128x4xf32> to vector<128xf32>
// CHECK: %[[EMPTY:.*]] = arith.cmpf oeq, %[[TOTAL]],
// CHECK: flashattn.store_tile %{{.*}} to %[[O]][%[[B]], %[[H]], %[[T]], %c0] dims [2, 3] in_bounds [false, true] : vector<128x64xf16>,
// The log-sum-exp is the base's share, of which none is lost where that lies far from 0, and the sum's.
// CHECK: %[[SIZE:.*]] = math.absf %[[R]]#0
// CHECK: %[[FAR:.*]] = arith.cmpf ogt, %[[SIZE]],
// CHECK: %[[FINITE:.*]] = arith.maxnumf %[[R]]#0,
// CHECK: %[[SHIFT:.*]] = arith.select %[[FAR]], %[[FINITE]], %[[ZERO:.*]] : vector<128xi1>
// CHECK: %[[MINUS:.*]] = arith.mulf %[[R]]#0,
// CHECK: %[[REST:.*]] = arith.select %[[FAR]], %[[ZERO]], %[[MINUS]] : vector<128xi1>
// CHECK: %[[OFSHIFT:.*]] = arith.mulf %[[SHIFT]],
// CHECK: %[[OFREST:.*]] = arith.mulf %[[REST]],
// CHECK: %[[SHARE:.*]] = arith.select %[[FAR]], %[[OFSHIFT]], %[[OFREST]] : vector<128xi1>
// CHECK: %[[LESS:.*]] = arith.negf %[[SHARE]]
// CHECK: %[[SHIFTERROR:.*]] = math.fma %[[SHIFT]], %{{.*}}, %[[LESS]]
// CHECK: %[[RESTERROR:.*]] = math.fma %[[REST]], %{{.*}}, %[[LESS]]
// CHECK: %[[ERROR:.*]] = arith.select %[[FAR]], %[[SHIFTERROR]], %[[RESTERROR]]
// CHECK: %[[LOG:.*]] = math.log2 %[[TOTAL]]
// CHECK: %[[LOW:.*]] = math.fma %[[LOG]], %{{.*}}, %[[ERROR]]
// CHECK: %[[HIGHPART:.*]] = arith.select %[[EMPTY]], %{{.*}}, %[[SHARE]]
// CHECK: %[[LOWPART:.*]] = arith.select %[[EMPTY]], %{{.*}}, %[[LOW]]
// CHECK: %[[BOTH:.*]] = arith.addf %[[HIGHPART]], %[[LOWPART]]
// CHECK: flashattn.store_tile %[[BOTH]] to %[[LSE]][%[[B]], %[[H]], %[[T]]] dims [2] in_bounds [false] : vector<128xf32>,

// What `flashattn.softmax_step` stands for: the base is the largest score, whose size alone is asked for, and the factor is
// folded into the exponent: one FMA, one exp2.
// EXPANDED-LABEL: func @no_mask
// EXPANDED: flashattn.tile_loop {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}}) -> (vector<128xf32>, vector<128x4xf32>, vector<128x64xf32>)
// EXPANDED: %[[MASKED:.*]] = arith.select %{{.*}} : vector<128x64xi1>, vector<128x64xf32>
// EXPANDED: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[MASKED]], %[[M]] [1] : vector<128x64xf32> to vector<128xf32>
// EXPANDED: %[[SIZE:.*]] = math.absf %[[MAX]]
// EXPANDED: %[[FAR:.*]] = arith.cmpf ogt, %[[SIZE]],
// EXPANDED: %[[EITHER:.*]] = arith.ori %[[FAR]], %{{.*}} : vector<128xi1>
// EXPANDED: %[[ANY:.*]] = flashattn.any_row %[[EITHER]] : vector<128xi1>
// EXPANDED: %[[NEGATED:.*]] = arith.select %[[ANY]], %{{.*}}, %{{.*}} : vector<128xf32>
// EXPANDED: %[[MOVED:.*]]:2 = scf.if %[[ANY]] -> (vector<128x64xf32>, vector<128xf32>) {
// EXPANDED:   arith.subf %[[MASKED]],
// EXPANDED: } else {
// EXPANDED:   %[[RESCALE:.*]] = math.exp2 %{{.*}} : vector<128xf32>
// EXPANDED:   scf.yield %[[MASKED]], %[[RESCALE]]
// EXPANDED: }
// EXPANDED: arith.mulf %[[L]],
// EXPANDED: %[[SCALED:.*]] = arith.mulf %[[ACC]],
// EXPANDED: %[[X:.*]] = math.fma %[[MOVED]]#0, %{{.*}}, %{{.*}} : vector<128x64xf32>
// EXPANDED: %[[P:.*]] = math.exp2 %[[X]] : vector<128x64xf32>
// EXPANDED: vector.shape_cast %[[P]] : vector<128x64xf32> to vector<128x8x4x2xf32>
// EXPANDED: %[[SUMS:.*]] = vector.multi_reduction <add>, {{.*}} [1, 3] : vector<128x8x4x2xf32> to vector<128x4xf32>
// EXPANDED: %[[SUM:.*]] = arith.addf %{{.*}}, %[[SUMS]] : vector<128x4xf32>
// EXPANDED: arith.truncf %[[P]]
// EXPANDED-NOT: scf.if
// EXPANDED: vector.contract {{.*}} %[[SCALED]] : {{.*}} into vector<128x64xf32>
// EXPANDED: flashattn.tile_yield %[[MAX]], %[[SUM]],

// On the CPU contractions are in f32 and a row has one sum. Scores are shifted without a branch.
// CPU-LABEL: func @no_mask
// CPU: arith.extf %{{.*}} : vector<32x64xf16> to vector<32x64xf32>
// CPU: flashattn.tile_loop {{.*}} -> (vector<32xf32>, vector<32xf32>, vector<32x64xf32>)
// CPU: %[[MASKED:.*]] = arith.select %{{.*}} : vector<32x64xi1>, vector<32x64xf32>
// CPU: vector.multi_reduction <maxnumf>, %[[MASKED]], %{{.*}} [1] : vector<32x64xf32> to vector<32xf32>
// CPU-NOT: scf.if
// CPU: %[[RESCALE:.*]] = math.exp2 %{{.*}} : vector<32xf32>
// CPU: %[[SHIFTED:.*]] = arith.subf %[[MASKED]], %{{.*}} : vector<32x64xf32>
// CPU: %[[X:.*]] = math.fma %[[SHIFTED]], %{{.*}}, %{{.*}} : vector<32x64xf32>
// CPU: %[[P:.*]] = math.exp2 %[[X]] : vector<32x64xf32>
// CPU: %[[L:.*]] = arith.mulf %{{.*}}, %[[RESCALE]] : vector<32xf32>
// CPU: vector.multi_reduction <add>, %[[P]], %[[L]] [1] : vector<32x64xf32> to vector<32xf32>
// CPU-NOT: arith.truncf
// CPU: vector.contract {{.*}} : vector<32x64xf32>, vector<64x64xf32> into vector<32x64xf32>

// READS-BACK-LABEL: func @no_mask
func.func @no_mask(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

// M3: a window has a partial, a full and a partial run of tiles, and nothing else is visited.
// CHECK-LABEL: func @window
// CHECK: flashattn.program (%{{.*}}, %{{.*}}, %[[T:.*]]) in
// CHECK: %[[ROW:.*]] = arith.muli %[[T]], %c128
// CHECK: %[[POSITION:.*]] = arith.addi %[[ROW]]
// CHECK: %[[LEFT:.*]] = arith.addi %[[POSITION]], %c-1023
// CHECK: %[[FIRST:.*]] = arith.maxsi %[[LEFT]], %c0
// CHECK: %[[BEGIN:.*]] = arith.shrsi %[[FIRST]], %c6
// CHECK: %[[END:.*]] = arith.select %{{.*}}, %{{.*}}, %[[BEGIN]]
// CHECK: %[[FULLBEGIN:.*]] = arith.select %[[ANY:.*]], %{{.*}}, %[[BEGIN]]
// CHECK: %[[FULLEND:.*]] = arith.select %[[ANY]], %{{.*}}, %[[BEGIN]]
// CHECK: flashattn.tile_loop (%{{.*}}, %{{.*}}) in [(%[[BEGIN]], %[[FULLBEGIN]], %[[FULLEND]], %[[END]])] iter_args
// Both borders of the window stand in the mask, and nowhere else.
// CHECK-NOT: vector<128x64xi1>
// CHECK: flashattn.tile_mask -> vector<128x64xi1>
// CHECK-COUNT-2: arith.cmpi sge, %{{.*}} : vector<128x64xi32>
// CHECK-NEXT: arith.andi
// CHECK: flashattn.tile_yield
// CHECK-NOT: flashattn.tile_loop
func.func @window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 1023, right = 0>)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// Two intervals are those of one loop: it has one body, and a mask that is right in both.
// CHECK-LABEL: func @sinks_and_window
// CHECK: flashattn.tile_loop (%{{.*}}, %{{.*}}) in [(%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}), (%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}})] iter_args
// CHECK: flashattn.tile_mask
// CHECK: arith.ori {{.*}} : vector<128x64xi1>
// CHECK-NOT: flashattn.tile_loop
// CHECK-NOT: flashattn.tile_mask
func.func @sinks_and_window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// The position of a query: the operand where there is one (A3).
// CHECK-LABEL: func @offset_bshd
// CHECK-SAME: %[[OFFSET:[a-z0-9]+]]: index
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[ROW:.*]] = arith.muli %[[T]]
// CHECK: arith.addi %[[ROW]], %[[OFFSET]]
// CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[T]], %[[H]], %c0] dims [1, 3] in_bounds [false, true]
func.func @offset_bshd(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %offset: index) {
  flashattn.attention mask(#flashattn.causal) layout(bshd)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) offset(%offset)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
