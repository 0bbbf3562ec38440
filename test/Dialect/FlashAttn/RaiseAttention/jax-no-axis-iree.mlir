// JAX 0.12, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention --remarks-filter=flashattn-raise-attention --remark-format=emitRemark 2>&1 | FileCheck %s
// CHECK: Remark="expected a division by the sum of the same exponentials along the keys but got linalg.generic"
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 0xFF800000 : f32
    %cst_0 = arith.constant 1.250000e-01 : f32
    %cst_1 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<2x8x64x256xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x256x64xf32>) outs(%0 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_2 = tensor.collapse_shape %1 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %2 = tensor.empty() : tensor<16x256x256xf32>
    %3 = linalg.fill ins(%cst_1 : f32) outs(%2 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %4 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%3 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %4 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %5 = tensor.empty() : tensor<2x8x256x256xf32>
    %6 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xf32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = arith.mulf %in, %cst_0 : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256xf32>
    %8 = linalg.fill ins(%cst : f32) outs(%7 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %9 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%6 : tensor<2x8x256x256xf32>) outs(%8 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = arith.maximumf %out, %in : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256xf32>
    %10 = tensor.empty() : tensor<2x8x256x256xf32>
    %11 = linalg.generic {indexing_maps = [#map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9 : tensor<2x8x256xf32>) outs(%10 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %12 = tensor.empty() : tensor<2x8x256x256xf32>
    %13 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6, %11 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %26 = arith.subf %in, %in_6 : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256x256xf32>
    %14 = tensor.empty() : tensor<2x8x256x256xf32>
    %15 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<2x8x256x256xf32>) outs(%14 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = math.exp %in : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256x256xf32>
    %16 = tensor.empty() : tensor<2x8x256xf32>
    %17 = linalg.fill ins(%cst_1 : f32) outs(%16 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %18 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<2x8x256x256xf32>) outs(%17 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %26 = arith.addf %out, %in : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256xf32>
    %19 = tensor.empty() : tensor<2x8x256x256xf32>
    %20 = linalg.generic {indexing_maps = [#map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18 : tensor<2x8x256xf32>) outs(%19 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %21 = tensor.empty() : tensor<2x8x256x256xf32>
    %22 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %20 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%21 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %26 = arith.divf %in, %in_6 : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %22 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_4 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %23 = tensor.empty() : tensor<16x256x64xf32>
    %24 = linalg.fill ins(%cst_1 : f32) outs(%23 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %25 = linalg.batch_matmul ins(%collapsed_3, %collapsed_4 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%24 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_5 = tensor.expand_shape %25 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_5 : tensor<2x8x256x64xf32>
  }
}

