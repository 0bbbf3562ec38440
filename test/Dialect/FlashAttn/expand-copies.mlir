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
// GPU-COUNT-2: memref.copy
func.func @copies(%x: memref<4x?xf32>, %y: memref<4x?xf32>, %part: memref<4x8xf32, strided<[8, 1], offset: 32>>,
                  %whole: memref<4x8xf32>, %z: memref<4x?xf32, #rows>) {
  memref.copy %x, %y : memref<4x?xf32> to memref<4x?xf32>
  memref.copy %part, %whole : memref<4x8xf32, strided<[8, 1], offset: 32>> to memref<4x8xf32>
  memref.copy %x, %z : memref<4x?xf32> to memref<4x?xf32, #rows>
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
