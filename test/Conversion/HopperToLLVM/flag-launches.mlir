// RUN: flash-opt %s -flashattn-flag-launches | FileCheck %s
// RUN: flash-opt %s -flashattn-flag-launches | FileCheck %s --check-prefix=VALUE
// RUN: flash-opt %s -flashattn-flag-launches -expand-strided-metadata -convert-scf-to-cf -canonicalize -cse | FileCheck %s

// Only the kernel that waits is told of, at each of its launches, directly in front of it. What is
// text already says nothing.
// VALUE: %[[PROGRAMMATIC:.*]] = llvm.mlir.constant(1 : i32) : i32
// VALUE-NEXT: llvm.call @flashattnSetLaunchFlags(%[[PROGRAMMATIC]]) : (i32) -> ()
// VALUE-NEXT: gpu.launch_func @kernels::@merge
// CHECK: llvm.func @flashattnSetLaunchFlags(i32)
// CHECK-LABEL: func.func @decode
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @kernels::@parts
// CHECK: llvm.call @flashattnSetLaunchFlags
// CHECK-NEXT: gpu.launch_func @kernels::@merge
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @kernels::@parts
// CHECK: llvm.call @flashattnSetLaunchFlags
// CHECK-NEXT: gpu.launch_func @kernels::@merge
// CHECK-NOT: flashattnSetLaunchFlags
// CHECK: gpu.launch_func @text::@merge
module attributes {gpu.container_module} {
  gpu.binary @text [#gpu.object<#nvvm.target<chip = "sm_90">, assembly = "griddepcontrol.wait">]
  gpu.module @kernels {
    gpu.func @parts() kernel {
      nvvm.griddepcontrol launch_dependents
      gpu.return
    }
    gpu.func @merge(%first: i1) kernel {
      scf.if %first {
        flashattn.wait_prerequisite_grids
      }
      gpu.return
    }
  }
  func.func @decode(%n: index, %first: i1, %again: i1) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@parts blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
    gpu.launch_func @kernels::@merge blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1) args(%first : i1)
    scf.if %again {
      gpu.launch_func @kernels::@parts blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
      gpu.launch_func @kernels::@merge blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1) args(%first : i1)
    }
    gpu.launch_func @text::@merge blocks in (%n, %c1, %c1) threads in (%c1, %c1, %c1)
    return
  }
}
