// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_90a | FileCheck %s

// A tensor map that a launch captures: made on the host, a parameter of the kernel, read by the
// copy unit where the parameter lies.

!shared = memref<?xi8, #gpu.address_space<workgroup>>
!tile = memref<1x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<1xi64, #gpu.address_space<workgroup>>

// CHECK-LABEL: llvm.func @load
// CHECK: llvm.call @flashattnEncodeTensorMap
// CHECK: %[[BYTES:.*]] = llvm.load %{{.*}} : !llvm.ptr -> !llvm.array<16 x i64>
// CHECK: gpu.launch_func {{.*}}%[[BYTES]] : !llvm.array<16 x i64>
// CHECK: gpu.binary @load_kernel
// CHECK-SAME: .param .align 64 .b8 load_kernel_param_{{[0-9]}}[128]
// CHECK-SAME: cp.async.bulk.tensor.2d
func.func @load(%x: memref<?x64xf16>, %y: memref<64xf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %c10240 = arith.constant 10240 : index
  %bytes = arith.constant 10248 : i32
  %rows = memref.dim %x, %c0 : memref<?x64xf16>
  %blocks = arith.ceildivsi %rows, %c128 : index
  %map = hopper.make_tensor_map %x row_dim(0)
      : memref<?x64xf16> to !hopper.tensor_map<80x64xf16>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %blocks, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1)
      dynamic_shared_memory_size %bytes {
    %pool = gpu.dynamic_shared_memory : !shared
    %tile = memref.view %pool[%c0][] : !shared to !tile
    %bars = memref.view %pool[%c10240][] : !shared to !bars
    %even = arith.constant 0 : i32
    %first = arith.cmpi eq, %tx, %c0 : index
    scf.if %first {
      hopper.barrier_init %bars[%c0], 1 : !bars
      hopper.fence_barrier_init
      hopper.barrier_expect %bars[%c0], 10240 : !bars
      %row = arith.muli %bx, %c128 : index
      hopper.tma_load %map[%row, %c0] to %tile, %bars[%c0]
          : !hopper.tensor_map<80x64xf16> to !tile, !bars
    }
    gpu.barrier
    hopper.barrier_wait %bars[%c0], %even : !bars
    %c64 = arith.constant 64 : index
    %inside = arith.cmpi ult, %tx, %c64 : index
    scf.if %inside {
      // The first row of a tile is not changed by the swizzle.
      %v = memref.load %tile[%c0, %c0, %tx] : !tile
      memref.store %v, %y[%tx] : memref<64xf16>
    }
    gpu.terminator
  }
  return
}
