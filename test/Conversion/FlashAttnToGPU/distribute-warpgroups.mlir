// Warpgroups that share a program: what each has of a product, and what its threads hand over.
// RUN: flash-opt %s -split-input-file -flashattn-distribute -canonicalize -cse | FileCheck %s

#shared = #gpu.address_space<workgroup>

// CHECK-LABEL: func @share
// CHECK-SAME: %[[THREAD:[a-z0-9]+]]: index, %[[STAGING:[a-z0-9]+]]: memref<8x1024xf32, {{.*}}>, %[[SUMS:[a-z0-9]+]]: memref<?x128xf32>, %[[I:[a-z0-9]+]]: index, %[[K:[a-z0-9]+]]: memref<2x128x64xf16, {{.*}}>, %[[Q:[a-z0-9]+]]: memref<2x64x64xf16, {{.*}}>, %[[DS:[a-z0-9]+]]: memref<1x128x64xf16, {{.*}}>
// A warp knows which warpgroup it is of as one.
// CHECK: %[[NUMBER:.*]] = arith.divui %[[THREAD]], %c128
// CHECK: %[[NUMBER32:.*]] = arith.index_castui %[[NUMBER]]
// CHECK: %[[UNIFORM:.*]], %{{.*}} = gpu.shuffle idx %[[NUMBER32]], %c0_i32, %c32_i32
// CHECK: %[[GROUP:.*]] = arith.index_castui %[[UNIFORM]]
// Of a product of 128 rows each has 64: those of the left-hand side, in every panel.
// CHECK: %[[ROW:.*]] = arith.muli %[[GROUP]], %c64
// CHECK: %[[MINE:.*]] = memref.subview %[[K]][0, %[[ROW]], 0] [2, 64, 64] [1, 1, 1]
// CHECK: hopper.wgmma %[[MINE]], %[[Q]] : {{.*}} -> vector<32xf32>
// CHECK: %[[P:.*]] = hopper.pin %{{.*}} : vector<32xf16>
// CHECK: %[[PLACE:.*]] = memref.subview %[[DS]][0, %[[ROW]], 0] [1, 64, 64] [1, 1, 1]
// CHECK: hopper.store_tile %[[P]] to %[[PLACE]]
// A left-hand side in registers is there already.
// CHECK: %[[DK:.*]] = hopper.wgmma %[[P]], %[[Q]] transposed : {{.*}} -> vector<64xf32>
// Of a product of 64 rows each has as many columns, a panel here, from the whole left-hand side.
// CHECK: %[[PANEL:.*]] = memref.subview %[[K]][%[[GROUP]], 0, 0] [1, 128, 64] [1, 1, 1]
// CHECK: %[[DQ:.*]] = hopper.wgmma %[[DS]], %[[PANEL]] transposed_a transposed : {{.*}} -> vector<32xf32>
// CHECK: %[[W:.*]]:2 = hopper.wgmma_wait %[[DK]], %[[DQ]]
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: hopper.add_tile %[[W]]#1 through %[[STAGING]] to %[[SUMS]][%[[I]], %[[I]]] warp %[[WARP]] : vector<32xf32>
// CHECK: hopper.store_tile %{{.*}} to %[[MINE]] : vector<64xf16>
func.func @share(%thread: index, %s: memref<8x1024xf32, #shared>, %sums: memref<?x128xf32>, %i: index,
                 %k: memref<2x128x64xf16, #shared>, %q: memref<2x64x64xf16, #shared>, %ds: memref<1x128x64xf16, #shared>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 128, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 2, cooperative = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
    %x = hopper.wgmma %k, %q : memref<2x128x64xf16, #shared>, memref<2x64x64xf16, #shared> -> vector<128x64xf32>
    %xw = hopper.wgmma_wait %x : vector<128x64xf32>
    %h = arith.truncf %xw : vector<128x64xf32> to vector<128x64xf16>
    %p = hopper.pin %h : vector<128x64xf16>
    hopper.store_tile %p to %ds : vector<128x64xf16>, memref<1x128x64xf16, #shared>
    %dk = hopper.wgmma %p, %q transposed : vector<128x64xf16>, memref<2x64x64xf16, #shared> -> vector<128x128xf32>
    %dq = hopper.wgmma %ds, %k transposed_a transposed : memref<1x128x64xf16, #shared>, memref<2x128x64xf16, #shared> -> vector<64x128xf32>
    %w:2 = hopper.wgmma_wait %dk, %dq : vector<128x128xf32>, vector<64x128xf32>
    hopper.add_tile %w#1 through %s to %sums[%i, %i] : vector<64x128xf32>, memref<8x1024xf32, #shared>, memref<?x128xf32>
    %h2 = arith.truncf %w#0 : vector<128x128xf32> to vector<128x128xf16>
    hopper.store_tile %h2 to %k : vector<128x128xf16>, memref<2x128x64xf16, #shared>
  }
  return
}

// -----

// What programs have added, of two parts of the columns, each as the threads of four warps had them: four elements of
// a thread next to each other, 128 of a warp.
// CHECK-LABEL: func @added
// CHECK-SAME: %[[THREAD:[a-z0-9]+]]: index, %[[SUMS:[a-z0-9]+]]: memref<2x4x?x16xf32>, %[[B:[a-z0-9]+]]: index, %[[H:[a-z0-9]+]]: index, %[[T:[a-z0-9]+]]: index
// CHECK: %[[LANE:.*]] = arith.andi %[[THREAD]], %c31
// CHECK: %[[WARP:.*]] = arith.divui %[[THREAD]], %c32
// CHECK: %[[FIRST:.*]] = arith.muli %[[T]], %c64
// CHECK: %[[OFWARP:.*]] = arith.muli %[[WARP]], %c128
// CHECK: %[[OFLANE:.*]] = arith.muli %[[LANE]], %c4
// CHECK: %[[AT:.*]] = arith.addi %[[OFWARP]], %[[OFLANE]]
// CHECK: %[[R:.*]] = arith.divui %[[AT]], %c16
// CHECK: %[[ROW:.*]] = arith.addi %[[FIRST]], %[[R]]
// CHECK: %[[COLUMN:.*]] = arith.remui %[[AT]], %c16
// CHECK: vector.load %[[SUMS]][%[[B]], %[[H]], %[[ROW]], %[[COLUMN]]] {alignment = 16 : i64} : {{.*}}, vector<4xf32>
// The other part lies behind that of all four warps.
// CHECK: %[[AT2:.*]] = arith.addi %[[AT]], %c512
// CHECK: vector.load
// CHECK-NOT: vector.load
// CHECK: vector.from_elements {{.*}} : vector<8xf32>
func.func @added(%thread: index, %sums: memref<2x4x?x16xf32>, %b: index, %h: index, %t: index, %o: memref<?x16xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %thread schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %x = flashattn.load_added %sums[%b, %h, %t, %c0] parts 2 : memref<2x4x?x16xf32> -> vector<64x16xf32>
    flashattn.store_tile %x to %o[%t, %c0] dims [0, 1] in_bounds [true, true] : vector<64x16xf32>, memref<?x16xf32>
  }
  return
}

// -----

// The rows of several heads go along two dimensions: 16 of each of 4, of which row r is r mod 16 of head r / 16.
// CHECK-LABEL: func @rows_of_heads
// CHECK-SAME: %{{[a-z0-9]+}}: index, %[[LSE:[a-z0-9]+]]: memref<?x?xf32>
// CHECK: %[[ROW:.*]] = arith.addi %{{.*}}, %{{.*}} : index
// CHECK: %[[HEAD:.*]] = arith.divui %[[ROW]], %c16
// CHECK: %[[POSITION:.*]] = arith.remui %[[ROW]], %c16
// CHECK: %[[H:.*]] = arith.addi %{{.*}}, %[[HEAD]]
// CHECK: %[[P:.*]] = arith.addi %{{.*}}, %[[POSITION]]
// CHECK: %[[P1:.*]] = arith.minsi %[[P]], %{{.*}}
// CHECK: memref.load %[[LSE]][%[[H]], %[[P1]]]
// CHECK: arith.addi %[[ROW]], %c8
// CHECK: memref.load %[[LSE]]
// CHECK-NOT: memref.load
// CHECK: return
func.func @rows_of_heads(%thread: index, %lse: memref<?x?xf32>, %h: index, %t: index, %o: memref<?xf32>) {
  flashattn.on_threads %thread schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %packed = flashattn.packed_rows [4, 16]
    %x = flashattn.load_tile %lse[%h, %t] dims [0, 1] rows %packed in_bounds [true, false] : memref<?x?xf32> -> vector<64xf32>
    flashattn.store_tile %x to %o[%t] dims [0] in_bounds [true] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

// One value a row, of rows that a GPU's program loads: two of a thread, of which the last row stands for those past it.
// CHECK-LABEL: func @rows
// CHECK-SAME: %{{[a-z0-9]+}}: index, %[[LSE:[a-z0-9]+]]: memref<2x?xf32>, %[[B:[a-z0-9]+]]: index
// CHECK: %[[COUNT:.*]] = memref.dim %[[LSE]], %c1
// CHECK: %[[LAST:.*]] = arith.subi %[[COUNT]], %c1
// CHECK: %[[OWN:.*]] = arith.addi %{{.*}}, %{{.*}} : index
// CHECK-NEXT: %[[AT:.*]] = arith.addi %[[FIRST:.*]], %[[OWN]] : index
// CHECK-NEXT: %[[ROW:.*]] = arith.minsi %[[AT]], %[[LAST]]
// CHECK: memref.load %[[LSE]][%[[B]], %[[ROW]]]
// CHECK: %[[OWN8:.*]] = arith.addi %[[OWN]], %c8
// CHECK: %[[AT8:.*]] = arith.addi %[[FIRST]], %[[OWN8]]
// CHECK: %[[ROW8:.*]] = arith.minsi %[[AT8]], %[[LAST]]
// CHECK: memref.load %[[LSE]][%[[B]], %[[ROW8]]]
// CHECK-NOT: memref.load
// CHECK: return
func.func @rows(%thread: index, %lse: memref<2x?xf32>, %b: index, %t: index, %o: memref<?xf32>) {
  flashattn.on_threads %thread schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
    %x = flashattn.load_tile %lse[%b, %t] dims [1] in_bounds [false] : memref<2x?xf32> -> vector<64xf32>
    flashattn.store_tile %x to %o[%t] dims [0] in_bounds [true] : vector<64xf32>, memref<?xf32>
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A thread has one row of two of what is made of scores, as nobody reads the other one. Products have both: weights
// twice, and sums, which stay as they are from step to step, with the factor of the one row for both.
// CHECK-LABEL: func @unused_row_half
// CHECK: %[[ZEROS:.*]] = arith.constant dense<0.000000e+00> : vector<64xf32>
// CHECK: scf.for {{.*}} iter_args(%[[MAX:.*]] = %{{.*}}, %[[OUT:.*]] = %[[ZEROS]]) -> (vector<1xf32>, vector<64xf32>)
// CHECK: %[[S:.*]] = hopper.wgmma %{{.*}} -> vector<16xf32>
// CHECK: %[[SW:.*]] = hopper.wgmma_wait %[[S]]
// CHECK: %[[OWN:.*]] = vector.shuffle %[[SW]], %[[SW]] [0, 1, 4, 5, 8, 9, 12, 13]
// CHECK: %[[P:.*]] = math.exp2 %[[OWN]] : vector<8xf32>
// CHECK: %[[P16:.*]] = arith.truncf %[[P]] : vector<8xf32> to vector<8xf16>
// CHECK: %[[BOTH:.*]] = vector.shuffle %[[P16]], %[[P16]] [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7]
// CHECK: %[[O:.*]] = hopper.wgmma %[[BOTH]], %{{.*}}, %{{.*}} transposed : vector<16xf16>, {{.*}}, vector<64xf32>
// CHECK: %[[OW:.*]] = hopper.wgmma_wait %[[O]] : vector<64xf32>
// CHECK: scf.yield %{{.*}}, %[[OW]] : vector<1xf32>, vector<64xf32>
// CHECK: %[[MINE:.*]] = vector.shuffle %{{.*}}#1, %{{.*}}#1 [0, 1, 4, 5,
// A row of 8 rows' lanes is stored, and not the one 8 rows on.
// CHECK: scf.if
// CHECK: vector.store
// CHECK-NOT: scf.if
// CHECK: return
func.func @unused_row_half(%thread: index, %q: memref<1x64x64xf16, #shared>, %k: memref<1x32x64xf16, #shared>, %v: memref<2x32x64xf16, #shared>, %o: memref<?x128xf32>, %n: index) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) unused_row_half {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %low = arith.constant dense<0xFF800000> : vector<64xf32>
    %zeros = arith.constant dense<0.0> : vector<64x128xf32>
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%max = %low, %out = %zeros) -> (vector<64xf32>, vector<64x128xf32>) {
      %s = hopper.wgmma %q, %k : memref<1x64x64xf16, #shared>, memref<1x32x64xf16, #shared> -> vector<64x32xf32>
      %sw = hopper.wgmma_wait %s : vector<64x32xf32>
      %new = vector.multi_reduction <maxnumf>, %sw, %max [1] : vector<64x32xf32> to vector<64xf32>
      %p = math.exp2 %sw : vector<64x32xf32>
      %p16 = arith.truncf %p : vector<64x32xf32> to vector<64x32xf16>
      %column = vector.shape_cast %new : vector<64xf32> to vector<64x1xf32>
      %spread = vector.broadcast %column : vector<64x1xf32> to vector<64x128xf32>
      %scaled = arith.mulf %out, %spread : vector<64x128xf32>
      %x = hopper.wgmma %p16, %v, %scaled transposed : vector<64x32xf16>, memref<2x32x64xf16, #shared>, vector<64x128xf32>
      %xw = hopper.wgmma_wait %x : vector<64x128xf32>
      scf.yield %new, %xw : vector<64xf32>, vector<64x128xf32>
    }
    flashattn.store_tile %r#1 to %o[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<64x128xf32>, memref<?x128xf32>
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// What is added to memory has all rows, as those who stage it take it.
// CHECK-LABEL: func @half_rows_added
// CHECK: hopper.add_tile %{{.*}} : vector<32xf32>
func.func @half_rows_added(%thread: index, %q: memref<1x64x64xf16, #shared>, %k: memref<1x64x64xf16, #shared>, %s: memref<4x1024xf32, #shared>, %sums: memref<?x64xf32>, %i: index) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) unused_row_half {
    %x = hopper.wgmma %q, %k : memref<1x64x64xf16, #shared>, memref<1x64x64xf16, #shared> -> vector<64x64xf32>
    %w = hopper.wgmma_wait %x : vector<64x64xf32>
    hopper.add_tile %w through %s to %sums[%i, %i] : vector<64x64xf32>, memref<4x1024xf32, #shared>, memref<?x64xf32>
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// Columns of sums are a range of a thread's elements. In a program with one row for each lane, sums have both.
// CHECK-LABEL: func @columns
// CHECK: scf.for {{.*}} iter_args(%[[OUT:.*]] = %{{.*}}) -> (vector<64xf32>)
// CHECK: %[[X:.*]] = hopper.wgmma {{.*}} -> vector<32xf32>
// CHECK: %[[XW:.*]] = hopper.wgmma_wait %[[X]]
// CHECK: %[[OWN:.*]] = vector.shuffle %[[OUT]], %[[OUT]] [0, 1, 4, 5,
// CHECK: %[[PART:.*]] = vector.shuffle %[[OWN]], %[[OWN]] [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]
// CHECK: %[[BOTH:.*]] = vector.shuffle %[[PART]], %[[PART]] [0, 1, 0, 1,
// CHECK: %[[SUM:.*]] = arith.addf %[[BOTH]], %[[XW]] : vector<32xf32>
// CHECK: %[[PIN:.*]] = hopper.pin %[[SUM]] weak : vector<32xf32>
// CHECK: %[[NEW:.*]] = vector.insert_strided_slice %[[PIN]], %[[OUT]] {offsets = [32], strides = [1]} : vector<32xf32> into vector<64xf32>
// CHECK: scf.yield %[[NEW]]
func.func @columns(%thread: index, %p: vector<64x32xf16>, %q: memref<1x64x64xf16, #shared>, %v: memref<1x32x64xf16, #shared>, %o: memref<?x128xf32>, %n: index) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) unused_row_half {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zeros = arith.constant dense<0.0> : vector<64x128xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%out = %zeros) -> (vector<64x128xf32>) {
      %s = hopper.wgmma %q, %v depth(32) : memref<1x64x64xf16, #shared>, memref<1x32x64xf16, #shared> -> vector<64x32xf32>
      %sw = hopper.wgmma_wait %s : vector<64x32xf32>
      %p16 = arith.truncf %sw : vector<64x32xf32> to vector<64x32xf16>
      %x = hopper.wgmma %p16, %v transposed : vector<64x32xf16>, memref<1x32x64xf16, #shared> -> vector<64x64xf32>
      %xw = hopper.wgmma_wait %x : vector<64x64xf32>
      %part = vector.extract_strided_slice %out {offsets = [0, 64], sizes = [64, 64], strides = [1, 1]} : vector<64x128xf32> to vector<64x64xf32>
      %sum = arith.addf %part, %xw : vector<64x64xf32>
      %pin = hopper.pin %sum weak : vector<64x64xf32>
      %new = vector.insert_strided_slice %pin, %out {offsets = [0, 64], strides = [1, 1]} : vector<64x64xf32> into vector<64x128xf32>
      scf.yield %new : vector<64x128xf32>
    }
    flashattn.store_tile %r to %o[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<64x128xf32>, memref<?x128xf32>
  }
  return
}
