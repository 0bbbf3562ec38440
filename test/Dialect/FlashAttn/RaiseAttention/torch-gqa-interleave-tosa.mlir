// PyTorch 2.11, torch-mlir 20261001's TOSA and upstream's lowering of it.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9) -> (d1, d3, d5, d7, d9)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7, d8, d9) -> (d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, 0, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x2x256x64xf32>, %arg2: tensor<2x2x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 1.000000e+00 : f32
    %cst_0 = arith.constant -3.40282347E+38 : f32
    %cst_1 = arith.constant 0.000000e+00 : f32
    %cst_2 = arith.constant dense<1.250000e-01> : tensor<1x1x1x1xf32>
    %expanded = tensor.expand_shape %arg1 [[0], [1, 2], [3], [4]] output_shape [2, 2, 1, 256, 64] : tensor<2x2x256x64xf32> into tensor<2x2x1x256x64xf32>
    %0 = tensor.empty() : tensor<1x2x1x2x4x1x1x256x1x64xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x2x1x256x64xf32>) outs(%0 : tensor<1x2x1x2x4x1x1x256x1x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x2x1x2x4x1x1x256x1x64xf32>
    %collapsed = tensor.collapse_shape %1 [[0, 1, 2], [3, 4, 5, 6], [7, 8], [9]] : tensor<1x2x1x2x4x1x1x256x1x64xf32> into tensor<2x8x256x64xf32>
    %expanded_3 = tensor.expand_shape %arg2 [[0], [1, 2], [3], [4]] output_shape [2, 2, 1, 256, 64] : tensor<2x2x256x64xf32> into tensor<2x2x1x256x64xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%expanded_3 : tensor<2x2x1x256x64xf32>) outs(%0 : tensor<1x2x1x2x4x1x1x256x1x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x2x1x2x4x1x1x256x1x64xf32>
    %3 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed = linalg.transpose ins(%collapsed : tensor<2x8x256x64xf32>) outs(%3 : tensor<2x8x64x256xf32>) permutation = [0, 1, 3, 2] 
    %collapsed_4 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_5 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst_1 : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded_6 = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256x256xf32>
    %8 = linalg.generic {indexing_maps = [#map2, #map3, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_6, %cst_2 : tensor<2x8x256x256xf32>, tensor<1x1x1x1xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %20 = arith.mulf %in, %in_13 : f32
      linalg.yield %20 : f32
    } -> tensor<2x8x256x256xf32>
    %9 = tensor.empty() : tensor<2x8x256xf32>
    %10 = linalg.fill ins(%cst_0 : f32) outs(%9 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %reduced = linalg.reduce ins(%8 : tensor<2x8x256x256xf32>) outs(%10 : tensor<2x8x256xf32>) dimensions = [3] 
      (%in: f32, %init: f32) {
        %20 = arith.maximumf %in, %init : f32
        linalg.yield %20 : f32
      }
    %expanded_7 = tensor.expand_shape %reduced [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %11 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_7 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %20 = arith.subf %in, %in_13 : f32
      linalg.yield %20 : f32
    } -> tensor<2x8x256x256xf32>
    %12 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = math.exp %in : f32
      linalg.yield %20 : f32
    } -> tensor<2x8x256x256xf32>
    %13 = linalg.fill ins(%cst_1 : f32) outs(%9 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %reduced_8 = linalg.reduce ins(%12 : tensor<2x8x256x256xf32>) outs(%13 : tensor<2x8x256xf32>) dimensions = [3] 
      (%in: f32, %init: f32) {
        %20 = arith.addf %in, %init : f32
        linalg.yield %20 : f32
      }
    %expanded_9 = tensor.expand_shape %reduced_8 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %14 = tensor.empty() : tensor<2x8x256x1xf32>
    %15 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_9 : tensor<2x8x256x1xf32>) outs(%14 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %20 = arith.divf %cst, %in : f32
      linalg.yield %20 : f32
    } -> tensor<2x8x256x1xf32>
    %16 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %15 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_13: f32, %out: f32):
      %20 = arith.mulf %in, %in_13 : f32
      linalg.yield %20 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_10 = tensor.collapse_shape %16 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_11 = tensor.collapse_shape %2 [[0, 1, 2, 3, 4, 5, 6], [7, 8], [9]] : tensor<1x2x1x2x4x1x1x256x1x64xf32> into tensor<16x256x64xf32>
    %17 = tensor.empty() : tensor<16x256x64xf32>
    %18 = linalg.fill ins(%cst_1 : f32) outs(%17 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %19 = linalg.batch_matmul ins(%collapsed_10, %collapsed_11 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%18 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_12 = tensor.expand_shape %19 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_12 : tensor<2x8x256x64xf32>
  }
}

