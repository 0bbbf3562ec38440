// RUN: flash-opt %s -flashattn-keep-loops | FileCheck %s
// RUN: flash-opt %s -flashattn-to-cpu | FileCheck %s --check-prefix=LOWERED

// Loops that hold loops are not unrolled; the innermost ones are LLVM's to unroll.
// CHECK: #[[UNROLL:.*]] = #llvm.loop_unroll<disable = true>
// CHECK: #[[KEEP:.*]] = #llvm.loop_annotation<unroll = #[[UNROLL]]>
// CHECK-LABEL: func.func @nest
// CHECK: scf.for
// CHECK: scf.for
// CHECK: memref.store
// CHECK-NEXT: }{{$}}
// CHECK-NEXT: } {loop_annotation = #[[KEEP]]}

// It is there still where LLVM reads it.
// LOWERED-LABEL: llvm.func @nest
// LOWERED-COUNT-1: llvm.br {{.*}} {loop_annotation = #{{.*}}}
// LOWERED-NOT: loop_annotation
func.func @nest(%m: memref<8x64xf32>, %x: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c8 step %c1 {
    scf.for %j = %c0 to %c64 step %c1 {
      memref.store %x, %m[%i, %j] : memref<8x64xf32>
    }
  }
  return
}
