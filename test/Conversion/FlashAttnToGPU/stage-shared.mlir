// RUN: flash-opt %s -split-input-file -allow-unregistered-dialect -flashattn-stage-shared -canonicalize -cse | FileCheck %s

#two = #flashattn.schedule<tile_m = 64, tile_n = 16, warps = 4, stages = 2, lanes = 4, dot_type = f16>

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
// The first tile is under way before the loops, the next one while this one is worked on.
// CHECK: arith.cmpi slt, %[[BEGIN]], %[[END]]
// CHECK: nvgpu.device_async_copy %[[K]]
// CHECK: nvvm.cp.async.commit.group
// CHECK: scf.for %[[J:.*]] = %[[BEGIN]] to %[[MIDDLE]]
// CHECK:   nvgpu.device_async_wait %{{.*}} {numGroups = 0 : i32}
// CHECK:   gpu.barrier
// CHECK:   %[[NEXT:.*]] = arith.addi %[[J]], %c1
// CHECK:   %[[INSIDE:.*]] = arith.cmpi slt, %[[NEXT]], %[[END]]
// CHECK:   scf.if %[[INSIDE]]
// CHECK:     %[[STAGE:.*]] = arith.andi %[[NEXT]], %c1
// CHECK:     nvgpu.device_async_copy %[[K]]{{.*}}, %[[KS]][%[[STAGE]],
// CHECK:   %[[MINE:.*]] = arith.andi %[[J]], %c1
// CHECK:   vector.transfer_read %[[KS]][%[[MINE]], %c0, %c0]
// The second loop continues the same ring: nothing is loaded between the loops.
// CHECK: }
// CHECK-NOT: nvgpu.device_async_copy
// CHECK: scf.for %{{.*}} = %[[MIDDLE]] to %[[END]]
func.func @two_stages(%q: memref<?x64xf16>, %k: memref<?x64xf16>, %begin: index, %middle: index, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    %qt = vector.transfer_read %q[%c0, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<64x64xf16>
    "test.use"(%qt) : (vector<64x64xf16>) -> ()
    scf.for %j = %begin to %middle step %c1 {
      %row = arith.muli %j, %c16 : index
      %kt = vector.transfer_read %k[%row, %c0], %zero {in_bounds = [true, true]} : memref<?x64xf16>, vector<16x64xf16>
      "test.use"(%kt) : (vector<16x64xf16>) -> ()
    }
    scf.for %j = %middle to %end step %c1 {
      %row = arith.muli %j, %c16 : index
      %kt = vector.transfer_read %k[%row, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16>, vector<16x64xf16>
      "test.use"(%kt) : (vector<16x64xf16>) -> ()
    }
    gpu.terminator
  } {flashattn.schedule = #two}
  return
}

// -----

#one = #flashattn.schedule<tile_m = 64, tile_n = 16, warps = 4, stages = 1, lanes = 4, dot_type = f16>

// One stage: load, wait, work. Rows whose strides nothing is known of are copied by element.
// CHECK-LABEL: func @one_stage
// CHECK: scf.for
// CHECK-NEXT: gpu.barrier
// CHECK-NOT: nvgpu.device_async_copy
// CHECK: memref.load
// CHECK: memref.store
// CHECK: gpu.barrier
// CHECK: vector.transfer_read
func.func @one_stage(%k: memref<?x64xf16, strided<[?, 1], offset: ?>>, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    scf.for %j = %c0 to %end step %c1 {
      %row = arith.muli %j, %c16 : index
      %kt = vector.transfer_read %k[%row, %c0], %zero {in_bounds = [false, true]} : memref<?x64xf16, strided<[?, 1], offset: ?>>, vector<16x64xf16>
      "test.use"(%kt) : (vector<16x64xf16>) -> ()
    }
    gpu.terminator
  } {flashattn.schedule = #one}
  return
}

// -----

#promised = #flashattn.schedule<tile_m = 64, tile_n = 16, warps = 4, stages = 1, lanes = 4, dot_type = f16>

// The caller promised rows at multiples of 16 bytes: chunks, through a cast too.
// CHECK-LABEL: func @aligned_rows
// CHECK: scf.for
// CHECK-NEXT: gpu.barrier
// CHECK: nvgpu.device_async_copy
// CHECK-NOT: memref.load
// CHECK: vector.transfer_read
func.func @aligned_rows(%k: memref<?x64xf16, strided<[?, 1], offset: ?>> {flashattn.aligned_rows}, %end: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c128 = arith.constant 128 : index
  %zero = arith.constant 0.0 : f16
  %cast = memref.cast %k : memref<?x64xf16, strided<[?, 1], offset: ?>> to memref<128x64xf16, strided<[?, 1], offset: ?>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
    scf.for %j = %c0 to %end step %c1 {
      %row = arith.muli %j, %c16 : index
      %kt = vector.transfer_read %cast[%row, %c0], %zero {in_bounds = [false, true]} : memref<128x64xf16, strided<[?, 1], offset: ?>>, vector<16x64xf16>
      "test.use"(%kt) : (vector<16x64xf16>) -> ()
    }
    gpu.terminator
  } {flashattn.schedule = #promised}
  return
}
