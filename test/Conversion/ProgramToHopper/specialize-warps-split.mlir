// Consumers that split the sums of a program: each has a copy of it with one sum. The first one's weights are passed to
// the second, and of the tile that is added each makes some columns.
// RUN: flash-opt %s -flashattn-specialize-warps -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-specialize-warps | flash-opt -o /dev/null
// RUN: flash-opt %s -flashattn-specialize-warps -flashattn-expand-loops -hopper-expand-rings -canonicalize -cse -flashattn-contract-to-wgmma | FileCheck %s --check-prefix=WGMMA --implicit-check-not=hopper.load_tile

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func @split
// CHECK-SAME: %{{.*}}, %[[SUMS:[a-z0-9]+]]: memref<2x4x?x192xf32>,
// Keys, values and two rings; two places for what is handed over, and for each consumer what its warps add.
// CHECK: %[[KEYS:.*]] = memref.view %{{.*}} to memref<1x3x64x64xf16, {{.*}}>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<15xi64, {{.*}}>
// CHECK: %[[QRING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][1]
// CHECK: %[[DORING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][5]
// CHECK: %[[PLACES:.*]] = memref.view %{{.*}} to memref<2x1x64x64xf16, {{.*}}>
// CHECK: %[[STAGING0:.*]] = memref.view %{{.*}} to memref<4x512xf32, {{.*}}>
// CHECK: %[[STAGING1:.*]] = memref.view %{{.*}} to memref<4x512xf32, {{.*}}>
// Four warps hand a place over, to all or to the second consumer; both give it back.
// CHECK: hopper.barrier_init %[[BARS]][%c9], 4
// CHECK: hopper.barrier_init %[[BARS]][%c10], 4
// CHECK: hopper.barrier_init %[[BARS]][%c11], 4
// CHECK: hopper.barrier_init %[[BARS]][%c12], 4
// CHECK: hopper.barrier_init %[[BARS]][%c13], 2
// CHECK: hopper.barrier_init %[[BARS]][%c14], 2
// CHECK: hopper.set_registers decrease
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c1 : index
// CHECK: scf.if %[[FIRST]]
// The first consumer: its sum, and what it is made of.
// CHECK: flashattn.on_threads
// CHECK: flashattn.tile_loop {{.*}} iter_args(%[[DV:.*]] = %{{.*}}) -> vector<64x192xf32>
// CHECK: %[[S:.*]] = vector.contract
// CHECK-NEXT: hopper.ring_release %[[QRING]]
// CHECK-NEXT: %[[P:.*]] = arith.truncf %[[S]]
// CHECK: hopper.barrier_wait
// CHECK-NEXT: %[[PLACE:.*]] = memref.subview %[[PLACES]]
// CHECK-NEXT: hopper.store_tile %[[P]] to %[[PLACE]]
// CHECK: hopper.publish
// CHECK-NEXT: flashattn.stage
// CHECK-NOT: hopper.pin
// CHECK: vector.contract {{.*}} %[[P]], %{{.*}}, %[[DV]]
// CHECK-NEXT: hopper.ring_release %[[DORING]]
// Two of the three panels of columns, of what the second one has handed over.
// CHECK: hopper.barrier_wait
// CHECK-NEXT: %[[DS:.*]] = hopper.load_tile %[[PLACE]]
// CHECK-NEXT: %[[DQ:.*]] = vector.contract {{.*}} %[[DS]], %{{.*}} : vector<64x64xf16>, vector<64x128xf16> into vector<64x128xf32>
// CHECK-NEXT: hopper.barrier_arrive %[[BARS]]
// CHECK: hopper.add_tile %[[DQ]] through %[[STAGING0]] to %[[SUMS]][%{{.*}}, %{{.*}}, %{{.*}}, %c0] : vector<64x128xf32>
// CHECK-NEXT: flashattn.tile_yield %{{.*}} : vector<64x192xf32>
// CHECK: hopper.wait_stores consumer(0)
// The second one takes the weights when its product is there.
// CHECK: else
// CHECK: flashattn.on_threads
// CHECK: flashattn.tile_loop {{.*}} iter_args(%[[DK:.*]] = %{{.*}}) -> vector<64x192xf32>
// CHECK: %[[DP:.*]] = vector.contract
// CHECK-NEXT: hopper.ring_release %[[DORING]]
// CHECK-NOT: vector.contract
// CHECK: hopper.barrier_wait
// CHECK: %[[TAKEN:.*]] = hopper.read_tile
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[TAKEN]]
// CHECK-NEXT: arith.mulf %[[DP]], %[[WIDE]]
// CHECK-NEXT: %[[OWN:.*]] = arith.truncf
// CHECK-NEXT: hopper.store_tile %[[OWN]]
// CHECK: hopper.publish
// CHECK: vector.contract {{.*}} %[[OWN]], %{{.*}}, %[[DK]]
// CHECK-NEXT: hopper.ring_release %[[QRING]]
// The third panel: 64 rows of 128 columns lie before it, 42 rows of 192 and 128 elements.
// CHECK: %[[PART:.*]] = vector.contract {{.*}} : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
// CHECK: %[[ROW:.*]] = arith.addi %{{.*}}, %c42
// CHECK: hopper.add_tile %[[PART]] through %[[STAGING1]] to %[[SUMS]][%{{.*}}, %{{.*}}, %[[ROW]], %c128] : vector<64x64xf32>

// A place is given back behind the wait for the product that reads it.
// WGMMA-LABEL: func @split
// WGMMA: flashattn.on_threads
// WGMMA: %[[DQ:.*]] = hopper.wgmma %{{.*}}, %{{.*}} transposed_a transposed : memref<1x64x64xf16, {{.*}}>, memref<2x64x64xf16, {{.*}}> -> vector<64x128xf32>
// WGMMA: %[[DONE:.*]] = hopper.wgmma_wait %[[DQ]]
// WGMMA-NEXT: hopper.barrier_arrive
// WGMMA: hopper.add_tile %[[DONE]]
// WGMMA: flashattn.on_threads
func.func @split(%k: memref<2x4x?x192xf16>, %v: memref<2x4x?x192xf16>, %q: memref<2x4x?x192xf16>, %do: memref<2x4x?x192xf16>, %sums: memref<2x4x?x192xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x192xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %no_dq = arith.constant dense<0.0> : vector<64x192xf32>
  flashattn.program (%b, %h, %t) in (%n, %n, %n) axes(batch, head, key_tile)
      schedule(<tile_m = 64, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x192xf16> -> vector<64x192xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x192xf16> -> vector<64x192xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dk = %zeros, %dv = %zeros) -> (vector<64x192xf32>, vector<64x192xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x192xf16> -> vector<64x192xf16>
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x192xf16> -> vector<64x192xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x192xf16>, vector<64x192xf16> into vector<64x64xf32>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %none : vector<64x192xf16>, vector<64x192xf16> into vector<64x64xf32>
      %p = arith.truncf %s : vector<64x64xf32> to vector<64x64xf16>
      %pf = arith.extf %p : vector<64x64xf16> to vector<64x64xf32>
      %g = arith.mulf %dp, %pf : vector<64x64xf32>
      %ds = arith.truncf %g : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage
      %ndv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %dv : vector<64x64xf16>, vector<64x192xf16> into vector<64x192xf32>
      %ndk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %dk : vector<64x64xf16>, vector<64x192xf16> into vector<64x192xf32>
      %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %no_dq : vector<64x64xf16>, vector<64x192xf16> into vector<64x192xf32>
      flashattn.add_tile %dq to %sums[%b, %h, %j, %c0] parts 6 adjacent 4 : vector<64x192xf32>, memref<2x4x?x192xf32>
      flashattn.tile_yield %ndk, %ndv : vector<64x192xf32>, vector<64x192xf32>
    }
  }
  return
}
