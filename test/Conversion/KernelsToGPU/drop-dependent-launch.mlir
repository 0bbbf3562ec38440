// RUN: flash-opt %s -flashattn-drop-dependent-launch | FileCheck %s
// RUN: flash-opt %s -flashattn-to-nvvm=chip=sm_80 --emit=ptx | FileCheck %s --check-prefix=PTX

// PTX: .target sm_80
// PTX-NOT: griddepcontrol
// PTX: .entry own
// PTX-NOT: griddepcontrol

// CHECK-LABEL: func @kernels
// CHECK: gpu.launch
// CHECK-NEXT: memref.load
// CHECK: scf.if
// CHECK-NEXT: memref.store
// CHECK: gpu.terminator
// CHECK-NOT: flashattn.
func.func @kernels(%n: index, %m: memref<?xf32>) {
  %one = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    flashattn.launch_dependents
    %x = memref.load %m[%bx] : memref<?xf32>
    %first = arith.cmpi eq, %tx, %bx : index
    scf.if %first {
      flashattn.wait_prerequisite_grids
      memref.store %x, %m[%bx] : memref<?xf32>
    }
    gpu.terminator
  }
  return
}

// A user's kernel, which LLVM has no code for before sm_90.

// CHECK-LABEL: gpu.func @own
// CHECK-NEXT: gpu.return
gpu.module @own_kernels {
  gpu.func @own() kernel {
    nvvm.griddepcontrol launch_dependents
    nvvm.griddepcontrol wait
    gpu.return
  }
}
