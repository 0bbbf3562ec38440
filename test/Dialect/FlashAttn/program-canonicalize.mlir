// RUN: flash-opt %s -canonicalize -cse -split-input-file | FileCheck %s

// What the ops of a tile program say stays through simplification: no stage goes or moves, a mask is
// asked of every tile, whatever its region says, and of the loads only those go that nothing uses or
// that another has done.
// CHECK-LABEL: func @program
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x64xf16>, %[[BIAS:[a-z0-9]+]]: memref<?x?xf32>, %[[O:[a-z0-9]+]]: memref<?x64xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c1, %{{.*}}) axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]] schedule(
// CHECK: %[[QT:.*]] = flashattn.load_tile %[[Q]][%[[T]], %c0]
// CHECK-NOT: flashattn.load_tile
// CHECK: %[[R:.*]]:3 = flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%c0, %c0, %{{.*}}, %{{.*}})] iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}})
// CHECK-NEXT: %[[KT:.*]] = flashattn.load_tile %[[K]][%[[J]], %c0]
// CHECK-NEXT: %[[S:.*]] = vector.contract {{.*}} %[[QT]], %[[KT]],
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: %[[BT:.*]] = flashattn.load_tile %[[BIAS]][%[[T]], %[[J]]]
// CHECK-NEXT: %[[SB:.*]] = math.fma %[[S]], %{{.*}}, %[[BT]]
// CHECK-NEXT: %[[SHOWN:.*]] = flashattn.tile_mask -> vector<64x64xi1> {
// CHECK-NEXT:   flashattn.tile_yield %{{.*}} : vector<64x64xi1>
// CHECK-NEXT: }
// CHECK-NEXT: %[[MASKED:.*]] = arith.select %[[SHOWN]], %[[SB]],
// CHECK-NEXT: %[[W:.*]], %[[SUMS:.*]], %[[BASE:.*]], %[[OLD:.*]]:2 = flashattn.softmax_step %[[MASKED]] from %[[M]] factor(%{{.*}}) threshold 8.000000e+00 threads_per_row 4
// CHECK-SAME: rescale(%[[L]], %[[ACC]] : {{.*}} recompute(%[[QT]], %[[KT]] : vector<64x64xf16>, vector<64x64xf16>) {
// CHECK-NEXT: ^bb0(%[[A:.*]]: vector<64x64xf16>, %[[B:.*]]: vector<64x64xf16>):
// CHECK-NEXT:   %[[NONE:.*]] = arith.constant dense<0.000000e+00>
// CHECK-NEXT:   %[[AGAIN:.*]] = vector.contract {{.*}} %[[A]], %[[B]], %[[NONE]]
// CHECK-NEXT:   flashattn.tile_yield %[[AGAIN]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[P:.*]] = arith.truncf %[[W]]
// CHECK-NEXT: flashattn.stage lag 1
// CHECK-NEXT: %[[VT:.*]] = flashattn.load_tile %[[V]][%[[J]], %c0]
// CHECK-NEXT: %[[NEXT:.*]] = vector.contract {{.*}} %[[P]], %[[VT]], %[[OLD]]#1
// CHECK-NEXT: flashattn.tile_yield %[[BASE]], %[[OLD]]#0, %[[NEXT]]
// CHECK: flashattn.store_tile %[[R]]#2 to %[[O]][%[[T]], %c0]
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
func.func @program(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %v: memref<?x64xf16>, %bias: memref<?x?xf32>, %o: memref<?x64xf32>, %n: index, %fe: index, %e: index) {
  %factor = arith.constant 0.125 : f32
  %c1 = arith.constant 1 : index
  %space = flashattn.dense_space(%c1, %c1, %n) axes(batch, head, query_tile)
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %c0 = arith.constant 0 : index
    %inf = arith.constant dense<0xFF800000> : vector<64xf32>
    %zeros = arith.constant dense<0.0> : vector<64x4xf32>
    %zero = arith.constant dense<0.0> : vector<64x64xf32>
    %half = arith.constant dense<0.5> : vector<64x64xf32>
    %unused = flashattn.load_tile %v[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
    %qt = flashattn.load_tile %q[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
    %r:3 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %fe, %e)]
        iter_args(%m = %inf, %l = %zeros, %acc = %zero) -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
      %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
      %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %zero : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
      flashattn.stage
      %bt = flashattn.load_tile %bias[%t, %j] dims [0, 1] in_bounds [false, false] : memref<?x?xf32> -> vector<64x64xf32>
      %sb = math.fma %s, %half, %bt : vector<64x64xf32>
      %shown = flashattn.tile_mask -> vector<64x64xi1> {
        %all = arith.constant dense<true> : vector<64x64xi1>
        flashattn.tile_yield %all : vector<64x64xi1>
      }
      %masked = arith.select %shown, %sb, %zero : vector<64x64xi1>, vector<64x64xf32>
      %w, %sums, %base, %old:2 = flashattn.softmax_step %masked from %m factor(%factor) threshold 8.0 threads_per_row 4
          rescale(%l, %acc : vector<64x4xf32>, vector<64x64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
          recompute(%qt, %kt : vector<64x64xf16>, vector<64x64xf16>) {
      ^bb0(%x: vector<64x64xf16>, %y: vector<64x64xf16>):
        %none = arith.constant dense<0.0> : vector<64x64xf32>
        %s2 = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x, %y, %none : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
        flashattn.tile_yield %s2 : vector<64x64xf32>
      }
      %dead:3 = flashattn.softmax_step %sb from %m factor(%factor) threshold 8.0 threads_per_row 4
          : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      %p = arith.truncf %w : vector<64x64xf32> to vector<64x64xf16>
      flashattn.stage lag 1
      %vt = flashattn.load_tile %v[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
      %next = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %vt, %old#1 : vector<64x64xf16>, vector<64x64xf16> into vector<64x64xf32>
      flashattn.tile_yield %base, %old#0, %next : vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
    }
    flashattn.store_tile %r#2 to %o[%t, %c0] dims [0, 1] in_bounds [false, true] : vector<64x64xf32>, memref<?x64xf32>
  }
  return
}

// -----

// Two loads of a tile are one where nothing is written between them, and two stages where nothing
// stands between them are still two.
// CHECK-LABEL: func @memory
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<?x64xf32>, %[[T:[a-z0-9]+]]: index
// CHECK: flashattn.on_threads
// CHECK: %[[A:.*]] = flashattn.load_tile %[[M]][%[[T]], %c0]
// CHECK-NEXT: %[[TWICE:.*]] = arith.addf %[[A]], %[[A]]
// CHECK-NEXT: flashattn.store_tile %[[TWICE]] to %[[M]]
// CHECK-NEXT: %[[B:.*]] = flashattn.load_tile %[[M]][%[[T]], %c0]
// CHECK-NEXT: flashattn.store_tile %[[B]] to
// CHECK: flashattn.tile_loop
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: flashattn.stage{{$}}
func.func @memory(%m: memref<?x64xf32>, %t: index, %thread: index, %e: index, %o: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %a = flashattn.load_tile %m[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf32> -> vector<64x64xf32>
    %same = flashattn.load_tile %m[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf32> -> vector<64x64xf32>
    %twice = arith.addf %a, %same : vector<64x64xf32>
    flashattn.store_tile %twice to %m[%t, %c0] dims [0, 1] in_bounds [false, true] : vector<64x64xf32>, memref<?x64xf32>
    %b = flashattn.load_tile %m[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf32> -> vector<64x64xf32>
    flashattn.store_tile %b to %o[%t, %c0] dims [0, 1] in_bounds [false, true] : vector<64x64xf32>, memref<?x64xf32>
    flashattn.tile_loop (%i, %j) in [(%c0, %c0, %e, %e)] {
      flashattn.stage
      flashattn.stage
    }
  }
  return
}
