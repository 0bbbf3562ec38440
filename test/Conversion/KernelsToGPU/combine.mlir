// RUN: flash-opt %s -split-input-file -convert-flashattn-kernels-to-gpu -canonicalize | FileCheck %s

// CHECK-LABEL: func @rows
// CHECK-SAME: %[[OP:[a-z0-9]+]]: memref<?x?x?x?x64xf32>, %[[LP:[a-z0-9]+]]: memref<?x?x?x?xf32>, %[[O:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LSE:[a-z0-9]+]]: memref<?x?x?xf32>

// A block a row. A group of 16 threads, each with 4 columns, has every fourth part, eight at once;
// past the last part the weight is 0.
// CHECK: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c64, %{{.*}} = %c1, %{{.*}} = %c1) workgroup(%[[OUTS:[a-z0-9]+]] : memref<4x64xf32, #gpu.address_space<workgroup>>, %[[SCALARS:[a-z0-9]+]] : memref<4x2xf32, #gpu.address_space<workgroup>>)
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[T]], %c0
// CHECK: %[[GROUP:.*]] = arith.divui %[[T]], %c16
// CHECK: %[[LANE:.*]] = arith.remui %[[T]], %c16
// CHECK: %[[COLUMN:.*]] = arith.muli %[[LANE]], %c4
// The parts are there when the kernel before it has ended.
// CHECK-NOT: memref.load
// CHECK: flashattn.wait_prerequisite_grids
// CHECK: scf.for %[[PART:[a-z0-9]+]] = %[[GROUP]] {{.*}} step %c32 iter_args
// A part without keys adds nothing, whatever its output holds.
// CHECK: %[[LOG:.*]] = memref.load %[[LP]][%[[PART]],
// CHECK-NEXT: %[[OUT:.*]] = vector.load %[[OP]][%[[PART]], %{{.*}}, %{{.*}}, %{{.*}}, %[[COLUMN]]] {alignment = 16 : i64} : memref<?x?x?x?x64xf32>, vector<4xf32>
// CHECK-NEXT: %[[NONE:.*]] = arith.cmpf oeq, %[[LOG]], %{{.*}} : f32
// CHECK-NEXT: arith.select %[[NONE]], %{{.*}}, %[[OUT]] : vector<4xf32>
// CHECK-NEXT: arith.addi %[[PART]], %c4
// CHECK-COUNT-7: arith.minui
// CHECK-COUNT-4: memref.store %{{.*}}, %[[OUTS]][%[[GROUP]], %{{.*}}]
// CHECK-COUNT-2: memref.store %{{.*}}, %[[SCALARS]][%[[GROUP]], %{{.*}}]
// CHECK: gpu.barrier
// What the groups have left, a column a thread.
// CHECK: memref.load %[[SCALARS]][%c3, %c0]
// CHECK: memref.load %[[SCALARS]][%c3, %c1]
// CHECK: memref.load %[[OUTS]][%c3, %[[T]]]
// CHECK: memref.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %{{.*}}, %[[T]]]
// One thread has the log-sum-exp.
// CHECK: scf.if %[[FIRST]]
// CHECK: memref.store %{{.*}}, %[[LSE]]
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
// On a GPU it joins behind the groups.
// CHECK: arith.maxnumf %[[SINK]],
// CHECK: arith.mulf %[[WEIGHT]],
// CHECK: memref.store %{{.*}}, %[[O]][%{{.*}}, %{{.*}}, %[[H]], %{{.*}}]
func.func @sink(%op: memref<?x2x8x1x40xf32>, %lp: memref<?x2x8x1xf32>, %s: memref<8xf32>, %o: memref<2x1x8x40xf32>) {
  flashattn.combine layout(bshd) ins(%op, %lp : memref<?x2x8x1x40xf32>, memref<?x2x8x1xf32>) sink_logits(%s : memref<8xf32>) outs(%o : memref<2x1x8x40xf32>)
  return
}

// -----

// Rows that do not begin at 16 bytes: a thread a column of each group, of which the first writes.
// CHECK-LABEL: func @odd
// CHECK: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c120,
// CHECK: scf.for
// CHECK-NOT: vector.load
// CHECK: gpu.barrier
// CHECK: %[[HAS:.*]] = arith.cmpi ult, %[[T]], %c30
// CHECK: scf.if %[[HAS]]
// CHECK: memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[T]]] : memref<1x8x1x30xf32>
func.func @odd(%op: memref<?x1x8x1x30xf32>, %lp: memref<?x1x8x1xf32>, %o: memref<1x8x1x30xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x1x8x1x30xf32>, memref<?x1x8x1xf32>) outs(%o : memref<1x8x1x30xf32>)
  return
}

// -----

// Too wide for more than one group in a block.
// CHECK-LABEL: func @wide
// CHECK: gpu.launch {{.*}} threads(%[[T:[a-z0-9_]+]], %{{.*}}, %{{.*}}) in (%{{.*}} = %c1024,
// CHECK-NOT: gpu.barrier
// CHECK: flashattn.wait_prerequisite_grids
// CHECK-NEXT: scf.for %[[COLUMN:[a-z0-9]+]] = %[[T]] to %c2048 step %c1024
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c8 iter_args
// CHECK: memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}, %[[COLUMN]]] : memref<1x8x1x2048xf32>
func.func @wide(%op: memref<?x1x8x1x2048xf32>, %lp: memref<?x1x8x1xf32>, %o: memref<1x8x1x2048xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x1x8x1x2048xf32>, memref<?x1x8x1xf32>) outs(%o : memref<1x8x1x2048xf32>)
  return
}

// -----

// The rest of a log-sum-exp joins the base only beside the largest log-sum-exp. Each group passes it on through shared
// memory, as a third number.
// CHECK-LABEL: func @rests
// CHECK-SAME: memref<?x1x8x1x64xf32>, %[[LP:[a-z0-9]+]]: memref<?x1x8x1xf32>, %[[LR:[a-z0-9]+]]: memref<?x1x8x1xf32>
// CHECK: gpu.launch {{.*}} %[[SCALARS:[a-z0-9]+]] : memref<4x3xf32, #gpu.address_space<workgroup>>)
// CHECK: scf.for {{.*}} iter_args(%[[MAX:.*]] = %{{.*}}, %[[REST:.*]] = %{{.*}}, %[[SUM:.*]] = %{{.*}}, %{{.*}} = %{{.*}}) -> (f32, f32, f32, vector<4xf32>)
// CHECK: %[[LOG:.*]] = memref.load %[[LP]]
// CHECK: %[[READ:.*]] = memref.load %[[LR]]
// A part without keys has no rest, whatever memory holds.
// CHECK: %[[NONE:.*]] = arith.cmpf oeq, %[[LOG]], %{{.*}} : f32
// CHECK: %[[LOGREST:.*]] = arith.select %[[NONE]], %{{.*}}, %[[READ]] : f32
// CHECK-COUNT-8: arith.maxnumf
// CHECK: %[[ISLARGEST:.*]] = arith.cmpf oeq, %[[MAX]], %[[LARGEST:.*]] : f32
// CHECK-NEXT: arith.select %[[ISLARGEST]], %[[REST]], %{{.*}} : f32
// CHECK: %[[LOGISLARGEST:.*]] = arith.cmpf oeq, %[[LOG]], %[[LARGEST]] : f32
// CHECK-NEXT: arith.select %[[LOGISLARGEST]], %[[LOGREST]], %{{.*}} : f32
// CHECK: %[[DIFFERENCE:.*]] = arith.subf %[[MAX]], %[[BASE:.*]] : f32
// CHECK-NEXT: %[[RESTDIFFERENCE:.*]] = arith.subf %[[REST]], %{{.*}} : f32
// CHECK-NEXT: arith.addf %[[DIFFERENCE]], %[[RESTDIFFERENCE]] : f32
// CHECK-COUNT-3: memref.store %{{.*}}, %[[SCALARS]]
func.func @rests(%op: memref<?x1x8x1x64xf32>, %lp: memref<?x1x8x1xf32>, %lr: memref<?x1x8x1xf32>, %o: memref<1x8x1x64xf32>, %l: memref<1x8x1xf32>) {
  flashattn.combine ins(%op, %lp : memref<?x1x8x1x64xf32>, memref<?x1x8x1xf32>) lse_rests(%lr : memref<?x1x8x1xf32>) outs(%o, %l : memref<1x8x1x64xf32>, memref<1x8x1xf32>)
  return
}
