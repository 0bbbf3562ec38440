// Programs of warpgroups for what the others' tiles do not suit.
// RUN: flash-opt %s -split-input-file "-flashattn-select-schedule=chip=sm_90a" -flashattn-tile -canonicalize -cse | FileCheck %s

// With D = 256, slopes and a bias the sums of dk and dv are apart. Programs for dv keep keys alone, which leaves room for tiles of more
// queries: products then read less of shared memory for each of theirs.
// CHECK-LABEL: func @values
// CHECK: %[[KEYS:.*]] = flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} in %[[KEYS]] schedule(<tile_m = 64, tile_n = 64, stages = 2, {{.*}}algorithm = separate_dk_dv
// CHECK: flashattn.load_tile {{.*}} -> vector<64x256xbf16>
// CHECK: flashattn.tile_loop {{.*}} -> vector<64x256xf32>
// CHECK: flashattn.program {{.*}} in %[[KEYS]] schedule(<tile_m = 64, tile_n = 32, stages = 3, {{.*}}algorithm = separate_dk_dv
// CHECK: flashattn.load_tile {{.*}} -> vector<32x256xbf16>
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 32, stages = 3,
func.func @values(%q: memref<1x2x?x256xbf16>, %lse: memref<1x2x?xf32>, %bias: memref<1x2x?x?xf32>, %dq: memref<1x2x?x256xbf16>, %dk: memref<1x2x?x256xbf16>, %dv: memref<1x2x?x256xbf16>) {
  flashattn.attention_backward softcap(50.0)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?xf32>, memref<1x2x?x256xbf16>)
    bias(%bias : memref<1x2x?x?xf32>)
    outs(%dq, %dk, %dv : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>)
  return
}

// -----

// What an attn_mask shows is listed in tiles of one width.
// CHECK-LABEL: func @lists
// CHECK-COUNT-2: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 32, stages = 3, {{.*}}algorithm = separate_dk_dv
func.func @lists(%q: memref<1x2x?x256xbf16>, %lse: memref<1x2x?xf32>, %attn_mask: memref<1x2x?x?xi1>, %dq: memref<1x2x?x256xbf16>, %dk: memref<1x2x?x256xbf16>, %dv: memref<1x2x?x256xbf16>) {
  flashattn.attention_backward softcap(50.0)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?xf32>, memref<1x2x?x256xbf16>)
    attn_mask(%attn_mask : memref<1x2x?x?xi1>)
    outs(%dq, %dk, %dv : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>)
  return
}

// -----

// B5: the elements of a bias' gradient, in persistent blocks. A step is a batch, whose tiles all come anew; rows past
// those that the sums of queries are padded to are there no more.
// CHECK-LABEL: func @elements
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%c1, %c2, %{{.*}}, %{{.*}}) axes(batch, head, query_tile, key_tile)
// CHECK: flashattn.program (%{{.*}}, %[[H:.*]], %[[I:.*]], %[[J:.*]]) in %[[SPACE]] schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 224, producer_registers = 56, rescale_threshold = 0, l2_head_group = 1, q_stages = 2>>)
// CHECK: flashattn.tile_loop (%{{.*}}, %[[B:.*]]) in [(%c0, %{{.*}}, %[[END:.*]], %[[END]])]
// CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[H]], %[[I]]] dims [2] in_bounds [true] : memref<{{.*}}xf32> -> vector<128xf32>
// CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[H]], %[[I]], %c0] {{.*}} -> vector<128x128xf16>
// CHECK: flashattn.load_tile %{{.*}}[%[[B]], %[[H]], %[[J]], %c0] {{.*}} -> vector<64x128xf16>
func.func @elements(%q: memref<?x2x?x128xf16>, %lse: memref<?x2x?xf32>, %bias: memref<1x2x?x?xf16>, %dq: memref<?x2x?x128xf16>, %dk: memref<?x2x?x128xf16>, %dv: memref<?x2x?x128xf16>, %d: memref<1x2x?x?xf16>) {
  flashattn.attention_backward
    ins(%q, %q, %q, %q, %lse, %q : memref<?x2x?x128xf16>, memref<?x2x?x128xf16>, memref<?x2x?x128xf16>, memref<?x2x?x128xf16>, memref<?x2x?xf32>, memref<?x2x?x128xf16>)
    bias(%bias : memref<1x2x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x2x?x128xf16>, memref<?x2x?x128xf16>, memref<?x2x?x128xf16>) d_bias(%d : memref<1x2x?x?xf16>)
  return
}

// -----

// The queries' sums are padded to whole tiles of 64 here.
// CHECK-LABEL: func @narrow
// CHECK: axes(batch, head, query_tile, key_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 128, tile_n = 64, stages = 1,
// One batch is a loop of one step.
// CHECK: %[[END:.*]] = arith.addi %{{.*}}, %c1
// CHECK: flashattn.load_tile %{{.*}} dims [2] in_bounds [false] : memref<{{.*}}xf32> -> vector<128xf32>
func.func @narrow(%q: memref<?x2x?x256xf16>, %lse: memref<?x2x?xf32>, %bias: memref<?x2x?x?xf16>, %dq: memref<?x2x?x256xf16>, %dk: memref<?x2x?x256xf16>, %dv: memref<?x2x?x256xf16>, %d: memref<?x2x?x?xf16>) {
  flashattn.attention_backward
    ins(%q, %q, %q, %q, %lse, %q : memref<?x2x?x256xf16>, memref<?x2x?x256xf16>, memref<?x2x?x256xf16>, memref<?x2x?x256xf16>, memref<?x2x?xf32>, memref<?x2x?x256xf16>)
    bias(%bias : memref<?x2x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x2x?x256xf16>, memref<?x2x?x256xf16>, memref<?x2x?x256xf16>) d_bias(%d : memref<?x2x?x?xf16>)
  return
}

// -----

// Columns are padded: 160 and 80 are as many as 192 and 128, of which there is room for one stage.
// CHECK-LABEL: func @padded
// CHECK: axes(batch, head, query_tile, key_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 128, tile_n = 64, stages = 1,
func.func @padded(%q: memref<?x2x?x160xf16>, %v: memref<?x2x?x80xf16>, %lse: memref<?x2x?xf32>, %bias: memref<?x2x?x?xf16>, %dq: memref<?x2x?x160xf16>, %dk: memref<?x2x?x160xf16>, %dv: memref<?x2x?x80xf16>, %d: memref<?x2x?x?xf16>) {
  flashattn.attention_backward
    ins(%q, %q, %v, %v, %lse, %v : memref<?x2x?x160xf16>, memref<?x2x?x160xf16>, memref<?x2x?x80xf16>, memref<?x2x?x80xf16>, memref<?x2x?xf32>, memref<?x2x?x80xf16>)
    bias(%bias : memref<?x2x?x?xf16>)
    outs(%dq, %dk, %dv : memref<?x2x?x160xf16>, memref<?x2x?x160xf16>, memref<?x2x?x80xf16>) d_bias(%d : memref<?x2x?x?xf16>)
  return
}

// -----

// B4: shares of dq are added in turns, from the first tile of keys that a query sees to the last.
// CHECK-LABEL: func @turns
// CHECK: %[[ORDER:.*]] = memref.alloc() : memref<1x2x16xi32>
// Of 128 rows each 64 begin with the turn of their own first keys.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[I:.*]]) in %[[SPACE]]
// CHECK: %[[TWICE:.*]] = arith.muli %[[I]], %c2
// CHECK: %[[FIRST:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: memref.store %[[FIRST]], %[[ORDER]][%[[B]], %[[H]], %[[TWICE]]]
// CHECK: %[[NEXT:.*]] = arith.addi %[[TWICE]], %c1
// CHECK: %[[SECOND:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: memref.store %[[SECOND]], %[[ORDER]][%[[B]], %[[H]], %[[NEXT]]]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program (%{{.*}}, %{{.*}}, %[[J:.*]]) in %[[SPACE]]
// CHECK: flashattn.add_tile {{.*}} parts 2 order %[[ORDER]] : memref<1x2x16xi32> turn %[[J]]
// CHECK: memref.dealloc %[[ORDER]]
func.func @turns(%q: memref<1x2x1000x128xf16>, %lse: memref<1x2x1000xf32>, %dq: memref<1x2x1000x128xf16>, %dk: memref<1x2x1000x128xf16>, %dv: memref<1x2x1000x128xf16>) {
  flashattn.attention_backward mask(#flashattn.window<left = 299, right = 0>) deterministic
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000xf32>, memref<1x2x1000x128xf16>)
    outs(%dq, %dk, %dv : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>)
  return
}

// -----

// Where spare warps add, and in any order, the first to come makes zeros of a tile of dq's sums: the program in front only says
// that nobody has come. Where nobody does the sums are anything, and dq is 0.
// CHECK-LABEL: func @first
// CHECK: %[[SUMS:.*]] = memref.alloc() : memref<1x2x1024x128xf32>
// CHECK: %[[ORDER:.*]] = memref.alloc() : memref<1x2x16xi32>
// CHECK: %[[TOLD:.*]] = memref.alloc() : memref<1x2x16xi32>
// CHECK: %[[SPACE:.*]] = flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]]
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[T]], %c0
// CHECK: scf.if %[[FIRST]]
// CHECK: memref.store %c0_i32, %[[TOLD]][%[[B]], %[[H]], %c0]
// CHECK-NOT: flashattn.store_tile %{{.*}} to %[[SUMS]]
// CHECK-COUNT-2: memref.store %c0_i32, %[[ORDER]]
// CHECK: %[[SPACE:.*]] = flashattn.dense_space(%{{.*}}, %{{.*}}, %[[PROGRAMS:.*]]) axes(batch, head, key_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %{{.*}}) in %[[SPACE]]
// CHECK: flashattn.add_tile {{.*}} to %[[SUMS]][{{.*}} parts 2 order %[[ORDER]] : memref<1x2x16xi32> :
// CHECK: flashattn.signal_added %[[TOLD]][%[[B]], %[[H]], %c0]
// The sums of a head are there when all of its programs say so.
// CHECK: %[[SPACE:.*]] = flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in %[[SPACE]]
// CHECK: flashattn.await_added %[[TOLD]][%[[B]], %[[H]], %c0] of %[[PROGRAMS]]
// CHECK: %[[SUM:.*]] = flashattn.load_added %[[SUMS]]
// CHECK: %[[STATE:.*]] = memref.load %[[ORDER]][%[[B]], %[[H]], %[[T]]]
// CHECK: %[[ANY:.*]] = arith.cmpi ne, %[[STATE]], %c0_i32
// CHECK: arith.select %[[ANY]], %[[SUM]], %{{.*}} : vector<64x128xf32>
func.func @first(%q: memref<1x2x1000x128xf16>, %lse: memref<1x2x1000xf32>, %dq: memref<1x2x1000x128xf16>, %dk: memref<1x2x1000x128xf16>, %dv: memref<1x2x1000x128xf16>) {
  flashattn.attention_backward mask(#flashattn.window<left = 299, right = 0>)
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, algorithm = accumulate_dq, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1, dq_reduce_stages = 1>>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000xf32>, memref<1x2x1000x128xf16>)
    outs(%dq, %dk, %dv : memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>, memref<1x2x1000x128xf16>)
  return
}

// -----

// With as many queries a step as keys sums over products of d_o and v begin with the deltas, which come beside the
// product of the step before: the tile that this takes is waited for in front of them, in a stage of its own.
// CHECK-LABEL: func @begin
// CHECK: %[[SUMS:.*]] = memref.alloc(%{{.*}}) : memref<4x2x?xf32>
// CHECK: %[[NEGATED:.*]] = arith.negf
// CHECK: flashattn.store_tile %[[NEGATED]] to %[[SUMS]]
// CHECK: axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 128, tile_n = 128,
// CHECK: flashattn.tile_loop
// CHECK: math.exp2
// CHECK: %[[P:.*]] = arith.truncf
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK: %[[DO:.*]] = flashattn.load_tile
// CHECK: %[[MINUS:.*]] = flashattn.load_tile %[[SUMS]][{{.*}}] dims [-1, 2] {{.*}} -> vector<128x128xf32>
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: %[[DIFFERENCE:.*]] = vector.contract {{.*}} %{{.*}}, %[[DO]], %[[MINUS]] : vector<128x64xf16>, vector<128x64xf16> into vector<128x128xf32>
// CHECK-NEXT: vector.contract {{.*}} %[[P]], %[[DO]],
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: arith.extf %[[P]]
// CHECK-NEXT: arith.mulf %{{.*}}, %[[DIFFERENCE]]
// CHECK: flashattn.stage lag 1{{$}}
// CHECK-NEXT: vector.contract
// CHECK-NEXT: flashattn.stage lag 1 behind 1
// CHECK-NEXT: flashattn.stage lag 1 behind 2
// CHECK-NEXT: vector.contract
// CHECK-NEXT: flashattn.stage lag 1 behind 3
// CHECK-NEXT: flashattn.add_tile
func.func @begin(%q: memref<1x2x?x64xf16>, %lse: memref<1x2x?xf32>, %dq: memref<1x2x?x64xf16>, %dk: memref<1x2x?x64xf16>, %dv: memref<1x2x?x64xf16>) {
  flashattn.attention_backward
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?xf32>, memref<1x2x?x64xf16>)
    outs(%dq, %dk, %dv : memref<1x2x?x64xf16>, memref<1x2x?x64xf16>, memref<1x2x?x64xf16>)
  return
}

// -----

// Consumers that split the sums, in wider steps: each has one product, of scores or of the gradients of weights, and what it
// makes of that. dq has programs of its own, whose product runs beside what the next step makes of its two: nothing is
// added up, whether sums must be deterministic or not.
// CHECK-LABEL: func @split
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 64, stages = {{.*}}cooperative = 1
// CHECK: flashattn.tile_loop
// CHECK: %[[S:.*]] = vector.contract
// CHECK: %[[DP:.*]] = vector.contract
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK: %[[E:.*]] = math.exp2
// CHECK: %[[P:.*]] = arith.truncf %[[E]]
// CHECK: %[[DS:.*]] = arith.truncf
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK-NEXT: vector.contract {{.*}} %[[P]],
// CHECK-NEXT: vector.contract {{.*}} %[[DS]],
// CHECK-NEXT: flashattn.tile_yield
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, query_tile)
// CHECK: flashattn.program {{.*}} schedule(<tile_m = 64, tile_n = 48
// CHECK: flashattn.tile_loop
// CHECK: vector.contract
// CHECK: flashattn.stage{{$}}
// CHECK: vector.contract
// CHECK-NEXT: flashattn.stage{{$}}
// CHECK: %[[INNER:.*]] = arith.truncf
// CHECK-NEXT: flashattn.stage lag 1 behind 1
// CHECK-NEXT: %[[DQ:.*]] = vector.contract {{.*}} %[[INNER]],
// CHECK-NEXT: flashattn.tile_yield %[[DQ]]
func.func @split(%q: memref<1x2x?x256xbf16>, %k: memref<1x2x?x256xbf16>, %v: memref<1x2x?x256xbf16>, %o: memref<1x2x?x256xbf16>, %do: memref<1x2x?x256xbf16>, %lse: memref<1x2x?xf32>, %dq: memref<1x2x?x256xbf16>, %dk: memref<1x2x?x256xbf16>, %dv: memref<1x2x?x256xbf16>) {
  flashattn.attention_backward deterministic
    ins(%q, %k, %v, %o, %lse, %do : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?xf32>, memref<1x2x?x256xbf16>)
    outs(%dq, %dk, %dv : memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>, memref<1x2x?x256xbf16>)
  return
}

// -----

// With slopes what is passed on is made beside the weights.
// CHECK-LABEL: func @split_slopes
// CHECK: %[[E:.*]] = math.exp2
// CHECK: %[[P:.*]] = arith.truncf %[[E]]
// CHECK: arith.mulf %[[E]],
// CHECK: %[[FACTORS:.*]] = arith.truncf
// CHECK: arith.extf %[[FACTORS]]
// CHECK: vector.contract {{.*}} %[[P]],
func.func @split_slopes(%q: memref<1x2x?x192xf16>, %k: memref<1x2x?x192xf16>, %v: memref<1x2x?x192xf16>, %o: memref<1x2x?x192xf16>, %do: memref<1x2x?x192xf16>, %lse: memref<1x2x?xf32>, %dq: memref<1x2x?x192xf16>, %dk: memref<1x2x?x192xf16>, %dv: memref<1x2x?x192xf16>) {
  flashattn.attention_backward softcap(50.0)
    schedule(<tile_m = 64, tile_n = 48, stages = 2, dot_type = f16, algorithm = split_dk_dv, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>)
    ins(%q, %k, %v, %o, %lse, %do : memref<1x2x?x192xf16>, memref<1x2x?x192xf16>, memref<1x2x?x192xf16>, memref<1x2x?x192xf16>, memref<1x2x?xf32>, memref<1x2x?x192xf16>)
    outs(%dq, %dk, %dv : memref<1x2x?x192xf16>, memref<1x2x?x192xf16>, memref<1x2x?x192xf16>)
  return
}

// -----

// Whether a key exists, and is a sink, is said by the key's limit: no pair is compared for it.
// CHECK-LABEL: func @sinks
// CHECK: flashattn.dense_space{{.*}} axes(batch, head, key_tile)
// CHECK: flashattn.program
// CHECK: flashattn.tile_mask
// CHECK: %[[EXISTS:.*]] = arith.cmpi sge, %{{.*}} : vector<128x1xi32>
// CHECK: arith.select %[[EXISTS]], %{{.*}}, %[[NEVER:.*]] : vector<128x1xi1>, vector<128x1xi32>
// CHECK-COUNT-2: arith.cmpi sge, %{{.*}} : vector<128x128xi32>
// CHECK: %[[SINK:.*]] = arith.cmpi sge, %{{.*}} : vector<128x1xi32>
// CHECK: arith.select %[[SINK]], %{{.*}}, %[[NEVER]]
// CHECK: arith.cmpi sge, %{{.*}} : vector<128x128xi32>
// CHECK-NEXT: arith.ori
// CHECK-NEXT: flashattn.tile_yield
// What hidden pairs make goes in elements of 16 bits, as the weights that tell of it are; without a mask in f32, as above.
// CHECK: %[[P:.*]] = arith.truncf
// CHECK: %[[PRODUCTS:.*]] = arith.truncf
// CHECK-NEXT: %[[SHOWN:.*]] = flashattn.tile_mask
// CHECK-NEXT: arith.cmpf une, %[[P]], %[[NONE:.*]] : vector<128x128xbf16>
// CHECK: arith.select %[[SHOWN]], %[[PRODUCTS]], %[[NONE]]
func.func @sinks(%q: memref<1x2x?x64xbf16>, %lse: memref<1x2x?xf32>, %dq: memref<1x2x?x64xbf16>, %dk: memref<1x2x?x64xbf16>, %dv: memref<1x2x?x64xbf16>) {
  flashattn.attention_backward mask(#flashattn.any_of<[#flashattn.window<left = 511, right = 0>, #flashattn.all_of<[#flashattn.sink<4>, #flashattn.causal]>]>)
    ins(%q, %q, %q, %q, %lse, %q : memref<1x2x?x64xbf16>, memref<1x2x?x64xbf16>, memref<1x2x?x64xbf16>, memref<1x2x?x64xbf16>, memref<1x2x?xf32>, memref<1x2x?x64xbf16>)
    outs(%dq, %dk, %dv : memref<1x2x?x64xbf16>, memref<1x2x?x64xbf16>, memref<1x2x?x64xbf16>)
  return
}
