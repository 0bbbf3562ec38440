// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s

// 512 threads and all of the shared memory that a block on Hopper may have: not a byte of it
// is the kernel's own.

// CHECK: gpu.launch_func {{.*}} dynamic_shared_memory_size
// CHECK: gpu.binary @reverse_kernel
// CHECK-SAME: .extern .shared .align 1024 .b8 __dynamic_shmem__0[];
// CHECK-NOT: .shared .align
// CHECK-SAME: .maxntid 512, 1, 1
// CHECK-NOT: .shared .align
func.func @reverse(%x: memref<512xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c511 = arith.constant 511 : index
  %c512 = arith.constant 512 : index
  %bytes = arith.constant 232448 : i32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c512, %sy = %c1, %sz = %c1)
      dynamic_shared_memory_size %bytes {
    %pool = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %t = memref.view %pool[%c0][] : memref<?xi8, #gpu.address_space<workgroup>>
        to memref<512xf32, #gpu.address_space<workgroup>>
    %v = memref.load %x[%tx] : memref<512xf32>
    memref.store %v, %t[%tx] : memref<512xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %i = arith.subi %c511, %tx : index
    %w = memref.load %t[%i] : memref<512xf32, #gpu.address_space<workgroup>>
    memref.store %w, %x[%tx] : memref<512xf32>
    gpu.terminator
  }
  return
}
