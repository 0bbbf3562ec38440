// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-pipeline-keys -cse | FileCheck %s
// RUN: flash-opt %s -split-input-file -flashattn-tile -flashattn-pipeline-keys | flash-opt -split-input-file | FileCheck %s --check-prefix=READS-BACK

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// A causal program: a full loop and a partial one become one run.

// READS-BACK-LABEL: func @causal
// CHECK-DAG: #[[QK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[PV:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func @causal
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[V:[a-z0-9]+]]: memref<?x?x?x64xf16>
// CHECK: scf.forall
// CHECK: %[[QT:.*]] = vector.transfer_read %[[Q]]
// CHECK: %[[END:.*]] = arith.maxsi
// CHECK: %[[MIDDLE:.*]] = arith.maxsi
// An interval without tiles passes the state on as it is.
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %c0, %[[END]] : index
// CHECK: %[[INTERVAL:.*]]:3 = scf.if %[[ANY]] -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)

// The first tile's scores stand before the loops, masked: it may be partial.
// CHECK:   %[[ROW0:.*]] = arith.muli %c0, %c32
// CHECK:   %[[K0:.*]] = vector.transfer_read %[[K]][{{.*}}, %[[ROW0]], %c0]
// CHECK:   %[[S0:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[QK]], {{.*}}} %[[QT]], %[[K0]],
// CHECK-NOT: vector.transfer_read
// CHECK:   arith.select %{{.*}}, %[[S0]], %{{.*}} : vector<64x32xi1>, vector<64x32xf32>
// CHECK:   %[[P0:.*]] = arith.truncf %{{.*}} : vector<64x32xf32> to vector<64x32xf16>

// The weights are one more value of the loops; from the second tile on.
// CHECK:   %[[SECOND:.*]] = arith.addi %c0, %c1
// CHECK:   %[[FULL:.*]]:4 = scf.for %[[J:.*]] = %[[SECOND]] to %[[MIDDLE]] step %c1 iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %[[O:.*]] = %{{.*}}, %[[P:.*]] = %[[P0]])
// CHECK-SAME: -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>, vector<64x32xf16>)
// S(j) = Q K(j)
// CHECK:     %[[ROW:.*]] = arith.muli %[[J]], %c32
// CHECK:     %[[KJ:.*]] = vector.transfer_read %[[K]][{{.*}}, %[[ROW]], %c0]
// CHECK:     %[[S:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[QK]], {{.*}}} %[[QT]], %[[KJ]],
// and right behind it O += P(j-1) V(j-1).
// CHECK:     %[[LAST:.*]] = arith.subi %[[J]], %c1
// CHECK:     %[[LASTROW:.*]] = arith.muli %[[LAST]], %c32
// CHECK:     %[[VJ:.*]] = vector.transfer_read %[[V]][{{.*}}, %[[LASTROW]], %c0]
// CHECK:     %[[O2:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[PV]], {{.*}}} %[[P]], %[[VJ]], %[[O]]
// The softmax of S(j) follows, without a mask.
// CHECK-NOT: arith.select {{.*}} vector<64x32xi1>
// CHECK:     vector.multi_reduction <maxnumf>, %[[S]],
// CHECK:     %[[SCALED:.*]] = arith.mulf %[[O2]],
// CHECK:     %[[PJ:.*]] = arith.truncf
// CHECK:     scf.yield %{{.*}}, %{{.*}}, %[[SCALED]], %[[PJ]]
// CHECK-NEXT: }

// The second loop goes on where the first ended, or from the second tile.
// CHECK:   %[[FROM:.*]] = arith.maxsi %[[MIDDLE]], %[[SECOND]]
// CHECK:   %[[PART:.*]]:4 = scf.for %{{.*}} = %[[FROM]] to %[[END]] step %c1 iter_args(%{{.*}} = %[[FULL]]#0, %{{.*}} = %[[FULL]]#1, %{{.*}} = %[[FULL]]#2, %{{.*}} = %[[FULL]]#3)
// CHECK:     arith.select {{.*}} vector<64x32xi1>
// CHECK:   } {flashattn.partial}

// The last tile's output stands behind the loops.
// CHECK:   %[[FINAL:.*]] = arith.subi %[[END]], %c1
// CHECK:   %[[FINALROW:.*]] = arith.muli %[[FINAL]], %c32
// CHECK:   %[[VN:.*]] = vector.transfer_read %[[V]][{{.*}}, %[[FINALROW]], %c0]
// CHECK:   %[[ON:.*]] = vector.contract {indexing_maps = [{{.*}}, #[[PV]], {{.*}}} %[[PART]]#3, %[[VN]], %[[PART]]#2
// CHECK:   scf.yield %[[PART]]#0, %[[PART]]#1, %[[ON]]
// CHECK: } else {
// CHECK:   scf.yield
// CHECK: } {flashattn.key_run}
// Nothing is left of the loops as they were.
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

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 8, section = 1>>

// Two intervals: the loop over them holds one run of three loops, whose state is carried on.
// READS-BACK-LABEL: func @sinks_and_window
// CHECK-LABEL: func @sinks_and_window
// CHECK: %[[ALL:.*]]:3 = scf.for %[[I:.*]] = %c0 to %c2 step %c1 iter_args(%[[M:.*]] = %{{.*}}, %[[L:.*]] = %{{.*}}, %[[O:.*]] = %{{.*}}) -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)
// CHECK:   %[[FIRST:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK:   %[[BEGIN:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[FULLBEGIN:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[FULLEND:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[END:.*]] = arith.select %[[FIRST]]
// CHECK:   %[[ANY:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]] : index
// CHECK:   %[[INTERVAL:.*]]:3 = scf.if %[[ANY]]
// CHECK:     %[[SECOND:.*]] = arith.addi %[[BEGIN]], %c1
// CHECK:     scf.for %{{.*}} = %[[SECOND]] to %[[FULLBEGIN]]
// CHECK:     } {flashattn.partial}
// CHECK:     %[[FROM2:.*]] = arith.maxsi %[[FULLBEGIN]], %[[SECOND]]
// CHECK:     scf.for %{{.*}} = %[[FROM2]] to %[[FULLEND]]
// CHECK-NOT: arith.select {{.*}} vector<64x32xi1>
// CHECK:     %[[FROM3:.*]] = arith.maxsi %[[FULLEND]], %[[SECOND]]
// CHECK:     scf.for %{{.*}} = %[[FROM3]] to %[[END]]
// CHECK:     } {flashattn.partial}
// CHECK:   } else {
// CHECK-NEXT: scf.yield %[[M]], %[[L]], %[[O]]
// CHECK-NEXT: } {flashattn.key_run}
// CHECK-NEXT: scf.yield %[[INTERVAL]]#0, %[[INTERVAL]]#1, %[[INTERVAL]]#2
// CHECK-NOT: flashattn.key_run
func.func @sinks_and_window(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.any_of<[#flashattn.window<left = 1023, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>) schedule(#roles)
    ins(%q, %k, %v : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

#roles = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = bf16, roles = <consumers = 2, along = query_tile, registers = 240, producer_registers = 24, rescale = 0, section = 1>>

// Static lengths, of which the last tile of keys is partial; values wider than queries.
// READS-BACK-LABEL: func @static
// CHECK-LABEL: func @static
// CHECK: scf.if {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>)
// CHECK:   scf.for {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>, vector<64x32xbf16>)
// CHECK:   scf.for {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x128xf32>, vector<64x32xbf16>)
// CHECK:   } {flashattn.partial}
// CHECK: } {flashattn.key_run}
func.func @static(%q: memref<1x4x200x64xbf16>, %k: memref<1x4x200x64xbf16>, %v: memref<1x4x200x128xbf16>, %o: memref<1x4x200x128xbf16>) {
  flashattn.attention schedule(#roles)
    ins(%q, %k, %v : memref<1x4x200x64xbf16>, memref<1x4x200x64xbf16>, memref<1x4x200x128xbf16>)
    outs(%o : memref<1x4x200x128xbf16>)
  return
}

// -----

#plain = #flashattn.schedule<tile_m = 64, tile_n = 32, warps = 4, stages = 2, lanes = 4, dot_type = f16>

// A program without roles stays as it is.
// READS-BACK-LABEL: func @no_roles
// CHECK-LABEL: func @no_roles
// CHECK-NOT: flashattn.key_run
// CHECK: scf.for {{.*}} -> (vector<64xf32>, vector<64x4xf32>, vector<64x64xf32>)
// CHECK: vector.contract
// CHECK: math.exp2
// CHECK: vector.contract
// CHECK: return
func.func @no_roles(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention schedule(#plain)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}
