// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s -one-shot-bufferize='bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map' | FileCheck %s --check-prefix=BUFFER

// CHECK-LABEL: func @tensors
// CHECK: flashattn.project ins(%{{.*}}, %{{.*}} : tensor<2x8x?x64xf16>, tensor<8x64x512xf16>) outs(%{{.*}} : tensor<2x?x512xf16>) -> tensor<2x?x512xf16>
// BUFFER-LABEL: func @tensors
// What the destination held is not kept.
// BUFFER-NOT: memref.copy
// BUFFER: flashattn.project ins(%{{.*}} : memref<2x8x?x64xf16>, memref<8x64x512xf16>) outs(%{{.*}} : memref<2x?x512xf16>)
func.func @tensors(%o: tensor<2x8x?x64xf16>, %w: tensor<8x64x512xf16>, %p: tensor<2x?x512xf16>) -> tensor<2x?x512xf16> {
  %r = flashattn.project ins(%o, %w : tensor<2x8x?x64xf16>, tensor<8x64x512xf16>) outs(%p : tensor<2x?x512xf16>) -> tensor<2x?x512xf16>
  return %r : tensor<2x?x512xf16>
}

// CHECK-LABEL: func @memrefs
// CHECK: flashattn.project layout(bshd) schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>) ins(%{{.*}}, %{{.*}} : memref<?x?x?x24xbf16>, memref<?x24x?xbf16>) outs(%{{.*}} : memref<?x?x?xf32>)
func.func @memrefs(%o: memref<?x?x?x24xbf16>, %w: memref<?x24x?xbf16>, %p: memref<?x?x?xf32>) {
  flashattn.project layout(bshd) schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = bf16, mapping = mma_sync<warps = 4>>) ins(%o, %w : memref<?x?x?x24xbf16>, memref<?x24x?xbf16>) outs(%p : memref<?x?x?xf32>)
  return
}
