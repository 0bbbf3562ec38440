// Programs over tiles of queries and of keys, whose steps go over batches: every tile comes anew in each, and a block
// keeps none. Blocks are persistent, and consumers share the program.
// RUN: flash-opt %s -flashattn-specialize-warps -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-specialize-warps | flash-opt -o /dev/null

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

!mem = memref<?x4x?x64xf16>
!out = memref<1x4x?x?xf16>

// CHECK-LABEL: func @elements
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x4x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x4x?x64xf16>, %{{[a-z0-9]+}}: memref<1x4x?x?xf16> {flashattn.aligned_rows}, %[[BATCHES:[a-z0-9]+]]: index, %[[ROWS:[a-z0-9]+]]: index, %[[COLUMNS:[a-z0-9]+]]: index
// Pairs of a tile of queries and one of keys are counted as one number.
// CHECK: %[[TILES:.*]] = arith.muli %[[ROWS]], %[[COLUMNS]]
// CHECK: %[[GROUPS:.*]] = arith.muli %[[TILES]], %c4
// CHECK: arith.minsi %[[GROUPS]], %{{.*}}
// One kernel, however long the memrefs are.
// CHECK-COUNT-1: gpu.launch
// CHECK: hopper.make_ring
// CHECK: hopper.make_ring
// What is said of a group is told by one thread, and let go by both consumers.
// CHECK: hopper.barrier_init %[[BARS:.*]][%c0], 1
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c1], 1
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c2], 2
// CHECK-NEXT: hopper.barrier_init %[[BARS]][%c3], 2
// CHECK-NOT: hopper.tma_load
// CHECK: hopper.barrier_arrive %[[BARS]][%c0] :
// The producer: a batch a step, of the tiles that the number stands for.
// CHECK: hopper.set_registers decrease
// CHECK: %[[ROW32:.*]] = arith.divui %{{.*}}, %{{.*}} : i32
// CHECK: scf.for %[[BATCH:.*]] = %c0 to %[[BATCHES]] step %c1
// CHECK: hopper.ring_put %{{.*}} from %{{.*}}[%[[BATCH]], %{{.*}}, %{{.*}}, %c0]
// CHECK: hopper.ring_put %{{.*}} from %{{.*}}[%[[BATCH]], %{{.*}}, %{{.*}}, %c0]
// CHECK: hopper.set_registers increase
// CHECK: flashattn.tile_loop
// CHECK: hopper.ring_get
// CHECK: vector.contract
// The copy of the program before may still read the output's place.
// CHECK: hopper.wait_stores
// CHECK-NEXT: hopper.group_barrier %c1_i32 threads(256)
// CHECK-NEXT: hopper.store_tile
// CHECK: hopper.tma_store
// CHECK-NOT: hopper.wait_stores
// CHECK: hopper.barrier_arrive %[[BARS]][%{{.*}}] if
// CHECK: scf.yield
// CHECK: hopper.wait_stores
func.func @elements(%q: !mem, %k: !mem, %out: !out {flashattn.aligned_rows}, %batches: index, %rows: index, %columns: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %none = arith.constant dense<0.0> : vector<128x64xf32>
  %space = flashattn.dense_space(%c1, %c4, %rows, %columns) axes(batch, head, query_tile, key_tile)
  flashattn.program (%b, %h, %t, %u) in %space
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 224, producer_registers = 56, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>) {
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %batches, %batches)] iter_args(%acc = %none) -> (vector<128x64xf32>) {
      %qt = flashattn.load_tile %q[%j, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<128x64xf16>
      %kt = flashattn.load_tile %k[%j, %h, %u, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
      flashattn.tile_yield %s : vector<128x64xf32>
    }
    %o = arith.truncf %r : vector<128x64xf32> to vector<128x64xf16>
    flashattn.store_tile %o to %out[%b, %h, %t, %u] dims [2, 3] in_bounds [false, false] : vector<128x64xf16>, !out
  }
  return
}
