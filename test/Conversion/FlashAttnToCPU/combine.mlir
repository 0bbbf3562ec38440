// RUN: flash-opt %s -split-input-file -convert-flashattn-kernels-to-cpu -canonicalize | FileCheck %s

// CHECK-LABEL: func @rows
// CHECK-SAME: %[[OP:[a-z0-9]+]]: memref<?x?x?x?x64xf32>, %[[LP:[a-z0-9]+]]: memref<?x?x?x?xf32>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space{{.*}} axes(batch, head)
// CHECK: flashattn.program (%[[B:[a-z0-9]+]], %[[H:[a-z0-9]+]]) in %[[SPACE]]
// CHECK: scf.for %[[N:[a-z0-9]+]] =
// CHECK: %[[STATE:.*]]:3 = scf.for %[[S:[a-z0-9]+]] = {{.*}} step %c1 iter_args(%[[MAX:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}}) -> (f32, f32, vector<64xf32>)
// CHECK: %[[LOG:.*]] = memref.load %[[LP]][%[[S]], %[[B]], %[[H]], %[[N]]]
// CHECK: vector.load %[[OP]][%[[S]], %[[B]], %[[H]], %[[N]], %c0]
// CHECK: %[[NEW:.*]] = arith.maxnumf %[[MAX]], %[[LOG]]
// A6: a row that has seen no key in any part.
// CHECK: %[[UNSEEN:.*]] = arith.cmpf oeq, %[[NEW]], %{{.*}}
// CHECK: arith.select %[[UNSEEN]], %{{.*}}, %[[NEW]]
// CHECK-COUNT-2: math.exp2
// CHECK: vector.store %{{.*}}, %[[O]][%[[B]], %[[H]], %[[N]], %c0] : memref<?x?x?x64xf16>, vector<64xf16>
// CHECK: math.log2 %[[STATE]]#1
// CHECK: memref.store %{{.*}}, %[[LSE]][%[[B]], %[[H]], %[[N]]]
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
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[SINK]], %{{.*}} = %[[WEIGHT]],
// CHECK: vector.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %[[H]], %c0]
func.func @sink(%op: memref<?x2x8x1x40xf32>, %lp: memref<?x2x8x1xf32>, %s: memref<8xf32>, %o: memref<2x1x8x40xf32>) {
  flashattn.combine layout(bshd) ins(%op, %lp : memref<?x2x8x1x40xf32>, memref<?x2x8x1xf32>) sink_logits(%s : memref<8xf32>) outs(%o : memref<2x1x8x40xf32>)
  return
}
