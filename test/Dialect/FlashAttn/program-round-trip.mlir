// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s

// CHECK-LABEL: func @program
func.func @program(%q: memref<2x4x?x64xf16>, %k: memref<2x4x?x64xf16>, %o: memref<2x4x?x64xf32>,
                   %split: memref<2x1x4x?x64xf16>, %list: memref<2x4x1x?xi32>, %n: index, %c: i1) {
  %factor = arith.constant 0.125 : f32
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %inf = arith.constant dense<0xFF800000> : vector<64xf32>
  %space = flashattn.dense_space(%c2, %c2, %n) axes(batch, head, query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %{{.*}}, %[[N:.*]]) axes(batch, head, query_tile)
  // CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]]
  // CHECK-SAME: schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
  flashattn.program (%b, %h, %t) in %space
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    // CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[H]], %[[T]], %{{.*}}] dims [2, 3] in_bounds [false, true] : memref<2x4x?x64xf16> -> vector<64x64xf16>
    %tile = flashattn.load_tile %q[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true]
        : memref<2x4x?x64xf16> -> vector<64x64xf16>
    // CHECK: %[[ROWS4_16:.*]] = flashattn.packed_rows [4, 16]
    // CHECK: flashattn.load_tile %{{.*}} dims [2, 3, 4] rows %[[ROWS4_16]] in_bounds [false, false, true] : memref<2x1x4x?x64xf16> -> vector<64x64xf16>
    %packed = flashattn.packed_rows [4, 16]
    %heads = flashattn.load_tile %split[%b, %c0, %h, %t, %c0] dims [2, 3, 4] rows %packed
        in_bounds [false, false, true] : memref<2x1x4x?x64xf16> -> vector<64x64xf16>
    // CHECK: flashattn.tile_loop (%[[I:.*]], %[[J:.*]]) in [(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}), (%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})]
    // CHECK-SAME: list(%{{.*}}[%[[B]], %[[H]], %{{.*}}] : memref<2x4x1x?xi32>) when %{{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}) -> (vector<64xf32>, vector<64x64xf32>)
    %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n), (%n, %n, %n, %n)]
        list(%list[%b, %h, %c0] : memref<2x4x1x?xi32>) when %c
        iter_args(%m = %inf, %acc = %zero) -> (vector<64xf32>, vector<64x64xf32>) {
      // CHECK: %[[ROWS:.*]] = flashattn.dense_rows below %[[N]]
      // CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[H]], %[[J]], %{{.*}}] dims [2, 3] rows %[[ROWS]] in_bounds [false, true]
      %rows = flashattn.dense_rows below %n
      %keys = flashattn.load_tile %k[%b, %h, %j, %c0] dims [2, 3] rows %rows in_bounds [false, true]
          : memref<2x4x?x64xf16> -> vector<64x64xf16>
      // CHECK: flashattn.stage{{$}}
      flashattn.stage
      // CHECK: flashattn.tile_mask -> vector<64x64xi1> {
      %shown = flashattn.tile_mask -> vector<64x64xi1> {
        %all = arith.constant dense<true> : vector<64x64xi1>
        // CHECK: flashattn.tile_yield %{{.*}} : vector<64x64xi1>
        flashattn.tile_yield %all : vector<64x64xi1>
      }
      %s = arith.select %shown, %acc, %zero : vector<64x64xi1>, vector<64x64xf32>
      // CHECK: %{{.*}}, %{{.*}}, %[[BASE:.*]], %{{.*}} = flashattn.softmax_step %{{.*}} from %[[M]] factor(%{{.*}}) threshold 5.000000e+00 threads_per_row 4
      // CHECK-SAME: rescale(%[[O]] : vector<64x64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
      // CHECK-SAME: recompute(%{{.*}}, %{{.*}} : vector<64x64xf16>, vector<64x64xf16>) {
      // CHECK-NEXT: ^bb0(%{{.*}}: vector<64x64xf16>, %[[KEYS:.*]]: vector<64x64xf16>):
      // CHECK-NEXT: %[[AGAIN:.*]] = arith.extf %[[KEYS]]
      // CHECK-NEXT: flashattn.tile_yield %[[AGAIN]] : vector<64x64xf32>
      // CHECK-NEXT: }
      %p, %sums, %base, %rescaled = flashattn.softmax_step %s from %m factor(%factor) threshold 5.0 threads_per_row 4
          rescale(%acc : vector<64x64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x4xf32>
          recompute(%tile, %keys : vector<64x64xf16>, vector<64x64xf16>) {
      ^bb0(%x: vector<64x64xf16>, %y: vector<64x64xf16>):
        %again = arith.extf %y : vector<64x64xf16> to vector<64x64xf32>
        flashattn.tile_yield %again : vector<64x64xf32>
      }
      // Without a region, threshold or values.
      // CHECK: flashattn.softmax_step %{{.*}} from %[[BASE]] factor(%{{.*}}) threshold 5.000000e+00 threads_per_row 2 rescale(%{{.*}}, %{{.*}} : vector<64x4xf32>, vector<64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x2xf32>{{$}}
      %p1, %sums1, %base1, %rescaled1:2 = flashattn.softmax_step %p from %base factor(%factor) threshold 5.0 threads_per_row 2
          rescale(%sums, %base : vector<64x4xf32>, vector<64xf32>) : vector<64x64xf32>, vector<64xf32> -> vector<64x2xf32>
      // CHECK: flashattn.softmax_step %{{.*}} from %{{.*}} factor(%{{.*}}) threads_per_row 1 : vector<64x64xf32>, vector<64xf32> -> vector<64x1xf32>{{$}}
      %p2, %sums2, %base2 = flashattn.softmax_step %p1 from %base1 factor(%factor) threads_per_row 1
          : vector<64x64xf32>, vector<64xf32> -> vector<64x1xf32>
      // CHECK: flashattn.stage lag 1
      flashattn.stage lag 1
      // CHECK: flashattn.tile_yield %[[BASE]], %{{.*}} : vector<64xf32>, vector<64x64xf32>
      flashattn.tile_yield %base, %rescaled : vector<64xf32>, vector<64x64xf32>
    }
    // CHECK: flashattn.store_tile %{{.*}} to %{{.*}}[%[[B]], %[[H]], %[[T]], %{{.*}}] dims [2, 3] in_bounds [false, true] : vector<64x64xf32>, memref<2x4x?x64xf32>
    flashattn.store_tile %r#1 to %o[%b, %h, %t, %c0] dims [2, 3] in_bounds [false, true]
        : vector<64x64xf32>, memref<2x4x?x64xf32>
  }
  %space1 = flashattn.dense_space(%c2, %c2, %n) axes(batch, head, query_tile)
  // CHECK: flashattn.program
  flashattn.program (%b, %h, %t) in %space1 {
    // CHECK: %[[ADDED:.*]] = flashattn.load_added %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] parts 2 : memref<2x4x?x64xf32> -> vector<64x64xf32>
    %added = flashattn.load_added %o[%b, %h, %t, %c0] parts 2 adjacent 4 : memref<2x4x?x64xf32> -> vector<64x64xf32>
    // CHECK: flashattn.add_tile %[[ADDED]] to %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] parts 1 adjacent 2 : vector<64x64xf32>, memref<2x4x?x64xf32>
    flashattn.add_tile %added to %o[%b, %h, %t, %c0] parts 1 adjacent 2 : vector<64x64xf32>, memref<2x4x?x64xf32>
  }
  // CHECK: flashattn.on_threads %{{.*}} schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
  flashattn.on_threads %n
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
  }
  %space2 = flashattn.dense_space(%n) axes(query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(query_tile)
  // CHECK: flashattn.program (%{{.*}}) in %[[SPACE]] {
  flashattn.program (%t) in %space2 {
  }
  %space3 = flashattn.dense_space(%n) axes(query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(query_tile)
  // CHECK: flashattn.program (%{{.*}}) in %[[SPACE]] pdl_primary {
  flashattn.program (%t) in %space3 pdl_primary {
  }
  %space4 = flashattn.dense_space(%n) axes(query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(query_tile)
  // CHECK: flashattn.program (%{{.*}}) in %[[SPACE]] schedule(<{{.*}}>) pdl_secondary pdl_primary {
  flashattn.program (%t) in %space4
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) pdl_secondary pdl_primary {
  }
  %space5 = flashattn.dense_space(%n) axes(query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(query_tile)
  // CHECK: flashattn.program (%{{.*}}) in %[[SPACE]] pdl_primary unused_row_half {
  flashattn.program (%t) in %space5 pdl_primary unused_row_half {
  }
  // CHECK: flashattn.on_threads %{{.*}} schedule(<{{.*}}>) unused_row_half {
  flashattn.on_threads %n
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) unused_row_half {
  }
  %space6 = flashattn.dense_space(%n) axes(query_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}) axes(query_tile)
  // CHECK: flashattn.program (%{{.*}}) in %[[SPACE]] pdl_secondary {
  flashattn.program (%t) in %space6 pdl_secondary {
  }
  return
}

// Programs of keys, whose loops go over tiles of queries in rounds, one for each query head, and add to
// what other programs add to.
// CHECK-LABEL: func @gradients
// CHECK-SAME: %[[SUMS:[a-z0-9]+]]: memref<2x8x?x128xf32>, %{{.*}}: memref<2x8x?xi32>, %[[LIST:[a-z0-9]+]]: memref<2x?xi32>, %[[N:[a-z0-9]+]]: index, %[[C:[a-z0-9]+]]: i1, %[[X:[a-z0-9]+]]: vector<64x128xf32>
func.func @gradients(%sums: memref<2x8x?x128xf32>, %order: memref<2x8x?xi32>, %list: memref<2x?xi32>, %n: index, %c: i1, %x: vector<64x128xf32>, %counter: memref<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %space = flashattn.dense_space(%n, %n, %n) axes(batch, head, key_tile)
  // CHECK: %[[SPACE:.*]] = flashattn.dense_space(%[[N]], %[[N]], %[[N]]) axes(batch, head, key_tile)
  // CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %{{.*}}) in %[[SPACE]] {
  flashattn.program (%b, %h, %t) in %space {
    // CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]], %[[R:.*]]) in [(%{{.*}}, %{{.*}}, %[[N]], %[[N]])] rounds %[[N]] {
    flashattn.tile_loop (%i, %j, %r) in [(%c0, %c0, %n, %n)] rounds %n {
      // CHECK: flashattn.stage{{$}}
      flashattn.stage
      // CHECK: flashattn.stage lag 1{{$}}
      flashattn.stage lag 1
      // CHECK: flashattn.stage lag 1 behind 1{{$}}
      flashattn.stage lag 1 behind 1
      // CHECK: flashattn.add_tile %[[X]] to %[[SUMS]][%[[B]], %[[R]], %[[J]], %{{.*}}] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.add_tile %x to %sums[%b, %r, %j, %c0] parts 2 : vector<64x128xf32>, memref<2x8x?x128xf32>
      // CHECK: flashattn.add_tile %[[X]] to %[[SUMS]][%[[B]], %[[R]], %[[J]], %{{.*}}] parts 2 order %{{.*}} : memref<2x8x?xi32> turn %{{.*}} : vector<64x128xf32>, memref<2x8x?x128xf32>
      flashattn.add_tile %x to %sums[%b, %r, %j, %c0] parts 2 order %order : memref<2x8x?xi32> turn %t
          : vector<64x128xf32>, memref<2x8x?x128xf32>
    }
    // CHECK: flashattn.signal_added %{{.*}}[%[[B]], %[[H]]] : memref<?x?xi32>
    flashattn.signal_added %counter[%b, %h] : memref<?x?xi32>
    // CHECK: flashattn.await_added %{{.*}}[%[[B]], %[[H]]] of %[[N]] : memref<?x?xi32>
    flashattn.await_added %counter[%b, %h] of %n : memref<?x?xi32>
    // CHECK: flashattn.load_added %[[SUMS]][%[[B]], %[[H]], %{{.*}}, %{{.*}}] parts 2 : memref<2x8x?x128xf32> -> vector<64x128xf32>
    %dq = flashattn.load_added %sums[%b, %h, %t, %c0] parts 2 : memref<2x8x?x128xf32> -> vector<64x128xf32>
    // CHECK: flashattn.tile_loop (%{{.*}}, %{{.*}}, %{{.*}}) in [(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})] rounds %[[N]] list(%[[LIST]][%[[B]]] : memref<2x?xi32>) when %[[C]] iter_args(%{{.*}} = %{{.*}}) -> vector<64x128xf32> {
    %s = flashattn.tile_loop (%i, %j, %r) in [(%c0, %c0, %n, %n)] rounds %n list(%list[%b] : memref<2x?xi32>) when %c
        iter_args(%a = %dq) -> (vector<64x128xf32>) {
      flashattn.tile_yield %a : vector<64x128xf32>
    }
  }
  return
}

// Several ranges of rows as one sequence.
// CHECK-LABEL: func @compact_rows
// CHECK: %[[ROWS:.*]] = flashattn.compact_rows from %[[A:.*]] below %[[B:.*]] starts(%[[A]], %[[B]]) skips(%[[B]], %[[A]]) lower_bounds [0, 0]
// CHECK: flashattn.load_tile %{{.*}}[%{{.*}}, %{{.*}}] dims [0, 1] rows %[[ROWS]] in_bounds [false, true] : memref<?x64xf16> -> vector<48x64xf16>
func.func @compact_rows(%k: memref<?x64xf16>, %a: index, %b: index) -> vector<48x64xf16> {
  %rows = flashattn.compact_rows from %a below %b starts(%a, %b) skips(%b, %a) lower_bounds [0, 0]
  %t = flashattn.load_tile %k[%a, %b] dims [0, 1] rows %rows in_bounds [false, true]
      : memref<?x64xf16> -> vector<48x64xf16>
  return %t : vector<48x64xf16>
}
