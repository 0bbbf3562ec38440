// RUN: flash-opt %s -flashattn-outline-kernels | FileCheck %s
// RUN: flash-opt %s -flashattn-outline-kernels -canonicalize -cse | FileCheck %s
// RUN: flash-opt %s -canonicalize -cse -flashattn-outline-kernels | FileCheck %s

// What a launch takes from around it: constants and sizes are the kernel's own,
// whatever simplification stands around the step; memory is its argument.

// CHECK-LABEL: func @launch
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<?x64xf32>
// CHECK: gpu.launch_func @launch_kernel::@launch_kernel
// CHECK-SAME: args(%[[X]] : memref<?x64xf32>)
// CHECK: gpu.module @launch_kernel
// CHECK: gpu.func @launch_kernel(%[[A:[a-z0-9]+]]: memref<?x64xf32>) kernel
// CHECK-DAG: arith.constant 7 : index
// CHECK-DAG: arith.constant 2.500000e+00 : f32
// CHECK-DAG: memref.dim %[[A]]
// CHECK: arith.cmpi slt
// CHECK: memref.store
func.func @launch(%x: memref<?x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %c64 = arith.constant 64 : index
  %value = arith.constant 2.5 : f32
  %rows = memref.dim %x, %c0 : memref<?x64xf32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %rows, %gy = %c1, %gz = %c1)
      threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %column = arith.remui %tx, %c7 : index
    %inside = arith.cmpi slt, %bx, %rows : index
    scf.if %inside {
      memref.store %value, %x[%bx, %column] : memref<?x64xf32>
    }
    gpu.terminator
  }
  return
}
