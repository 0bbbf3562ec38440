// Rules A7 and B7: products that sum over keys, or over queries, read what the mask shows to nobody as zeros. Where that is
// nothing, whatever the lengths, no load has ends of its own.
//
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_90a -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile -canonicalize -cse | FileCheck %s

!d = memref<?x?x?x64xf16>

// The last query stands at the last key and sees all of them.
// CHECK-LABEL: @causal
// CHECK: flashattn.program
// CHECK-NOT: load_tile {{.*}}{{from|below}} %
// CHECK: return
func.func @causal(%q: !d, %k: !d, %v: !d, %o: !d) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !d, !d, !d) outs(%o : !d)
  return
}

// -----

!s = memref<2x4x300x64xf16>

// As many queries as keys.
// CHECK-LABEL: @window_of_all
// CHECK: flashattn.program
// CHECK-NOT: load_tile {{.*}}{{from|below}} %
// CHECK: return
func.func @window_of_all(%q: !s, %k: !s, %v: !s, %o: !s) {
  flashattn.attention mask(#flashattn.window<left = 9, right = 0>) ins(%q, %k, %v : !s, !s, !s) outs(%o : !s)
  return
}

// -----

!d = memref<?x?x?x64xf16>

// Without keys of its own a batch's end is that of the memref.
// CHECK-LABEL: @window
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %[[K:.*]]: memref<?x?x?x64xf16>, %[[V:.*]]: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>)
// CHECK: %[[FIRST:.*]] = arith.maxsi
// CHECK: flashattn.program
// CHECK-NOT: {{dense|compact}}_rows from
// CHECK: %[[ROWS:.*]] = flashattn.{{dense|compact}}_rows from %[[FIRST]]
// CHECK: flashattn.load_tile %[[K]]
// CHECK: flashattn.load_tile %[[V]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds
func.func @window(%q: !d, %k: !d, %v: !d, %o: !d) {
  flashattn.attention mask(#flashattn.window<left = 9, right = 0>) ins(%q, %k, %v : !d, !d, !d) outs(%o : !d)
  return
}

// -----

!d = memref<?x?x?x64xf16>

// CHECK-LABEL: @sinks
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %[[K:.*]]: memref<?x?x?x64xf16>, %[[V:.*]]: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>)
// CHECK: %[[ROWS:.*]] = flashattn.{{dense|compact}}_rows below %{{.*}}
// CHECK: flashattn.load_tile %[[V]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds
func.func @sinks(%q: !d, %k: !d, %v: !d, %o: !d) {
  flashattn.attention mask(#flashattn.sink<20>) ins(%q, %k, %v : !d, !d, !d) outs(%o : !d)
  return
}

// -----

!d = memref<?x?x?x64xf16>

// With kv_len both ends are those of each batch.
// CHECK-LABEL: @lengths
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %[[K:.*]]: memref<?x?x?x64xf16>, %[[V:.*]]: memref<?x?x?x64xf16>,
// CHECK: flashattn.program
// CHECK: memref.load %{{.*}} : memref<?xi32>
// CHECK: %[[ROWS:.*]] = flashattn.{{dense|compact}}_rows from %{{.*}} below %{{.*}}
// CHECK: flashattn.load_tile %[[V]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds
func.func @lengths(%q: !d, %k: !d, %v: !d, %n: memref<?xi32>, %o: !d) {
  flashattn.attention mask(#flashattn.window<left = 9, right = 0>) ins(%q, %k, %v : !d, !d, !d) kv_len(%n : memref<?xi32>) outs(%o : !d)
  return
}

// -----

!d = memref<?x?x?x64xf16>
!l = memref<?x?x?xf32>

// Queries before the first key see none: what they hold is in no sum over queries, and their log-sum-exp is none.
// CHECK-LABEL: @gradients
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?xf32>, %[[DO:[^:]*]]: memref<?x?x?x64xf16>, %{{.*}}: memref<?x?x?x64xf16>,
// CHECK: flashattn.program
// CHECK: flashattn.program
// CHECK: %[[ROWS:.*]] = flashattn.dense_rows from %{{.*}}
// CHECK: flashattn.load_tile %[[Q]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds
// CHECK: flashattn.load_tile %[[DO]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds
func.func @gradients(%q: !d, %k: !d, %v: !d, %o: !d, %lse: !l, %d_o: !d, %dq: !d, %dk: !d, %dv: !d) {
  flashattn.attention_backward mask(#flashattn.causal) ins(%q, %k, %v, %o, %lse, %d_o : !d, !d, !d, !d, !l, !d) outs(%dq, %dk, %dv : !d, !d, !d)
  return
}
