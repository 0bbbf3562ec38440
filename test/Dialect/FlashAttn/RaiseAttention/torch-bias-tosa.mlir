// PyTorch 2.11, torch-mlir 20261001's TOSA and upstream's lowering of it.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention ins({{.*}}) bias(%arg3 : tensor<1x8x256x256xf32>)
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (0, 0, 0, 0)>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>, %arg3: tensor<1x8x256x256xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 1.000000e+00 : f32
    %cst_0 = arith.constant -3.40282347E+38 : f32
    %cst_1 = arith.constant 0.000000e+00 : f32
    %cst_2 = arith.constant dense<1.250000e-01> : tensor<1x1x1x1xf32>
    %0 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<2x8x256x64xf32>) outs(%0 : tensor<2x8x64x256xf32>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %1 = tensor.empty() : tensor<16x256x256xf32>
    %2 = linalg.fill ins(%cst_1 : f32) outs(%1 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_3 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%2 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %4 = tensor.empty() : tensor<2x8x256x256xf32>
    %5 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %cst_2 : tensor<2x8x256x256xf32>, tensor<1x1x1x1xf32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %18 = arith.mulf %in, %in_10 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x256xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %arg3 : tensor<2x8x256x256xf32>, tensor<1x8x256x256xf32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %18 = arith.addf %in, %in_10 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256xf32>
    %8 = linalg.fill ins(%cst_0 : f32) outs(%7 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %reduced = linalg.reduce ins(%6 : tensor<2x8x256x256xf32>) outs(%8 : tensor<2x8x256xf32>) dimensions = [3] 
      (%in: f32, %init: f32) {
        %18 = arith.maximumf %in, %init : f32
        linalg.yield %18 : f32
      }
    %expanded_4 = tensor.expand_shape %reduced [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6, %expanded_4 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %18 = arith.subf %in, %in_10 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x256xf32>
    %10 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9 : tensor<2x8x256x256xf32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = math.exp %in : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x256xf32>
    %11 = linalg.fill ins(%cst_1 : f32) outs(%7 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %reduced_5 = linalg.reduce ins(%10 : tensor<2x8x256x256xf32>) outs(%11 : tensor<2x8x256xf32>) dimensions = [3] 
      (%in: f32, %init: f32) {
        %18 = arith.addf %in, %init : f32
        linalg.yield %18 : f32
      }
    %expanded_6 = tensor.expand_shape %reduced_5 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %12 = tensor.empty() : tensor<2x8x256x1xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_6 : tensor<2x8x256x1xf32>) outs(%12 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.divf %cst, %in : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x1xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map3, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10, %13 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %18 = arith.mulf %in, %in_10 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_7 = tensor.collapse_shape %14 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_8 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %15 = tensor.empty() : tensor<16x256x64xf32>
    %16 = linalg.fill ins(%cst_1 : f32) outs(%15 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %17 = linalg.batch_matmul ins(%collapsed_7, %collapsed_8 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%16 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_9 = tensor.expand_shape %17 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_9 : tensor<2x8x256x64xf32>
  }
}

