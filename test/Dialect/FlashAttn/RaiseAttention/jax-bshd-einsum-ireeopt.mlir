// JAX 0.12, IREE 3.13, --compile-to=global-optimization.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) layout(bshd) ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> ()>
#map4 = affine_map<(d0) -> (d0)>
#map5 = affine_map<(d0, d1) -> (d0)>
#map6 = affine_map<(d0, d1) -> (d0, d1)>
#map7 = affine_map<(d0, d1) -> (d1)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
module {
  func.func @main(%arg0: tensor<2x256x8x64xf32>, %arg1: tensor<2x256x8x64xf32>, %arg2: tensor<2x256x8x64xf32>) -> tensor<2x256x8x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant -3.40282347E+38 : f32
    %cst_1 = arith.constant 8.000000e+00 : f32
    %0 = tensor.empty() : tensor<2x8x256x64xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<2x256x8x64xf32>) outs(%0 : tensor<2x8x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x64xf32>
    %2 = tensor.empty() : tensor<2x8x64x256xf32>
    %3 = linalg.generic {indexing_maps = [#map2, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x256x8x64xf32>) outs(%2 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %collapsed = tensor.collapse_shape %1 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_2 = tensor.collapse_shape %3 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<f32>
    %8 = linalg.fill ins(%cst_1 : f32) outs(%7 : tensor<f32>) -> tensor<f32>
    %9 = tensor.empty() : tensor<2x8x256x256xf32>
    %10 = linalg.generic {indexing_maps = [#map3, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<f32>) outs(%9 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %11 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %10 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%9 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %30 = arith.divf %in, %in_6 : f32
      linalg.yield %30 : f32
    } -> tensor<2x8x256x256xf32>
    %12 = tensor.empty() : tensor<256xi32>
    %13 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel"]} outs(%12 : tensor<256xi32>) {
    ^bb0(%out: i32):
      %30 = linalg.index 0 : index
      %31 = arith.index_cast %30 : index to i32
      linalg.yield %31 : i32
    } -> tensor<256xi32>
    %14 = tensor.empty() : tensor<256x256xi32>
    %15 = linalg.generic {indexing_maps = [#map5, #map6], iterator_types = ["parallel", "parallel"]} ins(%13 : tensor<256xi32>) outs(%14 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<256x256xi32>
    %16 = linalg.generic {indexing_maps = [#map7, #map6], iterator_types = ["parallel", "parallel"]} ins(%13 : tensor<256xi32>) outs(%14 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<256x256xi32>
    %17 = tensor.empty() : tensor<256x256xi1>
    %18 = linalg.generic {indexing_maps = [#map6, #map6, #map6], iterator_types = ["parallel", "parallel"]} ins(%15, %16 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%17 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_6: i32, %out: i1):
      %30 = arith.cmpi sge, %in, %in_6 : i32
      linalg.yield %30 : i1
    } -> tensor<256x256xi1>
    %19 = tensor.empty() : tensor<2x8x256x256xi1>
    %20 = linalg.generic {indexing_maps = [#map8, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18 : tensor<256x256xi1>) outs(%19 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %21 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %11 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>) outs(%9 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_6: f32, %out: f32):
      %30 = arith.select %in, %in_6, %cst_0 : f32
      linalg.yield %30 : f32
    } -> tensor<2x8x256x256xf32>
    %22 = linalg.softmax dimension(3) ins(%21 : tensor<2x8x256x256xf32>) outs(%9 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %23 = linalg.generic {indexing_maps = [#map2, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x256x8x64xf32>) outs(%2 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %24 = linalg.generic {indexing_maps = [#map9, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%22 : tensor<2x8x256x256xf32>) outs(%9 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %23 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %collapsed_4 = tensor.collapse_shape %24 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %25 = tensor.empty() : tensor<16x64x256xf32>
    %26 = linalg.fill ins(%cst : f32) outs(%25 : tensor<16x64x256xf32>) -> tensor<16x64x256xf32>
    %27 = linalg.batch_matmul ins(%collapsed_3, %collapsed_4 : tensor<16x64x256xf32>, tensor<16x256x256xf32>) outs(%26 : tensor<16x64x256xf32>) -> tensor<16x64x256xf32>
    %expanded_5 = tensor.expand_shape %27 [[0, 1], [2], [3]] output_shape [2, 8, 64, 256] : tensor<16x64x256xf32> into tensor<2x8x64x256xf32>
    %28 = tensor.empty() : tensor<2x256x8x64xf32>
    %29 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_5 : tensor<2x8x64x256xf32>) outs(%28 : tensor<2x256x8x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x256x8x64xf32>
    return %29 : tensor<2x256x8x64xf32>
  }
}

