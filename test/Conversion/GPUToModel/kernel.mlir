// RUN: flash-opt %s -convert-flashattn-gpu-to-model | FileCheck %s

// A kernel becomes a function of its arguments and one of its threads. What only computes stays; an access
// is shown to the model, a store to shared memory is the model's own.

// CHECK-NOT: gpu.
// CHECK-LABEL: func.func @double(
// CHECK: llvm.store {{.*}} : !llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>, !llvm.ptr
// CHECK: constant @double_kernel_0 : (!llvm.ptr, !llvm.ptr) -> ()
// CHECK: llvm.call @flashattnModelLaunch

// CHECK-LABEL: func.func private @double_kernel_0(
// CHECK-SAME: %[[ARGUMENTS:.*]]: !llvm.ptr, %[[THREAD:.*]]: !llvm.ptr)
// CHECK: llvm.call @flashattnModelAccess(%[[THREAD]],
// CHECK-NEXT: %[[LOADED:.*]] = memref.load {{.*}} : memref<128xf32>
// CHECK: %[[DOUBLE:.*]] = arith.addf %[[LOADED]], %[[LOADED]]
// CHECK: llvm.store %[[DOUBLE]], %[[VALUE:.*]] {
// CHECK: llvm.call @flashattnModelStoreShared(%[[THREAD]], %{{.*}}, %{{.*}}, %[[VALUE]],
// CHECK: llvm.call @flashattnModelBlockBarrier(%[[THREAD]],
// CHECK: llvm.call @flashattnModelShuffle(%[[THREAD]],
// CHECK: return
// CHECK: llvm.mlir.global internal constant @double_kernel_0_places("double_kernel\0Amemref.load ({{.*}}kernel.mlir:
module attributes {gpu.container_module} {
  func.func @double(%in: memref<128xf32>, %out: memref<128xf32>) {
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    gpu.launch_func @double_kernel::@double_kernel blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%in : memref<128xf32>, %out : memref<128xf32>)
    return
  }
  gpu.module @double_kernel {
    gpu.func @double_kernel(%in: memref<128xf32>, %out: memref<128xf32>)
        workgroup(%shared: memref<128xf32, #gpu.address_space<workgroup>>) kernel {
      %thread = gpu.thread_id x
      %c1 = arith.constant 1 : i32
      %c32 = arith.constant 32 : i32
      %value = memref.load %in[%thread] : memref<128xf32>
      %double = arith.addf %value, %value : f32
      memref.store %double, %shared[%thread] : memref<128xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %other, %valid = gpu.shuffle xor %double, %c1, %c32 : f32
      memref.store %other, %out[%thread] : memref<128xf32>
      gpu.return
    }
  }
}
