// Kernels read and write where a copy would bring it from or to.
// RUN: flash-opt %s -flashattn-fold-copies | FileCheck %s

!t = memref<2x8x64x16xf32>
!s = memref<2x64x8x16xf32>
!c = memref<2x8x256x16xf32>
!v = memref<2x8x64x16xf32, strided<[32768, 4096, 16, 1], offset: ?>>

// CHECK-LABEL: func @result
// CHECK-SAME: (%[[Q:.*]]: memref<2x8x64x16xf32>, %[[R:.*]]: memref<2x64x8x16xf32>)
// CHECK: %[[V:.*]] = memref.transpose %[[R]] (d0, d1, d2, d3) -> (d0, d2, d1, d3)
// CHECK: flashattn.attention {{.*}} outs(%[[V]] : memref<2x8x64x16xf32, strided<[8192, 16, 128, 1]>>)
// CHECK-NEXT: return
func.func @result(%q: !t, %r: !s) {
  %o = memref.alloc() : !t
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  linalg.transpose ins(%o : !t) outs(%r : !s) permutation = [0, 2, 1, 3]
  return
}

// The allocation moves to where it is needed; who reads the result still does.
// CHECK-LABEL: func @allocated
// CHECK: %[[T:.*]] = memref.alloc(%{{.*}}) {{.*}}: memref<2x?x8x16xf32>
// CHECK: %[[V:.*]] = memref.transpose %[[T]] (d0, d1, d2, d3) -> (d0, d2, d1, d3)
// CHECK: flashattn.attention {{.*}} outs(%[[V]] :
// CHECK: flashattn.attention ins(%[[V]],
// CHECK-NOT: linalg
// CHECK: return %[[T]]
func.func @allocated(%q: memref<2x8x?x16xf32>, %p: memref<2x8x?x16xf32>) -> memref<2x?x8x16xf32> {
  %c2 = arith.constant 2 : index
  %n = memref.dim %q, %c2 : memref<2x8x?x16xf32>
  %o = memref.alloc(%n) : memref<2x8x?x16xf32>
  flashattn.attention ins(%q, %q, %q : memref<2x8x?x16xf32>, memref<2x8x?x16xf32>, memref<2x8x?x16xf32>) outs(%o : memref<2x8x?x16xf32>)
  %t = memref.alloc(%n) {alignment = 64 : i64} : memref<2x?x8x16xf32>
  linalg.generic {indexing_maps = [affine_map<(b, h, n, d) -> (b, h, n, d)>, affine_map<(b, h, n, d) -> (b, n, h, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o : memref<2x8x?x16xf32>) outs(%t : memref<2x?x8x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  flashattn.attention ins(%o, %q, %q : memref<2x8x?x16xf32>, memref<2x8x?x16xf32>, memref<2x8x?x16xf32>) outs(%p : memref<2x8x?x16xf32>)
  return %t : memref<2x?x8x16xf32>
}

// CHECK-LABEL: func @operands
// CHECK-SAME: (%[[X:.*]]: memref<2x64x8x16xf32>, %[[O:.*]]: memref<2x8x64x16xf32>)
// CHECK: %[[V:.*]] = memref.transpose %[[X]] (d0, d1, d2, d3) -> (d0, d2, d1, d3)
// CHECK: flashattn.attention ins(%[[V]], %[[V]], %[[V]] :
// CHECK-NEXT: return
func.func @operands(%x: !s, %o: !t) {
  %q = memref.alloc() : !t
  linalg.transpose ins(%x : !s) outs(%q : !t) permutation = [0, 2, 1, 3]
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}

// A part of a cache, at any place.
// CHECK-LABEL: func @part
// CHECK: %[[V:.*]] = memref.subview
// CHECK: flashattn.attention {{.*}} outs(%[[V]] :
// CHECK-NEXT: return
func.func @part(%q: !t, %cache: !c, %at: index) {
  %o = memref.alloc() : !t
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  %v = memref.subview %cache[0, 0, %at, 0] [2, 8, 64, 16] [1, 1, 1, 1] : !c to !v
  memref.copy %o, %v : !t to !v
  return
}

// CHECK-LABEL: func @itself
// CHECK-NOT: memref.copy
func.func @itself(%cache: !c, %at: index) {
  %v = memref.subview %cache[0, 0, %at, 0] [2, 8, 64, 16] [1, 1, 1, 1] : !c to !v
  memref.copy %v, %v : !v to !v
  return
}

// What stays: rows that would be none,
// CHECK-LABEL: func @columns
// CHECK: linalg.transpose
func.func @columns(%x: memref<2x8x16x64xf32>, %o: !t) {
  %q = memref.alloc() : !t
  linalg.transpose ins(%x : memref<2x8x16x64xf32>) outs(%q : !t) permutation = [0, 1, 3, 2]
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}

// memory that is written before it is read for the last time,
// CHECK-LABEL: func @overwritten
// CHECK: linalg.transpose
func.func @overwritten(%x: !s, %y: !s, %o: !t) {
  %q = memref.alloc() : !t
  linalg.transpose ins(%x : !s) outs(%q : !t) permutation = [0, 2, 1, 3]
  memref.copy %y, %x : !s to !s
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}

// or may be, under a name that nobody knows,
// CHECK-LABEL: func @unknown
// CHECK: linalg.transpose
func.func @unknown(%x: !s, %y: !s, %o: !t, %c: i1) {
  %z = arith.select %c, %x, %y : !s
  %q = memref.alloc() : !t
  linalg.transpose ins(%x : !s) outs(%q : !t) permutation = [0, 2, 1, 3]
  memref.copy %y, %z : !s to !s
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  return
}

// or by the op itself,
// CHECK-LABEL: func @in_place
// CHECK: memref.copy
func.func @in_place(%q: !t, %cache: !c, %at: index) {
  %o = memref.alloc() : !t
  flashattn.attention ins(%q, %cache, %cache : !t, !c, !c) outs(%o : !t)
  %v = memref.subview %cache[0, 0, %at, 0] [2, 8, 64, 16] [1, 1, 1, 1] : !c to !v
  memref.copy %o, %v : !t to !v
  return
}

// a buffer that something else reads too, or that is written in a loop,
// CHECK-LABEL: func @read
// CHECK: linalg.transpose
func.func @read(%q: !t, %r: !s) -> !t {
  %o = memref.alloc() : !t
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  linalg.transpose ins(%o : !t) outs(%r : !s) permutation = [0, 2, 1, 3]
  return %o : !t
}

// CHECK-LABEL: func @loop
// CHECK: linalg.transpose
func.func @loop(%q: !t, %r: !s, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %o = memref.alloc() : !t
  scf.for %i = %c0 to %n step %c1 {
    flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  }
  linalg.transpose ins(%o : !t) outs(%r : !s) permutation = [0, 2, 1, 3]
  return
}

// what computes,
// CHECK-LABEL: func @computes
// CHECK: linalg.generic
func.func @computes(%q: !t, %r: !s) {
  %o = memref.alloc() : !t
  flashattn.attention ins(%q, %q, %q : !t, !t, !t) outs(%o : !t)
  linalg.generic {indexing_maps = [affine_map<(b, h, n, d) -> (b, h, n, d)>, affine_map<(b, h, n, d) -> (b, n, h, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%o : !t) outs(%r : !s) {
  ^bb0(%in: f32, %out: f32):
    %z = arith.negf %in : f32
    linalg.yield %z : f32
  }
  return
}

// and a copy that the driver makes where kernels would lose whole rows.
// CHECK-LABEL: func @whole_rows
// CHECK: memref.copy
func.func @whole_rows(%q: memref<1x1x64x16xf32>, %x: memref<65536xf32>, %at: index) {
  %o = memref.alloc() : memref<1x1x64x16xf32>
  flashattn.attention ins(%q, %q, %q : memref<1x1x64x16xf32>, memref<1x1x64x16xf32>, memref<1x1x64x16xf32>) outs(%o : memref<1x1x64x16xf32>)
  %v = memref.reinterpret_cast %x to offset: [%at], sizes: [1, 1, 64, 16], strides: [1024, 1024, 16, 1] : memref<65536xf32> to memref<1x1x64x16xf32, strided<[1024, 1024, 16, 1], offset: ?>>
  memref.copy %o, %v : memref<1x1x64x16xf32> to memref<1x1x64x16xf32, strided<[1024, 1024, 16, 1], offset: ?>>
  return
}
