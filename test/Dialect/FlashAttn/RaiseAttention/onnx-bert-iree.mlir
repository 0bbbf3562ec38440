// ONNX 1.23.2, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention layout(bshd) ins({{.*}}) bias(%arg3 : tensor<2x1x1x256xf32>)
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> ()>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, 0, 0, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x256x8x64xf32>, %arg1: tensor<2x256x8x64xf32>, %arg2: tensor<2x256x8x64xf32>, %arg3: tensor<2x1x1x256xf32>) -> tensor<2x256x512xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<8.000000e+00> : tensor<f32>
    %0 = tensor.empty() : tensor<2x8x256x64xf32>
    %transposed = linalg.transpose ins(%arg0 : tensor<2x256x8x64xf32>) outs(%0 : tensor<2x8x256x64xf32>) permutation = [0, 2, 1, 3] 
    %transposed_2 = linalg.transpose ins(%arg2 : tensor<2x256x8x64xf32>) outs(%0 : tensor<2x8x256x64xf32>) permutation = [0, 2, 1, 3] 
    %1 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed_3 = linalg.transpose ins(%arg1 : tensor<2x256x8x64xf32>) outs(%1 : tensor<2x8x64x256xf32>) permutation = [0, 2, 3, 1] 
    %collapsed = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_4 = tensor.collapse_shape %transposed_3 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %2 = tensor.empty() : tensor<16x256x256xf32>
    %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %4 = linalg.batch_matmul ins(%collapsed, %collapsed_4 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%3 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %4 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %5 = tensor.empty() : tensor<2x8x256x256xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %cst_1 : tensor<2x8x256x256xf32>, tensor<f32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.divf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x256xf32>
    %7 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6, %arg3 : tensor<2x8x256x256xf32>, tensor<2x1x1x256xf32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.addf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x256xf32>
    %8 = tensor.empty() : tensor<2x8x256xi64>
    %9 = linalg.fill ins(%c0_i64 : i64) outs(%8 : tensor<2x8x256xi64>) -> tensor<2x8x256xi64>
    %10 = tensor.empty() : tensor<2x8x256xf32>
    %11 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %12:2 = linalg.generic {indexing_maps = [#map, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%7 : tensor<2x8x256x256xf32>) outs(%11, %9 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %23 = linalg.index 3 : index
      %24 = arith.index_cast %23 : index to i64
      %25 = arith.maximumf %in, %out : f32
      %26 = arith.cmpf ogt, %in, %out : f32
      %27 = arith.select %26, %24, %out_11 : i64
      linalg.yield %25, %27 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_5 = tensor.expand_shape %12#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %13 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7, %expanded_5 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.subf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x256xf32>
    %14 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<2x8x256x256xf32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = math.exp %in : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x256xf32>
    %15 = tensor.empty() : tensor<2x8x256x1xf32>
    %16 = linalg.fill ins(%cst : f32) outs(%15 : tensor<2x8x256x1xf32>) -> tensor<2x8x256x1xf32>
    %17 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%14 : tensor<2x8x256x256xf32>) outs(%16 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.addf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x1xf32>
    %18 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14, %17 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %23 = arith.divf %in, %in_11 : f32
      linalg.yield %23 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_6 = tensor.collapse_shape %18 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_7 = tensor.collapse_shape %transposed_2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %19 = tensor.empty() : tensor<16x256x64xf32>
    %20 = linalg.fill ins(%cst : f32) outs(%19 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %21 = linalg.batch_matmul ins(%collapsed_6, %collapsed_7 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%20 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_8 = tensor.expand_shape %21 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    %22 = tensor.empty() : tensor<2x256x8x64xf32>
    %transposed_9 = linalg.transpose ins(%expanded_8 : tensor<2x8x256x64xf32>) outs(%22 : tensor<2x256x8x64xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_10 = tensor.collapse_shape %transposed_9 [[0], [1], [2, 3]] : tensor<2x256x8x64xf32> into tensor<2x256x512xf32>
    return %collapsed_10 : tensor<2x256x512xf32>
  }
}

