// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops -flashattn-expand-rescale -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops -flashattn-expand-rescale | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// With growth each of the 4 lanes of a row has a maximum of its own, and the warp asks whether any has
// outgrown what the exponents are taken against.
// READS-BACK-LABEL: func @growth
// CHECK-LABEL: func @growth
// CHECK-SAME: %[[S:.*]]: vector<64x32xf32>, %[[M:.*]]: vector<64xf32>, %[[L:.*]]: vector<64x4xf32>, %[[O:.*]]: vector<64x64xf32>
// CHECK: %[[LANES:.*]] = vector.shape_cast %[[S]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK: %[[LOWEST:.*]] = arith.constant dense<0xFF800000> : vector<64x4xf32>
// CHECK: %[[LANEMAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANES]], %[[LOWEST]] [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK: %[[GROWTH:.*]] = arith.constant dense<5.000000e+00> : vector<64xf32>
// CHECK: %[[LIMIT:.*]] = arith.addf %[[M]], %[[GROWTH]]
// CHECK: %[[LIMIT1:.*]] = vector.shape_cast %[[LIMIT]] : vector<64xf32> to vector<64x1xf32>
// CHECK: %[[LIMIT4:.*]] = vector.broadcast %[[LIMIT1]] : vector<64x1xf32> to vector<64x4xf32>
// CHECK: %[[GROWN:.*]] = arith.cmpf ogt, %[[LANEMAX]], %[[LIMIT4]]
// CHECK: %[[ANY:.*]] = flashattn.any_row %[[GROWN]] : vector<64x4xi1>
// CHECK: %[[MAX:.*]] = scf.if %[[ANY]] -> (vector<64xf32>) {
// CHECK:   %[[NEWMAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANEMAX]], %[[M]] [1] : vector<64x4xf32> to vector<64xf32>
// CHECK:   scf.yield %[[NEWMAX]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[M]]
// CHECK-NEXT: }
// The factor, and what it multiplies, in the branch.
// CHECK-NEXT: %[[RESCALED:.*]]:2 = scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>) {
// CHECK:   %[[DIFFERENCE:.*]] = arith.subf %[[M]], %[[MAX]]
// CHECK:   %[[C:.*]] = arith.constant dense<1.250000e-01> : vector<64xf32>
// CHECK:   %[[EXPONENT:.*]] = arith.mulf %[[DIFFERENCE]], %[[C]]
// CHECK:   %[[FACTOR:.*]] = math.exp2 %[[EXPONENT]] : vector<64xf32>
// CHECK:   %[[FACTOR1:.*]] = vector.shape_cast %[[FACTOR]] : vector<64xf32> to vector<64x1xf32>
// CHECK:   %[[FACTOR4:.*]] = vector.broadcast %[[FACTOR1]] : vector<64x1xf32> to vector<64x4xf32>
// CHECK:   %[[L2:.*]] = arith.mulf %[[L]], %[[FACTOR4]]
// CHECK:   %[[FACTOR64:.*]] = vector.broadcast %[[FACTOR1]] : vector<64x1xf32> to vector<64x64xf32>
// CHECK:   %[[O2:.*]] = arith.mulf %[[O]], %[[FACTOR64]]
// CHECK:   scf.yield %[[L2]], %[[O2]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[L]], %[[O]]
// CHECK-NEXT: }
// CHECK-NEXT: return %[[MAX]], %[[RESCALED]]#0, %[[RESCALED]]#1
func.func @growth(%s: vector<64x32xf32>, %m: vector<64xf32>, %l: vector<64x4xf32>, %o: vector<64x64xf32>) -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
  %growth = arith.constant 5.0 : f32
  %factor = arith.constant 0.125 : f32
  %max, %moved = flashattn.row_max %s, %m growth(%growth) lanes 4 : vector<64x32xf32>, vector<64xf32>
  %r:2 = flashattn.rescale %l, %o from %m to %max factor(%factor) if %moved : vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
  return %max, %r#0, %r#1 : vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
}

// -----

// Without it the maximum is the largest, has always moved, and nothing branches.
// CHECK-LABEL: func @largest
// CHECK-SAME: %[[S:.*]]: vector<64x32xf32>, %[[M:.*]]: vector<64xf32>, %[[L:.*]]: vector<64xf32>, %[[O:.*]]: vector<64x64xf32>
// CHECK: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]], %[[M]] [1] : vector<64x32xf32> to vector<64xf32>
// CHECK-NOT: scf.if
// CHECK: %[[DIFFERENCE:.*]] = arith.subf %[[M]], %[[MAX]]
// CHECK: %[[FACTOR:.*]] = math.exp2 %{{.*}} : vector<64xf32>
// CHECK: %[[L2:.*]] = arith.mulf %[[L]], %[[FACTOR]] : vector<64xf32>
// CHECK: %[[O2:.*]] = arith.mulf %[[O]], %{{.*}} : vector<64x64xf32>
// CHECK-NOT: scf.if
// CHECK: return %[[MAX]], %[[L2]], %[[O2]]
func.func @largest(%s: vector<64x32xf32>, %m: vector<64xf32>, %l: vector<64xf32>, %o: vector<64x64xf32>) -> (vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
  %factor = arith.constant 0.125 : f32
  %max, %moved = flashattn.row_max %s, %m : vector<64x32xf32>, vector<64xf32>
  %r:2 = flashattn.rescale %l, %o from %m to %max factor(%factor) if %moved : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
  return %max, %r#0, %r#1 : vector<64xf32>, vector<64xf32>, vector<64x64xf32>
}

// -----

// Whoever says that a base has moved: known, or not.
// CHECK-LABEL: func @moved
// CHECK-SAME: %[[L:[a-z0-9]+]]: vector<64x4xf32>, %[[SOME:[a-z0-9]+]]: i1
// CHECK: %[[ALWAYS:.*]] = arith.mulf %[[L]],
// CHECK: %[[MAYBE:.*]] = scf.if %[[SOME]] -> (vector<64x4xf32>)
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[L]]
// CHECK: return %[[ALWAYS]], %[[MAYBE]]
func.func @moved(%m: vector<64xf32>, %n: vector<64xf32>, %l: vector<64x4xf32>, %some: i1) -> (vector<64x4xf32>, vector<64x4xf32>) {
  %factor = arith.constant 2.0 : f32
  %yes = arith.constant true
  %a = flashattn.rescale %l from %m to %n factor(%factor) if %yes : vector<64xf32>, vector<64x4xf32>
  %b = flashattn.rescale %l from %m to %n factor(%factor) if %some : vector<64xf32>, vector<64x4xf32>
  return %a, %b : vector<64x4xf32>, vector<64x4xf32>
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// READS-BACK-LABEL: func @attention
// CHECK-LABEL: func @attention
// The first tile has nothing to rescale and no branch.
// CHECK-NOT: flashattn.any_row
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:   %[[S:.*]] = vector.contract {{.*}} into vector<64x32xf32>
// CHECK:   %[[O2:.*]] = vector.contract {{.*}}, %[[O]] : {{.*}} into vector<64x64xf32>
// CHECK:   vector.shape_cast %[[S]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// 2^8: scores may grow by 8 / c, c = 0.125 log2(e).
// CHECK:   %[[GROWTH:.*]] = arith.constant dense<44.3614197> : vector<64xf32>
// CHECK:   arith.addf %[[M]], %[[GROWTH]]
// CHECK:   %[[ANY:.*]] = flashattn.any_row
// CHECK:   %[[MAX:.*]] = scf.if %[[ANY]] -> (vector<64xf32>)

// The weights and their sum wait for no factor. Only the exponent of the factor is of the
// difference of two maxima.
// CHECK-NOT: arith.subf
// CHECK:   %[[P:.*]] = math.exp2 {{.*}} : vector<64x32xf32>
// CHECK-NOT: math.exp2
// CHECK-NOT: arith.mulf
// CHECK:   %[[SUM:.*]] = vector.multi_reduction <add>, %{{.*}}, %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK:   %[[RESCALED:.*]]:2 = scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>)
// CHECK:     arith.subf %[[M]],
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
// CHECK-NOT: flashattn.any_row
// CHECK: return
func.func @attention(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 2, section = 1>>

// Less growth under a scale of 0.5: 2 / (0.5 log2(e)).
// READS-BACK-LABEL: func @scale
// CHECK-LABEL: func @scale
// CHECK: arith.constant dense<2.77258873> : vector<64xf32>
// CHECK: flashattn.any_row
func.func @scale(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention scale(0.5) schedule(#roles)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>

// With 0 wherever a maximum has grown at all: the limit is the maximum itself.
// READS-BACK-LABEL: func @always
// CHECK-LABEL: func @always
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<64xf32>
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:   %[[LIMIT:.*]] = arith.addf %[[M]], %[[ZERO]] : vector<64xf32>
// CHECK:   flashattn.any_row
func.func @always(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#roles)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#plain = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16>

// A schedule without roles gives no growth.
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
