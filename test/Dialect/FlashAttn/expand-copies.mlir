// RUN: flash-opt %s -split-input-file -flashattn-expand-copies -verify-diagnostics | FileCheck %s --check-prefix=CPU
// RUN: sed s/expected-error/x/ %s | flash-opt -split-input-file -flashattn-expand-copies=on-gpu | FileCheck %s --check-prefix=GPU

#rows = strided<[?, 1], offset: ?>

// CPU-LABEL: func @copies
// CPU: memref.copy %{{.*}} : memref<4x?xf32> to memref<4x?xf32>
// CPU: memref.copy %{{.*}} : memref<4x8xf32, strided<[8, 1], offset: 32>> to memref<4x8xf32>
// CPU: linalg.copy ins(%{{.*}} : memref<4x?xf32>) outs(%{{.*}} : memref<4x?xf32, strided<[?, 1], offset: ?>>)
// GPU-LABEL: func @copies
// GPU: %[[WAIT:.*]] = gpu.wait async
// GPU: %[[COPY:.*]] = gpu.memcpy async [%[[WAIT]]] %arg1, %arg0 : memref<4x?xf32>, memref<4x?xf32>
// GPU: gpu.wait [%[[COPY]]]
// Without a gap, but at an offset: what lowers gpu.memcpy reads none.
// GPU: memref.extract_strided_metadata %arg2
// GPU: %[[BASE:.*]] = memref.extract_aligned_pointer_as_index %arg2
// GPU: %[[FIRST:.*]] = arith.addi %[[BASE]], %{{.*}}
// GPU: arith.index_cast %[[FIRST]] : index to i64
// GPU: gpu.memcpy async [%{{.*}}] %{{.*}}, %{{.*}} : memref<?xf32>, memref<?xf32>
// GPU: memref.copy %arg0, %arg4
func.func @copies(%x: memref<4x?xf32>, %y: memref<4x?xf32>, %part: memref<4x8xf32, strided<[8, 1], offset: 32>>,
                  %whole: memref<4x8xf32>, %z: memref<4x?xf32, #rows>) {
  memref.copy %x, %y : memref<4x?xf32> to memref<4x?xf32>
  memref.copy %part, %whole : memref<4x8xf32, strided<[8, 1], offset: 32>> to memref<4x8xf32>
  memref.copy %x, %z : memref<4x?xf32> to memref<4x?xf32, #rows>
  return
}

// Parts that are whole behind the first dimension in which they have several elements have no gaps, whatever the sizes;
// others do.
// GPU-LABEL: func @parts
// GPU-COUNT-3: gpu.memcpy
// GPU-NOT: gpu.memcpy
// GPU-COUNT-2: memref.copy
// GPU-NOT: memref.copy
// GPU: return
func.func @parts(%cache: memref<1x?x8x64xf16>, %new: memref<1x?x8x64xf16>, %many: memref<?x8x?x64xf16>,
                 %one: memref<1x8x?x64xf16>, %at: index, %n: index) {
  %c2 = arith.constant 2 : index
  %a = memref.subview %cache[0, %at, 0, 0] [1, %n, 8, 64] [1, 1, 1, 1]
      : memref<1x?x8x64xf16> to memref<1x?x8x64xf16, strided<[?, 512, 64, 1], offset: ?>>
  memref.copy %new, %a : memref<1x?x8x64xf16> to memref<1x?x8x64xf16, strided<[?, 512, 64, 1], offset: ?>>
  %all = memref.dim %many, %c2 : memref<?x8x?x64xf16>
  %b = memref.subview %many[%at, 0, 0, 0] [1, 8, %all, 64] [1, 1, 1, 1]
      : memref<?x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 64, 1], offset: ?>>
  memref.copy %one, %b : memref<1x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 64, 1], offset: ?>>
  memref.copy %b, %one : memref<1x8x?x64xf16, strided<[?, ?, 64, 1], offset: ?>> to memref<1x8x?x64xf16>
  %c = memref.subview %many[%at, 0, 0, 0] [1, 8, %n, 64] [1, 1, 1, 1]
      : memref<?x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 64, 1], offset: ?>>
  memref.copy %one, %c : memref<1x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 64, 1], offset: ?>>
  %d = memref.subview %many[%at, 0, 0, 0] [1, 8, %all, 64] [1, 1, 2, 1]
      : memref<?x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 128, 1], offset: ?>>
  memref.copy %one, %d : memref<1x8x?x64xf16> to memref<1x8x?x64xf16, strided<[?, ?, 128, 1], offset: ?>>
  return
}

// -----

// GPU-LABEL: func @unranked
// GPU: memref.copy
func.func @unranked(%x: memref<*xf32>, %y: memref<*xf32>) {
  // expected-error@below {{'memref.copy' op expected ranked memrefs but got 'memref<*xf32>' and 'memref<*xf32>'}}
  memref.copy %x, %y : memref<*xf32> to memref<*xf32>
  return
}
