// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -mlir-print-op-generic | flash-opt | FileCheck %s
// RUN: flash-opt %s -one-shot-bufferize='bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map' | FileCheck %s --check-prefix=BUFFER

// CHECK-LABEL: func @tensors
// CHECK: flashattn.combine ins(%{{.*}}, %{{.*}} : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%{{.*}} : tensor<2x8x1x64xf16>) -> tensor<2x8x1x64xf16>
// BUFFER-LABEL: func @tensors
// What the destination held is not kept.
// BUFFER-NOT: memref.copy
// BUFFER: flashattn.combine ins(%{{.*}} : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) outs(%{{.*}} : memref<2x8x1x64xf16>)
func.func @tensors(%op: tensor<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>) -> tensor<2x8x1x64xf16> {
  %init = tensor.empty() : tensor<2x8x1x64xf16>
  %o = flashattn.combine ins(%op, %lp : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) outs(%init : tensor<2x8x1x64xf16>) -> tensor<2x8x1x64xf16>
  return %o : tensor<2x8x1x64xf16>
}

// CHECK-LABEL: func @memrefs
// CHECK: flashattn.combine layout(bshd) ins(%{{.*}}, %{{.*}} : memref<?x?x?x?x40xf32>, memref<?x?x?x?xf32>) sink_logits(%{{.*}} : memref<?xf32>) outs(%{{.*}}, %{{.*}} : memref<?x?x?x40xbf16>, memref<?x?x?xf32>)
func.func @memrefs(%op: memref<?x?x?x?x40xf32>, %lp: memref<?x?x?x?xf32>, %s: memref<?xf32>, %o: memref<?x?x?x40xbf16>, %l: memref<?x?x?xf32>) {
  flashattn.combine layout(bshd) ins(%op, %lp : memref<?x?x?x?x40xf32>, memref<?x?x?x?xf32>) sink_logits(%s : memref<?xf32>) outs(%o, %l : memref<?x?x?x40xbf16>, memref<?x?x?xf32>)
  return
}

// CHECK-LABEL: func @rests
// CHECK: flashattn.combine ins(%{{.*}}, %{{.*}} : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) lse_rests(%{{.*}} : tensor<3x2x8x1xf32>) sink_logits(%{{.*}} : tensor<8xf32>) outs(
// BUFFER-LABEL: func @rests
// BUFFER: flashattn.combine ins(%{{.*}} : memref<3x2x8x1x64xf32>, memref<3x2x8x1xf32>) lse_rests(%{{.*}} : memref<3x2x8x1xf32>) sink_logits(
func.func @rests(%op: tensor<3x2x8x1x64xf32>, %lp: tensor<3x2x8x1xf32>, %s: tensor<8xf32>, %o: tensor<2x8x1x64xf16>) -> tensor<2x8x1x64xf16> {
  %r = flashattn.combine outs(%o : tensor<2x8x1x64xf16>) sink_logits(%s : tensor<8xf32>) lse_rests(%lp : tensor<3x2x8x1xf32>)
      ins(%op, %lp : tensor<3x2x8x1x64xf32>, tensor<3x2x8x1xf32>) -> tensor<2x8x1x64xf16>
  return %r : tensor<2x8x1x64xf16>
}

// CHECK-LABEL: func @count
// CHECK: flashattn.count_splits %{{.*}}, %{{.*}} schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 8, mapping = mma_sync<warps = 4>>)
func.func @count(%p: index, %t: index) -> index {
  %s = flashattn.count_splits %p, %t schedule(<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 8, mapping = mma_sync<warps = 4>>)
  return %s : index
}

// CHECK-LABEL: func @fields
// CHECK-SAME: all = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, splits = 256, mapping = hopper<consumers = 1,
// CHECK-SAME: none = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, mapping = mma_sync<warps = 4>>
func.func @fields() attributes {
  all = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, pack = 4, splits = 256, mapping = hopper<consumers = 1, along = query_tile, registers = 128, producer_registers = 32, rescale_threshold = 8, l2_head_group = 1>>,
  none = #flashattn.schedule<tile_m = 64, tile_n = 64, stages = 2, dot_type = f16, splits = 1, mapping = mma_sync<warps = 4>>
} {
  return
}
