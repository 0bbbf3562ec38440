// RUN: flash-opt %s -split-input-file -flashattn-free-temporaries | FileCheck %s

// A chain holds two buffers at a time; its result is the caller's.
// CHECK-LABEL: func @chain
// CHECK: %[[A:.*]] = memref.alloc
// CHECK: linalg.exp {{.*}} outs(%[[A]]
// CHECK-NEXT: %[[B:.*]] = memref.alloc
// CHECK-NEXT: linalg.exp ins(%[[A]]{{.*}} outs(%[[B]]
// CHECK-NEXT: memref.dealloc %[[A]]
// CHECK-NEXT: %[[C:.*]] = memref.alloc
// CHECK-NEXT: %[[VIEW:.*]] = memref.expand_shape %[[B]]
// CHECK-NEXT: linalg.exp ins(%[[VIEW]]
// CHECK-NEXT: memref.dealloc %[[B]]
// CHECK-NEXT: return %[[C]]
func.func @chain(%x: memref<8xf32>) -> memref<2x4xf32> {
  %a = memref.alloc() : memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%a : memref<8xf32>)
  %b = memref.alloc() : memref<8xf32>
  linalg.exp ins(%a : memref<8xf32>) outs(%b : memref<8xf32>)
  %c = memref.alloc() : memref<2x4xf32>
  %view = memref.expand_shape %b [[0, 1]] output_shape [2, 4] : memref<8xf32> into memref<2x4xf32>
  linalg.exp ins(%view : memref<2x4xf32>) outs(%c : memref<2x4xf32>)
  return %c : memref<2x4xf32>
}

// -----

// One for each element goes with the element.
// CHECK-LABEL: func @elements
// CHECK: scf.for
// CHECK: memref.alloc
// CHECK: %[[V:.*]] = memref.load
// CHECK-NEXT: memref.dealloc
// CHECK-NEXT: memref.store %[[V]]
func.func @elements(%x: memref<8xf32>, %at: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %t = memref.alloc() : memref<2xf32>
    linalg.exp ins(%t : memref<2xf32>) outs(%t : memref<2xf32>)
    %v = memref.load %t[%at] : memref<2xf32>
    memref.store %v, %x[%i] : memref<8xf32>
  }
  return
}

// -----

// What a loop carries, a branch hands on, a call may give back or the program frees itself is left
// alone, and so is that whose address is taken.
// CHECK-LABEL: func @leaves
// CHECK-COUNT-1: memref.dealloc
// CHECK-NOT: memref.dealloc
func.func private @same(%x: memref<8xf32>) -> memref<8xf32>
func.func @leaves(%x: memref<8xf32>, %n: index, %c: i1) -> (memref<8xf32>, memref<8xf32>, memref<8xf32>, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%old = %x) -> memref<8xf32> {
    %new = memref.alloc() : memref<8xf32>
    linalg.exp ins(%old : memref<8xf32>) outs(%new : memref<8xf32>)
    scf.yield %new : memref<8xf32>
  }
  %s = scf.if %c -> memref<8xf32> {
    %t = memref.alloc() : memref<8xf32>
    linalg.exp ins(%x : memref<8xf32>) outs(%t : memref<8xf32>)
    scf.yield %t : memref<8xf32>
  } else {
    scf.yield %x : memref<8xf32>
  }
  %own = memref.alloc() : memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%own : memref<8xf32>)
  memref.dealloc %own : memref<8xf32>
  %u = memref.alloc() : memref<8xf32>
  %v = func.call @same(%u) : (memref<8xf32>) -> memref<8xf32>
  %w = memref.alloc() : memref<8xf32>
  %address = memref.extract_aligned_pointer_as_index %w : memref<8xf32> -> index
  return %r, %s, %v, %address : memref<8xf32>, memref<8xf32>, memref<8xf32>, index
}

// -----

// Where a loop takes a buffer over, it is freed once the loop's result is done with.
// CHECK-LABEL: func @carried
// CHECK: %[[A:.*]] = memref.alloc
// CHECK: %[[R:.*]] = scf.for
// CHECK: linalg.exp ins(%[[R]]
// CHECK-NEXT: memref.dealloc %[[A]]
// CHECK-NEXT: return
func.func @carried(%x: memref<8xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.alloc() : memref<8xf32>
  linalg.exp ins(%x : memref<8xf32>) outs(%a : memref<8xf32>)
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%old = %a) -> memref<8xf32> {
    linalg.exp ins(%old : memref<8xf32>) outs(%old : memref<8xf32>)
    scf.yield %old : memref<8xf32>
  }
  linalg.exp ins(%r : memref<8xf32>) outs(%x : memref<8xf32>)
  return
}
