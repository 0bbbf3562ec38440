// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=cpu vector-width=16" -flashattn-tile -canonicalize -cse -mlir-print-local-scope | FileCheck %s

// A2: softcap by one factor each side of the tanh, the second in the exponent's; the order is
// softcap, score modification, bias, mask.

// CHECK-LABEL: func @softcap
// CHECK-DAG: %[[LAST:.*]] = arith.constant dense<72.1347503> : vector<32x64xf32>
// CHECK-DAG: %[[FIRST:.*]] = arith.constant dense<2.500000e-03> : vector<32x64xf32>
// CHECK: %[[S:.*]] = vector.contract
// CHECK: %[[X:.*]] = arith.mulf %[[S]], %[[FIRST]]
// CHECK: %[[T:.*]] = math.tanh %[[X]]
// CHECK: %[[MASKED:.*]] = arith.select %{{.*}}, %[[T]],
// CHECK: vector.multi_reduction <maxnumf>, %[[MASKED]]
// CHECK: %[[SHIFTED:.*]] = arith.subf %[[MASKED]],
// CHECK: math.fma %[[SHIFTED]], %[[LAST]]
func.func @softcap(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention softcap(50.0) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// A bias takes the scale along in one FMA; a dimension of 1 is broadcast by the read, and what lies
// past the ends is 0. M7: attn_mask joins the mask where a tile is not full for both.

// CHECK-LABEL: func @bias_attn_mask
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: memref<1x?x1x?xbf16>, %[[ATTN_MASK:[a-z0-9]+]]: memref<?x1x?x?xi1>
// CHECK-DAG: %[[SCALE:.*]] = arith.constant dense<1.250000e-01> : vector<32x64xf32>
// CHECK-DAG: %[[LOG2E:.*]] = arith.constant dense<1.44269502> : vector<32x64xf32>
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in
// CHECK: %[[S:.*]] = vector.contract
// CHECK: %[[BT:.*]] = flashattn.load_tile %[[BIAS]][%c0, %[[H]], %c0, %[[J]]] dims [-1, 3] in_bounds [true, false] : memref<1x?x1x?xbf16> -> vector<32x64xbf16>
// CHECK: %[[BX:.*]] = arith.extf %[[BT]]
// CHECK: %[[SB:.*]] = math.fma %[[S]], %[[SCALE]], %[[BX]]
// CHECK-NOT: flashattn.load_tile %[[ATTN_MASK]]
// CHECK: %[[SHOWN:.*]] = flashattn.tile_mask -> vector<32x64xi1> {
// CHECK: %[[KT:.*]] = flashattn.load_tile %[[ATTN_MASK]][%[[B]], %c0, %[[T]], %[[J]]] dims [2, 3] in_bounds [false, false] : memref<?x1x?x?xi1> -> vector<32x64xi1>
// CHECK: %[[BOTH:.*]] = arith.andi %{{.*}}, %[[KT]] : vector<32x64xi1>
// CHECK: flashattn.tile_yield %[[BOTH]]
// CHECK: %[[SK:.*]] = arith.select %[[SHOWN]], %[[SB]]
// CHECK: vector.multi_reduction <maxnumf>, %[[SK]]
// CHECK: %[[SHIFTED:.*]] = arith.subf %[[SK]],
// CHECK: math.fma %[[SHIFTED]], %[[LOG2E]]
func.func @bias_attn_mask(%q: memref<?x?x?x64xf16>, %bias: memref<1x?x1x?xbf16>, %attn_mask: memref<?x1x?x?xi1>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    bias(%bias : memref<1x?x1x?xbf16>) attn_mask(%attn_mask : memref<?x1x?x?xi1>)
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// A score modification on whole tiles: what depends on the head alone stays a scalar, on the key a
// row of the tile's keys.

// CHECK-LABEL: func @score_mod
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in
// CHECK: %[[S:.*]] = vector.contract
// CHECK: %[[SC:.*]] = arith.mulf %[[S]], %{{.*}} : vector<32x64xf32>
// CHECK: vector.step : vector<32xindex>
// CHECK: %[[P:.*]] = arith.addi %{{.*}} : vector<32x1xindex>
// CHECK: vector.step : vector<64xindex>
// CHECK: %[[K:.*]] = arith.addi %{{.*}} : vector<1x64xindex>
// CHECK: arith.index_cast %[[H]] : index to i32
// CHECK: %[[SLOPE:.*]] = math.exp2 %{{.*}} : f32
// CHECK: %[[D:.*]] = arith.subi %{{.*}} : vector<32x64xindex>
// CHECK: arith.sitofp %{{.*}} : vector<32x64xi32> to vector<32x64xf32>
// CHECK: %[[SV:.*]] = vector.broadcast %[[SLOPE]] : f32 to vector<32x64xf32>
// CHECK: %[[Y:.*]] = math.fma %{{.*}}, %[[SV]], %[[SC]] : vector<32x64xf32>
// CHECK: %[[MASKED:.*]] = arith.select %{{.*}}, %[[Y]],
// CHECK: vector.multi_reduction <maxnumf>, %[[MASKED]]
func.func @score_mod(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
      %h32 = arith.index_cast %h : index to i32
      %hf = arith.sitofp %h32 : i32 to f32
      %n = arith.negf %hf : f32
      %slope = math.exp2 %n : f32
      %d = arith.subi %k, %p : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %y = math.fma %df, %slope, %s : f32
      flashattn.yield %y : f32
    }
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// A3, A7: each batch has its number of keys, within the memory's; K and V end there.

// CHECK-LABEL: func @kv_len
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[K:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[LEN:[a-z0-9]+]]: memref<?xi32>
// CHECK-DAG: %[[NQ:.*]] = memref.dim %[[Q]], %c2
// CHECK-DAG: %[[NK:.*]] = memref.dim %[[K]], %c2
// CHECK: flashattn.program (%[[B:.*]], %{{.*}}, %{{.*}}) in
// CHECK: %[[L:.*]] = memref.load %[[LEN]][%[[B]]] : memref<?xi32>
// CHECK: %[[LI:.*]] = arith.index_cast %[[L]] : i32 to index
// CHECK: %[[L0:.*]] = arith.maxsi %[[LI]], %c0
// CHECK: %[[N:.*]] = arith.minsi %[[L0]], %[[NK]]
// CHECK: arith.subi %[[N]], %[[NQ]]
// CHECK: %[[ROWS:.*]] = flashattn.dense_rows below %[[N]]
// CHECK: flashattn.load_tile %[[K]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds [false, true]
// CHECK: flashattn.load_tile %[[K]]{{.*}} dims [2, 3] rows %[[ROWS]] in_bounds [false, true]
func.func @kv_len(%q: memref<?x?x?x64xf16>, %k: memref<?x?x?x64xf16>, %len: memref<?xi32>, %o: memref<?x?x?x64xf16>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    kv_len(%len : memref<?xi32>) outs(%o : memref<?x?x?x64xf16>)
  return
}

// -----

// A5, A6: the sink's logit joins after the keys and in no loop.

// CHECK-LABEL: func @sinks
// CHECK-NOT: memref.load
// CHECK: flashattn.tile_loop
// CHECK-NOT: memref.load
// CHECK: flashattn.tile_yield %{{.*}} : vector<32xf32>
// CHECK: memref.load %{{.*}} : memref<?xf32>
// CHECK: arith.maxnumf %{{.*}} : vector<32xf32>
// CHECK-COUNT-2: math.exp2 %{{.*}} : vector<32xf32>
// CHECK: flashattn.store_tile
// CHECK: math.log2
func.func @sinks(%q: memref<?x?x?x64xf16>, %sinks: memref<?xf32>, %o: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    sink_logits(%sinks : memref<?xf32>) outs(%o, %lse : memref<?x?x?x64xf16>, memref<?x?x?xf32>)
  return
}
