// A whole kernel to PTX, which ptxas accepts: products from shared memory and from registers, of
// tiles that the tensor copy unit brings.
// RUN: flash-opt %s -pass-pipeline='builtin.module(gpu.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,convert-vector-to-llvm,convert-arith-to-llvm,convert-gpu-to-nvvm,flashattn-declare-dynamic-shared-memory,convert-hopper-to-nvvm,canonicalize,cse,reconcile-unrealized-casts),gpu-module-to-binary{format=isa})' -o %t.mlir
// RUN: FileCheck %s < %t.mlir
// RUN: %if ptxas %{ %python %S/Inputs/ptx.py < %t.mlir > %t.ptx %}
// RUN: %if ptxas %{ %ptxas -v -arch=sm_90a -o %t.cubin %t.ptx 2>&1 | FileCheck %s --check-prefix=PTXAS %}

// PTXAS-NOT: C75
// PTXAS: 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
// PTXAS-NOT: C75

!q = memref<2x64x64xf16, #gpu.address_space<workgroup>>
!kv = memref<2x80x64xf16, #gpu.address_space<workgroup>>
!bars = memref<3xi64, #gpu.address_space<workgroup>>

// Tensor maps are parameters that stay where the launch put them; nothing is in local memory.
// CHECK: gpu.binary @kernels
// CHECK: .version 8.0{{.*}}.target sm_90a
// CHECK-SAME: .extern .shared .align 1024 .b8 __dynamic_shmem
// CHECK-SAME: .param .align 64 .b8 step_param_0[128]
// CHECK-SAME: .param .align 64 .b8 step_param_1[128]
// CHECK-SAME: .param .align 64 .b8 step_param_2[128]
// CHECK-NOT: .local
// CHECK-SAME: mbarrier.init.shared::cta.b64
// CHECK-SAME: cp.async.bulk.tensor.4d
// CHECK-SAME: wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16
// CHECK-SAME: wgmma.wait_group.sync.aligned 0;
// CHECK-SAME: cvt.rn.f16x2.f32
// CHECK-SAME: wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16
// CHECK-SAME: // held
// CHECK-NOT: .local
gpu.module @kernels [#nvvm.target<chip = "sm_90a", features = "+ptx80", O = 3>] {
  gpu.func @step(%qmap: !hopper.tensor_map<64x64xf16>, %kmap: !hopper.tensor_map<80x64xf16>,
                 %vmap: !hopper.tensor_map<80x64xf16>, %tiles: index, %out: memref<?x64xf32>) kernel
      attributes {known_block_size = array<i32: 128, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c80 = arith.constant 80 : index
    %ck = arith.constant 16384 : index
    %cv = arith.constant 36864 : index
    %cb = arith.constant 57344 : index
    %even = arith.constant 0 : i32
    %tid = gpu.thread_id x
    %first = arith.cmpi eq, %tid, %c0 : index
    %shared = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %q = memref.view %shared[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to !q
    %k = memref.view %shared[%ck][] : memref<?xi8, #gpu.address_space<workgroup>> to !kv
    %v = memref.view %shared[%cv][] : memref<?xi8, #gpu.address_space<workgroup>> to !kv
    %bars = memref.view %shared[%cb][] : memref<?xi8, #gpu.address_space<workgroup>> to !bars
    scf.if %first {
      hopper.barrier_init %bars[%c0], 1 : !bars
      hopper.barrier_init %bars[%c1], 1 : !bars
      hopper.barrier_init %bars[%c2], 128 : !bars
      hopper.fence_barrier_init
    }
    gpu.barrier
    scf.if %first {
      hopper.barrier_expect %bars[%c0], 16384 : !bars
      hopper.tma_load %qmap[%c0, %c1, %c0, %c0] to %q, %bars[%c0]
          : !hopper.tensor_map<64x64xf16> to !q, !bars
    }
    hopper.barrier_wait %bars[%c0], %even : !bars
    %zero = arith.constant dense<0.0> : vector<64xf32>
    %o:2 = scf.for %j = %c0 to %tiles step %c1 iter_args(%acc = %zero, %parity = %even)
        -> (vector<64xf32>, i32) {
      scf.if %first {
        %row = arith.muli %j, %c80 : index
        hopper.barrier_expect %bars[%c1], 40960 : !bars
        hopper.tma_load %kmap[%c0, %c1, %row, %c0] to %k, %bars[%c1]
            : !hopper.tensor_map<80x64xf16> to !kv, !bars
        hopper.tma_load %vmap[%c0, %c1, %row, %c0] to %v, %bars[%c1]
            : !hopper.tensor_map<80x64xf16> to !kv, !bars
      }
      hopper.barrier_wait %bars[%c1], %parity : !bars
      %s0 = hopper.wgmma %q, %k : !q, !kv -> vector<40xf32>
      %s = hopper.wgmma_wait %s0 : vector<40xf32>
      %p = arith.truncf %s : vector<40xf32> to vector<40xf16>
      %o0 = hopper.wgmma %p, %v, %acc transposed : vector<40xf16>, !kv, vector<64xf32>
      %o = hopper.wgmma_wait %o0 {held} : vector<64xf32>
      hopper.barrier_arrive %bars[%c2] if %first : !bars
      gpu.barrier
      %one = arith.constant 1 : i32
      %next = arith.xori %parity, %one : i32
      scf.yield %o, %next : vector<64xf32>, i32
    }
    vector.store %o#0, %out[%tid, %c0] : memref<?x64xf32>, vector<64xf32>
    gpu.return
  }
}
