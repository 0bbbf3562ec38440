// RUN: flash-opt %s -flashattn-overlap-merge | FileCheck %s

// Programs over parts of the keys, and the kernel that merges them: it waits when it has found its
// row, before it reads. Neither attribute of other launches matters.
// CHECK-LABEL: func @parts
// CHECK: gpu.launch
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK: memref.store
// CHECK: gpu.launch
// CHECK-NEXT: arith.cmpi
// CHECK-NEXT: arith.index_cast
// CHECK-NEXT: hopper.wait_prerequisite_grids
// CHECK-NEXT: scf.if
// CHECK-NEXT: memref.load
// CHECK-NOT: hopper.
// CHECK: gpu.terminator
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func @parts(%n: index, %m: memref<?xf32>) {
  %one = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    memref.store %x, %m[%bx] : memref<?xf32>
    gpu.terminator
  } {flashattn.schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16, splits = 32>}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    %first = arith.cmpi eq, %tx, %bx : index
    %row = arith.index_cast %bx : index to i32
    scf.if %first {
      %y = memref.load %m[%bx] : memref<?xf32>
      memref.store %y, %m[%bx] : memref<?xf32>
    }
    gpu.terminator
  } {flashattn.merges_parts}
  return
}

// Keys in one part, and a launch that is nobody's.
// CHECK-LABEL: func @others
// CHECK-NOT: griddepcontrol
// CHECK-NOT: hopper
func.func @others(%n: index, %m: memref<?xf32>) {
  %one = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    memref.store %x, %m[%bx] : memref<?xf32>
    gpu.terminator
  } {flashattn.schedule = #flashattn.schedule<tile_m = 64, tile_n = 64, warps = 4, stages = 2, lanes = 4, dot_type = f16>}
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %one, %sy = %one, %sz = %one) {
    memref.store %x, %m[%bx] : memref<?xf32>
    gpu.terminator
  }
  return
}
