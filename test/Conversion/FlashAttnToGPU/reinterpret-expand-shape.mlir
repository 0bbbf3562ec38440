// RUN: flash-opt %s -flashattn-reinterpret-expand-shape | FileCheck %s
// RUN: flash-opt %s -flashattn-reinterpret-expand-shape -expand-strided-metadata | FileCheck %s --check-prefix=LOWERED

// Two unknown sizes of one dimension: the outer one steps over the inner one.
// CHECK-LABEL: func @heads
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<?x?x?x64xf16>, %[[B:[a-z0-9]+]]: index, %[[H:[a-z0-9]+]]: index, %[[G:[a-z0-9]+]]: index, %[[S:[a-z0-9]+]]: index
// CHECK: %{{.*}}, %{{.*}}, %{{.*}}:4, %[[STRIDES:.*]]:4 = memref.extract_strided_metadata %[[Q]]
// CHECK: %[[STEP:.*]] = arith.muli %[[G]], %[[STRIDES]]#1
// CHECK: memref.reinterpret_cast %[[Q]] to offset: [0], sizes: [%[[B]], %[[H]], %[[G]], %[[S]], 64], strides: [%[[STRIDES]]#0, %[[STEP]], %[[STRIDES]]#1, 64, 1] : memref<?x?x?x64xf16> to memref<?x?x?x?x64xf16>
// LOWERED-LABEL: func @heads
// LOWERED-NOT: expand_shape
func.func @heads(%q: memref<?x?x?x64xf16>, %b: index, %h: index, %g: index, %s: index) -> memref<?x?x?x?x64xf16> {
  %0 = memref.expand_shape %q [[0], [1, 2], [3], [4]] output_shape [%b, %h, %g, %s, 64]
    : memref<?x?x?x64xf16> into memref<?x?x?x?x64xf16>
  return %0 : memref<?x?x?x?x64xf16>
}

// Strides and an offset of the caller's.
// CHECK-LABEL: func @strided
// CHECK: %{{.*}}, %[[OFFSET:.*]], %{{.*}}:3, %[[STRIDES:.*]]:3 = memref.extract_strided_metadata
// CHECK: memref.reinterpret_cast %{{.*}} to offset: [%[[OFFSET]]], sizes: [%{{.*}}, %{{.*}}, %{{.*}}, 64], strides: [%[[STRIDES]]#0, %{{.*}}, %[[STRIDES]]#1, 1]
// LOWERED-LABEL: func @strided
// LOWERED-NOT: expand_shape
func.func @strided(%q: memref<?x?x64xf16, strided<[?, ?, 1], offset: ?>>, %s: index, %h: index, %g: index)
    -> memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>> {
  %0 = memref.expand_shape %q [[0], [1, 2], [3]] output_shape [%s, %h, %g, 64]
    : memref<?x?x64xf16, strided<[?, ?, 1], offset: ?>> into memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>
  return %0 : memref<?x?x?x64xf16, strided<[?, ?, ?, 1], offset: ?>>
}

// All known.
// CHECK-LABEL: func @static
// CHECK: memref.reinterpret_cast %{{.*}} to offset: [0], sizes: [8, 8, 100, 64], strides: [51200, 6400, 64, 1] : memref<64x100x64xf16> to memref<8x8x100x64xf16>
func.func @static(%q: memref<64x100x64xf16>) -> memref<8x8x100x64xf16> {
  %0 = memref.expand_shape %q [[0, 1], [2], [3]] output_shape [8, 8, 100, 64]
    : memref<64x100x64xf16> into memref<8x8x100x64xf16>
  return %0 : memref<8x8x100x64xf16>
}
