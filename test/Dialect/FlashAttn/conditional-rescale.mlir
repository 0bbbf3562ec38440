// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-pipeline-keys -flashattn-conditional-rescale -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-conditional-rescale -cse | FileCheck %s --check-prefix=PLAIN
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-pipeline-keys -flashattn-conditional-rescale | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// READS-BACK-LABEL: func @rescale
// CHECK-LABEL: func @rescale
// The first tile has nothing to rescale and no branch.
// CHECK-NOT: flashattn.any_row
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:   %[[S:.*]] = vector.contract {{.*}} into vector<64x32xf32>
// CHECK:   %[[O2:.*]] = vector.contract {{.*}}, %[[O]] : {{.*}} into vector<64x64xf32>

// Each of the 4 lanes of a row has a maximum of its own.
// CHECK:   %[[LANES:.*]] = vector.shape_cast %[[S]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK:   %[[LANEMAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANES]], %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// 2^8: scores may grow by 8 / c, c = 0.125 log2(e).
// CHECK:   %[[GROWTH:.*]] = arith.constant dense<44.3614197> : vector<64xf32>
// CHECK:   %[[LIMIT:.*]] = arith.addf %[[M]], %[[GROWTH]]
// CHECK:   %[[LIMIT1:.*]] = vector.shape_cast %[[LIMIT]] : vector<64xf32> to vector<64x1xf32>
// CHECK:   %[[LIMIT4:.*]] = vector.broadcast %[[LIMIT1]] : vector<64x1xf32> to vector<64x4xf32>
// CHECK:   %[[GROWN:.*]] = arith.cmpf ogt, %[[LANEMAX]], %[[LIMIT4]]
// CHECK:   %[[ANY:.*]] = flashattn.any_row %[[GROWN]] : vector<64x4xi1>
// CHECK:   %[[MAX:.*]] = scf.if %[[ANY]] -> (vector<64xf32>)
// CHECK:     %[[NEWMAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANEMAX]], %[[M]] [1]
// CHECK:     scf.yield %[[NEWMAX]]
// CHECK:   } else {
// CHECK-NEXT: scf.yield %[[M]]
// CHECK-NEXT: }

// The weights and their sum wait for no factor. Only the exponent of the factor is of the
// difference of two maxima.
// CHECK-NOT: arith.subf
// CHECK:   %[[P:.*]] = math.exp2 {{.*}} : vector<64x32xf32>
// CHECK-NOT: math.exp2
// CHECK-NOT: arith.mulf
// CHECK:   %[[SUM:.*]] = vector.multi_reduction <add>, %{{.*}}, %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>

// The factor, and what it multiplies, in the branch.
// CHECK:   %[[RESCALED:.*]]:2 = scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>)
// CHECK:     %[[DIFFERENCE:.*]] = arith.subf %[[M]],
// CHECK:     %[[EXPONENT:.*]] = arith.mulf %[[DIFFERENCE]],
// CHECK:     %[[FACTOR:.*]] = math.exp2 %[[EXPONENT]] : vector<64xf32>
// CHECK:     %[[L2:.*]] = arith.mulf %[[L]], %{{.*}} : vector<64x4xf32>
// CHECK:     %[[O3:.*]] = arith.mulf %[[O2]], %{{.*}} : vector<64x64xf32>
// CHECK:     scf.yield %[[L2]], %[[O3]]
// CHECK:   } else {
// CHECK-NEXT: scf.yield %[[L]], %[[O2]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[L3:.*]] = arith.addf %[[RESCALED]]#0, %[[SUM]]
// CHECK-NEXT: %[[P16:.*]] = arith.truncf %[[P]]
// CHECK-NEXT: scf.yield %[[MAX]], %[[L3]], %[[RESCALED]]#1, %[[P16]]

// The partial loop too: what is masked is -inf and no maximum.
// CHECK: scf.for
// CHECK:   %[[MASKED:.*]] = arith.select {{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK:   vector.shape_cast %[[MASKED]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK:   flashattn.any_row
// CHECK: } {flashattn.partial}
// CHECK-NOT: flashattn.any_row
// CHECK: return

// Key loops that are not pipelined likewise.
// PLAIN-LABEL: func @rescale
// PLAIN: scf.for {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)
// PLAIN: flashattn.any_row
// PLAIN: scf.if
// PLAIN: flashattn.any_row
// PLAIN: } {flashattn.partial}
func.func @rescale(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#less = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 2, section = 1>>

// Less growth under a scale of 0.5: 2 / (0.5 log2(e)).
// READS-BACK-LABEL: func @scale
// CHECK-LABEL: func @scale
// CHECK: arith.constant dense<2.77258873> : vector<64xf32>
// CHECK: flashattn.any_row
// PLAIN-LABEL: func @scale
// PLAIN: arith.constant dense<2.77258873> : vector<64xf32>
func.func @scale(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention scale(0.5) schedule(#less)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#always = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>

// With 0 wherever a maximum has grown at all: the limit is the maximum itself.
// READS-BACK-LABEL: func @always
// CHECK-LABEL: func @always
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<64xf32>
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:   %[[LIMIT:.*]] = arith.addf %[[M]], %[[ZERO]] : vector<64xf32>
// CHECK:   %[[LIMIT1:.*]] = vector.shape_cast %[[LIMIT]]
// CHECK:   %[[LIMIT4:.*]] = vector.broadcast %[[LIMIT1]]
// CHECK:   %[[GROWN:.*]] = arith.cmpf ogt, %{{.*}}, %[[LIMIT4]] : vector<64x4xf32>
// CHECK:   %[[ANY:.*]] = flashattn.any_row %[[GROWN]]
// CHECK:   scf.if %[[ANY]] -> (vector<64xf32>)
// CHECK:   math.exp2 {{.*}} : vector<64x32xf32>
// CHECK:   scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>)
// CHECK:     math.exp2 {{.*}} : vector<64xf32>
// CHECK:     arith.mulf {{.*}} : vector<64x64xf32>
// CHECK: scf.for
// CHECK: flashattn.any_row
// CHECK: } {flashattn.partial}
func.func @always(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#always)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#plain = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16>

// So does a schedule without roles.
// READS-BACK-LABEL: func @no_roles
// CHECK-LABEL: func @no_roles
// CHECK-NOT: flashattn.any_row
// CHECK: return
func.func @no_roles(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#plain)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
