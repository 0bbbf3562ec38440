// Consumers that share a program: 64 rows of its keys each, and one dq of both, whose left-hand side they hand each
// other.
// RUN: flash-opt %s -flashattn-specialize-warps -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-specialize-warps | flash-opt -o /dev/null
// RUN: flash-opt %s -flashattn-specialize-warps -flashattn-expand-loops -hopper-expand-rings -canonicalize -cse -flashattn-contract-to-wgmma | FileCheck %s --check-prefix=WGMMA --implicit-check-not=hopper.load_tile

// What peers hand over is waited for in a stage of its own, if the program has one in front of the product's.
// RUN: sed 's/flashattn.stage lag 1 behind 1/flashattn.stage lag 1 flashattn.stage lag 1 behind 1/' %s | flash-opt -flashattn-specialize-warps -canonicalize -cse | FileCheck %s --check-prefix=OWN
// OWN: hopper.publish %[[BARS:.*]][%[[READY:.*]]]
// OWN: vector.contract
// OWN: flashattn.stage lag 1{{$}}
// OWN-NOT: flashattn.stage
// OWN: hopper.barrier_wait %[[BARS]][%[[READY]]],
// OWN-NEXT: flashattn.stage lag 1 behind 1
// OWN-NEXT: hopper.load_tile
// OWN-NEXT: vector.contract

// Blocks that claim programs with room for one.
// RUN: sed 's/l2_head_group = 1>>/l2_head_group = 1, dynamic_scheduler = 1>>/' %s | flash-opt -flashattn-specialize-warps -canonicalize -cse | FileCheck %s --check-prefix=CLAIM
// CLAIM-LABEL: func @shared
// Who waits for the counter's grid waits for what that one follows.
// CLAIM: gpu.launch
// CLAIM-NEXT: flashattn.launch_dependents
// CLAIM-NEXT: flashattn.wait_prerequisite_grids
// CLAIM: memref.store %c0_i32
// CLAIM: gpu.launch
// Outputs lie over what is exchanged and over what is added.
// CLAIM: memref.view %[[POOL:.*]][%c131072][] : {{.*}} to memref<1x2x128x64xf16,
// CLAIM: memref.view %[[POOL]][%c163840][] : {{.*}} to memref<1x2x128x64xf16,
// CLAIM: %[[BARS:.*]] = memref.view %{{.*}} to memref<12xi64,
// CLAIM: memref.view %[[POOL]][%c131072][] : {{.*}} to memref<2x1x128x64xf16,
// CLAIM: memref.view %[[POOL]][%c163840][] : {{.*}} to memref<8x1024xf32,
// CLAIM: %[[NUMBERS:.*]] = memref.view %{{.*}} to memref<1x4xi32,
// Each of eight warps lets the tiles of keys go.
// CLAIM: hopper.barrier_init %[[BARS]][%c0], 1
// CLAIM: hopper.barrier_init %[[BARS]][%c1], 8
// CLAIM: hopper.claim
// CLAIM: hopper.barrier_wait %[[BARS]][%c1],
// CLAIM: hopper.barrier_expect %[[BARS]][%c0],
// CLAIM: flashattn.on_threads
// CLAIM: scf.while
// CLAIM: hopper.barrier_wait %[[BARS]][%c0],
// The copies of the last outputs have read them, for all consumers, before a step writes there.
// CLAIM: hopper.wait_stores
// CLAIM-NEXT: hopper.group_barrier %c1_i32 threads(256)
// CLAIM: flashattn.tile_loop
// What the program is is read again before its keys make room, and outputs go nowhere near those.
// CLAIM: memref.load %[[NUMBERS]]
// CLAIM: hopper.warp_arrive %[[BARS]][%c1]
// CLAIM: hopper.add_tile
// CLAIM: hopper.wait_stores
// CLAIM-NEXT: hopper.group_barrier %c1_i32 threads(256)
// CLAIM-NEXT: hopper.store_tile
// CLAIM: hopper.tma_store
// CLAIM-NOT: hopper.wait_stores
// CLAIM: hopper.tma_store
// CLAIM: scf.yield
// CLAIM: hopper.wait_stores

// Where a program leads, its first block makes the counter 0, and a grid does only where it has none.
// RUN: sed -e 's/l2_head_group = 1>>/l2_head_group = 1, dynamic_scheduler = 1>>/' -e '/^func.func @shared/a %%space0 = flashattn.dense_space(%%tiles, %%group) axes(batch, head)\nflashattn.program (%%i, %%j) in %%space0 schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) pdl_primary {}' %s | flash-opt -flashattn-specialize-warps -canonicalize -cse | FileCheck %s --check-prefix=LED
// LED-LABEL: func @shared
// LED: %[[COUNTER:.*]] = memref.alloc() : memref<1xi32>
// LED: flashattn.program (%[[I:.*]], %[[J:.*]]) in
// LED-NEXT: %[[PLACE:.*]] = arith.ori %[[I]], %[[J]]
// LED-NEXT: %[[FIRST:.*]] = arith.cmpi eq, %[[PLACE]], %c0
// LED-NEXT: scf.if %[[FIRST]] {
// LED-NEXT: memref.store %c0_i32, %[[COUNTER]][%c0]
// LED: flashattn.multiprocessor_count
// LED: %[[PROGRAMS:.*]] = arith.muli %{{.*}}, %{{.*}} : index
// LED: %[[NONE:.*]] = arith.cmpi eq, %[[PROGRAMS]], %c0
// LED: %[[MORE:.*]] = arith.andi %{{.*}}, %[[NONE]]
// LED-NEXT: scf.if %[[MORE]] {
// LED-NEXT: gpu.launch
// LED: memref.store %c0_i32, %[[COUNTER]][%c0]
// LED: gpu.launch
// LED: hopper.claim
// LED: gpu.terminator
// LED: memref.dealloc

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

!mem = memref<2x4x?x128xf16>

// CHECK-LABEL: func @shared
// CHECK-SAME: %[[K:[a-z0-9]+]]: memref<2x4x?x128xf16>, %[[V:[a-z0-9]+]]: memref<2x4x?x128xf16>, %[[Q:[a-z0-9]+]]: memref<2x4x?x128xf16>, %[[DO:[a-z0-9]+]]: memref<2x4x?x128xf16>, {{.*}}, %[[SUMS:[a-z0-9]+]]: memref<2x8x?x128xf32>, %[[EXPONENTS:[a-z0-9]+]]: memref<2x8x4096xf32>, %[[TILES:[a-z0-9]+]]: index, %[[STEPS:[a-z0-9]+]]: index, %[[GROUP:[a-z0-9]+]]: index, %[[KEYSUMS:[a-z0-9]+]]: memref<2x?x128xf32>, %[[PARTS:[a-z0-9]+]]: index
// A block for each program.
// CHECK: %[[BLOCKS:.*]] = arith.muli %[[TILES]], %c8
// CHECK-DAG: %[[KMAP:.*]] = hopper.make_tensor_map %[[K]] row_dim(2) : {{.*}} to !hopper.tensor_map<128x64xf16>
// CHECK-DAG: %[[QMAP:.*]] = hopper.make_tensor_map %[[Q]] row_dim(2) : {{.*}} to !hopper.tensor_map<64x64xf16>
// CHECK-DAG: %[[DOMAP:.*]] = hopper.make_tensor_map %[[DO]] row_dim(2) : {{.*}} to !hopper.tensor_map<64x64xf16>
// CHECK: gpu.launch blocks({{.*}}) in ({{.*}} = %[[BLOCKS]], {{.*}}) threads(%[[THREAD:[a-z0-9]+]], {{.*}}) in ({{.*}} = %c384,
// One tile of keys and one of values, rings of both others, a row of each step, two places for what is handed over, and
// for each warp what it adds.
// CHECK: %[[KS:.*]] = memref.view %{{.*}} to memref<1x2x128x64xf16, {{.*}}>
// CHECK: memref.view %{{.*}} to memref<1x2x128x64xf16, {{.*}}>
// CHECK: memref.view %{{.*}} to memref<2x2x64x64xf16, {{.*}}>
// CHECK: memref.view %{{.*}} to memref<2x2x64x64xf16, {{.*}}>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<11xi64, {{.*}}>
// CHECK: %[[QRING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][1]
// CHECK: %[[DORING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][5]
// CHECK-DAG: %[[PLACES:.*]] = memref.view %{{.*}} to memref<2x1x128x64xf16, {{.*}}>
// CHECK-DAG: %[[ROWS:.*]] = memref.view %{{.*}} to memref<2x64xf32, {{.*}}>
// CHECK-DAG: %[[STAGING:.*]] = memref.view %{{.*}} to memref<8x1024xf32, {{.*}}>
// The first tiles of keys, which have the most queries, go first.
// CHECK-NOT: arith.subi %{{.*}}, %c1_i32
// A place is there when each of eight warps has written its part.
// CHECK: hopper.barrier_init %[[BARS]][%c9], 8
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c10], 8
// What the block keeps is on its way before it waits for the kernel in front of it; the others come from that one.
// CHECK-COUNT-2: hopper.tma_load
// CHECK-NOT: hopper.ring_put
// CHECK: flashattn.wait_prerequisite_grids
// CHECK-NEXT: flashattn.launch_dependents
// CHECK: %[[NUMBER:.*]] = arith.divui %[[THREAD]], %c128
// CHECK: %[[GROUP32:.*]], %{{.*}} = gpu.shuffle idx
// CHECK: %[[WARPGROUP:.*]] = arith.index_castui %[[GROUP32]]
// CHECK: %[[SIGNALS:.*]] = arith.cmpi eq
// The producer brings the tiles of one query head after the other, and counts all of them.
// CHECK: hopper.set_registers decrease
// CHECK: scf.for %[[G:.*]] = %c0 to %[[GROUP]] step %c1 iter_args(%[[DONE:.*]] = %c0) -> (index)
// CHECK:   %[[HEAD:.*]] = arith.addi %{{.*}}, %[[G]]
// CHECK:   scf.for %[[J:.*]] = %[[FIRST:.*]] to %[[STEPS]] step %c1
// CHECK:     %[[OFF:.*]] = arith.subi %[[J]], %[[FIRST]]
// CHECK:     %[[STEP:.*]] = arith.addi %[[OFF]], %[[DONE]]
// CHECK:     hopper.ring_put %[[QRING]] at %[[STEP]] from %[[QMAP]][%{{.*}}, %[[HEAD]], {{.*}}] beside 256
// CHECK:     hopper.ring_put_row %[[QRING]] at %[[STEP]] from %[[EXPONENTS]][%{{.*}}, %[[HEAD]], %{{.*}}] to %[[ROWS]]
// CHECK:     hopper.ring_put %[[DORING]] at %[[STEP]] from %[[DOMAP]][%{{.*}}, %[[HEAD]],
// Threads of both consumers count together. The first of them begins.
// CHECK: %[[MINE:.*]] = arith.subi %[[THREAD]], %c128
// CHECK: flashattn.on_threads %[[MINE]]
// CHECK: %[[IS2:.*]] = arith.cmpi eq, %[[WARPGROUP]], %c2
// CHECK-NEXT: scf.if %[[IS2]]
// CHECK-NEXT: hopper.wake_peer 2
// CHECK: %[[KTILE:.*]] = hopper.load_tile %[[KPLACE:.*]] : {{.*}} -> vector<128x128xf16>
// CHECK: scf.for %[[G:.*]] = %c0 to %[[GROUP]] step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[DONE:.*]] = %c0)
// CHECK: %[[OFFSET:.*]] = arith.subi %[[DONE]], %{{.*}}
// CHECK: flashattn.tile_loop (%[[PLACE:.*]], %[[TILE:.*]]) in
// CHECK:   %[[STEP:.*]] = arith.addi %[[PLACE]], %[[OFFSET]]
// CHECK:   hopper.ring_get %[[QRING]] at %[[STEP]]
// Each issues its step's first products when the other has issued its own.
// CHECK:   hopper.await_peer 2
// CHECK-NEXT: vector.contract
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: hopper.wake_peer 2
// The weights, which another stage's product takes, are made in their own stage, of what came with the queries.
// CHECK:   %[[STEP32:.*]] = arith.index_castui %[[STEP]]
// CHECK:   %[[TURN:.*]] = arith.remui %[[STEP32]], %c2_i32
// CHECK:   %[[AT:.*]] = arith.index_castui %[[TURN]]
// CHECK:   flashattn.load_tile %[[ROWS]][%[[AT]], %c0] dims [-1, 1]
// CHECK:   %[[P:.*]] = arith.truncf
// CHECK-NEXT: %[[PINNED:.*]] = hopper.pin %[[P]]
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK:   vector.contract {{.*}} %[[PINNED]],
// CHECK-NEXT: hopper.ring_release %[[DORING]] at %[[STEP]]
// dS goes to the place whose turn it is,
// CHECK:   %[[DS:.*]] = arith.truncf
// CHECK:   %[[TO:.*]] = memref.subview %[[PLACES]][%[[AT]],
// CHECK:   hopper.store_tile %[[DS]] to %[[TO]]
// CHECK:   %[[READY:.*]] = arith.addi %[[AT]], %c9
// CHECK:   hopper.publish %[[BARS]][%[[READY]]]
// from registers to the product of a consumer's own rows,
// CHECK:   flashattn.stage lag 1{{$}}
// CHECK:   vector.contract {{.*}} %[[DS]],
// CHECK-NEXT: hopper.ring_release %[[QRING]] at %[[STEP]]
// and whole, when all have written theirs, to that of both.
// CHECK:   flashattn.stage lag 1 behind 1
// CHECK:   %[[ROUND:.*]] = arith.divui %[[STEP32]], %c2_i32
// CHECK:   %[[PARITY:.*]] = arith.andi %[[ROUND]], %c1_i32
// CHECK:   hopper.barrier_wait %[[BARS]][%[[READY]]], %[[PARITY]]
// CHECK:   %[[ALL:.*]] = hopper.load_tile %[[TO]] : {{.*}} -> vector<128x64xf16>
// CHECK:   %[[DQ:.*]] = vector.contract {{.*}} %[[ALL]], %[[KTILE]],
// CHECK:   hopper.stage_tile %[[DQ]] to %[[STAGING]]
// Behind what the next step publishes, whose fence is one for both, it is added.
// CHECK:   flashattn.stage lag 1 behind 3
// CHECK:   hopper.fence_async_shared
// CHECK:   %[[ROW:.*]] = arith.muli %[[TILE]], %c64
// CHECK:   hopper.add_staged %[[STAGING]] to %[[SUMS]][%{{.*}}, %{{.*}}, %[[ROW]], %c0]
// CHECK:   flashattn.tile_yield
// What the loop leaves goes through the same staging.
// CHECK: %[[PART:.*]] = arith.cmpi slt, %[[T:.*]], %[[PARTS]]
// CHECK: scf.if %[[PART]]
// CHECK: %[[KROW:.*]] = arith.muli %[[T]], %c128
// CHECK: hopper.add_tile %{{.*}} through %[[STAGING]] to %[[KEYSUMS]][%{{.*}}, %[[KROW]], %c0] : vector<128x128xf32>,
// Where an output lies peers may still read: all consumers meet before and behind, and one thread of all sends it.
// CHECK: hopper.group_barrier %c1_i32 threads(256)
// CHECK-NEXT: hopper.store_tile %{{.*}} to %[[KPLACE]]
// CHECK-NEXT: hopper.fence_async_shared
// CHECK-NEXT: hopper.group_barrier %c1_i32 threads(256)
// CHECK: %[[IS1:.*]] = arith.cmpi eq, %[[WARPGROUP]], %c1
// CHECK: %[[ONE:.*]] = arith.andi %[[SIGNALS]], %[[IS1]]
// CHECK: scf.if %[[ONE]]
// CHECK: hopper.tma_store %[[KPLACE]]
// What is added last is read from the staging before the block ends.
// CHECK: hopper.tma_store
// CHECK: }
// CHECK-NEXT: hopper.wait_stores
// CHECK-NOT: flashattn.{{load_tile|store_tile|add_tile}}

// A product is waited for where it is used, with those behind it left pending; dq's left-hand side is transposed.
// WGMMA-LABEL: func @shared
// WGMMA: scf.for
// WGMMA: scf.for {{.*}} iter_args(%[[DK:.*]] = %{{.*}}, %[[DV:.*]] = %{{.*}}, %[[LAST:.*]] = %{{.*}}) -> (vector<128x128xf32>, vector<128x128xf32>, vector<128x64xf16>)
// WGMMA: hopper.await_peer 2
// WGMMA: %[[S:.*]] = hopper.wgmma %{{.*}}, %{{.*}} : memref<2x128x64xf16, {{.*}}>, memref<2x64x64xf16, {{.*}}> -> vector<128x64xf32>
// WGMMA: %[[DKS:.*]] = hopper.wgmma %[[LAST]], %{{.*}}, %[[DK]] transposed :
// WGMMA: hopper.wake_peer 2
// WGMMA-NOT: hopper
// WGMMA: %[[SW:.*]] = hopper.wgmma_wait %[[S]] {pending = 1 : i64} : vector<128x64xf32>
// WGMMA: %[[X:.*]] = arith.subf %[[SW]],
// WGMMA: %[[E:.*]] = math.exp2 %[[X]]
// WGMMA: %[[P:.*]] = hopper.pin
// WGMMA: hopper.barrier_wait
// WGMMA: %[[DQ:.*]] = hopper.wgmma %{{.*}}, %{{.*}} transposed_a transposed : memref<1x128x64xf16, {{.*}}>, memref<2x128x64xf16, {{.*}}> -> vector<64x128xf32>
// WGMMA: hopper.wgmma_wait %[[DKS]]
// WGMMA-NEXT: hopper.barrier_arrive
// WGMMA: %[[DQW:.*]] = hopper.wgmma_wait %[[DQ]] : vector<64x128xf32>
// WGMMA: hopper.stage_tile %[[DQW]]
// WGMMA: %[[DP:.*]] = hopper.wgmma
// WGMMA-NEXT: %[[DVS:.*]] = hopper.wgmma %[[P]], %{{.*}}, %[[DV]] transposed :
// WGMMA: %[[DPW:.*]] = hopper.wgmma_wait %[[DP]] {pending = 1 : i64} : vector<128x64xf32>
// WGMMA: arith.mulf %[[E]], %[[DPW]]
// WGMMA: hopper.publish
// WGMMA: hopper.wgmma_wait %[[DVS]]
// WGMMA-NEXT: hopper.barrier_arrive
// WGMMA-NEXT: scf.yield
func.func @shared(%k: !mem, %v: !mem, %q: !mem, %do: !mem, %dk: !mem, %dv: !mem, %sums: memref<2x8x?x128xf32>, %exponents: memref<2x8x4096xf32>, %tiles: index, %steps: index, %group: index, %keysums: memref<2x?x128xf32>, %parts: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) pdl_secondary pdl_primary {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r:2 = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo, %av = %zo) -> (vector<128x128xf32>, vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %exponent = flashattn.load_tile %exponents[%b, %head, %j] dims [-1, 2] in_bounds [true, true] : memref<2x8x4096xf32> -> vector<128x64xf32>
      %x = arith.subf %s, %exponent : vector<128x64xf32>
      %e = math.exp2 %x : vector<128x64xf32>
      %p = arith.truncf %e : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage
      %dot = flashattn.load_tile %do[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      %av1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %av : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage
      %ds = arith.mulf %e, %dp : vector<128x64xf32>
      %d16 = arith.truncf %ds : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1, %av1 : vector<128x128xf32>, vector<128x128xf32>
    }
    %part = arith.cmpi slt, %t, %parts : index
    scf.if %part {
      flashattn.add_tile %r#0 to %keysums[%b, %t, %c0] parts 2 : vector<128x128xf32>, memref<2x?x128xf32>
    }
    %k16 = arith.truncf %r#0 : vector<128x128xf32> to vector<128x128xf16>
    %v16 = arith.truncf %r#1 : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
    flashattn.store_tile %v16 to %dv[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// In turns: the warps that bring no tiles add what is staged, each every third step's tile. The turn is passed on behind the
// copy; consumers wait until it has read the place.
// CHECK-LABEL: func @turns
// CHECK-SAME: %[[ORDER:[a-z0-9]+]]: memref<2x8x?xi32>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<11xi64, {{.*}}>
// CHECK: %[[STAGING:.*]] = memref.view %{{.*}} to memref<8x1024xf32, {{.*}}>
// CHECK: hopper.barrier_init %[[BARS]][%c7], 8
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c8], 8
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c9], 8
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c10], 1
// CHECK: hopper.set_registers decrease
// CHECK: %[[SPARE:.*]] = arith.cmpi uge, %{{.*}}, %c32
// CHECK: scf.if %[[SPARE]] {
// CHECK:   hopper.group_barrier %c0_i32 threads(384)
// CHECK:   %[[WARP:.*]], %{{.*}} = gpu.shuffle
// Each loop carries how many steps a warp has had, and how many are others' before its next.
// CHECK:   scf.for %[[G:.*]] = %c0_i32 to %{{.*}} step %c1_i32 iter_args(%[[PROGRESS:.*]] = %[[WARP]])
// CHECK:     %[[BEFORE:.*]] = arith.divui %[[PROGRESS]], %c4_i32
// CHECK:     %[[AHEAD:.*]] = arith.remui %[[PROGRESS]], %c4_i32
// CHECK:     %[[FIRST:.*]] = arith.addi %{{.*}}, %[[AHEAD]]
// CHECK:     %[[DONE:.*]]:2 = scf.for %[[I:.*]] = %[[FIRST]] to %[[END:.*]] step %c3_i32 iter_args(%[[MADE:.*]] = %[[BEFORE]], %{{.*}} = %[[FIRST]])
// CHECK:         %[[SUMS:.*]] = memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [%{{.*}}, 128], strides: [128, 1]
// CHECK:         %[[STATES:.*]] = memref.reinterpret_cast %[[ORDER]] to offset: [0], sizes: [%{{.*}}], strides: [1]
// CHECK:         %[[SEEN:.*]] = hopper.read_turn %[[STATES]][%[[TILE:.*]]]
// CHECK:         %[[STAGED:.*]] = arith.addi %{{.*}}, %c7
// CHECK:         %[[PARITY:.*]] = arith.andi %[[MADE]], %c1_i32
// CHECK:         hopper.barrier_wait %[[BARS]][%[[STAGED]]], %[[PARITY]]
// CHECK-NEXT:    hopper.await_turn %[[STATES]][%[[TILE]]] is %[[TURN:.*]] seen %[[SEEN]]
// CHECK-NEXT:    hopper.add_staged %[[STAGING]] to %[[SUMS]][%{{.*}}, %c0] :
// CHECK-NEXT:    hopper.wait_stores{{$}}
// CHECK-NEXT:    hopper.warp_arrive %[[BARS]][%c10]
// CHECK-NEXT:    hopper.pass_turn %[[TURN]] at %[[STATES]][%[[TILE]]]
// CHECK:         %[[NEXT:.*]] = arith.addi %[[I]], %c3_i32
// CHECK:         scf.yield %{{.*}}, %[[NEXT]]
// CHECK:     %[[HAD:.*]] = arith.muli %[[DONE]]#0, %c4_i32
// CHECK:     %[[OVER:.*]] = arith.subi %[[DONE]]#1, %[[END]]
// CHECK:     arith.addi %[[HAD]], %[[OVER]]
// CHECK: } else {
// CHECK-NEXT: hopper.group_arrive %c0_i32 threads(384)
// CHECK: flashattn.on_threads
// CHECK: flashattn.tile_loop
// CHECK:   flashattn.stage lag 1 behind 1
// CHECK:   hopper.barrier_wait %[[BARS]][%c10]
// CHECK-NEXT: hopper.stage_tile
// CHECK-NEXT: flashattn.stage lag 1 behind
// CHECK-NEXT: hopper.fence_async_shared
// CHECK:   hopper.warp_arrive %[[BARS]]
// CHECK-NOT: hopper.add_staged
func.func @turns(%order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 order %order : memref<2x8x?xi32> turn %t : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
  }
  return
}

// The first to come makes a tile zeros, before that of the step is staged; one thread asks for its warp. Others add where that
// is done.
// CHECK-LABEL: func @clears
// CHECK-SAME: %[[TOLD:[a-z0-9]+]]: memref<2x8xi32>
// CHECK: %[[SEEN:.*]] = hopper.read_turn %[[STATES:.*]][%[[TILE:.*]]]
// CHECK: %[[IS:.*]] = arith.cmpi ne, %[[SEEN]], %c2_i32
// CHECK: %[[UNI:.*]] = arith.index_castui %[[IS]]
// CHECK: gpu.shuffle
// CHECK: scf.if
// CHECK:   %[[ASKS:.*]] = scf.if %{{.*}} -> (i1) {
// CHECK-NEXT: %[[FIRST:.*]] = hopper.take_first %[[STATES]][%[[TILE]]] seen %[[SEEN]]
// CHECK-NEXT: scf.yield %[[FIRST]]
// CHECK:     scf.yield %false
// CHECK:   gpu.shuffle
// CHECK:   scf.if
// CHECK-NEXT: hopper.clear %[[SUMS:.*]][%[[ROW:.*]], %c0] elements 8192
// CHECK-NEXT: hopper.pass_turn %c1_i32 at %[[STATES]][%[[TILE]]]
// CHECK: hopper.barrier_wait
// CHECK-NEXT: hopper.add_staged %{{.*}} to %[[SUMS]][%[[ROW]], %c0]
// CHECK-NOT: hopper.pass_turn
// Behind all of a program's steps its warps tell so, and not its consumers.
// CHECK: %[[DONE:.*]] = memref.reinterpret_cast %[[TOLD]] to offset: [0], sizes: [16], strides: [1]
// CHECK: %[[COUNTER:.*]] = memref.cast %[[DONE]]
// CHECK: hopper.signal_added %[[COUNTER]][%{{.*}}]
// CHECK: flashattn.on_threads
// CHECK-NOT: signal_added
// CHECK: return
func.func @clears(%told: memref<2x8xi32>, %order: memref<2x8x?xi32>, %k: !mem, %q: !mem, %do: !mem, %dk: !mem, %sums: memref<2x8x?x128xf32>, %tiles: index, %steps: index, %group: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<128x64xf32>
  %zo = arith.constant dense<0.0> : vector<128x128xf32>
  %zq = arith.constant dense<0.0> : vector<64x128xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x128xf16>
    %r = flashattn.tile_loop (%i, %j, %g) in [(%t, %t, %steps, %steps)] rounds %group iter_args(%ak = %zo) -> (vector<128x128xf32>) {
      %first = arith.muli %h, %group : index
      %head = arith.addi %first, %g : index
      %qt = flashattn.load_tile %q[%b, %head, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x128xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<128x128xf16>, vector<64x128xf16> into vector<128x64xf32>
      flashattn.stage
      %d16 = arith.truncf %s : vector<128x64xf32> to vector<128x64xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<128x64xf16>, vector<64x128xf16> into vector<128x128xf32>
      flashattn.stage lag 1 behind 1
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %kt, %zq : vector<128x64xf16>, vector<128x128xf16> into vector<64x128xf32>
      flashattn.add_tile %dq to %sums[%b, %head, %j, %c0] parts 2 order %order : memref<2x8x?xi32> : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.tile_yield %ak1 : vector<128x128xf32>
    }
    %k16 = arith.truncf %r : vector<128x128xf32> to vector<128x128xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<128x128xf16>, !mem
    flashattn.signal_added %told[%b, %h] : memref<2x8xi32>
  }
  return
}
