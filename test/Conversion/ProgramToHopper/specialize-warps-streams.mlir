// Any number of residents, streams, uses and outputs: a program of rows of keys that loops over
// query tiles, with four products, one of which lags.
// RUN: flash-opt %s -flashattn-specialize-warps -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -flashattn-specialize-warps | flash-opt -o /dev/null

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

!mem = memref<2x4x?x64xf16>

// CHECK-LABEL: func @keys
// CHECK-SAME: %[[K:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[V:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[Q:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[DO:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[DK:[a-z0-9]+]]: memref<2x4x?x64xf16>, %[[DV:[a-z0-9]+]]: memref<2x4x?x64xf16>
// CHECK-DAG: %[[KMAP:.*]] = hopper.make_tensor_map %[[K]] row_dim(2)
// CHECK-DAG: %[[VMAP:.*]] = hopper.make_tensor_map %[[V]] row_dim(2)
// CHECK-DAG: %[[QMAP:.*]] = hopper.make_tensor_map %[[Q]] row_dim(2) : {{.*}} to !hopper.tensor_map<32x64xf16>
// CHECK-DAG: %[[DOMAP:.*]] = hopper.make_tensor_map %[[DO]] row_dim(2) : {{.*}} to !hopper.tensor_map<32x64xf16>
// CHECK-DAG: %[[DKMAP:.*]] = hopper.make_tensor_map %[[DK]] row_dim(2)
// CHECK-DAG: %[[DVMAP:.*]] = hopper.make_tensor_map %[[DV]] row_dim(2)
// Each output has the place of a resident of its own.
// CHECK: %[[KS:.*]] = memref.view %{{.*}}[%c0][] : {{.*}} to memref<1x1x64x64xf16, {{.*}}>
// CHECK: %[[VS:.*]] = memref.view %{{.*}}[%c8192][] : {{.*}} to memref<1x1x64x64xf16, {{.*}}>
// CHECK: memref.view %{{.*}}[%c16384][] : {{.*}} to memref<2x1x32x64xf16, {{.*}}>
// CHECK: memref.view %{{.*}}[%c24576][] : {{.*}} to memref<2x1x32x64xf16, {{.*}}>
// CHECK: %[[BARS:.*]] = memref.view %{{.*}} to memref<9xi64, {{.*}}>
// CHECK: %[[QRING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][1]
// CHECK: %[[DORING:.*]] = hopper.make_ring %{{.*}}, %[[BARS]][5]
// One barrier for both residents.
// CHECK: hopper.barrier_expect %[[BARS]][%c0], 16384
// CHECK-NEXT: hopper.tma_load %[[KMAP]]
// CHECK-NEXT: hopper.tma_load %[[VMAP]]
// CHECK: hopper.set_registers decrease
// CHECK: scf.for
// CHECK: hopper.ring_put %[[QRING]] at %[[AT:.*]] from %[[QMAP]]
// CHECK-NEXT: hopper.ring_put %[[DORING]] at %[[AT]] from %[[DOMAP]]
// CHECK: flashattn.on_threads
// CHECK: hopper.set_registers increase
// CHECK: hopper.barrier_wait %[[BARS]][%{{.*}}], %c0_i32
// CHECK: %[[KTILE:.*]] = hopper.load_tile %[[KPLACE:.*]] : memref<1x64x64xf16, {{.*}}> -> vector<64x64xf16>
// CHECK-NOT: hopper.barrier_wait
// CHECK: %[[VTILE:.*]] = hopper.load_tile %[[VPLACE:.*]] : memref<1x64x64xf16, {{.*}}> -> vector<64x64xf16>
// CHECK: flashattn.tile_loop
// Gotten in each stage that uses it, released behind the last use of all.
// CHECK: hopper.ring_get %[[QRING]] at
// CHECK: %[[Q1:.*]] = hopper.load_tile
// CHECK: vector.contract {{.*}} %[[KTILE]], %[[Q1]],
// CHECK-NOT: hopper.ring_release
// CHECK: hopper.ring_get %[[DORING]] at
// CHECK: %[[DO1:.*]] = hopper.load_tile
// CHECK: vector.contract {{.*}} %[[VTILE]], %[[DO1]],
// CHECK-NOT: hopper.ring_get
// CHECK: vector.contract {{.*}}, %[[DO1]],
// CHECK-NEXT: hopper.ring_release %[[DORING]] at %{{.*}} if
// CHECK: flashattn.stage lag 1
// CHECK: hopper.ring_get %[[QRING]] at
// CHECK: %[[Q2:.*]] = hopper.load_tile
// CHECK: vector.contract {{.*}}, %[[Q2]],
// CHECK-NEXT: hopper.ring_release %[[QRING]] at
// CHECK: flashattn.tile_yield
// CHECK: hopper.store_tile %{{.*}} to %[[KPLACE]]
// CHECK: hopper.tma_store %[[KPLACE]] to %[[DKMAP]]
// CHECK: hopper.store_tile %{{.*}} to %[[VPLACE]]
// CHECK: hopper.tma_store %[[VPLACE]] to %[[DVMAP]]
func.func @keys(%k: !mem, %v: !mem, %q: !mem, %do: !mem, %dk: !mem, %dv: !mem, %tiles: index, %steps: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zs = arith.constant dense<0.0> : vector<64x32xf32>
  %zo = arith.constant dense<0.0> : vector<64x64xf32>
  %space = flashattn.dense_space(%c2, %c4, %tiles) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %kt = flashattn.load_tile %k[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %vt = flashattn.load_tile %v[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<64x64xf16>
    %r:2 = flashattn.tile_loop (%i, %j) in [(%t, %t, %steps, %steps)] iter_args(%ak = %zo, %av = %zo) -> (vector<64x64xf32>, vector<64x64xf32>) {
      %qt = flashattn.load_tile %q[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<32x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %zs : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      flashattn.stage
      %dot = flashattn.load_tile %do[%b, %h, %j, %c0] dims [2, 3] in_bounds [false, true] : !mem -> vector<32x64xf16>
      %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %vt, %dot, %zs : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
      %e = math.exp2 %s : vector<64x32xf32>
      %p = arith.truncf %e : vector<64x32xf32> to vector<64x32xf16>
      %av1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %dot, %av : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
      %ds = arith.mulf %e, %dp : vector<64x32xf32>
      %d16 = arith.truncf %ds : vector<64x32xf32> to vector<64x32xf16>
      flashattn.stage lag 1
      %ak1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %d16, %qt, %ak : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %ak1, %av1 : vector<64x64xf32>, vector<64x64xf32>
    }
    %k16 = arith.truncf %r#0 : vector<64x64xf32> to vector<64x64xf16>
    %v16 = arith.truncf %r#1 : vector<64x64xf32> to vector<64x64xf16>
    flashattn.store_tile %k16 to %dk[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x64xf16>, !mem
    flashattn.store_tile %v16 to %dv[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true] : vector<64x64xf16>, !mem
  }
  return
}
