// PyTorch, scaled_dot_product_attention with is_causal, as IREE takes its attention op apart: powers of 2, a maximum and sums
// that are corrected from where they start.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK-NOT: linalg.
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%arg0, %arg1, %arg2 :
// CHECK-NOT: linalg.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2) -> ()>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map6 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map7 = affine_map<(d0, d1) -> (d0, d1)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : f32
    %0 = tensor.empty() : tensor<2x8x256x256xf32>
    %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %2 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%1 : tensor<2x8x256x256xf32>) {
    ^bb0(%out: f32):
      %23 = linalg.index 2 : index
      %24 = linalg.index 3 : index
      %25 = arith.cmpi sge, %23, %24 : index
      %26 = arith.select %25, %cst, %cst_0 : f32
      linalg.yield %26 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_2 = tensor.collapse_shape %arg1 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_3 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_4 = tensor.collapse_shape %2 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %3 = tensor.empty() : tensor<16x256x64xf32>
    %4 = tensor.empty() : tensor<16x256xf32>
    %cst_5 = arith.constant -3.40282347E+38 : f32
    %5 = linalg.fill ins(%cst : f32) outs(%3 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %6 = linalg.fill ins(%cst_5 : f32) outs(%4 : tensor<16x256xf32>) -> tensor<16x256xf32>
    %7 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256xf32>) -> tensor<16x256xf32>
    %cst_6 = arith.constant 1.44269502 : f32
    %8 = arith.mulf %cst_1, %cst_6 : f32
    %9 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%8 : f32) outs(%collapsed : tensor<16x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.mulf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<16x256x64xf32>
    %10 = tensor.empty() : tensor<16x256x256xf32>
    %11 = linalg.fill ins(%cst : f32) outs(%10 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %12 = linalg.generic {indexing_maps = [#map3, #map4, #map5], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%9, %collapsed_2 : tensor<16x256x64xf32>, tensor<16x256x64xf32>) outs(%11 : tensor<16x256x256xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %23 = arith.mulf %in, %in_7 : f32
      %24 = arith.addf %23, %out : f32
      linalg.yield %24 : f32
    } -> tensor<16x256x256xf32>
    %13 = linalg.generic {indexing_maps = [#map2], iterator_types = ["parallel", "parallel", "parallel"]} outs(%12 : tensor<16x256x256xf32>) {
    ^bb0(%out: f32):
      linalg.yield %out : f32
    } -> tensor<16x256x256xf32>
    %14 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%collapsed_4 : tensor<16x256x256xf32>) outs(%13 : tensor<16x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.mulf %in, %cst_6 : f32
      %24 = arith.addf %out, %23 : f32
      linalg.yield %24 : f32
    } -> tensor<16x256x256xf32>
    %15 = linalg.generic {indexing_maps = [#map2, #map6], iterator_types = ["parallel", "parallel", "reduction"]} ins(%14 : tensor<16x256x256xf32>) outs(%6 : tensor<16x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.maximumf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<16x256xf32>
    %16 = linalg.generic {indexing_maps = [#map7, #map7], iterator_types = ["parallel", "parallel"]} ins(%15 : tensor<16x256xf32>) outs(%6 : tensor<16x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.subf %out, %in : f32
      %24 = math.exp2 %23 : f32
      linalg.yield %24 : f32
    } -> tensor<16x256xf32>
    %17 = linalg.generic {indexing_maps = [#map7, #map7], iterator_types = ["parallel", "parallel"]} ins(%16 : tensor<16x256xf32>) outs(%7 : tensor<16x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.mulf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<16x256xf32>
    %18 = linalg.generic {indexing_maps = [#map6, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%15 : tensor<16x256xf32>) outs(%14 : tensor<16x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.subf %out, %in : f32
      %24 = math.exp2 %23 : f32
      linalg.yield %24 : f32
    } -> tensor<16x256x256xf32>
    %19 = linalg.generic {indexing_maps = [#map2, #map6], iterator_types = ["parallel", "parallel", "reduction"]} ins(%18 : tensor<16x256x256xf32>) outs(%17 : tensor<16x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.addf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<16x256xf32>
    %20 = linalg.generic {indexing_maps = [#map6, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%16 : tensor<16x256xf32>) outs(%5 : tensor<16x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %23 = arith.mulf %in, %out : f32
      linalg.yield %23 : f32
    } -> tensor<16x256x64xf32>
    %21 = linalg.generic {indexing_maps = [#map5, #map4, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%18, %collapsed_3 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%20 : tensor<16x256x64xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %23 = arith.mulf %in, %in_7 : f32
      %24 = arith.addf %23, %out : f32
      linalg.yield %24 : f32
    } -> tensor<16x256x64xf32>
    %22 = linalg.generic {indexing_maps = [#map6, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%19, %21 : tensor<16x256xf32>, tensor<16x256x64xf32>) outs(%3 : tensor<16x256x64xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %cst_8 = arith.constant 1.000000e+00 : f32
      %23 = arith.divf %cst_8, %in : f32
      %24 = arith.mulf %23, %in_7 : f32
      linalg.yield %24 : f32
    } -> tensor<16x256x64xf32>
    %expanded = tensor.expand_shape %22 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded : tensor<2x8x256x64xf32>
  }
}

