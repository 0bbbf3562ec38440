// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops -flashattn-expand-rescale -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops -flashattn-expand-rescale | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// With threshold each of the 4 lanes of a row has a largest score of its own, and the warp asks whether any has
// outgrown what the exponents are taken against, by more than 5 / 0.125.
// READS-BACK-LABEL: func @threshold
// CHECK-LABEL: func @threshold
// CHECK-SAME: %[[S:.*]]: vector<64x32xf32>, %[[M:.*]]: vector<64xf32>, %[[L:.*]]: vector<64x4xf32>, %[[O:.*]]: vector<64x64xf32>
// CHECK: %[[LOWEST:.*]] = arith.constant dense<0xFF800000> : vector<64x4xf32>
// CHECK: %[[LANES:.*]] = vector.shape_cast %[[S]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK: %[[LANEMAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANES]], %[[LOWEST]] [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK: %[[GROWTH:.*]] = arith.constant dense<4.000000e+01> : vector<64xf32>
// CHECK: %[[LIMIT:.*]] = arith.addf %[[M]], %[[GROWTH]]
// CHECK: %[[LIMIT1:.*]] = vector.shape_cast %[[LIMIT]] : vector<64xf32> to vector<64x1xf32>
// CHECK: %[[LIMIT4:.*]] = vector.broadcast %[[LIMIT1]] : vector<64x1xf32> to vector<64x4xf32>
// CHECK: %[[GROWN:.*]] = arith.cmpf ogt, %[[LANEMAX]], %[[LIMIT4]]
// Nor may a base lie so far from 0 that c times it has no room for an exponent, 2^8 / 0.125, as -inf does.
// CHECK: %[[SIZE:.*]] = math.absf %[[M]]
// CHECK: %[[FARTHEST:.*]] = arith.constant dense<2.048000e+03> : vector<64xf32>
// CHECK: %[[FAR:.*]] = arith.cmpf ogt, %[[SIZE]], %[[FARTHEST]]
// CHECK: %[[NEGATED:.*]] = arith.mulf %[[M]], %{{.*}} : vector<64xf32>
// CHECK: %[[FAR1:.*]] = vector.shape_cast %[[FAR]] : vector<64xi1> to vector<64x1xi1>
// CHECK: %[[FAR4:.*]] = vector.broadcast %[[FAR1]] : vector<64x1xi1> to vector<64x4xi1>
// CHECK: %[[EITHER:.*]] = arith.ori %[[GROWN]], %[[FAR4]] : vector<64x4xi1>
// CHECK: %[[ANY:.*]] = flashattn.any_row %[[EITHER]] : vector<64x4xi1>
// CHECK: %[[MOVED:.*]]:4 = scf.if %[[ANY]] -> (vector<64x32xf32>, vector<64xf32>, vector<64xf32>, vector<64xf32>) {
// CHECK:   %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[LANEMAX]], %[[M]] [1] : vector<64x4xf32> to vector<64xf32>
// Such a base is taken off the scores, and no other is: where no row has one, before or now, nothing is.
// CHECK:   %[[OLDSHIFT:.*]] = arith.select %[[FAR]], %{{.*}}, %[[ZERO:.*]] : vector<64xi1>
// CHECK:   %[[OLDREST:.*]] = arith.select %[[FAR]], %[[ZERO]], %[[NEGATED]] : vector<64xi1>
// CHECK:   %[[ISFAR:.*]] = arith.cmpf ogt, %{{.*}}, %[[FARTHEST]]
// CHECK:   %[[FINITE:.*]] = arith.maxnumf %[[MAX]], %{{.*}}
// CHECK:   %[[SHIFT:.*]] = arith.select %[[ISFAR]], %[[FINITE]], %[[ZERO]] : vector<64xi1>
// CHECK:   %[[NEXT:.*]] = arith.mulf %[[MAX]], %{{.*}} : vector<64xf32>
// CHECK:   %[[REST:.*]] = arith.select %[[ISFAR]], %[[ZERO]], %[[NEXT]] : vector<64xi1>
// CHECK:   %[[SEEN:.*]] = arith.cmpf une, %[[M]], %{{.*}} : vector<64xf32>
// CHECK:   %[[WASFAR:.*]] = arith.andi %[[FAR]], %[[SEEN]]
// CHECK:   %[[EITHERFAR:.*]] = arith.ori %[[ISFAR]], %[[WASFAR]]
// CHECK:   %[[ANYFAR:.*]] = flashattn.any_row %[[EITHERFAR]] : vector<64xi1>
// CHECK:   %[[TO:.*]]:3 = scf.if %[[ANYFAR]] -> (vector<64x32xf32>, vector<64xf32>, vector<64xf32>) {
// CHECK:     %[[SHIFTS:.*]] = vector.broadcast %{{.*}} : vector<64x1xf32> to vector<64x32xf32>
// CHECK:     %[[SHIFTED:.*]] = arith.subf %[[S]], %[[SHIFTS]] : vector<64x32xf32>
// CHECK:     %[[SHIFTDIFF:.*]] = arith.subf %[[OLDSHIFT]], %[[SHIFT]] : vector<64xf32>
// CHECK:     %[[RESTDIFF:.*]] = arith.subf %[[REST]], %[[OLDREST]] : vector<64xf32>
// CHECK:     %[[C:.*]] = arith.constant dense<1.250000e-01> : vector<64xf32>
// CHECK:     %[[EXPONENT:.*]] = math.fma %[[SHIFTDIFF]], %[[C]], %[[RESTDIFF]]
// CHECK:     %[[FACTOR:.*]] = math.exp2 %[[EXPONENT]] : vector<64xf32>
// CHECK:     scf.yield %[[SHIFTED]], %[[REST]], %[[FACTOR]]
// CHECK:   } else {
// CHECK:     %[[DIFF:.*]] = arith.subf %[[NEXT]], %[[NEGATED]] : vector<64xf32>
// CHECK:     %[[NEARFACTOR:.*]] = math.exp2 %[[DIFF]] : vector<64xf32>
// CHECK:     scf.yield %[[S]], %[[NEXT]], %[[NEARFACTOR]]
// CHECK:   }
// CHECK:   scf.yield %[[TO]]#0, %[[TO]]#1, %[[MAX]], %[[TO]]#2
// CHECK: } else {
// CHECK:   %[[ONE:.*]] = arith.constant dense<1.000000e+00> : vector<64xf32>
// CHECK:   scf.yield %[[S]], %[[NEGATED]], %[[M]], %[[ONE]]
// CHECK-NEXT: }
// What waits for no sum stands between the branches.
// CHECK: %[[EXPONENTS:.*]] = math.fma %[[MOVED]]#0,
// CHECK: %[[P:.*]] = math.exp2 %[[EXPONENTS]] : vector<64x32xf32>
// CHECK: %[[GROUPED:.*]] = vector.shape_cast %[[P]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK: %[[SUMS:.*]] = vector.multi_reduction <add>, %[[GROUPED]], %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// What the factor multiplies, in the second one.
// CHECK-NEXT: %[[RESCALED:.*]]:2 = scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>) {
// CHECK:   %[[FACTOR1:.*]] = vector.shape_cast %[[MOVED]]#3 : vector<64xf32> to vector<64x1xf32>
// CHECK:   %[[FACTOR4:.*]] = vector.broadcast %[[FACTOR1]] : vector<64x1xf32> to vector<64x4xf32>
// CHECK:   %[[L2:.*]] = arith.mulf %[[L]], %[[FACTOR4]]
// CHECK:   %[[FACTOR64:.*]] = vector.broadcast %[[FACTOR1]] : vector<64x1xf32> to vector<64x64xf32>
// CHECK:   %[[O2:.*]] = arith.mulf %[[O]], %[[FACTOR64]]
// CHECK:   scf.yield %[[L2]], %[[O2]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[L]], %[[O]]
// CHECK-NEXT: }
// CHECK-NEXT: return %[[P]], %[[SUMS]], %[[MOVED]]#2, %[[RESCALED]]#0, %[[RESCALED]]#1
func.func @threshold(%s: vector<64x32xf32>, %m: vector<64xf32>, %l: vector<64x4xf32>, %o: vector<64x64xf32>) -> (vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
  %factor = arith.constant 0.125 : f32
  %p, %sums, %base, %l1, %o1 = flashattn.softmax_step %s from %m factor(%factor) threshold 5.0 threads_per_row 4
      rescale(%l, %o : vector<64x4xf32>, vector<64x64xf32>) : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
  return %p, %sums, %base, %l1, %o1 : vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
}

// -----

// A factor that is not known divides the threshold there.
// READS-BACK-LABEL: func @factor
// CHECK-LABEL: func @factor
// CHECK-SAME: %[[M:[a-z0-9]+]]: vector<64xf32>, %[[C:[a-z0-9]+]]: f32
// CHECK: %[[EIGHT:.*]] = arith.constant 8.000000e+00 : f32
// CHECK: %[[GROWTH:.*]] = arith.divf %[[EIGHT]], %[[C]] : f32
// CHECK: %[[GROWTHS:.*]] = vector.broadcast %[[GROWTH]] : f32 to vector<64xf32>
// CHECK: arith.addf %[[M]], %[[GROWTHS]]
// CHECK: %[[MOST:.*]] = arith.constant 2.560000e+02 : f32
// CHECK: arith.divf %[[MOST]], %[[C]] : f32
// CHECK: flashattn.any_row
// CHECK: %[[FACTORS:.*]] = vector.broadcast %[[C]] : f32 to vector<64x32xf32>
// CHECK: math.fma %{{.*}}, %[[FACTORS]],
func.func @factor(%s: vector<64x32xf32>, %m: vector<64xf32>, %c: f32) -> vector<64xf32> {
  %p, %sums, %base = flashattn.softmax_step %s from %m factor(%c) threshold 8.0 threads_per_row 4
      : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
  return %base : vector<64xf32>
}

// -----

// Without threshold the base is the largest score and has always moved. Nothing branches but where a base lies far
// from 0. The factor stands before the weights, whose exponentials hide it.
// READS-BACK-LABEL: func @largest
// CHECK-LABEL: func @largest
// CHECK-SAME: %[[S:.*]]: vector<64x32xf32>, %[[M:.*]]: vector<64xf32>, %[[L:.*]]: vector<64xf32>, %[[O:.*]]: vector<64x64xf32>
// CHECK: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]], %[[M]] [1] : vector<64x32xf32> to vector<64xf32>
// CHECK-NOT: scf.if
// CHECK: %[[ANY:.*]] = flashattn.any_row %{{.*}} : vector<64xi1>
// CHECK: %[[MOVED:.*]]:3 = scf.if %[[ANY]] -> (vector<64x32xf32>, vector<64xf32>, vector<64xf32>) {
// CHECK:   arith.subf %[[S]], %{{.*}} : vector<64x32xf32>
// CHECK: } else {
// CHECK:   scf.yield %[[S]],
// CHECK: %[[L2:.*]] = arith.mulf %[[L]], %[[MOVED]]#2 : vector<64xf32>
// CHECK: %[[O2:.*]] = arith.mulf %[[O]], %{{.*}} : vector<64x64xf32>
// CHECK: math.fma %[[MOVED]]#0,
// CHECK: %[[P:.*]] = math.exp2 %{{.*}} : vector<64x32xf32>
// CHECK: %[[SUMS:.*]] = vector.multi_reduction <add>
// CHECK-NOT: scf.if
// CHECK: return %[[P]], %[[SUMS]], %[[MAX]], %[[L2]], %[[O2]]
func.func @largest(%s: vector<64x32xf32>, %m: vector<64xf32>, %l: vector<64xf32>, %o: vector<64x64xf32>) -> (vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64xf32>, vector<64x64xf32>) {
  %factor = arith.constant 0.125 : f32
  %p, %sums, %base, %l1, %o1 = flashattn.softmax_step %s from %m factor(%factor) threads_per_row 4
      rescale(%l, %o : vector<64xf32>, vector<64x64xf32>) : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
  return %p, %sums, %base, %l1, %o1 : vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64xf32>, vector<64x64xf32>
}

// -----

// Where scores can be made again their weights are judged, by their sums: no lane's exceeds 2^5, or is NaN, and
// no base lies far from 0, as that of a row without one does. All else is in one branch, with the keys read again.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// READS-BACK-LABEL: func @recompute
// CHECK-LABEL: func @recompute
// CHECK-SAME: %[[Q:.*]]: vector<64x64xf16>, %[[KEYS:.*]]: memref<?x64xf16>, %[[J:.*]]: index, %[[M:.*]]: vector<64xf32>, %[[L:.*]]: vector<64x4xf32>, %[[O:.*]]: vector<64x64xf32>)
// CHECK: %[[K:.*]] = flashattn.load_tile %[[KEYS]]
// CHECK: %[[S:.*]] = vector.contract {{.*}} %[[Q]], %[[K]],
// CHECK-NOT: maxnumf
// CHECK: %[[FAR:.*]] = arith.cmpf ogt, %{{.*}}, %{{.*}} : vector<64xf32>
// CHECK: %[[NEGATED:.*]] = arith.mulf %[[M]],
// CHECK: %[[EXPONENTS:.*]] = math.fma %[[S]],
// CHECK: %[[P:.*]] = math.exp2 %[[EXPONENTS]] : vector<64x32xf32>
// CHECK: %[[GROUPED:.*]] = vector.shape_cast %[[P]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// CHECK: %[[SUMS:.*]] = vector.multi_reduction <add>, %[[GROUPED]], %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK: %[[LIMIT:.*]] = arith.constant dense<3.200000e+01> : vector<64x4xf32>
// CHECK: %[[GROWN:.*]] = arith.cmpf ugt, %[[SUMS]], %[[LIMIT]]
// CHECK: %[[FAR1:.*]] = vector.shape_cast %[[FAR]] : vector<64xi1> to vector<64x1xi1>
// CHECK: %[[FAR4:.*]] = vector.broadcast %[[FAR1]] : vector<64x1xi1> to vector<64x4xi1>
// CHECK: %[[EITHER:.*]] = arith.ori %[[GROWN]], %[[FAR4]] : vector<64x4xi1>
// CHECK: %[[ANY:.*]] = flashattn.any_row %[[EITHER]] : vector<64x4xi1>
// CHECK-NOT: scf.if
// CHECK: %[[R:.*]]:5 = scf.if %[[ANY]] -> (vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
// CHECK:   %[[K2:.*]] = flashattn.load_tile %[[KEYS]][%[[J]], %c0] dims [0, 1] in_bounds [true, true]
// CHECK:   %[[S2:.*]] = vector.contract {{.*}} %[[Q]], %[[K2]],
// CHECK:   %[[BASE:.*]] = vector.multi_reduction <maxnumf>, %[[S2]], %[[M]] [1] : vector<64x32xf32> to vector<64xf32>
// CHECK:   %[[ANYFAR:.*]] = flashattn.any_row
// CHECK:   %[[TO:.*]]:3 = scf.if %[[ANYFAR]]
// CHECK:     arith.subf %[[S2]],
// CHECK:   } else {
// CHECK:     scf.yield %[[S2]],
// CHECK:   %[[EXPONENTS2:.*]] = math.fma %[[TO]]#0,
// CHECK:   %[[P2:.*]] = math.exp2 %[[EXPONENTS2]] : vector<64x32xf32>
// CHECK:   %[[SUMS2:.*]] = vector.multi_reduction <add>, %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK:   vector.shape_cast %[[TO]]#2
// CHECK:   %[[L2:.*]] = arith.mulf %[[L]], %{{.*}} : vector<64x4xf32>
// CHECK:   %[[O2:.*]] = arith.mulf %[[O]], %{{.*}} : vector<64x64xf32>
// CHECK:   scf.yield %[[P2]], %[[SUMS2]], %[[BASE]], %[[L2]], %[[O2]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[P]], %[[SUMS]], %[[M]], %[[L]], %[[O]]
// CHECK-NEXT: }
// CHECK-NEXT: return %[[R]]#0, %[[R]]#1, %[[R]]#2, %[[R]]#3, %[[R]]#4
func.func @recompute(%q: vector<64x64xf16>, %keys: memref<?x64xf16>, %j: index, %m: vector<64xf32>, %l: vector<64x4xf32>, %o: vector<64x64xf32>) -> (vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>) {
  %c0 = arith.constant 0 : index
  %factor = arith.constant 0.125 : f32
  %zero = arith.constant dense<0.0> : vector<64x32xf32>
  %k = flashattn.load_tile %keys[%j, %c0] dims [0, 1] in_bounds [true, true] : memref<?x64xf16> -> vector<32x64xf16>
  %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %zero : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
  %p, %sums, %base, %l1, %o1 = flashattn.softmax_step %s from %m factor(%factor) threshold 5.0 threads_per_row 4
      rescale(%l, %o : vector<64x4xf32>, vector<64x64xf32>) : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%q, %k : vector<64x64xf16>, vector<32x64xf16>) {
  ^bb0(%a: vector<64x64xf16>, %b: vector<32x64xf16>):
    %none = arith.constant dense<0.0> : vector<64x32xf32>
    %s2 = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
    flashattn.tile_yield %s2 : vector<64x32xf32>
  }
  return %p, %sums, %base, %l1, %o1 : vector<64x32xf32>, vector<64x4xf32>, vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>
}

// -----

// Weights that nobody sums up are judged one by one: the largest, in its bits, exceeds those of 2^8. What is no
// tile in memory is not made again.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// READS-BACK-LABEL: func @by_largest
// CHECK-LABEL: func @by_largest
// CHECK-SAME: %[[Q:.*]]: vector<64x64xf16>, %[[K:.*]]: vector<32x64xf16>, %[[S:.*]]: vector<64x32xf32>, %[[M:.*]]: vector<64xf32>, %[[O:.*]]: vector<64x64xf32>)
// CHECK: math.fma %[[S]],
// CHECK: %[[P:.*]] = math.exp2 %{{.*}} : vector<64x32xf32>
// CHECK: %[[BITS:.*]] = arith.bitcast %[[P]] : vector<64x32xf32> to vector<64x32xi32>
// CHECK: %[[ZEROS:.*]] = arith.constant dense<0> : vector<64x4xi32>
// CHECK: %[[GROUPED:.*]] = vector.shape_cast %[[BITS]] : vector<64x32xi32> to vector<64x4x4x2xi32>
// CHECK: %[[LARGEST:.*]] = vector.multi_reduction <maxsi>, %[[GROUPED]], %[[ZEROS]] [1, 3] : vector<64x4x4x2xi32> to vector<64x4xi32>
// CHECK: %[[LIMIT:.*]] = arith.constant dense<1132462080> : vector<64x4xi32>
// CHECK: %[[GROWN:.*]] = arith.cmpi sgt, %[[LARGEST]], %[[LIMIT]] : vector<64x4xi32>
// CHECK: %[[EITHER:.*]] = arith.ori %[[GROWN]], %{{.*}} : vector<64x4xi1>
// CHECK: flashattn.any_row %[[EITHER]] : vector<64x4xi1>
// CHECK: scf.if
// CHECK:   vector.contract {{.*}} %[[Q]], %[[K]],
// CHECK: scf.yield %[[P]], %{{.*}}, %[[M]], %[[O]]
func.func @by_largest(%q: vector<64x64xf16>, %k: vector<32x64xf16>, %s: vector<64x32xf32>, %m: vector<64xf32>, %o: vector<64x64xf32>) -> (vector<64x32xf32>, vector<64x64xf32>) {
  %factor = arith.constant 0.125 : f32
  %p, %sums, %base, %o1 = flashattn.softmax_step %s from %m factor(%factor) threshold 8.0 threads_per_row 4
      rescale(%o : vector<64x64xf32>) : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
      recompute(%q, %k : vector<64x64xf16>, vector<32x64xf16>) {
  ^bb0(%a: vector<64x64xf16>, %b: vector<32x64xf16>):
    %none = arith.constant dense<0.0> : vector<64x32xf32>
    %s2 = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
    flashattn.tile_yield %s2 : vector<64x32xf32>
  }
  return %p, %o1 : vector<64x32xf32>, vector<64x64xf32>
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// READS-BACK-LABEL: func @attention
// CHECK-LABEL: func @attention
// The first tile has nothing to rescale, and asks only for bases far from 0.
// CHECK: flashattn.any_row %{{.*}} : vector<64xi1>
// CHECK-NOT: flashattn.any_row
// CHECK: scf.for {{.*}} iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:   %[[S:.*]] = vector.contract {{.*}} into vector<64x32xf32>
// CHECK:   %[[O2:.*]] = vector.contract {{.*}}, %[[O]] : {{.*}} into vector<64x64xf32>
// What the mask takes away is -inf and no maximum.
// CHECK:   %[[SHOWN:.*]] = scf.if %{{.*}} -> (vector<64x32xf32>) {
// CHECK-NEXT: scf.yield %[[S]]
// CHECK:     %[[MASKED:.*]] = arith.select {{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK-NEXT: scf.yield %[[MASKED]]
// CHECK:   vector.shape_cast %[[SHOWN]] : vector<64x32xf32> to vector<64x4x4x2xf32>
// 2^8: scores may grow by 8 / c, c = 0.125 log2(e).
// CHECK:   %[[GROWTH:.*]] = arith.constant dense<44.3614197> : vector<64xf32>
// CHECK:   arith.addf %[[M]], %[[GROWTH]]
// CHECK:   %[[ANY:.*]] = flashattn.any_row
// CHECK:   %[[MOVED:.*]]:4 = scf.if %[[ANY]] -> (vector<64x32xf32>, vector<64xf32>, vector<64xf32>, vector<64xf32>)
// CHECK:     flashattn.any_row
// CHECK:   scf.yield %[[SHOWN]], %{{.*}}, %[[M]], %{{.*}}

// The weights and their sum wait for no factor.
// CHECK:   math.fma %[[MOVED]]#0,
// CHECK:   %[[P:.*]] = math.exp2 {{.*}} : vector<64x32xf32>
// CHECK-NOT: math.exp2
// CHECK-NOT: arith.mulf
// CHECK:   %[[SUM:.*]] = vector.multi_reduction <add>, %{{.*}}, %{{.*}} [1, 3] : vector<64x4x4x2xf32> to vector<64x4xf32>
// CHECK:   %[[RESCALED:.*]]:2 = scf.if %[[ANY]] -> (vector<64x4xf32>, vector<64x64xf32>)
// CHECK:     vector.shape_cast %[[MOVED]]#3
// CHECK:     %[[L2:.*]] = arith.mulf %[[L]], %{{.*}} : vector<64x4xf32>
// CHECK:     %[[O3:.*]] = arith.mulf %[[O2]], %{{.*}} : vector<64x64xf32>
// CHECK:     scf.yield %[[L2]], %[[O3]]
// CHECK:   } else {
// CHECK-NEXT: scf.yield %[[L]], %[[O2]]
// CHECK-NEXT: }
// CHECK-NEXT: %[[L3:.*]] = arith.addf %[[RESCALED]]#0, %[[SUM]]
// CHECK-NEXT: %[[P16:.*]] = arith.truncf %[[P]]
// CHECK-NEXT: scf.yield %[[MOVED]]#2, %[[L3]], %[[RESCALED]]#1, %[[P16]]

// CHECK-NOT: flashattn.any_row
// CHECK: return
func.func @attention(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 2, l2_head_group = 1>>

// Less threshold under a scale of 0.5: 2 / (0.5 log2(e)).
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

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

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

#plain = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>

// A schedule without warp specialization gives no threshold: every tile has a base of its own.
// READS-BACK-LABEL: func @no_roles
// CHECK-LABEL: func @no_roles
// CHECK: flashattn.any_row %{{.*}} : vector<64xi1>
// CHECK-NOT: flashattn.any_row %{{.*}} : vector<64x4xi1>
// CHECK: return
func.func @no_roles(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#plain)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// F3: the base is lower than the maximum of the scores by 8 / factor, and never decreases.
// READS-BACK-LABEL: func @log2_largest
// CHECK-LABEL: func @log2_largest
// CHECK-SAME: %[[S:[a-z0-9]+]]: vector<64x32xf32>, %[[M:[a-z0-9]+]]: vector<64xf32>
// CHECK: %[[NONE:.*]] = arith.constant dense<0xFF800000> : vector<64xf32>
// CHECK: %[[MAX:.*]] = vector.multi_reduction <maxnumf>, %[[S]], %[[NONE]] [1] : vector<64x32xf32> to vector<64xf32>
// CHECK: %[[OFFSETS:.*]] = arith.constant dense<6.400000e+01> : vector<64xf32>
// CHECK: %[[LOWER:.*]] = arith.subf %[[MAX]], %[[OFFSETS]]
// CHECK: %[[BASE:.*]] = arith.maxnumf %[[M]], %[[LOWER]]
// CHECK: return %{{.*}}, %[[BASE]]
func.func @log2_largest(%s: vector<64x32xf32>, %m: vector<64xf32>) -> (vector<64x32xf32>, vector<64xf32>) {
  %factor = arith.constant 0.125 : f32
  %p, %sums, %base = flashattn.softmax_step %s from %m factor(%factor) log2_largest 8.0 threads_per_row 4
      : vector<64x32xf32>, vector<64xf32> -> vector<64x4xf32>
  return %p, %base : vector<64x32xf32>, vector<64xf32>
}
