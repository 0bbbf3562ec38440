// RUN: flash-opt %s -split-input-file -flashattn-stage-shared -canonicalize -cse | FileCheck %s

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// CHECK-LABEL: func @two_stages
// CHECK-SAME: %[[Q:.*]]: memref<?x64xf16>, %[[K:.*]]: memref<?x64xf16>, %[[BEGIN:.*]]: index, %[[MIDDLE:.*]]: index, %[[END:.*]]: index
// 64 rows of queries and 2 tiles of 16 keys, 128 bytes a row.
// CHECK: dynamic_shared_memory_size %c12288_i32
// CHECK: %[[POOL:.*]] = gpu.dynamic_shared_memory
// CHECK: %[[KS:.*]] = memref.view %[[POOL]][%c8192][] : {{.*}} to memref<2x16x64xf16, #gpu.address_space<workgroup>>
// CHECK: %[[QS:.*]] = memref.view %[[POOL]][%c0][] : {{.*}} to memref<1x64x64xf16, #gpu.address_space<workgroup>>
// Chunk c of row r is stored as chunk c ^ (r & 7); a row past the end copies 0 elements (A7).
// CHECK: %[[ROW:.*]] = arith.divui %{{.*}}, %c8
// CHECK: %[[CHUNK:.*]] = arith.remui %{{.*}}, %c8
// CHECK: %[[BITS:.*]] = arith.andi %[[ROW]], %c7
// CHECK: %[[SWIZZLED:.*]] = arith.xori %[[CHUNK]], %[[BITS]]
// CHECK: %[[COLUMN:.*]] = arith.muli %[[SWIZZLED]], %c8
// CHECK: %[[COUNT:.*]] = arith.select %{{.*}}, %c8, %c0
// CHECK: nvgpu.device_async_copy %[[Q]][%[[ROW]], %{{.*}}], %[[QS]][%c0, %[[ROW]], %[[COLUMN]]], 8, %[[COUNT]] {bypassL1}
// CHECK: nvgpu.device_async_wait %{{.*}} {numGroups = 0 : i32}
// CHECK: gpu.barrier
// CHECK: vector.transfer_read %[[QS]]
// The first tile is under way before the loop, the next one while this one is worked on. Copies of
// the last one may end early, so all are asked whether they do.
// CHECK: arith.cmpi slt, %[[BEGIN]], %[[END]]
// CHECK: nvgpu.device_async_copy %[[K]]
// CHECK: nvvm.cp.async.commit.group
// CHECK: flashattn.tile_loop (%[[J:.*]], %{{.*}}) in [(%[[BEGIN]], %[[BEGIN]], %[[MIDDLE]], %[[END]])]
// CHECK:   nvgpu.device_async_wait %{{.*}} {numGroups = 0 : i32}
// CHECK:   gpu.barrier
// CHECK:   %[[NEXT:.*]] = arith.addi %[[J]], %c1
// CHECK:   %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %[[END]]
// CHECK:   scf.if %[[INSIDE]]
// CHECK:     %[[STAGE:.*]] = arith.andi %[[NEXT]], %c1
// CHECK:     %[[NEXTROW:.*]] = arith.muli %[[NEXT]], %c16
// CHECK:     %[[FROM:.*]] = arith.addi %[[NEXTROW]], %{{.*}}
// CHECK:     %[[EXISTS:.*]] = arith.cmpi slt, %[[FROM]], %{{.*}}
// CHECK:     %[[KCOUNT:.*]] = arith.select %[[EXISTS]], %c8, %c0
// CHECK:     nvgpu.device_async_copy %[[K]][%[[FROM]], %{{.*}}], %[[KS]][%[[STAGE]], %{{.*}}], 8, %[[KCOUNT]]
// CHECK:   %[[MINE:.*]] = arith.andi %[[J]], %c1
// CHECK:   %[[KT:.*]] = vector.transfer_read %[[KS]][%[[MINE]], %c0, %c0]
// CHECK:   vector.contract {{.*}}, %[[KT]],
// The loop continues the same ring from its partial tiles to its full ones and on: nothing is loaded
// behind it.
// CHECK-NOT: nvgpu.device_async_copy
// CHECK-NOT: flashattn.load_tile
func.func @two_stages(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %begin: index, %middle: index, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %qt = flashattn.load_tile %q[%c0, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
      %r = flashattn.tile_loop (%i, %j) in [(%begin, %begin, %middle, %end)] iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        flashattn.tile_yield %s : vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// Where the last tile is full none ends early: the first ones are partial by a mask alone, and no copy
// is asked.
// CHECK-LABEL: func @full_to_the_end
// CHECK-SAME: %[[K:.*]]: memref<?x64xf16>
// CHECK-NOT: arith.select
// CHECK: nvgpu.device_async_copy %[[K]][%{{.*}}, %{{.*}}], %{{.*}}[%{{.*}}], 8 {bypassL1}
// CHECK: flashattn.tile_loop
// CHECK-NOT: arith.select
// CHECK: nvgpu.device_async_copy %[[K]][%{{.*}}, %{{.*}}], %{{.*}}[%{{.*}}], 8 {bypassL1}
func.func @full_to_the_end(%k: memref<?x64xf16>, %begin: index, %middle: index, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j) in [(%begin, %middle, %end, %end)] iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        flashattn.tile_yield %s : vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// A loop that does not run has no first copy, because nothing would wait for it.
// CHECK-LABEL: func @conditional
// CHECK-SAME: %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index, %[[RUNS:[a-z0-9]+]]: i1
// CHECK: gpu.barrier
// CHECK: %[[ANY:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]]
// CHECK: %[[COPIES:.*]] = arith.andi %[[ANY]], %[[RUNS]]
// CHECK: scf.if %[[COPIES]] {
// CHECK:   nvgpu.device_async_copy
// CHECK: flashattn.tile_loop {{.*}} when %[[RUNS]]
func.func @conditional(%k: memref<?x64xf16>, %begin: index, %end: index, %runs: i1) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j) in [(%begin, %begin, %end, %end)] when %runs iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        flashattn.tile_yield %s : vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// A batch's keys end before the memory does, and those of two intervals go through one loop in
// another: its ring begins anew with each. A list says which tiles they are. What no contraction
// reads stays a load of each thread's own.
// CHECK-LABEL: func @intervals
// CHECK-SAME: %[[K:[a-z0-9]+]]: memref<?x64xf16>, %[[BIAS:[a-z0-9]+]]: memref<64x?xf32>, %[[LIST:[a-z0-9]+]]: memref<?xi32>, %[[LENGTH:[a-z0-9]+]]: index
// CHECK: scf.for %[[I:.*]] = %c0 to %c2 step %c1 iter_args
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK: %[[BEGIN:.*]] = arith.select %[[FIRST]], %{{.*}}, %{{.*}}
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK:   %[[NUMBER32:.*]] = memref.load %[[LIST]][%[[BEGIN]]]
// CHECK:   %[[NUMBER:.*]] = arith.index_cast %[[NUMBER32]] : i32 to index
// CHECK:   %[[ROW:.*]] = arith.muli %[[NUMBER]], %c16
// CHECK:   %[[AT:.*]] = arith.addi %[[ROW]],
// CHECK:   arith.cmpi slt, %[[AT]], %[[LENGTH]]
// CHECK:   nvgpu.device_async_copy %[[K]][%[[AT]],
// CHECK: flashattn.tile_loop (%{{.*}}, %[[J:.*]]) in [(%[[BEGIN]], %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}})] list(%[[LIST]][] : memref<?xi32>)
// CHECK:   memref.load %[[LIST]]
// CHECK:   flashattn.load_tile %[[BIAS]][%c0, %[[J]]]
// CHECK: scf.yield
func.func @intervals(%k: memref<?x64xf16>, %bias: memref<64x?xf32>, %list: memref<?xi32>, %length: index, %a: index, %b: index, %c: index, %d: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j) in [(%a, %a, %b, %b), (%c, %c, %c, %d)] list(%list[] : memref<?xi32>) iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %rows = flashattn.dense_rows below %length
        %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] rows %rows in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
        %bt = flashattn.load_tile %bias[%c0, %j] dims [0, 1] in_bounds [true, false] : memref<64x?xf32> -> vector<64x16xf32>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %bt : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        %sum = arith.addf %acc, %s : vector<64x16xf32>
        flashattn.tile_yield %sum : vector<64x16xf32>
      }
      %out = arith.addf %r, %r : vector<64x16xf32>
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// One stage: load, wait, work. Rows whose strides nothing is known of are copied by element.
// CHECK-LABEL: func @one_stage
// CHECK: flashattn.tile_loop
// CHECK-NEXT: gpu.barrier
// CHECK-NOT: nvgpu.device_async_copy
// CHECK: memref.load
// CHECK: memref.store
// CHECK: gpu.barrier
// CHECK: vector.transfer_read
func.func @one_stage(%k: memref<?x64xf16, strided<[?, 1], offset: ?>>, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j) in [(%c0, %end, %end, %end)] iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16, strided<[?, 1], offset: ?>> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        flashattn.tile_yield %s : vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// The caller promised rows at multiples of 16 bytes: chunks, through a cast too.
// CHECK-LABEL: func @aligned_rows
// CHECK: flashattn.tile_loop
// CHECK-NEXT: gpu.barrier
// CHECK: nvgpu.device_async_copy
// CHECK-NOT: memref.load
// CHECK: vector.transfer_read
func.func @aligned_rows(%k: memref<?x64xf16, strided<[?, 1], offset: ?>> {flashattn.aligned_rows}, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  %cast = memref.cast %k : memref<?x64xf16, strided<[?, 1], offset: ?>> to memref<128x64xf16, strided<[?, 1], offset: ?>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j) in [(%c0, %end, %end, %end)] iter_args(%acc = %none) -> (vector<64x16xf32>) {
        %kt = flashattn.load_tile %cast[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<128x64xf16, strided<[?, 1], offset: ?>> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        flashattn.tile_yield %s : vector<64x16xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// Rounds over one interval are one pass over the buffers: the last step of a round brings the first
// tile of the next one. Two products read one copy of what is streamed.
// CHECK-LABEL: func @rounds
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x64xf16>, %[[BEGIN:[a-z0-9]+]]: index, %[[END:[a-z0-9]+]]: index, %[[ROUNDS:[a-z0-9]+]]: index
// CHECK: %[[QS:.*]] = memref.view %{{.*}} to memref<2x16x64xf16, #gpu.address_space<workgroup>>
// CHECK-NOT: memref.view
// CHECK: gpu.barrier
// CHECK: %[[SOME:.*]] = arith.cmpi slt, %[[BEGIN]], %[[END]]
// CHECK: %[[ANY:.*]] = arith.cmpi sgt, %[[ROUNDS]], %c0
// CHECK: %[[BOTH:.*]] = arith.andi %[[SOME]], %[[ANY]]
// CHECK: scf.if %[[BOTH]]
// CHECK:   %[[STAGE0:.*]] = arith.andi %[[BEGIN]], %c1
// CHECK:   nvgpu.device_async_copy %[[Q]][%c0,
// CHECK: scf.for %[[R:.*]] = %c0 to %[[ROUNDS]] step %c1
// CHECK-NOT: gpu.barrier
// CHECK:   flashattn.tile_loop (%[[J:.*]], %{{.*}}) in [(%[[BEGIN]], %[[BEGIN]], %[[END]], %[[END]])]
// CHECK:     %[[STEPS:.*]] = arith.subi %[[END]], %[[BEGIN]]
// CHECK:     %[[DONE:.*]] = arith.muli %[[R]], %[[STEPS]]
// CHECK:     %[[NUMBER:.*]] = arith.addi %[[J]], %[[DONE]]
// CHECK:     nvgpu.device_async_wait
// CHECK:     gpu.barrier
// CHECK:     %[[NEXT:.*]] = arith.addi %[[J]], %c1
// CHECK:     %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %[[END]]
// CHECK:     %[[NEXTNUMBER:.*]] = arith.addi %[[NUMBER]], %c1
// CHECK:     %[[NEXTPLACE:.*]] = arith.select %[[INSIDE]], %[[NEXT]], %[[BEGIN]]
// CHECK:     %[[R1:.*]] = arith.addi %[[R]], %c1
// CHECK:     %[[NEXTROUND:.*]] = arith.select %[[INSIDE]], %[[R]], %[[R1]]
// CHECK:     %[[EXISTS:.*]] = arith.cmpi slt, %[[NEXTROUND]], %[[ROUNDS]]
// CHECK:     scf.if %[[EXISTS]]
// CHECK:       %[[STAGE:.*]] = arith.andi %[[NEXTNUMBER]], %c1
// CHECK:       %[[ROW:.*]] = arith.muli %[[NEXTPLACE]], %c16
// CHECK:       nvgpu.device_async_copy %[[Q]][%[[NEXTROUND]], %{{.*}}], %[[QS]][%[[STAGE]],
// CHECK:     %[[MINE:.*]] = arith.andi %[[NUMBER]], %c1
// CHECK:     %[[QT:.*]] = vector.transfer_read %[[QS]][%[[MINE]], %c0, %c0]
// CHECK:     %[[S:.*]] = vector.contract {{.*}}, %[[QT]],
// CHECK:     vector.contract {{.*}}, %[[QT]],
func.func @rounds(%q: memref<?x?x64xf16>, %begin: index, %end: index, %rounds: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %sums = arith.constant dense<0.0> : vector<64x64xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %r = flashattn.tile_loop (%i, %j, %h) in [(%begin, %begin, %end, %end)] rounds %rounds iter_args(%acc = %sums) -> (vector<64x64xf32>) {
        %qt = flashattn.load_tile %q[%h, %j, %c0] dims [1, 2] in_bounds [false, true] : memref<?x?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %one, %qt, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        %p = arith.truncf %s : vector<64x16xf32> to vector<64x16xf16>
        %sum = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %qt, %acc : vector<64x16xf16>, vector<16x64xf16> into vector<64x64xf32>
        flashattn.tile_yield %sum : vector<64x64xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// A product over the rows of a tile, which warps share: each writes its rows to shared memory where it
// has them, and all meet before they read what they multiply.
// CHECK-LABEL: func @exchange
// Keys 64 x 64, two stages of queries 16 x 64 and the tile that is exchanged, 64 x 16.
// CHECK: dynamic_shared_memory_size %c14336_i32
// CHECK: %[[DS:.*]] = memref.view %{{.*}}[%c12288][] : {{.*}} to memref<1x64x16xf16, #gpu.address_space<workgroup>>
// CHECK: %[[KS:.*]] = memref.view %{{.*}}[%c0][] : {{.*}} to memref<1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: flashattn.tile_loop
// CHECK: %[[P:.*]] = arith.truncf
// CHECK-NEXT: vector.transfer_write %[[P]], %[[DS]][%c0, %c0, %c0]
// CHECK: vector.contract {{.*}} %[[P]], %{{.*}} into vector<64x64xf32>
// CHECK: gpu.barrier
// CHECK: %[[ALL:.*]] = vector.transfer_read %[[DS]][%c0, %c0, %c0]
// CHECK: vector.contract {{.*}} %[[ALL]], %{{.*}} : vector<64x16xf16>, vector<64x64xf16> into vector<16x64xf32>
// CHECK: flashattn.add_tile
func.func @exchange(%k: memref<?x64xf16>, %q: memref<?x64xf16>, %sums: memref<?x64xf32>, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  %sum = arith.constant dense<0.0> : vector<64x64xf32>
  %share = arith.constant dense<0.0> : vector<16x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      %kt = flashattn.load_tile %k[%c0, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
      %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %end, %end)] iter_args(%acc = %sum) -> (vector<64x64xf32>) {
        %qt = flashattn.load_tile %q[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
        %p = arith.truncf %s : vector<64x16xf32> to vector<64x16xf16>
        %dk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %qt, %acc : vector<64x16xf16>, vector<16x64xf16> into vector<64x64xf32>
        %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %kt, %share : vector<64x16xf16>, vector<64x64xf16> into vector<16x64xf32>
        flashattn.add_tile %dq to %sums[%j, %c0] parts 4 adjacent 1 : vector<16x64xf32>, memref<?x64xf32>
        flashattn.tile_yield %dk : vector<64x64xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
// Warps that share rows exchange all that products over columns take, each tile once, and meet once
// for what is written before the first of these products. Residents are read where they are wanted.
// CHECK-LABEL: func @column_warps
// Keys 64 x 64, two stages of queries 32 x 64 and two tiles that are exchanged, 64 x 32.
// CHECK: dynamic_shared_memory_size %c24576_i32
// CHECK-DAG: %[[PS:.*]] = memref.view %{{.*}}[%c16384][] : {{.*}} to memref<1x64x32xf16, #gpu.address_space<workgroup>>
// CHECK-DAG: %[[DS:.*]] = memref.view %{{.*}}[%c20480][] : {{.*}} to memref<1x64x32xf16, #gpu.address_space<workgroup>>
// CHECK-DAG: %[[KS:.*]] = memref.view %{{.*}}[%c0][] : {{.*}} to memref<1x64x64xf16, #gpu.address_space<workgroup>>
// CHECK: flashattn.tile_loop
// CHECK: %[[P:.*]] = arith.truncf
// CHECK-NEXT: vector.transfer_write %[[P]], %[[PS]][%c0, %c0, %c0]
// CHECK: %[[D:.*]] = arith.negf
// CHECK-NEXT: vector.transfer_write %[[D]], %[[DS]][%c0, %c0, %c0]
// CHECK-NEXT: gpu.barrier
// CHECK-NEXT: %[[AP:.*]] = vector.transfer_read %[[PS]][%c0, %c0, %c0]
// CHECK: vector.contract {{.*}} %[[AP]], %{{.*}} into vector<64x64xf32>
// CHECK-NOT: gpu.barrier
// CHECK: %[[AD:.*]] = vector.transfer_read %[[DS]][%c0, %c0, %c0]
// CHECK: vector.contract {{.*}} %[[AD]], %{{.*}} into vector<64x64xf32>
// CHECK: vector.contract {{.*}} into vector<32x64xf32>
// CHECK-NOT: gpu.barrier
// CHECK: flashattn.tile_yield
func.func @column_warps(%k: memref<?x64xf16>, %q: memref<?x64xf16>, %sums: memref<?x64xf32>, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x32xf32>
  %sum = arith.constant dense<0.0> : vector<64x64xf32>
  %share = arith.constant dense<0.0> : vector<32x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 32, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4, column_warps = 2>>) {
      %kt = flashattn.load_tile %k[%c0, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
      %r, %r2 = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %end, %end)] iter_args(%a = %sum, %b = %sum) -> (vector<64x64xf32>, vector<64x64xf32>) {
        %qt = flashattn.load_tile %q[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<32x64xf16>
        %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %kt, %qt, %none : vector<64x64xf16>, vector<32x64xf16> into vector<64x32xf32>
        %p = arith.truncf %s : vector<64x32xf32> to vector<64x32xf16>
        %ds = arith.negf %p : vector<64x32xf16>
        %dv = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %p, %qt, %b : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
        %dk = vector.contract {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %qt, %a : vector<64x32xf16>, vector<32x64xf16> into vector<64x64xf32>
        %dq = vector.contract {indexing_maps = [#km, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %ds, %kt, %share : vector<64x32xf16>, vector<64x64xf16> into vector<32x64xf32>
        flashattn.add_tile %dq to %sums[%j, %c0] parts 4 adjacent 1 : vector<32x64xf32>, memref<?x64xf32>
        flashattn.tile_yield %dk, %dv : vector<64x64xf32>, vector<64x64xf32>
      }
    }
    gpu.terminator
  }
  return
}

// -----

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
// A program with one tile of queries after the other keeps each of them in turn: what some threads may still read of the
// one before is not written over.
// CHECK-LABEL: func @in_turn
// CHECK-SAME: %[[Q:.*]]: memref<?x64xf16>, %[[K:.*]]: memref<?x64xf16>
// CHECK: scf.for
// CHECK-NEXT: gpu.barrier
// CHECK: nvgpu.device_async_copy %[[Q]]
// CHECK: gpu.barrier
// CHECK: flashattn.tile_loop
// CHECK: nvgpu.device_async_copy %[[K]]
// CHECK-NOT: flashattn.load_tile
func.func @in_turn(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %tiles: index, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %none = arith.constant dense<0.0> : vector<64x16xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    flashattn.on_threads %tx
        schedule(<tile_m = 64, tile_n = 16, stages = 1, dot_type = f16, mapping = mma_sync<warps = 4>>) {
      scf.for %t = %c0 to %tiles step %c1 {
        %qt = flashattn.load_tile %q[%t, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<64x64xf16>
        %r = flashattn.tile_loop (%i, %j) in [(%c0, %c0, %c0, %end)] iter_args(%acc = %none) -> (vector<64x16xf32>) {
          %kt = flashattn.load_tile %k[%j, %c0] dims [0, 1] in_bounds [false, true] : memref<?x64xf16> -> vector<16x64xf16>
          %s = vector.contract {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %qt, %kt, %acc : vector<64x64xf16>, vector<16x64xf16> into vector<64x16xf32>
          flashattn.tile_yield %s : vector<64x16xf32>
        }
      }
    }
    gpu.terminator
  }
  return
}
