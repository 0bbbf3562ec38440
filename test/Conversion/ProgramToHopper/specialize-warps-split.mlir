// Consumers that split the sums of a program: each has a copy of it with one sum, and the first one's weights are passed to
// the second.
// RUN: flash-opt %s -flashattn-specialize-warps -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-specialize-warps | flash-opt -o /dev/null
// RUN: flash-opt %s -flashattn-specialize-warps -flashattn-expand-loops -hopper-expand-rings -canonicalize -cse -flashattn-contract-to-wgmma | FileCheck %s --check-prefix=WGMMA --implicit-check-not=hopper.load_tile

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func @split
// Keys, values and two rings; two places for what is passed on.
// CHECK: %[[KEYS:.*]] = memref.view %{{.*}} to memref<1x3x64x64xf16, {{.*}}>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<13xi64, {{.*}}>
// CHECK: %[[QRING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][1]
// CHECK: %[[DORING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][5]
// CHECK: %[[PLACES:.*]] = memref.view %{{.*}} to memref<2x1x64x64xf16, {{.*}}>
// Four warps pass a place on, and four give it back.
// CHECK: hopper.barrier_init %[[BARS]][%c9], 4
// CHECK: hopper.barrier_init %[[BARS]][%c10], 4
// CHECK: hopper.barrier_init %[[BARS]][%c11], 4
// CHECK: hopper.barrier_init %[[BARS]][%c12], 4
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
// CHECK: %[[NDV:.*]] = vector.contract {{.*}} %[[P]], %{{.*}}, %[[DV]]
// CHECK-NEXT: hopper.ring_release %[[DORING]]
// CHECK-NEXT: flashattn.tile_yield %[[NDV]] : vector<64x192xf32>
// CHECK: hopper.wait_stores consumer(0)
// The second one takes the weights when its product is there, and each of its warps gives their place back.
// CHECK: else
// CHECK: flashattn.on_threads
// CHECK: flashattn.tile_loop {{.*}} iter_args(%[[DK:.*]] = %{{.*}}) -> vector<64x192xf32>
// CHECK: %[[DP:.*]] = vector.contract
// CHECK-NEXT: hopper.ring_release %[[DORING]]
// CHECK-NOT: vector.contract
// CHECK: hopper.barrier_wait
// CHECK: %[[TAKEN:.*]] = hopper.read_tile
// CHECK: hopper.warp_arrive %[[BARS]]
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[TAKEN]]
// CHECK-NEXT: arith.mulf %[[DP]], %[[WIDE]]
// CHECK-NEXT: %[[OWN:.*]] = arith.truncf
// CHECK-NEXT: flashattn.stage
// CHECK: %[[NDK:.*]] = vector.contract {{.*}} %[[OWN]], %{{.*}}, %[[DK]]
// CHECK-NEXT: hopper.ring_release %[[QRING]]
// CHECK-NEXT: flashattn.tile_yield %[[NDK]] : vector<64x192xf32>
// CHECK: hopper.wait_stores consumer(1)

// The place is given back behind the read of it, and no product waits for a store to it.
// WGMMA-LABEL: func @split
// WGMMA: flashattn.on_threads
// WGMMA: hopper.wgmma
// WGMMA: hopper.publish
// WGMMA: flashattn.on_threads
// WGMMA: hopper.wgmma
// WGMMA: hopper.read_tile
// WGMMA: hopper.warp_arrive
func.func @split(%k: memref<2x4x?x192xf16>, %v: memref<2x4x?x192xf16>, %q: memref<2x4x?x192xf16>, %do: memref<2x4x?x192xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x192xf32>
  %none = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
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
      flashattn.tile_yield %ndk, %ndv : vector<64x192xf32>, vector<64x192xf32>
    }
  }
  return
}

// Two steps at once read a tile of keys, and one product one of values: of four tiles three are of keys.
// CHECK-LABEL: func @queries
// CHECK: hopper.make_ring %{{.*}}[2] : memref<3x1x48x64xf16
// CHECK: hopper.make_ring %{{.*}}[8] : memref<1x1x48x64xf16
func.func @queries(%q: memref<2x4x?x64xf16>, %do: memref<2x4x?x64xf16>, %k: memref<2x4x?x64xf16>, %v: memref<2x4x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %none = arith.constant dense<0.0> : vector<64x48xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %dot = flashattn.load_tile %do[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dq = %zeros) -> vector<64x64xf32> {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %vt = flashattn.load_tile %v[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %dot, %vt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %g = arith.mulf %s, %dp : vector<64x48xf32>
      %ds = arith.truncf %g : vector<64x48xf32> to vector<64x48xf16>
      flashattn.stage lag 1 behind 1
      %ndq = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %dq : vector<64x48xf16>, vector<48x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %ndq : vector<64x64xf32>
    }
  }
  return
}

// So they have not where the late product comes before that of values, nor where none is late.
// CHECK-LABEL: func @before
// CHECK: hopper.make_ring %{{.*}}[2] : memref<2x1x48x64xf16
// CHECK: hopper.make_ring %{{.*}}[6] : memref<2x1x48x64xf16
func.func @before(%q: memref<2x4x?x64xf16>, %do: memref<2x4x?x64xf16>, %k: memref<2x4x?x64xf16>, %v: memref<2x4x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %none = arith.constant dense<0.0> : vector<64x48xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %dot = flashattn.load_tile %do[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dq = %zeros) -> vector<64x64xf32> {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %vt = flashattn.load_tile %v[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %dot, %vt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %g = arith.mulf %s, %dp : vector<64x48xf32>
      %ds = arith.truncf %g : vector<64x48xf32> to vector<64x48xf16>
      flashattn.stage lag 1 behind 0
      %ndq = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %dq : vector<64x48xf16>, vector<48x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %ndq : vector<64x64xf32>
    }
  }
  return
}

// CHECK-LABEL: func @together
// CHECK: hopper.make_ring %{{.*}}[2] : memref<2x1x48x64xf16
// CHECK: hopper.make_ring %{{.*}}[6] : memref<2x1x48x64xf16
func.func @together(%q: memref<2x4x?x64xf16>, %do: memref<2x4x?x64xf16>, %k: memref<2x4x?x64xf16>, %v: memref<2x4x?x64xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %zeros = arith.constant dense<0.0> : vector<64x64xf32>
  %none = arith.constant dense<0.0> : vector<64x48xf32>
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %qt = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %dot = flashattn.load_tile %do[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%dq = %zeros) -> vector<64x64xf32> {
      %kt = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %vt = flashattn.load_tile %v[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<48x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %dot, %vt, %none : vector<64x64xf16>, vector<48x64xf16> into vector<64x48xf32>
      flashattn.stage
      %g = arith.mulf %s, %dp : vector<64x48xf32>
      %ds = arith.truncf %g : vector<64x48xf32> to vector<64x48xf16>
      flashattn.stage
      %ndq = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %dq : vector<64x48xf16>, vector<48x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %ndq : vector<64x64xf32>
    }
  }
  return
}
