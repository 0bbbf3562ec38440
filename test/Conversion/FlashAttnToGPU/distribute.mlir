// RUN: flash-opt %s -split-input-file -flashattn-distribute -canonicalize -cse | FileCheck %s

#shared = #gpu.address_space<workgroup>

// A tile of 64 rows on 4 warps: a thread holds 16 / 2 = 8 scores of 16 columns, 2 rows.
// CHECK-LABEL: func @softmax
// Column numbers are 2 (lane % 4) and these.
// CHECK: arith.constant dense<[0, 1, 8, 9]> : vector<4xi32>
// CHECK: %[[LANE:.*]] = arith.andi %{{.*}}, %c31
// CHECK: %[[LANEROW:.*]] = arith.divui %[[LANE]], %c4
// CHECK: %[[QUAD:.*]] = arith.andi %[[LANE]], %c3
// CHECK: %[[LANECOLUMN:.*]] = arith.muli %[[QUAD]], %c2
// CHECK: %[[WARP:.*]] = arith.divui %{{.*}}, %c32
// CHECK: %[[WARPROW:.*]] = arith.muli %[[WARP]], %c16
// The left-hand side comes by ldmatrix in the order of the accumulators.
// CHECK: nvvm.ldmatrix %{{.*}} layout = #nvvm.mma_layout<row>, num = 4 : i32
// CHECK: scf.for {{.*}} -> (vector<2xf32>, vector<2xf32>)
// The right-hand side where it is used; m16n8k16 twice for 16 columns.
// CHECK:   nvvm.ldmatrix %{{.*}} layout = #nvvm.mma_layout<row>, num = 4 : i32
// CHECK-COUNT-2: nvvm.mma.sync {{.*}} #nvvm.shape<m = 16, n = 8, k = 16>
// CHECK:   arith.select %{{.*}} : vector<8xi1>, vector<8xf32>
// A row max: a tree in the thread, two shuffles within four lanes.
// CHECK:   arith.maxnumf
// CHECK:   gpu.shuffle xor %{{.*}}, %c1_i32
// CHECK:   gpu.shuffle xor %{{.*}}, %c2_i32
// Row values spread to (half, column) order without any exchange.
// CHECK:   vector.shuffle %{{.*}} [0, 0, 1, 1, 0, 0, 1, 1] : vector<2xf32>, vector<2xf32>
// CHECK:   math.exp2 %{{.*}} : vector<8xf32>
// The partial sums of a row stay with their lanes,
// CHECK-NOT: gpu.shuffle
// CHECK:   scf.yield
// CHECK: }
// and meet once, at the end.
// CHECK: gpu.shuffle xor
// Lane 0 of the four writes the row, where it exists.
// CHECK: arith.cmpi eq, %[[LANECOLUMN]], %c0
// CHECK: arith.cmpi slt
// CHECK: scf.if
// CHECK: memref.store
func.func @softmax(%rows: memref<?xf32>, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  %size = arith.constant 2560 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %qs = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x16xf16, #shared>
      %ks = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x16xf16, #shared>
      %q = vector.transfer_read %qs[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x64x16xf16, #shared>, vector<64x16xf16>
      %minf = arith.constant dense<0xFF800000> : vector<64xf32>
      %none = arith.constant dense<0.0> : vector<64x4xf32>
      %acc = arith.constant dense<0.0> : vector<64x16xf32>
      %hidden = arith.constant dense<0xFF800000> : vector<64x16xf32>
      %step = vector.step : vector<16xindex>
      %step32 = arith.index_cast %step : vector<16xindex> to vector<16xi32>
      %columns = vector.shape_cast %step32 : vector<16xi32> to vector<1x16xi32>
      %r:2 = scf.for %j = %c0 to %end step %c1 iter_args(%m = %minf, %l = %none) -> (vector<64xf32>, vector<64x4xf32>) {
        %k = vector.transfer_read %ks[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x16xf16, #shared>, vector<16x16xf16>
        %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %acc : vector<64x16xf16>, vector<16x16xf16> into vector<64x16xf32>
        %i = arith.index_cast %j : index to i32
        %bound = vector.broadcast %i : i32 to vector<1x16xi32>
        %shown = arith.cmpi slt, %columns, %bound : vector<1x16xi32>
        %mask = vector.broadcast %shown : vector<1x16xi1> to vector<64x16xi1>
        %s2 = arith.select %mask, %s, %hidden : vector<64x16xi1>, vector<64x16xf32>
        %m2 = vector.multi_reduction <maxnumf>, %s2, %m [1] : vector<64x16xf32> to vector<64xf32>
        %m1 = vector.shape_cast %m2 : vector<64xf32> to vector<64x1xf32>
        %mt = vector.broadcast %m1 : vector<64x1xf32> to vector<64x16xf32>
        %x = arith.subf %s2, %mt : vector<64x16xf32>
        %p = math.exp2 %x : vector<64x16xf32>
        %p4 = vector.shape_cast %p : vector<64x16xf32> to vector<64x2x4x2xf32>
        %l2 = vector.multi_reduction <add>, %p4, %l [1, 3] : vector<64x2x4x2xf32> to vector<64x4xf32>
        scf.yield %m2, %l2 : vector<64xf32>, vector<64x4xf32>
      }
      %zeros = arith.constant dense<0.0> : vector<64xf32>
      %sum = vector.multi_reduction <add>, %r#1, %zeros [1] : vector<64x4xf32> to vector<64xf32>
      flashattn.store_tile %sum to %rows[%c0] dims [0] in_bounds [false] : vector<64xf32>, memref<?xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// Two row blocks a warp share every right-hand operand; the accumulators go in pairs to memory.
// CHECK-LABEL: func @row_blocks
// CHECK-COUNT-2: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<row>
// CHECK: nvvm.ldmatrix {{.*}}layout = #nvvm.mma_layout<col>
// CHECK-NOT: nvvm.ldmatrix
// CHECK-COUNT-4: nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK: vector.store %{{.*}} {alignment = 4 : i64} : memref<?x16xbf16>, vector<2xbf16>
func.func @row_blocks(%o: memref<?x16xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : bf16
  %size = arith.constant 2048 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 32, tile_n = 16, stages = 1, dot_type = bf16, mapping = mma_sync<warps = 1>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %as = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x32x16xbf16, #shared>
      %bs = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x16xbf16, #shared>
      %a = vector.transfer_read %as[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x32x16xbf16, #shared>, vector<32x16xbf16>
      %b = vector.transfer_read %bs[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x16xbf16, #shared>, vector<16x16xbf16>
      %acc = arith.constant dense<0.0> : vector<32x16xf32>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<32x16xbf16>, vector<16x16xbf16> into vector<32x16xf32>
      %t = arith.truncf %s : vector<32x16xf32> to vector<32x16xbf16>
      flashattn.store_tile %t to %o[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<32x16xbf16>, memref<?x16xbf16>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A9: f32 is three products of TF32 halves, the small ones first.
// CHECK-LABEL: func @full_precision
// CHECK: %[[MASK:.*]] = arith.constant -8192 : i32
// CHECK: %[[HI:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK: arith.subf %{{.*}}, %[[HI]]
// CHECK-COUNT-12: nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<tf32>{{.*}}shape = #nvvm.shape<m = 16, n = 8, k = 8>
// CHECK-NOT: nvvm.mma.sync
func.func @full_precision(%o: memref<?x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %size = arith.constant 2048 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 16, tile_n = 16, stages = 1, dot_type = f32, mapping = mma_sync<warps = 1>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %as = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x16xf32, #shared>
      %a = vector.transfer_read %as[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x16xf32, #shared>, vector<16x16xf32>
      %b = vector.transfer_read %as[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x16xf32, #shared>, vector<16x16xf32>
      %acc = arith.constant dense<0.0> : vector<16x16xf32>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %acc : vector<16x16xf32>, vector<16x16xf32> into vector<16x16xf32>
      flashattn.store_tile %s to %o[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<16x16xf32>, memref<?x16xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A program of one warpgroup among others, in the region of its role.
// CHECK-LABEL: func @branches
// CHECK: gpu.launch {{.*}} threads(%[[X:[a-z0-9]+]],
// Its threads count from 0, and nothing is computed for them in the other role.
// CHECK: nvvm.setmaxregister decrease 24
// CHECK-NEXT: } else {
// CHECK: %[[THREAD:.*]] = arith.andi %[[X]], %c127
// CHECK: %[[LANE:.*]] = arith.andi %[[THREAD]], %c31
// CHECK: arith.divui %[[THREAD]], %c32
// A product keeps its place and its operands in shared memory; what is in registers is the
// thread's part.
// CHECK: %[[S:.*]] = hopper.wgmma %[[Q:.*]], %[[K:.*]] depth(16) : memref<1x64x32xf16, {{.*}}>, memref<1x16x32xf16, {{.*}}> -> vector<8xf32>
// CHECK: %[[SW:.*]] = hopper.wgmma_wait %[[S]] {pending = 1 : i64} : vector<8xf32>
// Two rows a thread; the warp votes on its sixteen.
// CHECK: %[[GROWN:.*]] = arith.cmpf ogt, %{{.*}}, %{{.*}} : vector<2xf32>
// CHECK: %[[TWO:.*]]:2 = vector.to_elements %[[GROWN]] : vector<2xi1>
// CHECK: %[[MINE:.*]] = arith.ori %[[TWO]]#0, %[[TWO]]#1
// CHECK: %[[ANY:.*]] = flashattn.vote any %[[MINE]] : i1
// Both arms hold the thread's part; constants of tiles are made where they are used.
// CHECK: %[[BRANCH:.*]]:3 = scf.if %[[ANY]] -> (vector<2xf32>, vector<8xf32>, index)
// CHECK:   gpu.shuffle xor
// CHECK:   %[[X8:.*]] = arith.mulf {{.*}} : vector<8xf32>
// CHECK:   scf.yield %{{.*}}, %[[X8]], %{{.*}} : vector<2xf32>, vector<8xf32>, index
// CHECK: } else {
// CHECK-NEXT: %[[HELD:.*]] = hopper.wgmma_wait %{{.*}} {held} : vector<8xf32>
// CHECK-NEXT: %[[COUNT:.*]] = memref.load
// CHECK-NEXT: scf.yield %{{.*}}, %[[HELD]], %[[COUNT]] : vector<2xf32>, vector<8xf32>, index
// CHECK: %[[P:.*]] = arith.truncf %[[BRANCH]]#1 : vector<8xf32> to vector<8xf16>
// CHECK: %[[O:.*]] = hopper.wgmma %[[P]], %[[K]], %{{.*}} transposed : vector<8xf16>, memref<1x16x32xf16, {{.*}}>, vector<16xf32>
// CHECK: hopper.wgmma_wait %[[O]] : vector<16xf32>
func.func @branches(%out: memref<?x32xf32>, %rows: memref<?xf32>, %counts: memref<?xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c127 = arith.constant 127 : index
  %c256 = arith.constant 256 : index
  %size = arith.constant 8192 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c256, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
    %q = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x32xf16, #shared>
    %k = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x32xf16, #shared>
    %group = arith.cmpi ult, %tx, %c2 : index
    scf.if %group {
      nvvm.setmaxregister decrease 24
    } else {
      nvvm.setmaxregister increase 240
      %thread = arith.andi %tx, %c127 : index
      flashattn.on_threads %thread
          schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>) {
        %none = arith.constant dense<0.0> : vector<64x32xf32>
        %lowest = arith.constant dense<0xFF800000> : vector<64x4xf32>
        %m = arith.constant dense<1.0> : vector<64xf32>
        %limit = arith.constant dense<2.0> : vector<64x4xf32>
        %s = hopper.wgmma %q, %k depth(16) : memref<1x64x32xf16, #shared>, memref<1x16x32xf16, #shared> -> vector<64x16xf32>
        %sw = hopper.wgmma_wait %s {pending = 1} : vector<64x16xf32>
        %lanes = vector.shape_cast %sw : vector<64x16xf32> to vector<64x2x4x2xf32>
        %max = vector.multi_reduction <maxnumf>, %lanes, %lowest [1, 3] : vector<64x2x4x2xf32> to vector<64x4xf32>
        %grown = arith.cmpf ogt, %max, %limit : vector<64x4xf32>
        %any = flashattn.any_row %grown : vector<64x4xi1>
        %r:3 = scf.if %any -> (vector<64xf32>, vector<64x16xf32>, index) {
          %new = vector.multi_reduction <maxnumf>, %max, %m [1] : vector<64x4xf32> to vector<64xf32>
          %two = arith.constant dense<2.0> : vector<64x16xf32>
          %w = hopper.wgmma_wait %s : vector<64x16xf32>
          %x = arith.mulf %w, %two : vector<64x16xf32>
          %count = memref.load %counts[%c1] : memref<?xindex>
          scf.yield %new, %x, %count : vector<64xf32>, vector<64x16xf32>, index
        } else {
          %w = hopper.wgmma_wait %s {held} : vector<64x16xf32>
          %count = memref.load %counts[%c2] : memref<?xindex>
          scf.yield %m, %w, %count : vector<64xf32>, vector<64x16xf32>, index
        }
        %p = arith.truncf %r#1 : vector<64x16xf32> to vector<64x16xf16>
        %o = hopper.wgmma %p, %k, %none transposed : vector<64x16xf16>, memref<1x16x32xf16, #shared>, vector<64x32xf32>
        %ow = hopper.wgmma_wait %o : vector<64x32xf32>
        flashattn.store_tile %ow to %out[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<64x32xf32>, memref<?x32xf32>
        flashattn.store_tile %r#0 to %rows[%c0] dims [0] in_bounds [false] : vector<64xf32>, memref<?xf32>
        memref.store %r#2, %counts[%c0] : memref<?xindex>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A compare with columns takes what depends on the thread to the other side, once a row: its
// columns 0, 1, 8 and 9 are constants then, and so are twice these. The value of a tile that goes
// to shared memory is the thread's part.
// CHECK-LABEL: func @columns
// CHECK-DAG: %[[FIXED:.*]] = arith.constant dense<[0, 1, 0, 1, 8, 9, 8, 9]> : vector<8xi32>
// CHECK-DAG: %[[TWICE:.*]] = arith.constant dense<[0, 2, 0, 2, 16, 18, 16, 18]> : vector<8xi32>
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : i32
// CHECK: %[[ROWS:.*]] = vector.shuffle %{{.*}} [0, 0, 1, 1, 0, 0, 1, 1]
// CHECK: %[[COLUMN:.*]] = arith.index_cast %{{.*}} : index to i32
// CHECK: %[[COLUMN2:.*]] = arith.muli %[[COLUMN]], %[[C2]]
// CHECK: %[[THREAD:.*]] = vector.broadcast %[[COLUMN]] : i32 to vector<8xi32>
// CHECK: %[[LEFT:.*]] = arith.subi %[[ROWS]], %[[THREAD]] : vector<8xi32>
// CHECK: arith.cmpi sge, %[[LEFT]], %[[FIXED]] : vector<8xi32>
// CHECK: %[[THREAD2:.*]] = vector.broadcast %[[COLUMN2]] : i32 to vector<8xi32>
// CHECK: %[[LEFT2:.*]] = arith.subi %[[ROWS]], %[[THREAD2]] : vector<8xi32>
// CHECK: arith.cmpi sge, %[[LEFT2]], %[[TWICE]] : vector<8xi32>
// CHECK: hopper.store_tile %{{.*}} to %{{.*}} : vector<8xf16>, memref<1x64x16xf16, #gpu.address_space<workgroup>>
func.func @columns(%limits: memref<64xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %size = arith.constant 2048 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %t = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x16xf16, #shared>
      %step = vector.step : vector<64xindex>
      %step32 = arith.index_cast %step : vector<64xindex> to vector<64xi32>
      %rows = vector.shape_cast %step32 : vector<64xi32> to vector<64x1xi32>
      %tilerows = vector.broadcast %rows : vector<64x1xi32> to vector<64x16xi32>
      %cstep = vector.step : vector<16xindex>
      %cstep32 = arith.index_cast %cstep : vector<16xindex> to vector<16xi32>
      %columns = vector.shape_cast %cstep32 : vector<16xi32> to vector<1x16xi32>
      %two = arith.constant dense<2> : vector<1x16xi32>
      %twice = arith.muli %columns, %two : vector<1x16xi32>
      %tilecolumns = vector.broadcast %columns : vector<1x16xi32> to vector<64x16xi32>
      %tiletwice = vector.broadcast %twice : vector<1x16xi32> to vector<64x16xi32>
      %below = arith.cmpi sge, %tilerows, %tilecolumns : vector<64x16xi32>
      %belowtwice = arith.cmpi sge, %tilerows, %tiletwice : vector<64x16xi32>
      %both = arith.xori %below, %belowtwice : vector<64x16xi1>
      %one = arith.constant dense<1.0> : vector<64x16xf16>
      %zero = arith.constant dense<0.0> : vector<64x16xf16>
      %x = arith.select %both, %one, %zero : vector<64x16xi1>, vector<64x16xf16>
      hopper.store_tile %x to %t : vector<64x16xf16>, memref<1x64x16xf16, #shared>
    }
    gpu.terminator
  }
  return
}

// -----

// Rows of 4 heads, 16 positions of each: a thread's row is that of a head and a position, and is
// written where there are both, 16 bytes at a time.
// CHECK-LABEL: func @heads
// CHECK-SAME: %[[OUT:.*]]: memref<?x?x?x64xf16>, %[[LSE:.*]]: memref<?x?x?xf32>, %[[HEAD:.*]]: index, %[[AT:.*]]: index
// CHECK-DAG: %[[WARPROW:.*]] = arith.muli %{{.*}}, %c16
// CHECK-DAG: %[[HEAD0:.*]] = arith.muli %[[HEAD]], %c4
// CHECK-DAG: %[[AT0:.*]] = arith.muli %[[AT]], %c16
// CHECK-DAG: %[[HEADS:.*]] = memref.dim %[[OUT]], %c1
// CHECK-DAG: %[[POSITIONS:.*]] = memref.dim %[[OUT]], %c2
// CHECK: %[[ROW:.*]] = arith.addi %[[WARPROW]], %{{.*}}
// CHECK: %[[DH:.*]] = arith.divui %[[ROW]], %c16
// CHECK: %[[DP:.*]] = arith.remui %[[ROW]], %c16
// CHECK: %[[H:.*]] = arith.addi %[[HEAD0]], %[[DH]]
// CHECK: %[[P:.*]] = arith.addi %[[AT0]], %[[DP]]
// CHECK: %[[HIN:.*]] = arith.cmpi slt, %[[H]], %[[HEADS]]
// CHECK: %[[PIN:.*]] = arith.cmpi slt, %[[P]], %[[POSITIONS]]
// CHECK: %[[IN:.*]] = arith.andi %[[PIN]], %[[HIN]]
// CHECK: scf.if %[[IN]]
// CHECK: vector.store %{{.*}}, %[[OUT]][%c0, %[[H]], %[[P]], %{{.*}}] {alignment = 16 : i64} : {{.*}} vector<8xf16>
// One lane of four writes a row's value.
// CHECK: arith.cmpi eq, %{{.*}}, %c0
// CHECK: memref.store %{{.*}}, %[[LSE]][%c0, %[[H]], %[[P]]]
func.func @heads(%out: memref<?x?x?x64xf16>, %lse: memref<?x?x?xf32>, %head: index, %at: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, pack = 4, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 0, l2_head_group = 1>>) {
      %one = arith.constant dense<1.0> : vector<64x64xf16>
      %ones = arith.addf %one, %one : vector<64x64xf16>
      %packed = flashattn.packed_rows [4, 16]
      flashattn.store_tile %ones to %out[%c0, %head, %at, %c0] dims [1, 2, 3] rows %packed in_bounds [false, false, true] : vector<64x64xf16>, memref<?x?x?x64xf16>
      %zero = arith.constant dense<0.0> : vector<64xf32>
      %zeros = arith.addf %zero, %zero : vector<64xf32>
      flashattn.store_tile %zeros to %lse[%c0, %head, %at] dims [1, 2] rows %packed in_bounds [false, false] : vector<64xf32>, memref<?x?x?xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// A row of which every 16 bytes are aligned, as a bias may have: 32 columns in one load by four lanes,
// 8 next to each other each, then an exchange after which each has its pair of every 8. What is left
// of the columns comes pair by pair.
// CHECK-LABEL: func @aligned
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: memref<64x?xf16> {flashattn.aligned_rows}, %{{.*}}: {{.*}}, %[[KEY:[a-z0-9]+]]: index
// CHECK-DAG: %[[QUAD:.*]] = arith.andi %{{.*}}, %c3 :
// CHECK-DAG: %[[EIGHT:.*]] = arith.muli %[[QUAD]], %c8
// CHECK-DAG: %[[FIRST:.*]] = arith.muli %[[KEY]], %c48
// CHECK: arith.addi %[[FIRST]], %[[EIGHT]]
// CHECK: %[[WORDS:.*]] = llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK: %[[W0:.*]] = vector.extract %[[WORDS]][0]
// CHECK: %[[W1:.*]] = vector.extract %[[WORDS]][1]
// CHECK: %[[ODD:.*]] = arith.cmpi ne, %{{.*}}, %c0
// CHECK: %[[SENT:.*]] = arith.select %[[ODD]], %[[W0]], %[[W1]]
// CHECK: %[[GOT:.*]], %{{.*}} = gpu.shuffle xor %[[SENT]], %c1_i32
// CHECK: arith.select %[[ODD]], %[[GOT]], %[[W0]]
// CHECK: arith.select %[[ODD]], %[[W1]], %[[GOT]]
// CHECK: gpu.shuffle xor %{{.*}}, %c1_i32
// CHECK-COUNT-2: gpu.shuffle xor %{{.*}}, %c2_i32
// CHECK-COUNT-4: vector.bitcast %{{.*}} : vector<1xi32> to vector<2xf16>
// CHECK-COUNT-2: vector.load %[[BIAS]][%{{.*}}] {alignment = 4 : i64} : memref<64x?xf16>, vector<2xf16>
// The other of a thread's two rows.
// CHECK: llvm.load
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK-NOT: llvm.load
// The same way back, before the rows that exist part from the others.
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK: vector.bitcast %{{.*}} : vector<4xi32> to vector<8xf16>
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK: vector.bitcast %{{.*}} : vector<4xi32> to vector<8xf16>
// CHECK-NOT: gpu.shuffle
// CHECK: scf.if
// CHECK: vector.store %{{.*}}, %{{.*}}[%{{.*}}, %[[EIGHT]]] {alignment = 16 : i64} : memref<64x48xf16>, vector<8xf16>
// CHECK-COUNT-2: vector.store %{{.*}} {alignment = 4 : i64} : memref<64x48xf16>, vector<2xf16>
// CHECK-NOT: vector.store %{{.*}} {alignment = 4 : i64}
// CHECK: scf.if
func.func @aligned(%bias: memref<64x?xf16> {flashattn.aligned_rows}, %o: memref<64x48xf16>, %key: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 48, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %t = flashattn.load_tile %bias[%c0, %key] dims [0, 1] in_bounds [true, true] : memref<64x?xf16> -> vector<64x48xf16>
      flashattn.store_tile %t to %o[%c0, %c0] dims [0, 1] in_bounds [true, true] : vector<64x48xf16>, memref<64x48xf16>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A product over the rows of a tile, of 32 rows and 64 columns: of the 4 warps two have 16 rows each
// and 32 columns, the other two the same rows and the other columns. What is exchanged goes to
// shared memory in pairs of columns, and comes back transposed.
// CHECK-LABEL: func @share
// CHECK: %[[WARP:.*]] = arith.divui %{{.*}}, %c32
// CHECK-COUNT-8: llvm.store %{{.*}} {alignment = 4 : i64} : vector<2xf16>, !llvm.ptr<3>
// CHECK-NOT: llvm.store
// CHECK: gpu.barrier
// CHECK: arith.remui %[[WARP]], %c2
// 16 of 64 keys at a time: one operand of the warp's rows, and two of 16 columns each, the second of
// which lies where another bit of the first one's address is set.
// CHECK: %[[ROWS:.*]] = llvm.inttoptr
// CHECK: nvvm.ldmatrix %[[ROWS]] {eltType = {{.*}}, layout = #nvvm.mma_layout<col>, num = 4 : i32, {{.*}}} : (!llvm.ptr<3>)
// CHECK: nvvm.ldmatrix %{{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-2: nvvm.mma.sync
// CHECK: %[[OTHER:.*]] = arith.xori %{{.*}}, %c32_i32
// CHECK: llvm.inttoptr %[[OTHER]] : i32 to !llvm.ptr<3>
// CHECK: nvvm.ldmatrix
// CHECK-COUNT-2: nvvm.mma.sync
// Rows of 32 columns: the next 16 keys.
// CHECK: llvm.getelementptr %[[ROWS]][512]
// CHECK: nvvm.ldmatrix
// CHECK-COUNT-12: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// Every element where it lies beside those of the other lanes: 32 for each of a thread's 16.
// CHECK: %[[MINE:.*]] = arith.muli %[[WARP]], %c512
// CHECK: llvm.getelementptr %{{.*}}[32]
// CHECK: llvm.atomicrmw fadd %{{.*}} syncscope("device") monotonic {alignment = 4 : i64} : !llvm.ptr<1>, f32
// CHECK: llvm.getelementptr %{{.*}}[480]
// CHECK: llvm.atomicrmw fadd
// CHECK-NOT: llvm.atomicrmw
func.func @share(%sums: memref<?x64xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  %size = arith.constant 12288 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %ks = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x64xf16, #shared>
      %ds = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x32xf16, #shared>
      %mine = arith.constant dense<1.0> : vector<64x32xf16>
      vector.transfer_write %mine, %ds[%c0, %c0, %c0] {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : vector<64x32xf16>, memref<1x64x32xf16, #shared>
      gpu.barrier
      %p = vector.transfer_read %ds[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x64x32xf16, #shared>, vector<64x32xf16>
      %k = vector.transfer_read %ks[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x64x64xf16, #shared>, vector<64x64xf16>
      %none = arith.constant dense<0.0> : vector<32x64xf32>
      %dq = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %k, %none : vector<64x32xf16>, vector<64x64xf16> into vector<32x64xf32>
      flashattn.add_tile %dq to %sums[%j, %c0] parts 2 adjacent 1 : vector<32x64xf32>, memref<?x64xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// What is added so is loaded so: of the two warps that have 16 rows each, 32 elements in steps of 32.
// CHECK-LABEL: func @load_added
// CHECK-COUNT-32: vector.load %{{.*}} {alignment = 4 : i64} : memref<?x64xf32>, vector<1xf32>
// CHECK-NOT: vector.load
func.func @load_added(%sums: memref<?x64xf32>, %o: memref<?x64xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 32, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 2>>) {
      %dq = flashattn.load_added %sums[%j, %c0] parts 2 adjacent 1 : memref<?x64xf32> -> vector<32x64xf32>
      flashattn.store_tile %dq to %o[%j, %c0] dims [0, 1] in_bounds [false, true] : vector<32x64xf32>, memref<?x64xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// In which order columns are summed up does not matter: a thread has those that it loads, of both
// tiles the same ones.
// CHECK-LABEL: func @dots
// CHECK: %[[X:.*]] = llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK: vector.bitcast %[[X]] : vector<4xi32> to vector<8xf16>
// CHECK-NOT: gpu.shuffle
// CHECK-COUNT-3: llvm.load %{{.*}} {alignment = 16 : i64}
// CHECK-NOT: llvm.load
// CHECK: arith.mulf %{{.*}}, %{{.*}} : vector<16xf32>
// The sum over a row's four lanes, of two rows.
// CHECK-COUNT-4: gpu.shuffle xor
// CHECK-NOT: gpu.shuffle
func.func @dots(%x: memref<64x32xf16>, %y: memref<64x32xf16>, %sums: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %a = flashattn.load_tile %x[%c0, %c0] dims [0, 1] in_bounds [true, true] : memref<64x32xf16> -> vector<64x32xf16>
      %b = flashattn.load_tile %y[%c0, %c0] dims [0, 1] in_bounds [true, true] : memref<64x32xf16> -> vector<64x32xf16>
      %c = arith.extf %a : vector<64x32xf16> to vector<64x32xf32>
      %d = arith.extf %b : vector<64x32xf16> to vector<64x32xf32>
      %products = arith.mulf %c, %d : vector<64x32xf32>
      %sum = vector.multi_reduction <add>, %products, %zeros [1] : vector<64x32xf32> to vector<64xf32>
      flashattn.store_tile %sum to %sums[%c0] dims [0] in_bounds [true] : vector<64xf32>, memref<64xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// Where one of the tiles cannot be read so, all of them have the columns of products.
// CHECK-LABEL: func @mixed_dots
// CHECK: %[[X:.*]] = llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-NOT: vector.bitcast %[[X]]
// CHECK: gpu.shuffle xor
// CHECK: memref.load %{{.*}} : memref<64x32xf16, strided<[33, 1]>>
func.func @mixed_dots(%x: memref<64x32xf16>, %y: memref<64x32xf16, strided<[33, 1]>>, %sums: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %zeros = arith.constant dense<0.0> : vector<64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 32, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %a = flashattn.load_tile %x[%c0, %c0] dims [0, 1] in_bounds [true, true] : memref<64x32xf16> -> vector<64x32xf16>
      %b = flashattn.load_tile %y[%c0, %c0] dims [0, 1] in_bounds [true, true] : memref<64x32xf16, strided<[33, 1]>> -> vector<64x32xf16>
      %products = arith.mulf %a, %b : vector<64x32xf16>
      %wide = arith.extf %products : vector<64x32xf16> to vector<64x32xf32>
      %sum = vector.multi_reduction <add>, %wide, %zeros [1] : vector<64x32xf32> to vector<64xf32>
      flashattn.store_tile %sum to %sums[%c0] dims [0] in_bounds [true] : vector<64xf32>, memref<64xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// One value throughout whole rows: threads write next to each other, wherever the rows end.
// CHECK-LABEL: func @fill
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<4xf32>
// CHECK: gpu.launch {{.*}} threads(%[[THREAD:[a-z0-9_]+]],
// CHECK: %[[FIRST:.*]] = arith.muli %[[THREAD]], %c4
// CHECK: %[[ROW:.*]] = arith.divui %[[FIRST]], %c48
// CHECK: %[[COLUMN:.*]] = arith.remui %[[FIRST]], %c48
// CHECK: vector.store %[[ZERO]], %{{.*}}[%{{.*}}, %[[COLUMN]]] {alignment = 16 : i64} : memref<?x48xf32>, vector<4xf32>
// CHECK: arith.addi %[[FIRST]], %c512
// CHECK-COUNT-5: vector.store %[[ZERO]], %{{.*}} {alignment = 16 : i64}
// CHECK-NOT: vector.store
func.func @fill(%to: memref<?x48xf32>, %tile: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 48, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %zeros = arith.constant dense<0.0> : vector<64x48xf32>
      flashattn.store_tile %zeros to %to[%tile, %c0] dims [0, 1] in_bounds [true, true] : vector<64x48xf32>, memref<?x48xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// Rows that may end before the tile are written by who has them.
// CHECK-LABEL: func @fill_some
// CHECK: scf.if
// CHECK: vector.store %{{.*}} {alignment = 8 : i64} : memref<?x48xf32>, vector<2xf32>
func.func @fill_some(%to: memref<?x48xf32>, %tile: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 48, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %zeros = arith.constant dense<0.0> : vector<64x48xf32>
      flashattn.store_tile %zeros to %to[%tile, %c0] dims [0, 1] in_bounds [false, true] : vector<64x48xf32>, memref<?x48xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// A sum of f32 products is three of the tensor cores', which round it towards zero.
// CHECK-LABEL: func @short_sum
// CHECK-COUNT-24: nvvm.mma.sync
// CHECK-NOT: arith.addf
func.func @short_sum(%rows: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %size = arith.constant 65536 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = mma_sync<warps = 1>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %qs = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x64xf32, #shared>
      %ks = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x8x64xf32, #shared>
      %q = vector.transfer_read %qs[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x64xf32, #shared>, vector<16x64xf32>
      %k = vector.transfer_read %ks[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x8x64xf32, #shared>, vector<8x64xf32>
      %acc = arith.constant dense<0.0> : vector<16x8xf32>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %acc : vector<16x64xf32>, vector<8x64xf32> into vector<16x8xf32>
      %minf = arith.constant dense<0xFF800000> : vector<16xf32>
      %m = vector.multi_reduction <maxnumf>, %s, %minf [1] : vector<16x8xf32> to vector<16xf32>
      flashattn.store_tile %m to %rows[%c0] dims [0] in_bounds [false] : vector<16xf32>, memref<?xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// Of more than 64 products each step's 8 are added up on their own and then to the others.
// CHECK-LABEL: func @long_sum
// CHECK-COUNT-3: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK-COUNT-4: arith.addf
// CHECK-NOT: arith.addf
// CHECK-COUNT-3: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: arith.addf
func.func @long_sum(%rows: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %size = arith.constant 65536 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 16, tile_n = 8, stages = 1, dot_type = f32, mapping = mma_sync<warps = 1>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %qs = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x16x72xf32, #shared>
      %ks = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x8x72xf32, #shared>
      %q = vector.transfer_read %qs[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x16x72xf32, #shared>, vector<16x72xf32>
      %k = vector.transfer_read %ks[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x8x72xf32, #shared>, vector<8x72xf32>
      %acc = arith.constant dense<0.0> : vector<16x8xf32>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %q, %k, %acc : vector<16x72xf32>, vector<8x72xf32> into vector<16x8xf32>
      %minf = arith.constant dense<0xFF800000> : vector<16xf32>
      %m = vector.multi_reduction <maxnumf>, %s, %minf [1] : vector<16x8xf32> to vector<16xf32>
      flashattn.store_tile %m to %rows[%c0] dims [0] in_bounds [false] : vector<16xf32>, memref<?xf32>
    }
    gpu.terminator
  }
  return
}

// -----

// A product of some warps of a group. Each multiplies its own rows, 16 columns of K at a time, with 16 rows of the other
// tile: what ldmatrix reads of these are the operands of two blocks of 8 columns.
#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
#shared = #gpu.address_space<workgroup>
// CHECK-LABEL: func @some_warps
// CHECK-SAME: (%[[THREAD:[a-z0-9]+]]: index, %[[Q:[a-z0-9]+]]: memref<2x64x16xf16, {{.*}}>, %[[K:[a-z0-9]+]]: memref<2x32x16xf16, {{.*}}>,
// CHECK: %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<16xf32>
// CHECK: %[[ANY:.*]] = flashattn.vote any
// CHECK: scf.if %[[ANY]] -> (vector<16xf32>) {
// The thread's number passes through a shuffle, lest the addresses are made before the branch.
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[THREAD]] : index to i32
// CHECK: %[[HERE:.*]], %{{.*}} = gpu.shuffle xor %[[NUMBER]], %c0_i32, %c32_i32
// CHECK: %[[SUMS:.*]]:16 = vector.to_elements %[[ZERO]]
// CHECK: %[[A:.*]] = hopper.read_tile %[[Q]] by %[[HERE]] : memref<2x64x16xf16, {{.*}}> -> vector<8xf16>
// CHECK: %[[A0:.*]] = vector.shuffle %[[A]], %[[A]] [0, 1]
// CHECK: %[[A1:.*]] = vector.shuffle %[[A]], %[[A]] [2, 3]
// CHECK: %[[A2:.*]] = vector.shuffle %[[A]], %[[A]] [4, 5]
// CHECK: %[[A3:.*]] = vector.shuffle %[[A]], %[[A]] [6, 7]
// CHECK: %[[ROWS:.*]] = memref.subview %[[K]][0, 0, 0] [2, 16, 16] [1, 1, 1]
// CHECK: %[[B:.*]] = hopper.read_tile %[[ROWS]] by %[[HERE]] : memref<2x16x16xf16, strided<[512, 16, 1]>, {{.*}}> -> vector<8xf16>
// CHECK: %[[B0:.*]] = vector.shuffle %[[B]], %[[B]] [0, 1]
// CHECK: %[[B1:.*]] = vector.shuffle %[[B]], %[[B]] [2, 3]
// CHECK: %[[B2:.*]] = vector.shuffle %[[B]], %[[B]] [4, 5]
// CHECK: %[[B3:.*]] = vector.shuffle %[[B]], %[[B]] [6, 7]
// CHECK: %[[D:.*]] = nvvm.mma.sync A[%[[A0]], %[[A1]], %[[A2]], %[[A3]]] B[%[[B0]], %[[B2]]] C[%[[SUMS]]#0, %[[SUMS]]#1, %[[SUMS]]#2, %[[SUMS]]#3]
// CHECK: %[[D0:.*]] = llvm.extractvalue %[[D]][0]
// CHECK: nvvm.mma.sync A[%[[A0]], %[[A1]], %[[A2]], %[[A3]]] B[%[[B1]], %[[B3]]] C[%[[SUMS]]#4, %[[SUMS]]#5, %[[SUMS]]#6, %[[SUMS]]#7]
// CHECK: %[[ROWS16:.*]] = memref.subview %[[K]][0, 16, 0] [2, 16, 16] [1, 1, 1]
// CHECK: hopper.read_tile %[[ROWS16]] by %[[HERE]]
// CHECK: nvvm.mma.sync A[%[[A0]], %{{.*}} C[%[[SUMS]]#8,
// CHECK: nvvm.mma.sync A[%[[A0]], %{{.*}} C[%[[SUMS]]#12,
// The next columns are added.
// CHECK: %[[A16:.*]] = hopper.read_tile %[[Q]] from 16 by %[[HERE]]
// CHECK: %[[A160:.*]] = vector.shuffle %[[A16]], %[[A16]] [0, 1]
// CHECK: hopper.read_tile %[[ROWS]] from 16 by %[[HERE]]
// CHECK: nvvm.mma.sync A[%[[A160]], %{{.*}} C[%[[D0]],
// CHECK: nvvm.mma.sync A[%[[A160]],
// CHECK: hopper.read_tile %[[ROWS16]] from 16 by %[[HERE]]
// CHECK-COUNT-2: nvvm.mma.sync A[%[[A160]],
// CHECK-NOT: nvvm.mma.sync
// CHECK: %[[S:.*]] = vector.from_elements
// CHECK: scf.yield %[[S]] : vector<16xf32>
func.func @some_warps(%thread: index, %q: memref<2x64x16xf16, #shared>, %k: memref<2x32x16xf16, #shared>, %out: memref<?x32xf32>) {
  %c0 = arith.constant 0 : index
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %none = arith.constant dense<0.0> : vector<64x32xf32>
    %limit = arith.constant dense<2.0> : vector<64x32xf32>
    %s = hopper.wgmma %q, %k : memref<2x64x16xf16, #shared>, memref<2x32x16xf16, #shared> -> vector<64x32xf32>
    %sw = hopper.wgmma_wait %s : vector<64x32xf32>
    %above = arith.cmpf ugt, %sw, %limit : vector<64x32xf32>
    %any = flashattn.any_row %above : vector<64x32xi1>
    %r = scf.if %any -> (vector<64x32xf32>) {
      %a = hopper.load_tile %q : memref<2x64x16xf16, #shared> -> vector<64x32xf16>
      %b = hopper.load_tile %k : memref<2x32x16xf16, #shared> -> vector<32x32xf16>
      %again = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %a, %b, %none : vector<64x32xf16>, vector<32x32xf16> into vector<64x32xf32>
      scf.yield %again : vector<64x32xf32>
    } else {
      scf.yield %sw : vector<64x32xf32>
    }
    flashattn.store_tile %r to %out[%c0, %c0] dims [0, 1] in_bounds [false, true] : vector<64x32xf32>, memref<?x32xf32>
  }
  return
}

// -----

// The largest of a lane's weights, as integers.
#shared = #gpu.address_space<workgroup>
// CHECK-LABEL: func @largest_bits
// CHECK: %[[W:.*]] = hopper.wgmma_wait %{{.*}} : vector<8xf32>
// CHECK: %[[BITS:.*]] = arith.bitcast %[[W]] : vector<8xf32> to vector<8xi32>
// CHECK: arith.maxsi
// CHECK-NOT: gpu.shuffle
// CHECK: %[[GROWN:.*]] = arith.cmpi sgt, %{{.*}} : vector<2xi32>
// CHECK: vector.to_elements %[[GROWN]] : vector<2xi1>
// CHECK: flashattn.vote any
func.func @largest_bits(%thread: index, %q: memref<1x64x32xf16, #shared>, %k: memref<1x16x32xf16, #shared>, %counts: memref<?xindex>) {
  flashattn.on_threads %thread
      schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = hopper<consumers = 1, along = query_tile, registers = 240, producer_registers = 24, rescale_threshold = 8, l2_head_group = 1, lazy_rescale = 1>>) {
    %c0 = arith.constant 0 : index
    %none = arith.constant dense<0> : vector<64x4xi32>
    %limit = arith.constant dense<1132462080> : vector<64x4xi32>
    %s = hopper.wgmma %q, %k : memref<1x64x32xf16, #shared>, memref<1x16x32xf16, #shared> -> vector<64x16xf32>
    %sw = hopper.wgmma_wait %s : vector<64x16xf32>
    %bits = arith.bitcast %sw : vector<64x16xf32> to vector<64x16xi32>
    %lanes = vector.shape_cast %bits : vector<64x16xi32> to vector<64x2x4x2xi32>
    %max = vector.multi_reduction <maxsi>, %lanes, %none [1, 3] : vector<64x2x4x2xi32> to vector<64x4xi32>
    %grown = arith.cmpi sgt, %max, %limit : vector<64x4xi32>
    %any = flashattn.any_row %grown : vector<64x4xi1>
    scf.if %any {
      memref.store %c0, %counts[%c0] : memref<?xindex>
    }
  }
  return
}

// -----

#shared = #gpu.address_space<workgroup>

// Two warps share 32 of 64 rows: each has half of the columns of scores, of what is loaded along them
// and of what is stored, and reads all that it multiplies where it multiplies.
// CHECK-LABEL: func @column_warps
// CHECK-SAME: %[[O:.*]]: memref<?x64xf32>, %[[LSE:.*]]: memref<?xf32>, %[[J:.*]]: index
// CHECK: %[[COLUMN:.*]] = arith.muli %{{.*}}, %c2 : index
// CHECK: %[[WARP:.*]] = arith.divui %{{.*}}, %c32
// CHECK: %[[ROWWARP:.*]] = arith.remui %[[WARP]], %c2
// CHECK: %[[PART:.*]] = arith.divui %[[WARP]], %c2
// CHECK: %[[ROW:.*]] = arith.muli %[[ROWWARP]], %c32
// CHECK: %[[KROW:.*]] = arith.addi %[[ROW]], %{{.*}}
// CHECK: %[[FIRST:.*]] = arith.muli %[[PART]], %c32
// CHECK: %[[QROW:.*]] = arith.addi %{{.*}}, %[[FIRST]]
// Rows of 16 columns: the next 16 are 256 elements on.
// CHECK: arith.muli %[[KROW]], %c16
// CHECK: %[[KS:.*]] = llvm.inttoptr
// CHECK: nvvm.ldmatrix %[[KS]] {{.*}}layout = #nvvm.mma_layout<row>
// CHECK: %[[KNEXT:.*]] = llvm.getelementptr %[[KS]][256]
// CHECK: nvvm.ldmatrix %[[KNEXT]]
// CHECK: arith.muli %[[QROW]], %c16
// CHECK: %[[QS:.*]] = llvm.inttoptr
// CHECK: nvvm.ldmatrix %[[QS]] {{.*}}layout = #nvvm.mma_layout<row>
// CHECK-COUNT-4: nvvm.mma.sync
// CHECK: %[[QNEXT:.*]] = llvm.getelementptr %[[QS]][256]
// CHECK: nvvm.ldmatrix %[[QNEXT]]
// CHECK-COUNT-4: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: %[[TILE:.*]] = arith.muli %[[J]], %c64
// CHECK: %[[MINE:.*]] = arith.addi %[[TILE]], %[[FIRST]]
// CHECK: %[[FIRSTL:.*]] = arith.addi %[[MINE]], %[[COLUMN]]
// CHECK: memref.load %[[LSE]][%[[FIRSTL]]]
// CHECK-COUNT-7: memref.load %[[LSE]]
// CHECK-NOT: memref.load %[[LSE]]
// CHECK: %[[OUT:.*]] = arith.addi %[[FIRST]], %[[COLUMN]]
// CHECK: vector.store %{{.*}}, %[[O]][%{{.*}}, %[[OUT]]]
// CHECK-COUNT-15: vector.store %{{.*}}, %[[O]]
// CHECK-NOT: vector.store
func.func @column_warps(%o: memref<?x64xf32>, %lse: memref<?xf32>, %j: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  %size = arith.constant 20480 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %size {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 64, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4, column_warps = 2>>) {
      %pool = gpu.dynamic_shared_memory : memref<?xi8, #shared>
      %ks = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x16xf16, #shared>
      %qs = memref.view %pool[%c0][] : memref<?xi8, #shared> to memref<1x64x16xf16, #shared>
      %k = vector.transfer_read %ks[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x64x16xf16, #shared>, vector<64x16xf16>
      %q = vector.transfer_read %qs[%c0, %c0, %c0], %zero {in_bounds = [true, true], permutation_map = affine_map<(a, b, c) -> (b, c)>} : memref<1x64x16xf16, #shared>, vector<64x16xf16>
      %none = arith.constant dense<0.0> : vector<64x64xf32>
      %s = vector.contract {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %k, %q, %none : vector<64x16xf16>, vector<64x16xf16> into vector<64x64xf32>
      %l = flashattn.load_tile %lse[%j] dims [-1, 0] in_bounds [true, true] : memref<?xf32> -> vector<64x64xf32>
      %d = arith.subf %s, %l : vector<64x64xf32>
      flashattn.store_tile %d to %o[%j, %c0] dims [0, 1] in_bounds [false, true] : vector<64x64xf32>, memref<?x64xf32>
    }
    gpu.terminator
  }
  return
}
