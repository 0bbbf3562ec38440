// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-expand-loops | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

// Partial tiles, full ones, partial ones: a loop each, and the state goes through them.
// READS-BACK-LABEL: func @plain
// READS-BACK-NOT: flashattn.tile_loop
// CHECK-LABEL: func @plain
// CHECK-SAME: %[[K:[a-z0-9]+]]: memref<?x64xf32>, %[[BIAS:[a-z0-9]+]]: memref<4x?xf32>, %[[B:[a-z0-9]+]]: index, %[[FB:[a-z0-9]+]]: index, %[[FE:[a-z0-9]+]]: index, %[[E:[a-z0-9]+]]: index, %[[X:[a-z0-9]+]]: vector<4x64xf32>, %[[MASK:[a-z0-9]+]]: vector<4x64xi1>
// CHECK: %[[R0:.*]] = scf.for %[[J:.*]] = %[[B]] to %[[FB]] step %c1 iter_args(%{{.*}} = %[[X]])
// CHECK:   flashattn.load_tile %[[K]][%[[J]], %c0] dims [0, 1] in_bounds [false, true]
// CHECK:   flashattn.load_tile %[[BIAS]][%c0, %[[J]]] dims [0, 1] in_bounds [false, false]
// CHECK:   %[[SHOWN:.*]] = arith.cmpi slt
// CHECK:   %[[BOTH:.*]] = arith.andi %[[SHOWN]], %[[MASK]]
// CHECK:   %[[MASKED:.*]] = arith.select %[[SHOWN]], %{{.*}}, %{{.*}}
// CHECK:   arith.select %[[BOTH]], %{{.*}}, %[[MASKED]]
// A full tile ends before the data does, along whichever dimension; what is not of it may not. Its
// mask is gone, with all that is said of it alone.
// CHECK: %[[R1:.*]] = scf.for %[[J:.*]] = %[[FB]] to %[[FE]] step %c1 iter_args(%{{.*}} = %[[R0]])
// CHECK-NEXT: %[[KT:.*]] = flashattn.load_tile %[[K]][%[[J]], %c0] dims [0, 1] in_bounds [true, true]
// CHECK-NEXT: %[[BT:.*]] = flashattn.load_tile %[[BIAS]][%c0, %[[J]]] dims [0, 1] in_bounds [false, true]
// CHECK-NEXT: %[[SAME:.*]] = flashattn.load_tile %[[K]][%[[B]], %c0] dims [0, 1] in_bounds [false, true]
// CHECK-NOT: arith.andi
// CHECK:   %[[SUM:.*]] = arith.addf %[[KT]], %[[BT]]
// CHECK-NEXT: arith.select %[[MASK]], %[[SAME]], %[[SUM]]
// CHECK: %[[R2:.*]] = scf.for %{{.*}} = %[[FE]] to %[[E]] step %c1 iter_args(%{{.*}} = %[[R1]])
// CHECK:   in_bounds [false, true]
// CHECK:   arith.cmpi slt
// CHECK-NOT: scf.for
// CHECK-NOT: flashattn.stage
// CHECK: return %[[R2]]
func.func @plain(%k: memref<?x64xf32>, %bias: memref<4x?xf32>, %b: index, %fb: index, %fe: index, %e: index, %x: vector<4x64xf32>, %mask: vector<4x64xi1>) -> vector<4x64xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<4x64xf32>
  %r = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %e)] iter_args(%a = %x) -> (vector<4x64xf32>) {
    %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf32> -> vector<4x64xf32>
    %bt = flashattn.load_tile %bias[%c0, %j] dims [0, 1] in_bounds [false, false] : memref<4x?xf32> -> vector<4x64xf32>
    %same = flashattn.load_tile %k[%b, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf32> -> vector<4x64xf32>
    flashattn.stage
    %shown = flashattn.tile_mask -> vector<4x64xi1> {
      %columns = vector.broadcast %j : index to vector<4x64xindex>
      %limits = vector.broadcast %e : index to vector<4x64xindex>
      %below = arith.cmpi slt, %columns, %limits : vector<4x64xindex>
      flashattn.tile_yield %below : vector<4x64xi1>
    }
    %both = arith.andi %shown, %mask : vector<4x64xi1>
    %s0 = arith.addf %kt, %bt : vector<4x64xf32>
    %s1 = arith.select %shown, %s0, %zero : vector<4x64xi1>, vector<4x64xf32>
    %s2 = arith.select %both, %same, %s1 : vector<4x64xi1>, vector<4x64xf32>
    %sum = arith.addf %a, %s2 : vector<4x64xf32>
    flashattn.tile_yield %sum : vector<4x64xf32>
  }
  return %r : vector<4x64xf32>
}

// -----

// Several intervals share one copy of the loops, in a loop over their numbers.
// CHECK-LABEL: func @intervals
// CHECK-SAME: (%[[B:.*]]: index, %[[FB:.*]]: index, %[[FE:.*]]: index, %[[E:.*]]: index, %[[B1:.*]]: index, %[[FB1:.*]]: index, %[[FE1:.*]]: index, %[[E1:.*]]: index, %{{.*}}: memref<?x?xf32>, %[[X:.*]]: f32)
// CHECK: %[[ALL:.*]] = scf.for %[[I:.*]] = %c0 to %c2 step %c1 iter_args(%[[STATE:.*]] = %[[X]])
// CHECK:   %[[FIRST:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK:   %[[BEGIN:.*]] = arith.select %[[FIRST]], %[[B]], %[[B1]]
// CHECK:   %[[FULLBEGIN:.*]] = arith.select %[[FIRST]], %[[FB]], %[[FB1]]
// CHECK:   %[[FULLEND:.*]] = arith.select %[[FIRST]], %[[FE]], %[[FE1]]
// CHECK:   %[[END:.*]] = arith.select %[[FIRST]], %[[E]], %[[E1]]
// CHECK:   %[[R0:.*]] = scf.for %{{.*}} = %[[BEGIN]] to %[[FULLBEGIN]] step %c1 iter_args(%{{.*}} = %[[STATE]])
// CHECK:   %[[R1:.*]] = scf.for %{{.*}} = %[[FULLBEGIN]] to %[[FULLEND]] step %c1 iter_args(%{{.*}} = %[[R0]])
// CHECK:   %[[R2:.*]] = scf.for %{{.*}} = %[[FULLEND]] to %[[END]] step %c1 iter_args(%{{.*}} = %[[R1]])
// CHECK-NOT: scf.for
// CHECK:   scf.yield %[[R2]]
// CHECK: return %[[ALL]]
func.func @intervals(%b: index, %fb: index, %fe: index, %e: index, %b1: index, %fb1: index, %fe1: index, %e1: index, %m: memref<?x?xf32>, %x: f32) -> f32 {
  %r = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %e), (%b1, %fb1, %fe1, %e1)] iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%i, %j] : memref<?x?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  return %r : f32
}

// -----

// The last of three is what is left when it is neither of the others. No state is handed on.
// CHECK-LABEL: func @three
// CHECK-SAME: (%[[B:.*]]: index, %[[C:.*]]: index, %[[D:.*]]: index, %[[E:.*]]: index
// CHECK: scf.for %[[I:.*]] = %c0 to %c3 step %c1 {
// CHECK:   %[[SECOND:.*]] = arith.cmpi eq, %[[I]], %c1
// CHECK:   %[[BEGIN1:.*]] = arith.select %[[SECOND]], %[[C]], %[[D]]
// CHECK:   %[[END1:.*]] = arith.select %[[SECOND]], %[[D]], %[[E]]
// CHECK:   %[[FIRST:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK:   %[[BEGIN:.*]] = arith.select %[[FIRST]], %[[B]], %[[BEGIN1]]
// CHECK:   %[[END:.*]] = arith.select %[[FIRST]], %[[C]], %[[END1]]
// CHECK:   scf.for %[[J:.*]] = %[[BEGIN]] to %[[END]] step %c1 {
// CHECK-NEXT: memref.store %{{.*}}, %{{.*}}[%[[J]]]
// CHECK-NEXT: }
func.func @three(%b: index, %c: index, %d: index, %e: index, %m: memref<?xf32>, %x: f32) {
  flashattn.tile_loop (%i, %j) in [(%b, %b, %b, %c), (%c, %c, %c, %d), (%d, %d, %d, %e)] {
    memref.store %x, %m[%j] : memref<?xf32>
  }
  return
}

// -----

// With a list a loop counts its places, and each holds a tile's number.
// CHECK-LABEL: func @list
// CHECK-SAME: (%[[B:.*]]: index, %[[FE:.*]]: index, %[[E:.*]]: index, %[[LIST:.*]]: memref<?x?xi32>, %[[M:.*]]: memref<?x?xf32>, %[[H:.*]]: index
// CHECK: scf.for %[[I:.*]] = %[[B]] to %[[FE]]
// CHECK-NEXT: %[[J32:.*]] = memref.load %[[LIST]][%[[H]], %[[I]]]
// CHECK-NEXT: %[[J:.*]] = arith.index_cast %[[J32]] : i32 to index
// CHECK-NEXT: memref.store %{{.*}}, %[[M]][%[[I]], %[[J]]]
// CHECK: scf.for %{{.*}} = %[[FE]] to %[[E]]
// CHECK: memref.load %[[LIST]]
func.func @list(%b: index, %fb: index, %e: index, %list: memref<?x?xi32>, %m: memref<?x?xf32>, %h: index, %x: f32) {
  flashattn.tile_loop (%i, %j) in [(%b, %b, %fb, %e)] list(%list[%h] : memref<?x?xi32>) {
    memref.store %x, %m[%i, %j] : memref<?x?xf32>
  }
  return
}

// -----

// Where `when` is false, or there are no tiles, the state stays as it was.
// CHECK-LABEL: func @when
// CHECK-SAME: (%[[B:.*]]: index, %[[E:.*]]: index, %{{.*}}: memref<?xf32>, %[[X:.*]]: f32, %[[YES:.*]]: i1)
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[B]], %[[E]]
// CHECK: %[[TAKEN:.*]] = arith.andi %[[SOME]], %[[YES]]
// CHECK: scf.if %[[TAKEN]] {
// CHECK:   scf.for %{{.*}} = %[[B]] to %[[E]]
// CHECK-NOT: else
// CHECK: %[[R:.*]] = scf.if %[[TAKEN]] -> (f32) {
// CHECK:   %[[SUM:.*]] = scf.for %{{.*}} = %[[B]] to %[[E]]
// CHECK:   scf.yield %[[SUM]]
// CHECK: } else {
// CHECK-NEXT: scf.yield %[[X]]
// CHECK: return %[[R]]
func.func @when(%b: index, %e: index, %m: memref<?xf32>, %x: f32, %yes: i1) -> f32 {
  flashattn.tile_loop (%i, %j) in [(%b, %b, %b, %e)] when %yes {
    memref.store %x, %m[%j] : memref<?xf32>
  }
  %r = flashattn.tile_loop (%i, %j) in [(%b, %b, %b, %e)] when %yes iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%j] : memref<?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  return %r : f32
}

// -----

// Runs that are known to be empty have no loop, and a loop without any has nothing.
// CHECK-LABEL: func @empty
// CHECK-SAME: %[[X:[a-z0-9]+]]: f32
// CHECK: %[[R:.*]] = scf.for %{{.*}} = %c0 to %c4 step %c1
// CHECK-NOT: scf.for
// CHECK: return %[[R]], %[[X]]
func.func @empty(%m: memref<?xf32>, %x: f32) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %c4, %c4)] iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%j] : memref<?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  %s = flashattn.tile_loop (%i, %j) in [(%c5, %c5, %c4, %c3)] iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%j] : memref<?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  return %r, %s : f32, f32
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// A causal program whose second product lags: it stands behind the next step's first.
// READS-BACK-LABEL: func @causal
// CHECK-DAG: #[[QK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[PV:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func @causal
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>
// CHECK: flashattn.program
// CHECK: %[[QT:.*]] = flashattn.load_tile %[[Q]]
// CHECK: %[[END:.*]] = arith.maxsi
// CHECK: %[[MIDDLE:.*]] = arith.maxsi
// An interval without tiles passes the state on as it is.
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %c0, %[[END]] : index
// CHECK: %[[INTERVAL:.*]]:3 = scf.if %[[ANY]] -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)

// The first tile's scores stand before the loop, masked: it may be partial. No row has a base yet
// that it could keep.
// CHECK:   %[[K0:.*]] = flashattn.load_tile %[[K]][{{.*}}, %c0, %c0] dims [2, 3] in_bounds [false, true]
// CHECK:   %[[S0:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[QK]], {{.*}}} %[[QT]], %[[K0]],
// CHECK-NOT: flashattn.load_tile
// CHECK:   %[[MASKED0:.*]] = arith.select %{{.*}}, %[[S0]], %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK:   flashattn.softmax_step %[[MASKED0]] from %{{.*}} factor(%{{[a-z0-9_]*}}) threads_per_row 4
// CHECK:   %[[P0:.*]] = arith.truncf %{{.*}} : vector<64x32xf32> to vector<64x32xf16>

// The weights are one more value of the loop; from the second tile on. It runs all tiles, as only the mask
// tells them apart.
// CHECK:   %[[LOOP:.*]]:4 = scf.for %[[J:.*]] = %c1 to %[[END]] step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[O:.*]] = %{{.*}}, %[[P:.*]] = %[[P0]])
// CHECK-SAME: -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>, vector<64x32xf16>)
// CHECK:     %[[WHOLE:.*]] = arith.cmpi slt, %[[J]], %[[MIDDLE]] : index
// S(j) = Q K(j)
// CHECK:     %[[KJ:.*]] = flashattn.load_tile %[[K]][{{.*}}, %[[J]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK:     %[[S:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[QK]], {{.*}}} %[[QT]], %[[KJ]],
// and right behind it O += P(j-1) V(j-1).
// CHECK:     %[[VJ:.*]] = flashattn.load_tile %[[V]][{{.*}}, %[[LAST:.*]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK:     %[[O2:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[PV]], {{.*}}} %[[P]], %[[VJ]], %[[O]]
// The softmax of S(j) follows, in a full tile without a mask; it rescales what is there now.
// CHECK-NEXT: %[[SHOWN:.*]] = scf.if %[[WHOLE]] -> (vector<64x32xf32>) {
// CHECK-NEXT:   scf.yield %[[S]]
// CHECK-NEXT: } else {
// CHECK:        %[[MASKED:.*]] = arith.select %{{.*}}, %[[S]], %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK-NEXT:   scf.yield %[[MASKED]]
// CHECK-NEXT: }
// CHECK-NEXT: %{{.*}}, %[[SCALED:.*]]:2 = flashattn.softmax_step %[[SHOWN]] from %{{.*}} threshold 8.000000e+00 threads_per_row 4 rescale(%{{.*}}, %[[O2]] :
// CHECK:     %[[PJ:.*]] = arith.truncf
// CHECK:     scf.yield %{{.*}}, %{{.*}}, %[[SCALED]]#1, %[[PJ]]
// CHECK-NEXT: }
// CHECK-NOT: scf.for

// The last tile's output stands behind the loop.
// CHECK:   %[[FINAL:.*]] = arith.subi %[[END]], %c1
// CHECK:   %[[VN:.*]] = flashattn.load_tile %[[V]][{{.*}}, %[[FINAL]], %c0] dims [2, 3] in_bounds [false, true]
// CHECK:   %[[ON:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[PV]], {{.*}}} %[[LOOP]]#3, %[[VN]], %[[LOOP]]#2
// CHECK:   scf.yield %[[LOOP]]#0, %[[LOOP]]#1, %[[ON]]
// CHECK: } else {
// CHECK:   scf.yield
// CHECK: }
// Nothing is left of the loop as it was.
// CHECK-NOT: scf.for
// CHECK-NOT: vector.contract
// CHECK: vector.multi_reduction <add>, %[[INTERVAL]]#1
// CHECK: return
func.func @causal(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#late = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>

// Scores are made again as the product that they are: of full tiles. The first tile has no base to judge by, and
// those that the mask cuts are judged by their scores.
// READS-BACK-LABEL: func @late
// CHECK-LABEL: func @late
// CHECK: %[[QT:.*]] = flashattn.load_tile
// CHECK: %[[INTERVAL:.*]]:3 = scf.if
// CHECK:   %[[MASKED0:.*]] = arith.select {{.*}} vector<64x32xi1>
// CHECK:   flashattn.softmax_step %[[MASKED0]] from %{{.*}} factor(%{{[a-z0-9_]*}}) threads_per_row 4 rescale(
// CHECK-NOT: again
// CHECK:   %[[FULL:.*]]:4 = scf.for
// CHECK:     %[[KJ:.*]] = flashattn.load_tile
// CHECK:     %[[S:.*]] = vector.contract {{.*}} %[[QT]], %[[KJ]],
// CHECK:     flashattn.softmax_step %[[S]] from %{{.*}} threshold 8.000000e+00 threads_per_row 4 rescale({{.*}} recompute(%[[QT]], %[[KJ]] : vector<64x64xf16>, vector<32x64xf16>) {
// CHECK-NEXT: ^bb0(%[[A:.*]]: vector<64x64xf16>, %[[B:.*]]: vector<32x64xf16>):
// CHECK:       %[[AGAIN:.*]] = vector.contract {{.*}} %[[A]], %[[B]],
// CHECK-NEXT:  flashattn.tile_yield %[[AGAIN]] : vector<64x32xf32>
// CHECK-NEXT: }
// CHECK:     scf.yield
// CHECK:   scf.for
// CHECK:     %[[MASKED:.*]] = arith.select {{.*}} vector<64x32xi1>
// CHECK:     flashattn.softmax_step %[[MASKED]] from %{{.*}} threshold 8.000000e+00 threads_per_row 4 rescale(
// CHECK-NOT: again
// CHECK: return
func.func @late(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#late)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// More is made of the scores before the mask selects of them: full tiles have a loop of their own.
// READS-BACK-LABEL: func @softcap
// CHECK-LABEL: func @softcap
// CHECK: scf.for
// CHECK:   math.tanh
// CHECK-NOT: arith.select {{.*}} vector<64x32xi1>
// CHECK:   flashattn.softmax_step
// CHECK: scf.for
// CHECK:   math.tanh
// CHECK:   arith.select {{.*}} vector<64x32xi1>
// CHECK:   flashattn.softmax_step
// CHECK-NOT: scf.for
// CHECK: return
func.func @softcap(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) softcap(30.0) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// Threads load the bias themselves, and in full tiles do not look for its end: these have a loop of their own.
// READS-BACK-LABEL: func @bias
// CHECK-LABEL: func @bias
// CHECK-SAME: %[[B:[a-z0-9]+]]: memref<1x1x?x?xf16>
// CHECK: %[[END:.*]] = arith.maxsi
// CHECK: %[[MIDDLE:.*]] = arith.maxsi
// CHECK: scf.for %[[J:.*]] = %c1 to %[[MIDDLE]]
// CHECK:   flashattn.load_tile %[[B]][%c0, %c0, %{{.*}}, %[[J]]] dims [2, 3] in_bounds [false, true]
// CHECK-NOT: arith.select {{.*}} vector<64x32xi1>
// CHECK:   flashattn.softmax_step
// CHECK: %[[FROM:.*]] = arith.maxsi %[[MIDDLE]], %c1
// CHECK: scf.for %[[L:.*]] = %[[FROM]] to %[[END]]
// CHECK:   flashattn.load_tile %[[B]][%c0, %c0, %{{.*}}, %[[L]]] dims [2, 3] in_bounds [false, false]
// CHECK:   arith.select {{.*}} vector<64x32xi1>
// CHECK:   flashattn.softmax_step
// CHECK-NOT: scf.for
// CHECK: return
func.func @bias(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %b: memref<1x1x?x?xf16>) {
  flashattn.attention mask(#flashattn.causal) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    bias(%b : memref<1x1x?x?xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>

// Two intervals: the loop over them holds one loop, whose state is carried on. Full tiles stand between
// partial ones.
// READS-BACK-LABEL: func @sinks_and_window
// CHECK-LABEL: func @sinks_and_window
// CHECK-SAME: %[[V:[a-z0-9]+]]: memref<?x?x?x32xf16>
// CHECK: %[[ALL:.*]]:3 = scf.for %[[I:.*]] = %c0 to %c2 step %c1 iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}) -> (vector<64xf32>, vector<64x4xf32>, vector<64x32xf32>)
// CHECK:   %[[FIRST:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK:   %[[BEGIN:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[FULLBEGIN:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[FULLEND:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[END:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[ANY:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]] : index
// CHECK:   %[[INTERVAL:.*]]:3 = scf.if %[[ANY]]
// CHECK:     %[[SECOND:.*]] = arith.addi %[[BEGIN]], %c1
// CHECK:     scf.for %[[J:.*]] = %[[SECOND]] to %[[END]]
// CHECK-NEXT:  %[[BEHIND:.*]] = arith.cmpi sge, %[[J]], %[[FULLBEGIN]]
// CHECK-NEXT:  %[[BEFORE:.*]] = arith.cmpi slt, %[[J]], %[[FULLEND]]
// CHECK-NEXT:  %[[WHOLE:.*]] = arith.andi %[[BEHIND]], %[[BEFORE]]
// CHECK:       flashattn.load_tile %[[V]]{{.*}} in_bounds [false, true]
// CHECK-NOT:   arith.select {{.*}} vector<64x32xi1>
// CHECK:       scf.if %[[WHOLE]]
// CHECK:       } else {
// CHECK:         arith.select {{.*}} vector<64x32xi1>
// CHECK-NOT: scf.for
// CHECK:   } else {
// CHECK-NEXT: scf.yield %[[M]], %[[L]], %[[O]]
// CHECK-NEXT: }
// CHECK-NEXT: scf.yield %[[INTERVAL]]#0, %[[INTERVAL]]#1, %[[INTERVAL]]#2
// CHECK-NOT: scf.for
func.func @sinks_and_window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x32xf16>, %o: memref<?x?x?x32xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x32xf16>)
    outs(%o : memref<?x?x?x32xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, stages = 2, dot_type = bf16, mapping = hopper<consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>

// Static lengths, of which the last tile of keys is partial; values wider than queries.
// READS-BACK-LABEL: func @static
// CHECK-LABEL: func @static
// CHECK: scf.if {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>)
// CHECK:   scf.for %[[J:.*]] = %c1 to %c7 {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>, vector<64x32xbf16>)
// CHECK:     arith.cmpi slt, %[[J]], %c6 : index
// CHECK-NOT: scf.for
func.func @static(%q: memref<1x4x200x64xbf16>, %k: memref<1x4x200x64xbf16>, %v: memref<1x4x200x128xbf16>, %o: memref<1x4x200x128xbf16>) {
  flashattn.attention schedule(#roles)
    ins(%q, %k, %v : memref<1x4x200x64xbf16>, memref<1x4x200x64xbf16>, memref<1x4x200x128xbf16>)
    outs(%o : memref<1x4x200x128xbf16>)
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Nothing here is made for two products or for key tiles. Rows are keys, whose K and V stay, and the
// loop runs over query tiles, of which Q and dO come: S = K Q^T and dP = V dO^T in stages of their own,
// dV += P dO and dK += dS Q a step later. The two sums and the two tiles they take are carried.
// READS-BACK-LABEL: func @backward
// CHECK-DAG: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[KN:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func @backward
// CHECK-SAME: %[[K:[a-z0-9]+]]: vector<64x32xf16>, %[[V:[a-z0-9]+]]: vector<64x32xf16>, %[[Q:[a-z0-9]+]]: memref<?x32xf16>, %[[DO:[a-z0-9]+]]: memref<?x32xf16>, %{{.*}}: memref<?xf32>, %{{.*}}: memref<?xf32>, %[[B:[a-z0-9]+]]: index, %[[FB:[a-z0-9]+]]: index, %[[FE:[a-z0-9]+]]: index, %[[E:[a-z0-9]+]]: index
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %[[B]], %[[E]]
// CHECK: %[[R:.*]]:2 = scf.if %[[ANY]] -> (vector<64x32xf32>, vector<64x32xf32>)
// CHECK:   %[[Q0:.*]] = flashattn.load_tile %[[Q]][%[[B]], %c0]
// CHECK:   vector.contract {indexing_maps = [{{.*}}, #[[NK]], {{.*}}} %[[K]], %[[Q0]],
// CHECK:   %[[DO0:.*]] = flashattn.load_tile %[[DO]][%[[B]], %c0]
// CHECK:   vector.contract {indexing_maps = [{{.*}}, #[[NK]], {{.*}}} %[[V]], %[[DO0]],
// CHECK-NOT: vector.contract
// CHECK:   %[[P0:.*]] = arith.truncf
// CHECK:   %[[DS0:.*]] = arith.truncf
// CHECK:   %[[SECOND:.*]] = arith.addi %[[B]], %c1
// CHECK:   %[[R0:.*]]:4 = scf.for %{{.*}} = %[[SECOND]] to %[[FB]] step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %[[P0]], %{{.*}} = %[[DS0]]) -> (vector<64x32xf32>, vector<64x32xf32>, vector<64x16xf16>, vector<64x16xf16>)
// CHECK:   %[[FROM:.*]] = arith.maxsi %[[FB]], %[[SECOND]]
// CHECK:   %[[R1:.*]]:4 = scf.for %[[J:.*]] = %[[FROM]] to %[[FE]] step %c1 iter_args(%[[DV:.*]] = %[[R0]]#0, %[[DK:.*]] = %[[R0]]#1, %[[P:.*]] = %[[R0]]#2, %[[DS:.*]] = %[[R0]]#3)
// CHECK:     %[[LAST:.*]] = arith.subi %[[J]], %c1
// CHECK:     %[[QJ:.*]] = flashattn.load_tile %[[Q]][%[[J]], %c0] dims [0, 1] in_bounds [true, true]
// CHECK:     %[[S:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[NK]], {{.*}}} %[[K]], %[[QJ]],
// CHECK:     %[[DOL:.*]] = flashattn.load_tile %[[DO]][%[[LAST]], %c0]
// CHECK:     %[[DV1:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[KN]], {{.*}}} %[[P]], %[[DOL]], %[[DV]]
// CHECK:     %[[QL:.*]] = flashattn.load_tile %[[Q]][%[[LAST]], %c0]
// CHECK:     %[[DK1:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[KN]], {{.*}}} %[[DS]], %[[QL]], %[[DK]]
// CHECK:     %[[DOJ:.*]] = flashattn.load_tile %[[DO]][%[[J]], %c0] dims [0, 1] in_bounds [true, true]
// CHECK:     %[[DP:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[NK]], {{.*}}} %[[V]], %[[DOJ]],
// CHECK-NOT: arith.cmpi
// CHECK:     %[[P1:.*]] = arith.truncf
// CHECK:     %[[DS1:.*]] = arith.truncf
// CHECK:     scf.yield %[[DV1]], %[[DK1]], %[[P1]], %[[DS1]]
// CHECK:   %[[R2:.*]]:4 = scf.for
// CHECK:   %[[FINAL:.*]] = arith.subi %[[E]], %c1
// CHECK:   %[[DOF:.*]] = flashattn.load_tile %[[DO]][%[[FINAL]], %c0]
// CHECK:   %[[DVF:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[KN]], {{.*}}} %[[R2]]#2, %[[DOF]], %[[R2]]#0
// CHECK:   %[[QF:.*]] = flashattn.load_tile %[[Q]][%[[FINAL]], %c0]
// CHECK:   %[[DKF:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[KN]], {{.*}}} %[[R2]]#3, %[[QF]], %[[R2]]#1
// CHECK:   scf.yield %[[DVF]], %[[DKF]]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @backward(%k: vector<64x32xf16>, %v: vector<64x32xf16>, %q: memref<?x32xf16>, %do: memref<?x32xf16>, %lse: memref<?xf32>, %delta: memref<?xf32>, %b: index, %fb: index, %fe: index, %e: index, %positions: vector<64x16xi32>) -> (vector<64x32xf32>, vector<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %zeros = arith.constant dense<0.0> : vector<64x32xf32>
  %r:2 = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %e)] iter_args(%dv = %zeros, %dk = %zeros) -> (vector<64x32xf32>, vector<64x32xf32>) {
    %qt = flashattn.load_tile %q[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x32xf16> -> vector<16x32xf16>
    %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %k, %qt, %none : vector<64x32xf16>, vector<16x32xf16> into vector<64x16xf32>
    flashattn.stage
    %dot = flashattn.load_tile %do[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x32xf16> -> vector<16x32xf16>
    %dp = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %v, %dot, %none : vector<64x32xf16>, vector<16x32xf16> into vector<64x16xf32>
    %shown = flashattn.tile_mask -> vector<64x16xi1> {
      %j32 = arith.index_cast %j : index to i32
      %limit = vector.broadcast %j32 : i32 to vector<64x16xi32>
      %visible = arith.cmpi sle, %positions, %limit : vector<64x16xi32>
      flashattn.tile_yield %visible : vector<64x16xi1>
    }
    %base = flashattn.load_tile %lse[%j] dims [-1, 0] in_bounds [true, false] : memref<?xf32> -> vector<64x16xf32>
    %x = arith.subf %s, %base : vector<64x16xf32>
    %w = math.exp2 %x : vector<64x16xf32>
    %p = arith.select %shown, %w, %none : vector<64x16xi1>, vector<64x16xf32>
    %mean = flashattn.load_tile %delta[%j] dims [-1, 0] in_bounds [true, false] : memref<?xf32> -> vector<64x16xf32>
    %d = arith.subf %dp, %mean : vector<64x16xf32>
    %ds = arith.mulf %p, %d : vector<64x16xf32>
    %p16 = arith.truncf %p : vector<64x16xf32> to vector<64x16xf16>
    %ds16 = arith.truncf %ds : vector<64x16xf32> to vector<64x16xf16>
    flashattn.stage lag 1
    %dob = flashattn.load_tile %do[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x32xf16> -> vector<16x32xf16>
    %dv1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p16, %dob, %dv : vector<64x16xf16>, vector<16x32xf16> into vector<64x32xf32>
    %qb = flashattn.load_tile %q[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x32xf16> -> vector<16x32xf16>
    %dk1 = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds16, %qb, %dk : vector<64x16xf16>, vector<16x32xf16> into vector<64x32xf32>
    flashattn.tile_yield %dv1, %dk1 : vector<64x32xf32>, vector<64x32xf32>
  }
  return %r#0, %r#1 : vector<64x32xf32>, vector<64x32xf32>
}

// -----

// Numbers are computed again for the stage that lags, from its own step's; what it reads of memory is
// read then.
// CHECK-LABEL: func @numbers
// CHECK-SAME: %[[N:[a-z0-9]+]]: index, %[[M:[a-z0-9]+]]: memref<?xf32>
// CHECK: scf.if
// CHECK-NOT: memref.load
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %[[N]]
// CHECK:   %[[LAST:.*]] = arith.subi %[[J]], %c1
// CHECK:   %[[ROW:.*]] = arith.muli %[[LAST]], %c64
// CHECK:   memref.load %[[M]][%[[ROW]]]
// CHECK: %[[FINAL:.*]] = arith.subi %[[N]], %c1
// CHECK: %[[FINALROW:.*]] = arith.muli %[[FINAL]], %c64
// CHECK: memref.load %[[M]][%[[FINALROW]]]
func.func @numbers(%n: index, %m: memref<?xf32>, %x: vector<4xf32>) -> vector<4xf32> {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %s = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%a = %x) -> (vector<4xf32>) {
    %row = arith.muli %j, %c64 : index
    flashattn.stage lag 1
    %v = memref.load %m[%row] : memref<?xf32>
    %b = vector.broadcast %v : f32 to vector<4xf32>
    %sum = arith.addf %a, %b : vector<4xf32>
    flashattn.tile_yield %sum : vector<4xf32>
  }
  return %s : vector<4xf32>
}

// -----

// The step before the first full one was partial: a mask of a stage that lags is asked in the loop over
// full tiles as well.
// CHECK-LABEL: func @mask_that_lags
// CHECK-SAME: %[[B:[a-z0-9]+]]: index, %[[FB:[a-z0-9]+]]: index, %[[FE:[a-z0-9]+]]: index
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[FB]]
// CHECK:   arith.select
// CHECK: scf.for %[[J:.*]] = %{{.*}} to %[[FE]]
// CHECK:   %[[LAST:.*]] = arith.subi %[[J]], %c1
// CHECK:   %[[NUMBERS:.*]] = vector.broadcast %[[LAST]]
// CHECK:   %[[SHOWN:.*]] = arith.cmpi slt, %[[NUMBERS]]
// CHECK:   arith.select %[[SHOWN]]
// Where full tiles are the first it is not.
// CHECK: scf.if
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[FE]]
// CHECK-NOT: arith.select
// CHECK: scf.yield
func.func @mask_that_lags(%b: index, %fb: index, %fe: index, %x: vector<4x64xf32>, %limits: vector<4x64xindex>) -> (vector<4x64xf32>, vector<4x64xf32>) {
  %r = flashattn.tile_loop (%i, %j) in [(%b, %fb, %fe, %fe)] iter_args(%a = %x) -> (vector<4x64xf32>) {
    flashattn.stage lag 1
    %shown = flashattn.tile_mask -> vector<4x64xi1> {
      %numbers = vector.broadcast %j : index to vector<4x64xindex>
      %below = arith.cmpi slt, %numbers, %limits : vector<4x64xindex>
      flashattn.tile_yield %below : vector<4x64xi1>
    }
    %sum = arith.addf %a, %x : vector<4x64xf32>
    %kept = arith.select %shown, %sum, %a : vector<4x64xi1>, vector<4x64xf32>
    flashattn.tile_yield %kept : vector<4x64xf32>
  }
  %s = flashattn.tile_loop (%i, %j) in [(%fb, %fb, %fe, %fe)] iter_args(%a = %x) -> (vector<4x64xf32>) {
    flashattn.stage lag 1
    %shown = flashattn.tile_mask -> vector<4x64xi1> {
      %numbers = vector.broadcast %j : index to vector<4x64xindex>
      %below = arith.cmpi slt, %numbers, %limits : vector<4x64xindex>
      flashattn.tile_yield %below : vector<4x64xi1>
    }
    %sum = arith.addf %a, %x : vector<4x64xf32>
    %kept = arith.select %shown, %sum, %a : vector<4x64xi1>, vector<4x64xf32>
    flashattn.tile_yield %kept : vector<4x64xf32>
  }
  return %r, %s : vector<4x64xf32>, vector<4x64xf32>
}

// -----

// Two stages that lag, each behind a stage of its own: the step's first, then the last step's sum, its second, then
// the last step's product. Behind the loop they follow each other.
// CHECK-LABEL: func @behind
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?xvector<4xf32>>, %[[N:[a-z0-9]+]]: index
// CHECK: scf.if
// CHECK:   %[[E0:.*]] = math.exp2
// CHECK-NEXT: %[[F0:.*]] = math.sqrt %[[E0]]
// CHECK-NEXT: %[[G0:.*]] = math.log2 %[[F0]]
// CHECK-NOT: {{math|arith.addf|arith.mulf}}
// CHECK:   %[[R:.*]]:3 = scf.for %[[J:.*]] = %{{.*}} to %[[N]] step %c1 iter_args(%[[A:.*]] = %{{.*}}, %[[LAST:.*]] = %[[G0]], %[[B:.*]] = %{{.*}})
// CHECK:     %[[E:.*]] = math.exp2
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[A]], %[[LAST]]
// CHECK-NEXT: %[[F:.*]] = math.sqrt %[[E]]
// CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[B]], %[[LAST]]
// CHECK-NEXT: %[[G:.*]] = math.log2 %[[F]]
// CHECK-NEXT: scf.yield %[[SUM]], %[[G]], %[[PRODUCT]]
// CHECK:   arith.addf %[[R]]#0, %[[R]]#1
// CHECK-NEXT: arith.mulf %[[R]]#2, %[[R]]#1
// CHECK-NEXT: scf.yield
func.func @behind(%x: memref<?xvector<4xf32>>, %n: index, %zero: vector<4xf32>) -> (vector<4xf32>, vector<4xf32>) {
  %c0 = arith.constant 0 : index
  %r:2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %n, %n)] iter_args(%a = %zero, %b = %zero) -> (vector<4xf32>, vector<4xf32>) {
    %v = memref.load %x[%j] : memref<?xvector<4xf32>>
    %e = math.exp2 %v : vector<4xf32>
    flashattn.stage
    %f = math.sqrt %e : vector<4xf32>
    flashattn.stage
    %g = math.log2 %f : vector<4xf32>
    flashattn.stage lag 1
    %sum = arith.addf %a, %g : vector<4xf32>
    flashattn.stage lag 1 behind 1
    %product = arith.mulf %b, %g : vector<4xf32>
    flashattn.tile_yield %sum, %product : vector<4xf32>, vector<4xf32>
  }
  return %r#0, %r#1 : vector<4xf32>, vector<4xf32>
}

// -----

// Rounds over one interval are a loop around its own, and the number of the round that of the pass.
// CHECK-LABEL: func @rounds
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<?x?xf32>, %[[B:[a-z0-9]+]]: index, %[[E:[a-z0-9]+]]: index, %[[ROUNDS:[a-z0-9]+]]: index
// CHECK-NOT: arith.divui
// CHECK: scf.for %[[R:.*]] = %c0 to %{{.*}} step %c1 iter_args(%[[A:.*]] = %{{.*}}) -> (f32)
// CHECK:   scf.for %[[J:.*]] = %[[B]] to %[[E]] step %{{.*}} iter_args(%{{.*}} = %[[A]])
// CHECK:     memref.load %[[M]][%[[R]], %[[J]]]
// CHECK-NOT: scf.for
func.func @rounds(%m: memref<?x?xf32>, %b: index, %e: index, %rounds: index, %x: f32) -> f32 {
  %s = flashattn.tile_loop (%i, %j, %r) in [(%b, %b, %e, %e)] rounds %rounds iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%r, %j] : memref<?x?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  return %s : f32
}

// -----

// Over several, a pass is an interval of a round: all of one round, then those of the next.
// CHECK-LABEL: func @rounds_of_intervals
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<?x?xf32>, %[[B:[a-z0-9]+]]: index, %[[E:[a-z0-9]+]]: index, %[[ROUNDS:[a-z0-9]+]]: index
// CHECK: %[[PASSES:.*]] = arith.muli %[[ROUNDS]], %c2
// CHECK: scf.for %[[PASS:.*]] = %c0 to %[[PASSES]] step %c1 iter_args
// CHECK:   %[[PASS32:.*]] = arith.index_castui %[[PASS]]
// CHECK:   %[[ROUND32:.*]] = arith.divui %[[PASS32]], %c2_i32
// CHECK:   %[[R:.*]] = arith.index_castui %[[ROUND32]]
// CHECK:   %[[BEFORE:.*]] = arith.muli %[[R]], %c2
// CHECK:   %[[INTERVAL:.*]] = arith.subi %[[PASS]], %[[BEFORE]]
// CHECK:   %[[FIRST:.*]] = arith.cmpi eq, %[[INTERVAL]], %c0
// CHECK:   %[[BEGIN:.*]] = arith.select %[[FIRST]], %c0, %[[B]]
// CHECK:   %[[END:.*]] = arith.select %[[FIRST]], %c4, %[[E]]
// CHECK:   scf.for %[[J:.*]] = %[[BEGIN]] to %[[END]]
// CHECK:     memref.load %[[M]][%[[R]], %[[J]]]
func.func @rounds_of_intervals(%m: memref<?x?xf32>, %b: index, %e: index, %rounds: index, %x: f32) -> f32 {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %s = flashattn.tile_loop (%i, %j, %r) in [(%c0, %c0, %c4, %c4), (%b, %b, %e, %e)] rounds %rounds iter_args(%a = %x) -> (f32) {
    %v = memref.load %m[%r, %j] : memref<?x?xf32>
    %sum = arith.addf %a, %v : f32
    flashattn.tile_yield %sum : f32
  }
  return %s : f32
}
