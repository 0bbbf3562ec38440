// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_80 schedule='tile_m = 128, tile_n = 64, warps = 8, stages = 2, lanes = 4, dot_type = f16'" -flashattn-tile -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=cpu -flashattn-tile -canonicalize -cse | FileCheck %s --check-prefix=CPU
// RUN: flash-opt %s -split-input-file -flashattn-select-schedule=chip=sm_80 -flashattn-tile | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// One program per batch, head and query tile; the schedule goes along. Without a mask only the
// last tile can be partial.
// CHECK-LABEL: func @no_mask
// CHECK-SAME: %[[Q:.*]]: memref<?x?x?x64xf16>, %[[K:.*]]: memref<?x?x?x64xf16>, %[[V:.*]]: memref<?x?x?x64xf16>, %[[O:.*]]: memref<?x?x?x64xf16>, %[[LSE:.*]]: memref<?x?x?xf32>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// A4: the key/value head.
// CHECK: %[[HKV:.*]] = arith.divui %[[H]], %{{.*}} : index
// CHECK: %[[ROW:.*]] = arith.muli %[[T]], %c128
// A7: rows past Nq are read as 0.
// CHECK: %[[QT:.*]] = vector.transfer_read %[[Q]][%[[B]], %[[H]], %[[ROW]], %c0], %{{.*}} {in_bounds = [false, true]} : memref<?x?x?x64xf16>, vector<128x64xf16>
// CHECK: %[[FULL:.*]]:3 = scf.for %[[J:.*]] = %c0 to %[[FULLEND:.*]] step %c1 iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[ACC:.*]] = %{{.*}}) -> (vector<128xf32>, vector<128x4xf32>, vector<128x64xf32>)
// CHECK:   vector.transfer_read %[[K]][%[[B]], %[[HKV]], %{{.*}}, %c0], %{{.*}} {in_bounds = [true, true]}
// A1: scores in f32.
// CHECK:   %[[S:.*]] = vector.contract {{.*}} %[[QT]], %{{.*}} : vector<128x64xf16>, vector<64x64xf16> into vector<128x64xf32>
// No mask code in the full loop.
// CHECK-NOT: arith.select %{{.*}} : vector<128x64xi1>
// CHECK:   %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]], %[[M]] [1]
// The factor is folded into the exponent: one FMA, one exp2.
// CHECK:   %[[X:.*]] = math.fma %[[S]], %{{.*}}, %{{.*}} : vector<128x64xf32>
// CHECK:   %[[P:.*]] = math.exp2 %[[X]] : vector<128x64xf32>
// The sum stays in 4 parts until the end.
// CHECK:   vector.shape_cast %[[P]] : vector<128x64xf32> to vector<128x8x4x2xf32>
// CHECK:   vector.multi_reduction <add>, {{.*}} [1, 3] : vector<128x8x4x2xf32> to vector<128x4xf32>
// CHECK:   %[[P16:.*]] = arith.truncf %[[P]]
// CHECK:   vector.contract {{.*}} %[[P16]], %{{.*}} into vector<128x64xf32>
// The partial loop goes on where the full one ends.
// CHECK: scf.for %{{.*}} = %[[FULLEND]] to %{{.*}} iter_args(%{{.*}} = %[[FULL]]#0, %{{.*}} = %[[FULL]]#1, %{{.*}} = %[[FULL]]#2)
// CHECK:   {in_bounds = [false, true]}
// CHECK:   arith.select %{{.*}} : vector<128x64xi1>, vector<128x64xf32>
// A5, A6.
// CHECK: vector.multi_reduction <add>, %{{.*}} [1] : vector<128x4xf32> to vector<128xf32>
// CHECK: vector.transfer_write %{{.*}}, %[[O]][%[[B]], %[[H]], %[[ROW]], %c0] {in_bounds = [false, true]}
// CHECK: math.log2
// CHECK: vector.transfer_write %{{.*}}, %[[LSE]][%[[B]], %[[H]], %[[ROW]]] : vector<128xf32>
// CHECK: flashattn.schedule = #flashattn.schedule<tile_m = 128,

// On the CPU contractions are in f32 and a row has one sum.
// CPU-LABEL: func @no_mask
// CPU: arith.extf %{{.*}} : vector<32x64xf16> to vector<32x64xf32>
// CPU: scf.for {{.*}} -> (vector<32xf32>, vector<32xf32>, vector<32x64xf32>)
// CPU: math.exp2 {{.*}} : vector<32x64xf32>
// CPU: vector.multi_reduction <add>, %{{.*}} [1] : vector<32x64xf32> to vector<32xf32>
// CPU-NOT: arith.truncf
// CPU: vector.contract {{.*}} : vector<32x64xf32>, vector<64x64xf32> into vector<32x64xf32>

// READS-BACK-LABEL: func @no_mask
func.func @no_mask(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}

// -----

// M3: a window has a partial, a full and a partial interval, and nothing else is visited.
// CHECK-LABEL: func @window
// CHECK: scf.for %{{.*}} = %[[BEGIN:.*]] to %[[FULLBEGIN:.*]] step
// CHECK: vector<128x64xi1>
// CHECK: scf.for %{{.*}} = %[[FULLBEGIN]] to %[[FULLEND:.*]] step
// CHECK-NOT: vector<128x64xi1>
// CHECK: scf.for %{{.*}} = %[[FULLEND]] to %{{.*}} step
// CHECK: vector<128x64xi1>
// CHECK-NOT: scf.for
func.func @window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.window<left = 1023, right = 0>)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// Two intervals share one copy of the three loops, in a loop over the intervals.
// CHECK-LABEL: func @sinks_and_window
// CHECK: scf.for %[[I:.*]] = %c0 to %c2 step %c1
// CHECK:   arith.cmpi eq, %[[I]], %c0
// CHECK-COUNT-3: scf.for
// CHECK-NOT: scf.for
func.func @sinks_and_window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// The position of a query: the operand where there is one (A3).
// CHECK-LABEL: func @offset_bshd
// CHECK-SAME: %[[OFFSET:[a-z0-9]+]]: index
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[ROW:.*]] = arith.muli %[[T]]
// CHECK: arith.addi %[[ROW]], %[[OFFSET]]
// CHECK: vector.transfer_read %{{.*}}[%[[B]], %[[ROW]], %[[H]], %c0], %{{.*}} {in_bounds = [false, true], permutation_map = #{{.*}}}
func.func @offset_bshd(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %offset: index) {
  flashattn.attention mask(#flashattn.causal) layout(bshd)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) offset(%offset)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
