// Tiles out of registers to global memory, in rows of 128, 64 and 32 bytes, by one of two
// warpgroups with registers of its own, three blocks a multiprocessor: as PTX, which ptxas accepts.
// RUN: flash-opt %s -pass-pipeline='builtin.module(gpu.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,convert-vector-to-llvm,convert-arith-to-llvm,convert-gpu-to-nvvm,flashattn-declare-dynamic-shared-memory,convert-hopper-to-nvvm,canonicalize,cse,reconcile-unrealized-casts),gpu-module-to-binary{format=isa})' -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: %if ptxas %{ %python %S/Inputs/ptx.py < %t.mlir > %t.ptx %}
// RUN: %if ptxas %{ %ptxas -v -arch=sm_90a -o %t.cubin %t.ptx 2>&1 | FileCheck %s --check-prefix=PTXAS %}

// C7508, setmaxnreg ignored, is what the number of blocks is for: 65536 / (3 * 256) in eights.
// PTXAS-NOT: C75
// PTXAS: 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
// PTXAS: Used 80 registers
// PTXAS-NOT: C75

!pool = memref<?xi8, #gpu.address_space<workgroup>>
!wide = memref<2x64x64xf16, #gpu.address_space<workgroup>>
!middle = memref<1x64x32xf16, #gpu.address_space<workgroup>>
!narrow = memref<1x64x16xbf16, #gpu.address_space<workgroup>>

// CHECK: .extern .shared .align 1024 .b8 __dynamic_shmem
// CHECK-SAME: .maxntid 256
// CHECK-SAME: .minnctapersm 3
// CHECK-SAME: setmaxnreg.dec.sync.aligned.u32 \0932;
// CHECK-SAME: setmaxnreg.inc.sync.aligned.u32 \09128;
// CHECK-SAME: stmatrix.sync.aligned.m8n8.x4.shared.b16
// CHECK-SAME: fence.proxy.async.shared::cta;
// CHECK-SAME: bar.sync \091, 128;
// CHECK-SAME: cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group
// CHECK-SAME: cp.async.bulk.commit_group;
// CHECK-SAME: cp.async.bulk.wait_group.read \090;
gpu.module @kernels [#nvvm.target<chip = "sm_90a", features = "+ptx80", O = 3>] {
  gpu.func @store(%wide_map: !hopper.tensor_map<64x64xf16>, %middle_map: !hopper.tensor_map<64x32xf16>,
                  %narrow_map: !hopper.tensor_map<64x16xbf16>, %in: memref<?x64xf16>) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c127 = arith.constant 127 : index
    %c128 = arith.constant 128 : index
    %cm = arith.constant 16384 : index
    %cn = arith.constant 20480 : index
    %id = arith.constant 1 : i32
    %tid = gpu.thread_id x
    %pool = gpu.dynamic_shared_memory : !pool
    %wide = memref.view %pool[%c0][] : !pool to !wide
    %middle = memref.view %pool[%cm][] : !pool to !middle
    %narrow = memref.view %pool[%cn][] : !pool to !narrow
    %role = arith.cmpi ult, %tid, %c128 : index
    scf.if %role {
      hopper.set_registers decrease 32 blocks(3)
    } else {
      hopper.set_registers increase 128 blocks(3)
      %lane = arith.andi %tid, %c127 : index
      %x = vector.load %in[%lane, %c0] : memref<?x64xf16>, vector<64xf16>
      hopper.store_tile %x to %wide : vector<64xf16>, !wide
      %y = vector.extract_strided_slice %x {offsets = [0], sizes = [16], strides = [1]} : vector<64xf16> to vector<16xf16>
      hopper.store_tile %y to %middle : vector<16xf16>, !middle
      %z = vector.extract_strided_slice %x {offsets = [16], sizes = [8], strides = [1]} : vector<64xf16> to vector<8xf16>
      %b = arith.bitcast %z : vector<8xf16> to vector<8xbf16>
      hopper.store_tile %b to %narrow : vector<8xbf16>, !narrow
      hopper.fence_async_shared
      hopper.group_barrier %id threads(128)
      %first = arith.cmpi eq, %lane, %c0 : index
      scf.if %first {
        hopper.tma_store %wide to %wide_map[%c0, %c0] : !wide to !hopper.tensor_map<64x64xf16>
        hopper.tma_store %middle to %middle_map[%c0, %c0] : !middle to !hopper.tensor_map<64x32xf16>
        hopper.tma_store %narrow to %narrow_map[%c0, %c0] : !narrow to !hopper.tensor_map<64x16xbf16>
        hopper.wait_stores
      }
    }
    gpu.return
  }
}
