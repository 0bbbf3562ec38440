// RUN: flash-opt %s -split-input-file -flashattn-tile -canonicalize -cse -flashattn-specialize-warps -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-specialize-warps | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Two programs, neighbours along the query tiles, and their producer.

// READS-BACK-LABEL: func @causal
// CHECK-LABEL: func @causal
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>
// A block for two query tiles of one head; an empty grid is not launched.
// CHECK: %[[TILES:.*]] = arith.ceildivui %{{.*}}, %c64
// CHECK: %[[GROUPS:.*]] = arith.ceildivui %[[TILES]], %c2
// CHECK: %[[BLOCKS:.*]] = arith.muli %{{.*}}, %[[GROUPS]]
// CHECK: %[[ANY:.*]] = arith.cmpi ugt, %[[BLOCKS]], %c0
// CHECK: scf.if %[[ANY]]
// CHECK-DAG: %[[QMAP:.*]] = hopper.make_tensor_map %[[Q]] row_dim(2) : memref<?x?x?x64xf16> to !hopper.tensor_map<64x64xf16>
// CHECK-DAG: %[[KMAP:.*]] = hopper.make_tensor_map %[[K]] row_dim(2) : memref<?x?x?x64xf16> to !hopper.tensor_map<32x64xf16>
// CHECK-DAG: %[[VMAP:.*]] = hopper.make_tensor_map %[[V]] row_dim(2) : memref<?x?x?x64xf16> to !hopper.tensor_map<32x64xf16>
// CHECK-DAG: %[[OMAP:.*]] = hopper.make_tensor_map %[[O]] row_dim(2) : memref<?x?x?x64xf16> to !hopper.tensor_map<64x64xf16>
// Three warpgroups; 2 tiles of queries, 2 x 2 of keys and values, their barriers, and the key
// tiles that either program reads.
// CHECK: %[[BYTES:.*]] = arith.constant 32856 : i32
// CHECK: gpu.launch blocks({{.*}}) in ({{.*}} = %[[BLOCKS]], {{.*}} = %c1, {{.*}} = %c1) threads(%[[THREAD:[a-z0-9]+]], {{.*}}) in ({{.*}} = %c384, {{.*}} = %c1, {{.*}} = %c1) dynamic_shared_memory_size %[[BYTES]]
// CHECK: %[[POOL:.*]] = gpu.dynamic_shared_memory
// CHECK: %[[QS:.*]] = memref.view %[[POOL]][%c0][] : {{.*}} to memref<2x1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: %[[KS:.*]] = memref.view %[[POOL]][%c16384][] : {{.*}} to memref<2x1x32x64xf16, #gpu.address_space<workgroup>>
// CHECK: %[[VS:.*]] = memref.view %[[POOL]][%c24576][] : {{.*}} to memref<2x1x32x64xf16, #gpu.address_space<workgroup>>
// CHECK: %[[BARS:.*]] = memref.view %[[POOL]][%c32768][] : {{.*}} to memref<10xi64, #gpu.address_space<workgroup>>
// Rings of keys and values, of barriers of their own.
// CHECK: %[[KRING:.*]] = hopper.make_ring %[[KS]], %[[BARS]][2] : {{.*}} to !hopper.ring<2x1x32x64xf16>
// CHECK: %[[VRING:.*]] = hopper.make_ring %[[VS]], %[[BARS]][6] : {{.*}} to !hopper.ring<2x1x32x64xf16>
// CHECK: %[[RANGES:.*]] = memref.view %[[POOL]][%c32848][] : {{.*}} to memref<1x1x2xi32, #gpu.address_space<workgroup>>

// One arrival, the producer's, makes a consumer's queries full; each consumer makes tiles empty.
// CHECK: scf.if
// CHECK-COUNT-2: hopper.barrier_init %[[BARS]][%{{.*}}], 1 :
// CHECK-NOT: hopper.barrier_init
// CHECK: hopper.ring_init %[[KRING]], 2
// CHECK: hopper.ring_init %[[VRING]], 2
// CHECK:   hopper.fence_barrier_init
// The same thread asks for both tiles of queries, before there are any roles, and computes what
// the roles share.
// The first head's groups, the last ones in the grid, may have a program less. Who has none takes
// the number past the last.
// CHECK:   %[[NEXT:.*]] = arith.addi %{{.*}}, %c1 : index
// CHECK:   %[[HAS:.*]] = arith.cmpi slt, %[[NEXT]], %{{.*}} : index
// CHECK:   %[[SECOND:.*]] = arith.select %[[HAS]], %[[NEXT]], %[[TILES]] : index
// CHECK:   hopper.barrier_expect %[[BARS]][%c0], 8192
// CHECK-NEXT: hopper.tma_load %[[QMAP]][{{.*}}, %c0] to %{{.*}}, %[[BARS]][%c0]
// CHECK:   hopper.barrier_expect %[[BARS]][%c1], 8192
// CHECK-NEXT: hopper.tma_load %[[QMAP]][{{.*}}, %c0] to %{{.*}}, %[[BARS]][%c1]
// The second program's interval counts where there is such a program.
// CHECK:   %[[READS1:.*]] = arith.cmpi slt, %c0, %[[END1:.*]] : index
// CHECK:   arith.select %[[READS1]], %[[END1]], %c0
// CHECK:   %[[READS2:.*]] = arith.cmpi slt, %c0, %[[END2:.*]] : index
// CHECK:   %[[IS2:.*]] = arith.cmpi slt, %[[SECOND]], %[[TILES]] : index
// CHECK:   %[[COUNTS2:.*]] = arith.andi %[[READS2]], %[[IS2]]
// CHECK:   arith.select %[[COUNTS2]], %[[END2]], %c0
// CHECK:   memref.store %{{.*}}, %[[RANGES]][%c0, %c0, %c0]
// CHECK:   memref.store %{{.*}}, %[[RANGES]][%c0, %c0, %c1]

// The role from lane 0 of each warp; one thread of a warpgroup arrives for it.
// CHECK: %[[NUMBER:.*]] = arith.divui %[[THREAD]], %c128
// CHECK: %[[UNIFORM:.*]], %{{.*}} = gpu.shuffle idx %{{.*}}, %c0_i32, %c32_i32
// CHECK: %[[GROUP:.*]] = arith.index_castui %[[UNIFORM]]
// CHECK: %[[INGROUP:.*]] = arith.andi %[[THREAD]], %c127
// CHECK: %[[SIGNALS:.*]] = arith.cmpi eq, %[[INGROUP]], %c0
// CHECK: %[[PRODUCES:.*]] = arith.cmpi eq, %[[GROUP]], %c0 :
// CHECK: scf.if %[[PRODUCES]]

// The producer: keys and values as they become free.
// CHECK:   hopper.set_registers decrease 24 blocks(1)
// It has seen to the block, and waits for no one in it.
// CHECK:   hopper.group_arrive %c0_i32 threads(384)
// CHECK:   scf.if %[[SIGNALS]]
// Up to the end of either program.
// CHECK:     %[[RANGE32:.*]] = memref.load %[[RANGES]][%c0, %c0, %c1]
// CHECK-NOT: scf.for
// CHECK:     scf.for %[[J:.*]] = %c0 to %{{.*}} step %c1
// CHECK:       %[[ROW:.*]] = arith.muli %[[J]], %c32
// CHECK:       hopper.ring_put %[[KRING]] at %[[J]] from %[[KMAP]][%{{.*}}, %{{.*}}, %[[ROW]], %c0]
// CHECK:       hopper.ring_put %[[VRING]] at %[[J]] from %[[VMAP]][%{{.*}}, %{{.*}}, %[[ROW]], %c0]
// LLVM leaves it a step at a time.
// CHECK-NEXT: } {loop_annotation = #{{.*}}}
// CHECK-NOT: hopper.ring_put

// A consumer: its tile of queries, when it has come.
// CHECK: } else {
// CHECK:   hopper.set_registers increase 240
// CHECK:   hopper.group_barrier %c0_i32 threads(384)
// CHECK:   %[[CONSUMER32:.*]] = arith.subi %{{.*}}, %c1_i32
// CHECK:   %[[CONSUMER:.*]] = arith.index_castui %[[CONSUMER32]]
// CHECK:   %[[MAYBE:.*]] = arith.addi %{{.*}}, %[[CONSUMER]] : index
// CHECK:   %[[TILE:.*]] = arith.select %{{.*}}, %[[MAYBE]], %[[TILES]] : index
// CHECK:   hopper.barrier_wait %[[BARS]][%[[CONSUMER]]], %c0_i32
// CHECK:   %[[QTILE:.*]] = memref.subview %[[QS]][%[[CONSUMER]], 0, 0, 0] [1, 1, 64, 64]
// CHECK:   hopper.load_tile %[[QTILE]] : {{.*}} -> vector<64x64xf16>

// It passes by the tiles in front of its own, its four warps together; by all of them past the
// last query tile, for a block may have fewer programs than consumers.
// CHECK:   %[[SEES:.*]] = arith.cmpi slt, %c0, %[[END:.*]] : index
// CHECK:   %[[IS:.*]] = arith.cmpi slt, %[[TILE]], %[[TILES]] : index
// CHECK:   %[[MINE:.*]] = arith.andi %[[SEES]], %[[IS]]
// CHECK:   %[[TO:.*]] = arith.select %[[MINE]], %c0, %[[HULLEND:.*]] : index
// CHECK:   scf.for %{{.*}} = %c0 to %[[TO]] step %c1
// CHECK:     hopper.ring_get %[[KRING]]
// CHECK:     hopper.ring_get %[[VRING]]
// CHECK:     hopper.group_barrier %{{.*}} threads(128)
// CHECK:     hopper.ring_release %[[KRING]] at %{{.*}} if %[[SIGNALS]]
// CHECK:     hopper.ring_release %[[VRING]] at %{{.*}} if %[[SIGNALS]]
// CHECK-NEXT: }

// A product waits for its tile and frees it, counted from the shared range's first.
// CHECK:   flashattn.tile_loop (%[[PLACE:.*]], %{{.*}}) in [(%c0, %c0, %{{.*}}, %[[END]])] when %[[IS]] iter_args
// CHECK:     %[[KTILE:.*]] = hopper.ring_get %[[KRING]] at %[[PLACE]]
// CHECK:     %[[KT:.*]] = hopper.load_tile %[[KTILE]] : {{.*}} -> vector<32x64xf16>
// CHECK:     vector.contract {{.*}}, %[[KT]],
// CHECK-NEXT: hopper.ring_release %[[KRING]] at %[[PLACE]] if %[[SIGNALS]]
// CHECK:     flashattn.stage
// CHECK-NOT: hopper
// CHECK:     flashattn.stage lag 1
// CHECK:     %[[VTILE:.*]] = hopper.ring_get %[[VRING]] at %[[PLACE]] :
// CHECK:     %[[VT:.*]] = hopper.load_tile %[[VTILE]] : {{.*}} -> vector<32x64xf16>
// CHECK:     vector.contract {{.*}}, %[[VT]],
// CHECK-NEXT: hopper.ring_release %[[VRING]] at %[[PLACE]] if %[[SIGNALS]]
// CHECK:     flashattn.tile_yield

// And by those behind.
// CHECK:   %[[FROM:.*]] = arith.select %[[MINE]], %[[END]], %[[HULLEND]] : index
// CHECK:   scf.for %{{.*}} = %[[FROM]] to %[[HULLEND]] step %c1
// CHECK-COUNT-2: hopper.ring_get
// CHECK:     hopper.group_barrier
// CHECK-COUNT-2: hopper.ring_release
// CHECK-NEXT: }

// The output takes the place of the queries: written by all threads, seen by the copy unit, whole
// when its four warps have met, and sent by one thread, which stays until it is read.
// CHECK:   hopper.store_tile %{{.*}} to %[[QTILE]] : vector<64x64xf16>
// CHECK-NEXT: hopper.fence_async_shared
// CHECK:   hopper.group_barrier %{{.*}} threads(128)
// CHECK-NEXT: scf.if %[[SIGNALS]] {
// CHECK-NEXT: hopper.tma_store %[[QTILE]] to %[[OMAP]][%{{.*}}, %{{.*}}, %[[OROW:.*]], %c0]
// CHECK-NEXT: hopper.wait_stores
// CHECK-NEXT: }
// Nothing else reads or writes tiles.
// CHECK-NOT: flashattn.load_tile
// CHECK-NOT: flashattn.store_tile
// CHECK: gpu.terminator
// CHECK-NOT: flashattn.program
func.func @causal(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = head, registers = 160, producer_registers = 32, rescale_threshold = 0, l2_head_group = 1>>

// Programs of one key/value head read the same tiles: no consumer passes any by.
// READS-BACK-LABEL: func @heads
// CHECK-LABEL: func @heads
// CHECK: %[[BLOCKS:.*]] = arith.muli %{{.*}}, %c2 : index
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(2)
// CHECK: gpu.launch {{.*}} = %[[BLOCKS]], {{.*}} = %c512,
// The tiles of queries are of three heads.
// CHECK: %[[HEAD1:.*]] = arith.addi %[[HEAD:.*]], %c1 : index
// CHECK: %[[HEAD2:.*]] = arith.addi %[[HEAD]], %c2 : index
// CHECK: hopper.tma_load %{{.*}}[%{{.*}}, %[[HEAD]], %[[ROW:.*]], %c0]
// CHECK: hopper.tma_load %{{.*}}[%{{.*}}, %[[HEAD1]], %[[ROW]], %c0]
// CHECK: hopper.tma_load %{{.*}}[%{{.*}}, %[[HEAD2]], %[[ROW]], %c0]
// CHECK: hopper.set_registers decrease 32
// CHECK: hopper.set_registers increase 160
// CHECK: hopper.group_barrier %c0_i32 threads(512)
// CHECK-NOT: hopper.group_barrier
// CHECK: hopper.store_tile
// CHECK: hopper.group_barrier
// CHECK-NOT: hopper.group_barrier
// CHECK: gpu.terminator
func.func @heads(%q: memref<1x6x?x64xf16>, %k: memref<1x2x?x64xf16>, %v: memref<1x2x?x64xf16>, %o: memref<1x6x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<1x6x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
    outs(%o : memref<1x6x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Nor does a consumer that is alone.
// READS-BACK-LABEL: func @one
// CHECK-LABEL: func @one
// CHECK: gpu.launch {{.*}} = %c256,
// CHECK: hopper.ring_init %{{.*}}, 1 :
// CHECK-NOT: hopper.ring_init %{{.*}}, 2 :
// CHECK: hopper.set_registers increase 240
// CHECK: hopper.group_barrier %c0_i32 threads(256)
// CHECK-NOT: hopper.group_barrier
// CHECK: hopper.store_tile
// CHECK: hopper.group_barrier
// CHECK-NOT: hopper.group_barrier
// CHECK: gpu.terminator
func.func @one(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>

// Persistent blocks: as many as run at once, each with two places for a consumer's queries, and for
// what is said of them.
// READS-BACK-LABEL: func @persistent
// CHECK-LABEL: func @persistent
// CHECK: arith.cmpi ugt, %[[GROUPS:.*]], %c0
// CHECK: %[[RESIDENT:.*]] = flashattn.multiprocessor_count
// CHECK: %[[BLOCKS:.*]] = arith.minsi %[[GROUPS]], %[[RESIDENT]] : index
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9]+]], {{.*}}) in (%[[GRID:[a-z0-9]+]] = %[[BLOCKS]],
// CHECK: memref.view %{{.*}} to memref<4x1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<16xi64, #gpu.address_space<workgroup>>
// CHECK: %[[RANGES:.*]] = memref.view %{{.*}} to memref<2x1x2xi32, #gpu.address_space<workgroup>>
// CHECK: %[[NUMBERS:.*]] = memref.view %{{.*}} to memref<2x4xi32, #gpu.address_space<workgroup>>
// The first group is prepared before there are roles.
// CHECK: scf.if
// CHECK-COUNT-8: hopper.barrier_init %[[BARS]][%{{.*}}], 1 :
// CHECK-COUNT-2: hopper.ring_init
// CHECK: hopper.fence_barrier_init
// CHECK-COUNT-4: memref.store %{{.*}}, %[[NUMBERS]][%c0,
// CHECK: memref.store %{{.*}}, %[[RANGES]][%c0,
// CHECK-COUNT-2: hopper.tma_load
// The producer sends for the keys and values of a round, then for the queries of the next, where
// every consumer has done with what was in their place two rounds ago.
// CHECK: hopper.set_registers decrease
// CHECK: scf.for %[[ROUND:.*]] = %c0_i32 to %[[ROUNDS:.*]] step %c1_i32 iter_args(%[[STEP:.*]] = %c0_i32) -> (i32)
// CHECK:   %[[AT:.*]] = arith.remui %[[ROUND]], %c2_i32
// CHECK:   %[[SLOT:.*]] = arith.index_castui %[[AT]]
// CHECK:   memref.load %[[NUMBERS]][%[[SLOT]],
// CHECK:   memref.load %[[RANGES]][%[[SLOT]],
// CHECK:   scf.for
// CHECK-COUNT-2: hopper.ring_put
// CHECK:   }
// CHECK:   %[[NEXT:.*]] = arith.addi %[[ROUND]], %c1_i32
// CHECK:   %[[ANOTHER:.*]] = arith.cmpi slt, %[[NEXT]], %[[ROUNDS]] : i32
// CHECK:   scf.if %[[ANOTHER]]
// CHECK-COUNT-2: hopper.barrier_wait %[[BARS]]
// CHECK-COUNT-4: memref.store %{{.*}}, %[[NUMBERS]]
// CHECK-COUNT-2: hopper.tma_load
// CHECK:   }
// CHECK:   scf.yield %{{.*}} : i32
// A consumer has the numbers of its program with the queries, and lets go of both when its output
// has been read from there.
// CHECK: hopper.set_registers increase
// CHECK: scf.for {{.*}} iter_args({{.*}} = %c0_i32) -> (i32)
// CHECK:   %[[QUERY:.*]] = arith.addi %{{.*}}, %{{.*}} : index
// CHECK:   hopper.barrier_wait %[[BARS]]
// CHECK-COUNT-4: memref.load %[[NUMBERS]]
// CHECK:   hopper.tma_store
// CHECK-NEXT: hopper.wait_stores
// CHECK-NEXT: }
// CHECK:   %[[EMPTY:.*]] = arith.addi %[[QUERY]], %c4
// CHECK:   hopper.barrier_arrive %[[BARS]][%[[EMPTY]]]
// CHECK:   scf.yield %{{.*}} : i32
// CHECK: gpu.terminator
func.func @persistent(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 64, q_stages = 2, dynamic_scheduler = 1>>

// Blocks that claim their groups, where there are many: a grid of one thread makes the counter 0.
// READS-BACK-LABEL: func @claims
// CHECK-LABEL: func @claims
// CHECK: arith.cmpi ugt, %[[GROUPS:.*]], %c0
// CHECK: %[[RESIDENT:.*]] = flashattn.multiprocessor_count
// CHECK: %[[MANY:.*]] = arith.muli %[[RESIDENT]], %c4
// CHECK: %[[FEW:.*]] = arith.cmpi slt, %[[GROUPS]], %[[MANY]]
// CHECK: %[[BLOCKS:.*]] = arith.select %[[FEW]], %[[GROUPS]], %[[RESIDENT]] : index
// CHECK: %[[MORE:.*]] = arith.cmpi ult, %[[BLOCKS]], %[[GROUPS]] : index
// CHECK: %[[SIZE:.*]] = arith.select %[[MORE]], %c1, %c0 : index
// CHECK: %[[COUNTER:.*]] = memref.alloc(%[[SIZE]]) : memref<?xi32>
// CHECK: scf.if %[[MORE]] {
// CHECK:   gpu.launch
// CHECK:     flashattn.launch_dependents
// CHECK: memref.store %c0_i32, %[[COUNTER]][%c0]
// CHECK: gpu.launch blocks({{.*}}) in (%[[GRID:[a-z0-9]+]] = %[[BLOCKS]],
// Without a counter nothing may be read before the grid before has ended, and with one it is the counter's.
// CHECK: %[[CLAIMS:.*]] = arith.cmpi ult, %{{.*}}, %{{.*}} : i32
// CHECK: %[[ALONE:.*]] = arith.xori %[[CLAIMS]], %true
// CHECK: scf.if %[[ALONE]] {
// CHECK-NEXT: flashattn.wait_prerequisite_grids
// CHECK: hopper.tma_load
// CHECK: flashattn.wait_prerequisite_grids
// The next group's number comes when all of this one's tiles are on their way.
// CHECK: hopper.set_registers decrease
// CHECK: scf.while (%[[ROUND:.*]] = %c0_i32, %{{.*}} = %c0_i32) : (i32, i32) -> (i32, i32) {
// CHECK:   arith.cmpi ne, %{{.*}}, %c2147483647
// CHECK:   scf.condition
// CHECK: } do {
// CHECK-COUNT-2: hopper.ring_put
// CHECK:   %[[CLAIMED:.*]] = scf.if %[[CLAIMS]] -> (i32) {
// CHECK:     hopper.claim %[[COUNTER]][%c0]
// CHECK:   %[[NUMBER:.*]] = arith.addi %[[CLAIMED]], %{{.*}} : i32
// CHECK:   %[[LEFT:.*]] = arith.cmpi ult, %[[NUMBER]], %{{.*}} : i32
// CHECK-COUNT-2: hopper.barrier_wait
// CHECK:   scf.if %[[LEFT]] {
// CHECK-COUNT-2: hopper.tma_load
// CHECK:   } else {
// CHECK:     memref.store %c2147483647_i32
// CHECK-COUNT-2: hopper.barrier_arrive
// A consumer waits to be told of a group or of the end.
// CHECK: hopper.set_registers increase
// CHECK: scf.while
// CHECK:   hopper.barrier_wait
// CHECK:   arith.cmpi ne, %{{.*}}, %c2147483647
// CHECK: } do {
// CHECK:   hopper.barrier_arrive
// CHECK: memref.dealloc %[[COUNTER]]
func.func @claims(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 4, l2_head_group = 1, dynamic_scheduler = 1>>

// With one place for each program's queries the next ones come when the last tile of keys, that of the step before
// this, has been given back; what is said of their groups has two places, and outputs are written by threads. There is a tile
// where there are no keys.
// READS-BACK-LABEL: func @reloads
// CHECK-LABEL: func @reloads
// CHECK: gpu.launch
// CHECK: memref.view %{{.*}} to memref<2x1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: memref.view %{{.*}} to memref<10xi64, #gpu.address_space<workgroup>>
// CHECK: %[[KRING:.*]] = hopper.make_ring
// CHECK: memref.view %{{.*}} to memref<2x4xi32, #gpu.address_space<workgroup>>
// CHECK: hopper.set_registers decrease
// CHECK: %[[END:.*]] = arith.maxsi %{{.*}}, %c1 : index
// CHECK: scf.for %{{.*}} = %c0 to %[[END]]
// CHECK: hopper.ring_put %[[KRING]]
// CHECK: hopper.claim
// CHECK: %[[LAST:.*]] = arith.subi %{{.*}}, %c1 : index
// CHECK-NEXT: hopper.ring_drain %[[KRING]] at %[[LAST]]
// CHECK-NOT: hopper.ring_drain
// CHECK-COUNT-2: hopper.tma_load
// CHECK: hopper.set_registers increase
// CHECK-NOT: hopper.tma_store
// CHECK: flashattn.store_tile
func.func @reloads(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// A7: kv_len cuts keys off in the program. The map is of all of them, and what a product reads past
// the cut is cleared first, by whole rows.
// READS-BACK-LABEL: func @kv_len
// CHECK-LABEL: func @kv_len
// CHECK-SAME: %{{[a-z0-9]+}}: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>
// CHECK: hopper.make_tensor_map %[[K]] row_dim(2)
// CHECK: hopper.make_tensor_map %[[V]] row_dim(2)
// CHECK: hopper.set_registers increase
// CHECK: flashattn.tile_loop
// CHECK: hopper.ring_get
// CHECK: flashattn.stage lag 1
// CHECK: %[[TILE:.*]] = hopper.ring_get
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %{{.*}}, %c32 : index
// CHECK: scf.if %[[SOME]] {
// CHECK:   scf.for %{{.*}} = %{{.*}} to %c2048 step %c128
// CHECK:     memref.store %{{.*}}, %[[TILE:.*]][%c0, %{{.*}}, %{{.*}}] : memref<1x32x64xf16
// CHECK:   }
// CHECK:   hopper.fence_async_shared
// CHECK:   hopper.group_barrier
// CHECK: }
// CHECK: hopper.load_tile %[[TILE]]
func.func @kv_len(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %n: memref<?xi32>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) kv_len(%n : memref<?xi32>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// So with a tile that a program keeps, where a product sums over its rows: dq's over those of K.
// CHECK-LABEL: func @kv_len_of_gradients
// CHECK: hopper.set_registers increase
// CHECK: hopper.barrier_wait
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %{{.*}}, %c128 : index
// CHECK: scf.if %[[SOME]] {
// CHECK:   scf.for %{{.*}} = %{{.*}} to %c8192 step %c256
// CHECK:     memref.store %{{.*}}, %[[TILE:.*]][%c0, %{{.*}}, %{{.*}}] : memref<1x128x64xf16
// CHECK:   }
// CHECK:   hopper.fence_async_shared
// CHECK:   hopper.group_barrier
// CHECK: }
// CHECK: hopper.load_tile %[[TILE]]
// CHECK-NOT: memref.store %{{.*}} : memref<1x128x64xf16
// CHECK: flashattn.tile_loop
func.func @kv_len_of_gradients(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>, %dq: memref<?x?x?x64xf16>, %dk: memref<?x?x?x64xf16>, %dv: memref<?x?x?x64xf16>, %n: memref<?xi32>) {
  flashattn.attention_backward schedule(#schedule)
    ins(%q, %k, %k, %q, %lse, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?xf32>, memref<?x?x?x64xf16>) kv_len(%n : memref<?xi32>)
    outs(%dq, %dk, %dv : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, algorithm = separate_dq, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// A part of a memref that the caller has taken is what the map is of.
// READS-BACK-LABEL: func @part
// CHECK-LABEL: func @part
// CHECK: %[[PART:.*]] = memref.subview
// CHECK: hopper.make_tensor_map %[[PART]] row_dim(2)
// CHECK-NOT: memref.store %{{.*}} : memref<1x32x64xf16
// CHECK: gpu.terminator
func.func @part(%q: memref<1x8x256x64xf16>, %k: memref<2x8x512x64xf16>, %o: memref<1x8x256x64xf16>) {
  %part = memref.subview %k[1, 0, 128, 0] [1, 8, 256, 64] [1, 1, 1, 1] : memref<2x8x512x64xf16> to memref<1x8x256x64xf16, strided<[262144, 32768, 64, 1], offset: 270336>>
  flashattn.attention schedule(#schedule)
    ins(%q, %part, %part : memref<1x8x256x64xf16>, memref<1x8x256x64xf16, strided<[262144, 32768, 64, 1], offset: 270336>>, memref<1x8x256x64xf16, strided<[262144, 32768, 64, 1], offset: 270336>>)
    outs(%o : memref<1x8x256x64xf16>)
  return
}

// -----

// An output that tensor copies cannot make: the consumer's warps meet before it lets go.
#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>
// READS-BACK-LABEL: func @persistent_unaligned
// CHECK-LABEL: func @persistent_unaligned
// CHECK: flashattn.store_tile
// CHECK: hopper.group_barrier %{{.*}} threads(128)
// CHECK: hopper.barrier_arrive
// CHECK: scf.yield %{{.*}} : i32
// CHECK: gpu.terminator
func.func @persistent_unaligned(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Two intervals: the steps of the first are counted on in the second, by every role.
// READS-BACK-LABEL: func @sinks_and_window
// CHECK-LABEL: func @sinks_and_window
// CHECK: hopper.set_registers decrease
// CHECK: scf.for %{{.*}} = %c0 to %c2 step %c1 iter_args(%[[STEP:.*]] = %c0) -> (index)
// CHECK:   scf.for %[[J:.*]] = %[[BEGIN:.*]] to %[[END:.*]] step %c1
// CHECK:     %[[DONE:.*]] = arith.subi %[[J]], %[[BEGIN]]
// CHECK:     %[[NOW:.*]] = arith.addi %[[DONE]], %[[STEP]]
// CHECK:     hopper.ring_put %{{.*}} at %[[NOW]]
// CHECK:     hopper.ring_put %{{.*}} at %[[NOW]]
// CHECK:   %[[LENGTH:.*]] = arith.subi %[[END]], %[[BEGIN]]
// CHECK:   %[[NEXT:.*]] = arith.addi %[[STEP]], %[[LENGTH]]
// CHECK:   scf.yield %[[NEXT]] : index
// CHECK: hopper.set_registers increase
// CHECK: scf.for %{{.*}} = %c0 to %c2 step %c1 iter_args({{.*}}, %[[CSTEP:.*]] = %c0) -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>, index)
// CHECK:   hopper.group_barrier
// CHECK:   flashattn.tile_loop
// CHECK:     arith.addi %{{.*}}, %[[CSTEP]]
// CHECK:   %[[CNEXT:.*]] = arith.addi %[[CSTEP]], %{{.*}} : index
// CHECK:   hopper.group_barrier
// CHECK:   scf.yield %{{.*}}, %{{.*}}, %{{.*}}, %[[CNEXT]]
func.func @sinks_and_window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Sequence before heads: the rows of a tile go along dimension 1.
// READS-BACK-LABEL: func @bshd
// CHECK-LABEL: func @bshd
// CHECK-COUNT-3: hopper.make_tensor_map %{{.*}} row_dim(1) : memref<?x?x?x64xbf16> to !hopper.tensor_map<{{64|32}}x64xbf16>
// CHECK: scf.for %[[J:.*]] = %c0
// CHECK:   %[[ROW:.*]] = arith.muli %[[J]], %c32
// CHECK:   hopper.ring_put %{{.*}} from %{{.*}}[%[[B:.*]], %[[ROW]], %[[H:.*]], %c0]
// CHECK:   hopper.ring_put %{{.*}} from %{{.*}}[%[[B]], %[[ROW]], %[[H]], %c0]
// CHECK: hopper.load_tile {{.*}} -> vector<64x64xbf16>
func.func @bshd(%q: memref<?x?x?x64xbf16>, %k: memref<?x?x?x64xbf16>, %v: memref<?x?x?x64xbf16>, %o: memref<?x?x?x64xbf16>) {
  flashattn.attention layout(bshd) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>, memref<?x?x?x64xbf16>)
    outs(%o : memref<?x?x?x64xbf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 3, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, prefetch_kib_per_sm = 8>>

// 80 columns take two panels, the second of which the copy fills up with zeros; values of 16
// columns take one that is no wider. Three stages, of which some idle: all blocks that run at once, one
// to a multiprocessor, have 8 KiB of the 6 KiB of a step on their way for each of these, and two steps
// at least.
// READS-BACK-LABEL: func @panels
// CHECK-LABEL: func @panels
// CHECK: hopper.make_tensor_map {{.*}} to !hopper.tensor_map<64x64xf16>
// CHECK: hopper.make_tensor_map {{.*}} to !hopper.tensor_map<32x64xf16>
// CHECK: hopper.make_tensor_map {{.*}} to !hopper.tensor_map<32x16xf16>
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[MOST:.*]] = arith.muli %[[SMS]], %c8192
// CHECK: %[[BLOCKS:.*]] = arith.minsi %{{.*}}, %[[SMS]]
// CHECK: %[[STEPS:.*]] = arith.muli %[[BLOCKS]], %c6144
// CHECK: %[[FIT:.*]] = arith.divui %[[MOST]], %[[STEPS]]
// CHECK: %[[ATLEAST:.*]] = arith.maxsi %[[FIT]], %c2
// CHECK: %[[AHEAD:.*]] = arith.minsi %[[ATLEAST]], %c3
// CHECK: %[[REST:.*]] = arith.subi %c3, %[[AHEAD]]
// CHECK: %[[IDLE:.*]] = arith.index_cast{{u?i?}} %[[REST]] : index to i32
// CHECK: gpu.launch
// CHECK: memref.view %{{.*}} to memref<2x2x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: memref.view %{{.*}} to memref<3x2x32x64xf16, #gpu.address_space<workgroup>>
// CHECK: memref.view %{{.*}} to memref<3x1x32x16xf16, #gpu.address_space<workgroup>>
// CHECK: memref.view %{{.*}} to memref<14xi64, #gpu.address_space<workgroup>>
// CHECK: hopper.make_ring {{.*}}[2] : {{.*}} to !hopper.ring<3x2x32x64xf16>
// CHECK: hopper.make_ring {{.*}}[8] : {{.*}} to !hopper.ring<3x1x32x16xf16>
// CHECK: hopper.barrier_expect %{{.*}}, 16384
// CHECK-COUNT-2: hopper.ring_put %{{.*}} at %{{.*}} idle %[[IDLE]] from
// CHECK: hopper.load_tile {{.*}} -> vector<64x80xf16>
// CHECK: hopper.load_tile {{.*}} -> vector<32x80xf16>
// CHECK: hopper.load_tile {{.*}} -> vector<32x16xf16>
func.func @panels(%q: memref<?x?x?x80xf16>, %k: memref<?x?x?x80xf16>, %v: memref<?x?x?x16xf16>, %o: memref<?x?x?x16xf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x80xf16>, memref<?x?x?x80xf16>, memref<?x?x?x16xf16>)
    outs(%o : memref<?x?x?x16xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 4>>

// Sections of four heads.
// READS-BACK-LABEL: func @section
// CHECK-LABEL: func @section
// CHECK: gpu.launch
// CHECK: %[[PERSECTION:.*]] = arith.muli %{{.*}}, %c4_i32
// CHECK: %[[SECTION:.*]] = arith.divui %{{.*}}, %[[PERSECTION]]
// CHECK: %[[FIRST:.*]] = arith.muli %[[SECTION]], %c4_i32
// CHECK: %[[REST:.*]] = arith.subi %{{.*}}, %[[FIRST]]
// The last section may have fewer.
// CHECK: arith.minsi %{{.*}}, %{{.*}} : i32
// CHECK: gpu.shuffle
func.func @section(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 104, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, blocks_per_sm = 2>>

// No mask: every program reads the same tiles, and yet one that is none stands aside. Two blocks
// a multiprocessor go along with the registers.
// READS-BACK-LABEL: func @no_mask
// CHECK-LABEL: func @no_mask
// CHECK: %[[TILES:.*]] = arith.ceildivui %{{.*}}, %c64
// CHECK-NOT: memref.store
// CHECK: hopper.set_registers decrease 24 blocks(2)
// CHECK: hopper.set_registers increase 104
// CHECK: %[[TILE:.*]] = arith.select %{{.*}}, %{{.*}}, %[[TILES]] : index
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %c0, %[[END:.*]] : index
// CHECK: %[[IS:.*]] = arith.cmpi slt, %[[TILE]], %[[TILES]] : index
// CHECK: %[[RUNS:.*]] = arith.andi %[[ANY]], %[[IS]]
// CHECK: %[[TO:.*]] = arith.select %[[RUNS]], %c0, %[[END]] : index
// CHECK: scf.for %{{.*}} = %c0 to %[[TO]] step %c1
// CHECK-COUNT-2: hopper.ring_get
// CHECK: hopper.group_barrier
// CHECK-COUNT-2: hopper.ring_release
// CHECK-NEXT: }
// CHECK: flashattn.tile_loop {{.*}} when %[[IS]]
// Nothing is left behind its own.
// CHECK: flashattn.tile_yield
// CHECK-NOT: scf.for
// CHECK: hopper.tma_store
func.func @no_mask(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Rows of the output that may begin anywhere: no tensor copy takes them, and threads store them
// straight. The log-sum-exp has no tiles.
// READS-BACK-LABEL: func @unaligned_output
// CHECK-LABEL: func @unaligned_output
// CHECK-SAME: %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>
// CHECK-COUNT-3: hopper.make_tensor_map
// CHECK-NOT: hopper.make_tensor_map
// CHECK: gpu.launch
// CHECK-NOT: hopper.store_tile
// CHECK: flashattn.store_tile %{{.*}} to %[[O]][{{.*}}] dims [2, 3] in_bounds [false, true] : vector<64x64xf16>
// CHECK: flashattn.store_tile %{{.*}} to %[[LSE]][{{.*}}] dims [2] in_bounds [false] : vector<64xf32>
// CHECK-NOT: hopper.tma_store
// CHECK: gpu.terminator
func.func @unaligned_output(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, %lse: memref<?x?x?xf32>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>, memref<?x?x?xf32>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 8, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Rows of 8 heads, 8 positions of each: one copy brings them to the place of any tile of queries,
// and one takes the output back.
// READS-BACK-LABEL: func @packed
// CHECK-LABEL: func @packed
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>
// CHECK: %[[QHEADS:.*]] = memref.expand_shape %[[Q]]
// CHECK: %[[OHEADS:.*]] = memref.expand_shape %[[O]]
// CHECK: %[[LSEHEADS:.*]] = memref.expand_shape %[[LSE]]
// CHECK-DAG: %[[QMAP:.*]] = hopper.make_tensor_map %[[QHEADS]] row_dim(3) outer_dim(2) outer_rows(8) : memref<?x?x?x?x64xf16> to !hopper.tensor_map<64x64xf16>
// CHECK-DAG: %[[KMAP:.*]] = hopper.make_tensor_map %[[K]] row_dim(2) : memref<?x?x?x64xf16> to !hopper.tensor_map<32x64xf16>
// CHECK-DAG: %[[OMAP:.*]] = hopper.make_tensor_map %[[OHEADS]] row_dim(3) outer_dim(2) outer_rows(8) : memref<?x?x?x?x64xf16> to !hopper.tensor_map<64x64xf16>
// CHECK: memref.view %{{.*}} to memref<2x1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: hopper.barrier_expect %{{.*}}, 8192
// CHECK-NEXT: hopper.tma_load %[[QMAP]][%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %c0] to
// CHECK: hopper.tma_load %[[QMAP]]
// CHECK: hopper.set_registers increase
// CHECK: %[[QTILE:.*]] = hopper.load_tile %[[SLOT:.*]] : {{.*}} -> vector<64x64xf16>
// CHECK-NOT: flashattn.load_tile
// CHECK: vector.contract {{.*}} %[[QTILE]],
// CHECK: hopper.store_tile %{{.*}} to %[[SLOT]] : vector<64x64xf16>
// CHECK-NOT: vector<8x8x64xf16>
// CHECK: hopper.tma_store %[[SLOT]] to %[[OMAP]][%{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %c0]
// CHECK: flashattn.store_tile %{{.*}} to %[[LSEHEADS]][{{.*}}] dims [2, 3] rows %{{[a-z0-9_]+}} in_bounds [false, false] : vector<64xf32>
func.func @packed(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// The same in bshd, with rows promised to begin at multiples of 16 bytes: the heads of a position
// are the inner rows of the copy.
// READS-BACK-LABEL: func @packed_bshd
// CHECK-LABEL: func @packed_bshd
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(3) outer_dim(1) outer_rows(16) : memref<?x?x?x?x64xf16, strided<[?, ?, ?, ?, 1]>> to !hopper.tensor_map<64x64xf16>
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(1) :
// CHECK: hopper.make_tensor_map %{{.*}} row_dim(3) outer_dim(1) outer_rows(16) : memref<?x?x?x?x64xf16, strided<[?, ?, ?, ?, 1]>> to !hopper.tensor_map<64x64xf16>
func.func @packed_bshd(%q: memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>> {flashattn.aligned_rows}, %k: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>> {flashattn.aligned_rows}) {
  flashattn.attention layout(bshd) schedule(#schedule)
    ins(%q, %k, %k : memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16, strided<[?, ?, ?, 1]>>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 8>>

// A bias that all batches share: neighbours in the grid are the batches of one head.
// READS-BACK-LABEL: func @shared_bias
// CHECK-LABEL: func @shared_bias
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>
// CHECK: %[[BATCHES:.*]] = memref.dim %[[Q]], %c0
// CHECK: gpu.launch
// CHECK: %[[COUNT:.*]] = arith.index_castui %[[BATCHES]]
// CHECK: %[[HEAD32:.*]] = arith.divui %[[FLAT:.*]], %[[COUNT]]
// CHECK: %[[BEFORE:.*]] = arith.muli %[[HEAD32]], %[[COUNT]]
// CHECK: %[[BATCH32:.*]] = arith.subi %[[FLAT]], %[[BEFORE]]
// CHECK: %[[BATCH:.*]] = arith.index_castui %[[BATCH32]]
// CHECK: %[[HEAD:.*]] = arith.index_castui %[[HEAD32]]
// CHECK: hopper.tma_load %{{.*}}[%[[BATCH]], %[[HEAD]], %{{.*}}, %c0]
func.func @shared_bias(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %x: memref<1x?x?x?xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    bias(%x : memref<1x?x?x?xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 0, q_register_columns = 32>>

// As many heads start together as have a group for each multiprocessor but a sixteenth, which the host counts.
// Consumers read some columns of their queries, once.
// CHECK-LABEL: func @leading
// CHECK: %[[PER_HEAD:.*]] = arith.ceildivui %{{.*}}, %c2
// CHECK: %[[GROUPS:.*]] = arith.muli %{{.*}}, %[[PER_HEAD]]
// CHECK: %[[SMS:.*]] = flashattn.multiprocessor_count
// CHECK: %[[HEADS:.*]] = arith.divui %[[GROUPS]], %[[PER_HEAD]]
// CHECK: %[[FEW:.*]] = arith.divui %[[SMS]], %c16
// CHECK: %[[MOST:.*]] = arith.subi %[[SMS]], %[[FEW]]
// CHECK: %[[SECTIONS:.*]] = arith.divui %[[GROUPS]], %[[MOST]]
// CHECK: %[[ONE:.*]] = arith.maxsi %[[SECTIONS]], %c1
// CHECK: %[[OF:.*]] = arith.ceildivui %[[HEADS]], %[[ONE]]
// CHECK: %[[SECTION:.*]] = arith.index_cast{{u?i?}} %[[OF]] : index to i32
// CHECK: gpu.launch
// CHECK: arith.muli %{{.*}}, %[[SECTION]] : i32
// CHECK: %[[HELD:.*]] = hopper.read_tile %[[TILE:.*]] : {{.*}} -> vector<64x32xf16>
// CHECK: %[[Q:.*]] = hopper.load_tile %[[TILE]] first %[[HELD]] : {{.*}}, vector<64x32xf16> -> vector<64x64xf16>
// CHECK: flashattn.tile_loop
// CHECK: vector.contract {{.*}} %[[Q]],
func.func @leading(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>

// A warp may read keys by itself, for scores that it makes again. So the warps let tiles go, each for itself, four of
// each of three consumers, and keys behind the weights.
// READS-BACK-LABEL: func @late
// CHECK-LABEL: func @late
// CHECK: gpu.launch {{.*}} threads(%[[THREAD:[a-z0-9]+]], {{.*}}) in ({{.*}} = %c512,
// CHECK: %[[KRING:.*]] = hopper.make_ring
// CHECK: %[[VRING:.*]] = hopper.make_ring
// CHECK: hopper.ring_init %[[KRING]], 12
// CHECK: hopper.ring_init %[[VRING]], 12
// CHECK: %[[INGROUP:.*]] = arith.andi %[[THREAD]], %c127
// CHECK: %[[SIGNALS:.*]] = arith.cmpi eq, %[[INGROUP]], %c0
// CHECK: %[[INWARP:.*]] = arith.andi %[[THREAD]], %c31
// CHECK: %[[RELEASES:.*]] = arith.cmpi eq, %[[INWARP]], %c0
// One thread is the producer still.
// CHECK: scf.if %{{.*}} {
// CHECK:   scf.if %[[SIGNALS]]
// CHECK: } else {
// CHECK:   %[[QT:.*]] = hopper.load_tile
// CHECK:   scf.for
// CHECK:     hopper.group_barrier %{{.*}} threads(128)
// CHECK-NEXT: hopper.ring_release %[[KRING]] at %{{.*}} if %[[RELEASES]]
// CHECK-NEXT: hopper.ring_release %[[VRING]] at %{{.*}} if %[[RELEASES]]
// CHECK:   flashattn.tile_loop (%[[PLACE:.*]], %{{.*}}) in
// CHECK:     %[[KTILE:.*]] = hopper.ring_get %[[KRING]] at %[[PLACE]]
// CHECK:     %[[KT:.*]] = hopper.load_tile %[[KTILE]] : {{.*}} -> vector<32x64xf16>
// CHECK:     vector.contract {{.*}} %[[QT]], %[[KT]],
// CHECK-NOT: hopper.ring_
// The same tile, which is not waited for another time.
// CHECK:     flashattn.softmax_step {{.*}} recompute(%[[QT]], %[[KT]] : vector<64x64xf16>, vector<32x64xf16>) {
// CHECK:       flashattn.tile_yield
// CHECK-NEXT: }
// CHECK-NEXT: hopper.ring_release %[[KRING]] at %[[PLACE]] if %[[RELEASES]]
// CHECK:     flashattn.stage lag 1
// CHECK:     %[[VTILE:.*]] = hopper.ring_get %[[VRING]] at %[[PLACE]] :
// CHECK:     vector.contract
// CHECK-NEXT: hopper.ring_release %[[VRING]] at %[[PLACE]] if %[[RELEASES]]
// CHECK:     flashattn.tile_yield
// CHECK:   scf.for
// CHECK-COUNT-2: hopper.ring_release {{.*}} if %[[RELEASES]]
// CHECK:   hopper.group_barrier %{{.*}} threads(128)
// CHECK-NEXT: scf.if %[[SIGNALS]] {
// CHECK-NEXT: hopper.tma_store
func.func @late(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#late)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 3, along = query_tile, registers = 160, producer_registers = 32, rescale_threshold = 4, l2_head_group = 1>>

// An output with fewer panels than the queries leaves from the first of theirs.
// CHECK-LABEL: func @narrow_values
// CHECK: %[[Q:.*]] = memref.view %{{.*}} to memref<3x3x64x64xf16, {{.*}}>
// CHECK: hopper.set_registers increase
// CHECK: %[[MINE:.*]] = memref.subview %[[Q]][%{{.*}}, 0, 0, 0] [1, 3, 64, 64]
// CHECK: flashattn.tile_loop
// CHECK: %[[FIRST:.*]] = memref.subview %[[MINE]][0, 0, 0] [2, 64, 64] [1, 1, 1]
// CHECK: hopper.store_tile %{{.*}} to %[[FIRST]] : vector<64x128xf16>
// CHECK: hopper.tma_store %[[FIRST]]
func.func @narrow_values(%q: memref<?x?x?x192xf16>, %k: memref<?x?x?x192xf16>, %v: memref<?x?x?x128xf16>, %o: memref<?x?x?x128xf16>) {
  flashattn.attention schedule(#schedule)
    ins(%q, %k, %v : memref<?x?x?x192xf16>, memref<?x?x?x192xf16>, memref<?x?x?x128xf16>)
    outs(%o : memref<?x?x?x128xf16>)
  return
}
