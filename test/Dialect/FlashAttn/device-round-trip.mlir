// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s -canonicalize -cse | FileCheck %s --check-prefix=KEPT

// CHECK-LABEL: func @host
// CHECK: flashattn.multiprocessor_count
func.func @host() -> index {
  %0 = flashattn.multiprocessor_count
  return %0 : index
}

// Other threads take part: no vote goes away or is one with another, whoever needs its answer.
// CHECK-LABEL: func @votes
// CHECK-SAME: %[[C:.*]]: i1
// CHECK-NEXT: flashattn.vote any %[[C]] : i1
// CHECK-NEXT: flashattn.vote any %[[C]] : i1
// CHECK-NEXT: flashattn.vote all %[[C]] : i1
// CHECK-NEXT: flashattn.vote ballot %[[C]] : i32
// KEPT-LABEL: func @votes
// KEPT-COUNT-2: flashattn.vote any
// KEPT: flashattn.vote all
// KEPT: flashattn.vote ballot
func.func @votes(%c: i1) -> (i1, i1) {
  %0 = flashattn.vote any %c : i1
  %1 = flashattn.vote any %c : i1
  %2 = flashattn.vote all %c : i1
  %3 = flashattn.vote ballot %c : i32
  return %0, %1 : i1, i1
}

// CHECK-LABEL: func @grids
// CHECK-NEXT: flashattn.launch_dependents
// CHECK-NEXT: memref.load
// CHECK-NEXT: flashattn.wait_prerequisite_grids
// CHECK-NEXT: memref.load
// KEPT-LABEL: func @grids
// KEPT: memref.load
// KEPT-NEXT: flashattn.wait_prerequisite_grids
// KEPT-NEXT: memref.load
func.func @grids(%m: memref<f32>) -> (f32, f32) {
  flashattn.launch_dependents
  %0 = memref.load %m[] : memref<f32>
  flashattn.wait_prerequisite_grids
  %1 = memref.load %m[] : memref<f32>
  return %0, %1 : f32, f32
}
