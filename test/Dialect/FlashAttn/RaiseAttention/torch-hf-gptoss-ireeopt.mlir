// PyTorch 2.11, IREE 3.13, --compile-to=global-optimization.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK: flashattn.attention ins({{.*}}) bias(%arg3 : tensor<2x1x256x256xf32>) sink_logits(%arg4 : tensor<8xf32>)
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map5 = affine_map<(d0, d1, d2) -> (d1)>
#map6 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x2x256x64xf32>, %arg2: tensor<2x2x256x64xf32>, %arg3: tensor<2x1x256x256xf32>, %arg4: tensor<8xf32>) -> tensor<2x256x8x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : f32
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
    %collapsed_2 = tensor.collapse_shape %3 [[0, 1, 2], [3], [4]] : tensor<2x2x4x64x256xf32> into tensor<16x64x256xf32>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256x256xf32>
    %8 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %22 = arith.mulf %in, %cst_1 : f32
      linalg.yield %22 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %arg3 [[0, 1], [2], [3]] : tensor<2x1x256x256xf32> into tensor<2x256x256xf32>
    %9 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %collapsed_3 : tensor<2x8x256x256xf32>, tensor<2x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_8: f32, %out: f32):
      %22 = arith.addf %in, %in_8 : f32
      linalg.yield %22 : f32
    } -> tensor<2x8x256x256xf32>
    %10 = tensor.empty() : tensor<2x8x256xf32>
    %11 = linalg.generic {indexing_maps = [#map5, #map6], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg4 : tensor<8xf32>) outs(%10 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256xf32>
    %12 = tensor.empty() : tensor<2x8x256x257xf32>
    %inserted_slice = tensor.insert_slice %9 into %12[0, 0, 0, 0] [2, 8, 256, 256] [1, 1, 1, 1] : tensor<2x8x256x256xf32> into tensor<2x8x256x257xf32>
    %inserted_slice_4 = tensor.insert_slice %11 into %inserted_slice[0, 0, 0, 256] [2, 8, 256, 1] [1, 1, 1, 1] : tensor<2x8x256xf32> into tensor<2x8x256x257xf32>
    %13 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %14 = linalg.generic {indexing_maps = [#map3, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%inserted_slice_4 : tensor<2x8x256x257xf32>) outs(%13 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %22 = arith.maximumf %in, %out : f32
      linalg.yield %22 : f32
    } -> tensor<2x8x256xf32>
    %15 = linalg.generic {indexing_maps = [#map3, #map7, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%inserted_slice_4, %14 : tensor<2x8x256x257xf32>, tensor<2x8x256xf32>) outs(%12 : tensor<2x8x256x257xf32>) {
    ^bb0(%in: f32, %in_8: f32, %out: f32):
      %22 = arith.subf %in, %in_8 : f32
      linalg.yield %22 : f32
    } -> tensor<2x8x256x257xf32>
    %16 = linalg.softmax dimension(3) ins(%15 : tensor<2x8x256x257xf32>) outs(%12 : tensor<2x8x256x257xf32>) -> tensor<2x8x256x257xf32>
    %extracted_slice = tensor.extract_slice %16[0, 0, 0, 0] [2, 8, 256, 256] [1, 1, 1, 1] : tensor<2x8x256x257xf32> to tensor<2x8x256x256xf32>
    %collapsed_5 = tensor.collapse_shape %extracted_slice [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_6 = tensor.collapse_shape %1 [[0, 1, 2], [3], [4]] : tensor<2x2x4x256x64xf32> into tensor<16x256x64xf32>
    %17 = tensor.empty() : tensor<16x256x64xf32>
    %18 = linalg.fill ins(%cst : f32) outs(%17 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %19 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%18 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_7 = tensor.expand_shape %19 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    %20 = tensor.empty() : tensor<2x256x8x64xf32>
    %21 = linalg.generic {indexing_maps = [#map8, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_7 : tensor<2x8x256x64xf32>) outs(%20 : tensor<2x256x8x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x256x8x64xf32>
    return %21 : tensor<2x256x8x64xf32>
  }
}

