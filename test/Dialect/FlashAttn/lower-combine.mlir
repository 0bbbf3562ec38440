// RUN: flash-opt %s -split-input-file -flashattn-lower-combine -canonicalize | FileCheck %s --check-prefixes=CHECK,LOOPS
// RUN: flash-opt %s -split-input-file -flashattn-lower-combine=gpu -canonicalize | FileCheck %s --check-prefixes=CHECK,GPU

// CHECK-LABEL: func @rows
// CHECK-SAME: %[[OP:[a-z0-9]+]]: memref<?x?x?x?x64xf32>, %[[LP:[a-z0-9]+]]: memref<?x?x?x?xf32>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>
// LOOPS: scf.for %[[B:[a-z0-9]+]] =
// LOOPS: scf.for %[[H:[a-z0-9]+]] =
// LOOPS: scf.for %[[N:[a-z0-9]+]] =
// LOOPS: %[[STATE:.*]]:3 = scf.for %[[S:[a-z0-9]+]] = {{.*}} step %c1 iter_args(%[[MAX:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}}) -> (f32, f32, vector<64xf32>)
// LOOPS: %[[LOG:.*]] = memref.load %[[LP]][%[[S]], %[[B]], %[[H]], %[[N]]]
// LOOPS: vector.load %[[OP]][%[[S]], %[[B]], %[[H]], %[[N]], %c0]
// LOOPS: %[[NEW:.*]] = arith.maxnumf %[[MAX]], %[[LOG]]
// A6: a row that has seen no key in any part.
// LOOPS: %[[UNSEEN:.*]] = arith.cmpf oeq, %[[NEW]], %{{.*}}
// LOOPS: arith.select %[[UNSEEN]], %{{.*}}, %[[NEW]]
// LOOPS-COUNT-2: math.exp2
// LOOPS: vector.store %{{.*}}, %[[O]][%[[B]], %[[H]], %[[N]], %c0] : memref<?x?x?x64xf16>, vector<64xf16>
// LOOPS: math.log2 %[[STATE]]#1
// LOOPS: memref.store %{{.*}}, %[[LSE]][%[[B]], %[[H]], %[[N]]]

// A block a row. A group of 16 threads, each with 4 columns, has every fourth part, eight at once;
// past the last part the weight is 0.
// GPU: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c64, %{{.*}} = %c1, %{{.*}} = %c1) workgroup(%[[OUTS:[a-z0-9]+]] : memref<4x64xf32, #gpu.address_space<workgroup>>, %[[SCALARS:[a-z0-9]+]] : memref<4x2xf32, #gpu.address_space<workgroup>>)
// GPU: %[[FIRST:.*]] = arith.cmpi eq, %[[T]], %c0
// GPU: %[[GROUP:.*]] = arith.divui %[[T]], %c16
// GPU: %[[LANE:.*]] = arith.remui %[[T]], %c16
// GPU: %[[COLUMN:.*]] = arith.muli %[[LANE]], %c4
// GPU: scf.for %[[PART:[a-z0-9]+]] = %[[GROUP]] {{.*}} step %c32 iter_args
// GPU: memref.load %[[LP]][%[[PART]],
// GPU-NEXT: vector.load %[[OP]][%[[PART]], %{{.*}}, %{{.*}}, %{{.*}}, %[[COLUMN]]] {alignment = 16 : i64} : memref<?x?x?x?x64xf32>, vector<4xf32>
// GPU-NEXT: arith.addi %[[PART]], %c4
// GPU-COUNT-7: arith.minui
// GPU-COUNT-4: memref.store %{{.*}}, %[[OUTS]][%[[GROUP]], %{{.*}}]
// GPU-COUNT-2: memref.store %{{.*}}, %[[SCALARS]][%[[GROUP]], %{{.*}}]
// GPU: gpu.barrier
// What the groups have left, a column a thread.
// GPU: memref.load %[[SCALARS]][%c3, %c0]
// GPU: memref.load %[[SCALARS]][%c3, %c1]
// GPU: memref.load %[[OUTS]][%c3, %[[T]]]
// GPU: memref.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %{{.*}}, %[[T]]]
// One thread has the log-sum-exp.
// GPU: scf.if %[[FIRST]]
// GPU: memref.store %{{.*}}, %[[LSE]]
// GPU: } {flashattn.merges_parts}
func.func @rows(%op: memref<?x?x?x?x64xf32>, %lp: memref<?x?x?x?xf32>, %o: memref<?x?x?x64xf16>, %l: memref<?x?x?xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x?x?x?x64xf32>, memref<?x?x?x?xf32>) outs(%o, %l : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

// The sink's logit is where the maximum begins, its weight 1 where the sum does.
// CHECK-LABEL: func @sink
// CHECK-SAME: %[[S:[a-z0-9]+]]: memref<8xf32>, %[[O:[a-z0-9]+]]: memref<2x1x8x40xf32>
// CHECK: %[[SINK:.*]] = memref.load %[[S]][%[[H:[a-z0-9]+]]]
// CHECK: %[[WEIGHT:.*]] = arith.select
// LOOPS: scf.for {{.*}} iter_args(%{{.*}} = %[[SINK]], %{{.*}} = %[[WEIGHT]],
// On a GPU it joins behind the groups.
// GPU: arith.maxnumf %[[SINK]],
// GPU: arith.mulf %[[WEIGHT]],
// LOOPS: vector.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %[[H]], %c0]
// GPU: memref.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %[[H]], %{{.*}}]
func.func @sink(%op: memref<?x2x8x1x40xf32>, %lp: memref<?x2x8x1xf32>, %s: memref<8xf32>, %o: memref<2x1x8x40xf32>) {
  flashattn.combine layout(bshd) ins(%op, %lp : memref<?x2x8x1x40xf32>, memref<?x2x8x1xf32>) sink_logits(%s : memref<8xf32>) outs(%o : memref<2x1x8x40xf32>)
  return
}

// -----

// Rows that do not begin at 16 bytes: a thread a column of each group, of which the first writes.
// CHECK-LABEL: func @odd
// GPU: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c120,
// GPU: scf.for
// GPU-NOT: vector.load
// GPU: gpu.barrier
// GPU: %[[HAS:.*]] = arith.cmpi ult, %[[T]], %c30
// GPU: scf.if %[[HAS]]
// GPU: memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[T]]] : memref<1x8x1x30xf32>
func.func @odd(%op: memref<?x1x8x1x30xf32>, %lp: memref<?x1x8x1xf32>, %o: memref<1x8x1x30xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x1x8x1x30xf32>, memref<?x1x8x1xf32>) outs(%o : memref<1x8x1x30xf32>)
  return
}

// -----

// Too wide for more than one group in a block.
// CHECK-LABEL: func @wide
// GPU: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c1024,
// GPU-NOT: gpu.barrier
// GPU: scf.for %[[COLUMN:[a-z0-9]+]] = %[[T]] to %c2048 step %c1024
// GPU: scf.for %{{.*}} = %c0 to %{{.*}} step %c8 iter_args
// GPU: memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[COLUMN]]] : memref<1x8x1x2048xf32>
func.func @wide(%op: memref<?x1x8x1x2048xf32>, %lp: memref<?x1x8x1xf32>, %o: memref<1x8x1x2048xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x1x8x1x2048xf32>, memref<?x1x8x1xf32>) outs(%o : memref<1x8x1x2048xf32>)
  return
}
