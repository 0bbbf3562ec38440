// JAX 0.12, IREE 3.13, --compile-to=global-optimization.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x2x256x64xf32>, %arg2: tensor<2x2x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 1.250000e-01 : f32
    %0 = tensor.empty() : tensor<2x2x4x256x64xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x256x64xf32>) outs(%0 : tensor<2x2x4x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x4x256x64xf32>
    %2 = tensor.empty() : tensor<2x2x4x64x256xf32>
    %3 = linalg.generic {indexing_maps = [#map2, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x256x64xf32>) outs(%2 : tensor<2x2x4x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x4x64x256xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_1 = tensor.collapse_shape %3 [[0, 1, 2], [3], [4]] : tensor<2x2x4x64x256xf32> into tensor<16x64x256xf32>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed, %collapsed_1 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256x256xf32>
    %8 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %13 = arith.mulf %in, %cst_0 : f32
      linalg.yield %13 : f32
    } -> tensor<2x8x256x256xf32>
    %9 = linalg.softmax dimension(3) ins(%8 : tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %collapsed_2 = tensor.collapse_shape %9 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %1 [[0, 1, 2], [3], [4]] : tensor<2x2x4x256x64xf32> into tensor<16x256x64xf32>
    %10 = tensor.empty() : tensor<16x256x64xf32>
    %11 = linalg.fill ins(%cst : f32) outs(%10 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %12 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%11 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_4 = tensor.expand_shape %12 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_4 : tensor<2x8x256x64xf32>
  }
}

