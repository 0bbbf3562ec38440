// RUN: flash-opt %s -split-input-file -flashattn-free-loop-buffers | FileCheck %s

// Each turn frees what the one before it has made; the argument is the caller's, and so is the result,
// a copy where the loop has no turn.

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[X:.*]]: memref<8xf32>, %{{.*}}: index)
// CHECK: %[[LOOP:.*]]:2 = scf.for {{.*}} iter_args(%[[OLD:.*]] = %[[X]], %[[OWNED:.*]] = %false)
// CHECK: %[[NEW:.*]] = memref.alloc
// CHECK: linalg.exp
// CHECK: scf.if %[[OWNED]]
// CHECK-NEXT: memref.dealloc
// CHECK: scf.yield %[[NEW]], %true
// CHECK: scf.if %[[LOOP]]#1 -> (memref<8xf32>)
// CHECK-NEXT: scf.yield %[[LOOP]]#0
// CHECK: %[[COPY:.*]] = memref.alloc
// CHECK-NEXT: memref.copy %[[LOOP]]#0, %[[COPY]]
// CHECK: return
func.func @layers(%x: memref<8xf32>, %n: index) -> memref<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%old = %x) -> memref<8xf32> {
    %new = memref.alloc() : memref<8xf32>
    linalg.exp ins(%old : memref<8xf32>) outs(%new : memref<8xf32>)
    scf.yield %new : memref<8xf32>
  }
  return %r : memref<8xf32>
}

// -----

// Several owners and several that may be the same: each address is freed once, and the lists are no
// memory of an allocator.

// CHECK-LABEL: func @several
// CHECK-NOT: dealloc_helper
// CHECK-NOT: memref<{{[0-9]+}}xi1>
// CHECK: memref.extract_aligned_pointer_as_index
// CHECK: arith.cmpi eq
// CHECK: memref.dealloc
func.func @several(%x: memref<8xf32>, %n: index, %c: i1) -> (memref<8xf32>, memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %b = %x) -> (memref<8xf32>, memref<8xf32>) {
    %new = memref.alloc() : memref<8xf32>
    linalg.exp ins(%a : memref<8xf32>) outs(%new : memref<8xf32>)
    %s = arith.select %c, %a, %new : memref<8xf32>
    scf.yield %new, %s : memref<8xf32>, memref<8xf32>
  }
  return %r#0, %r#1 : memref<8xf32>, memref<8xf32>
}

// -----

// Also where the loop calls who makes the buffers.
// CHECK-LABEL: func private @layer
// CHECK-SAME: -> (memref<8xf32>, i1)
// CHECK-LABEL: func @calls
// CHECK: scf.for
// CHECK: call @layer
// CHECK: memref.dealloc
func.func private @layer(%x: memref<8xf32>) -> memref<8xf32> {
  %new = memref.alloc() : memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%new : memref<8xf32>)
  return %new : memref<8xf32>
}
func.func @calls(%x: memref<8xf32>, %o: memref<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y = func.call @layer(%x) : (memref<8xf32>) -> memref<8xf32>
    linalg.exp ins(%y : memref<8xf32>) outs(%o : memref<8xf32>)
  }
  return
}

// -----

// What the program frees itself is left to it, and a module without such loops is left alone.
// CHECK-LABEL: func @own
// CHECK-NEXT: memref.alloc() : memref<8xf32>
// CHECK-COUNT-1: memref.dealloc
// CHECK-NOT: memref.dealloc
func.func @own(%x: memref<8xf32>, %n: index) -> memref<8xf32> {
  %result = memref.alloc() : memref<8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %y = memref.alloc() : memref<8xf32>
    linalg.exp ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
    linalg.exp ins(%y : memref<8xf32>) outs(%result : memref<8xf32>)
    memref.dealloc %y : memref<8xf32>
  }
  return %result : memref<8xf32>
}

// -----

// CHECK-LABEL: func @both
// CHECK: scf.for
// CHECK: %[[OWN:.*]] = memref.alloc() {bufferization.manual_deallocation}
// CHECK: %[[LEFT:.*]] = memref.alloc() : memref<8xf32>
// CHECK-COUNT-2: memref.dealloc
// CHECK-NOT: memref.dealloc
func.func @both(%x: memref<8xf32>, %o: memref<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %own = memref.alloc() : memref<8xf32>
    linalg.exp ins(%x : memref<8xf32>) outs(%own : memref<8xf32>)
    %left = memref.alloc() : memref<8xf32>
    linalg.exp ins(%own : memref<8xf32>) outs(%left : memref<8xf32>)
    linalg.exp ins(%left : memref<8xf32>) outs(%o : memref<8xf32>)
    memref.dealloc %own : memref<8xf32>
  }
  return
}
