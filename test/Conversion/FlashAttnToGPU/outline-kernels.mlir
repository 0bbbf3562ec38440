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

// Names are made of what PTX takes, each once; launches follow.
// CHECK-LABEL: func @"a-b"
// CHECK: gpu.launch_func @a_b_kernel::@a_b_kernel
// CHECK: gpu.launch_func @a_b_kernel_0::@a_b_kernel_0
// CHECK: gpu.module @a_b_kernel {
// CHECK: gpu.func @a_b_kernel(
// CHECK: gpu.module @a_b_kernel_0 {
// CHECK: gpu.func @a_b_kernel_0(
func.func @"a-b"(%x: memref<1xf32>, %v: f32) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    memref.store %v, %x[%tx] : memref<1xf32>
    gpu.terminator
  }
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    memref.store %v, %x[%tx] : memref<1xf32>
    gpu.terminator
  }
  return
}

// CHECK-LABEL: func @a.b
// CHECK: gpu.launch_func @a_b_kernel_1::@a_b_kernel_1
func.func @"a.b"(%x: memref<1xf32>, %v: f32) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    memref.store %v, %x[%tx] : memref<1xf32>
    gpu.terminator
  }
  return
}

// CHECK-LABEL: func @"2nd"
// CHECK: gpu.launch_func @_2nd_kernel::@_2nd_kernel
func.func @"2nd"(%x: memref<1xf32>, %v: f32) {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    memref.store %v, %x[%tx] : memref<1xf32>
    gpu.terminator
  }
  return
}

// A kernel of one's own, with what it calls.
// CHECK: gpu.module @my_kernels
// CHECK: gpu.func @__()
// CHECK: call @help_er()
// CHECK: func private @help_er()
// CHECK: func.func @own
// CHECK: gpu.launch_func @my_kernels::@__
module attributes {gpu.container_module} {
  gpu.module @"my kernels" {
    gpu.func @"\C3\A9"() kernel {
      func.call @help.er() : () -> ()
      gpu.return
    }
    func.func private @help.er() {
      return
    }
  }
  func.func @own() {
    %c1 = arith.constant 1 : index
    gpu.launch_func @"my kernels"::@"\C3\A9" blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}
