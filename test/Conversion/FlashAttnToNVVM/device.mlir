// RUN: flash-opt %s -convert-flashattn-device-to-nvvm | FileCheck %s

// All 32 threads of the warp take part.
// CHECK-LABEL: func @votes
// CHECK-SAME: %[[C:.*]]: i1
// CHECK: %[[ALL:.*]] = llvm.mlir.constant(-1 : i32)
// CHECK: %[[ANY:.*]] = nvvm.vote.sync any %[[ALL]], %[[C]] -> i1
// CHECK: nvvm.vote.sync all %{{.*}}, %[[ANY]] -> i1
// CHECK: %[[WHO:.*]] = nvvm.vote.sync ballot %{{.*}}, %[[C]] -> i32
// CHECK: return %[[WHO]]
func.func @votes(%c: i1) -> i32 {
  %0 = flashattn.vote any %c : i1
  %1 = flashattn.vote all %0 : i1
  %2 = flashattn.vote ballot %c : i32
  return %2 : i32
}

// The wait as text, which LLVM takes for an access to any memory.
// CHECK-LABEL: func @grids
// CHECK-NEXT: nvvm.griddepcontrol launch_dependents
// CHECK-NEXT: nvvm.inline_ptx "griddepcontrol.wait;"
// CHECK-NEXT: return
func.func @grids() {
  flashattn.launch_dependents
  flashattn.wait_prerequisite_grids
  return
}
