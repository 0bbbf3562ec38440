// PyTorch 2.11, torch-mlir 20261001, linalg on tensors.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) ins(
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0) -> (d0)>
#map1 = affine_map<(d0, d1) -> (0, d1)>
#map2 = affine_map<(d0, d1) -> (d0, 0)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map6 = affine_map<(d0, d1, d2, d3) -> ()>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %true = arith.constant true
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_2 = arith.constant dense<true> : tensor<256x256xi1>
    %cst_3 = arith.constant 1.250000e-01 : f32
    %0 = tensor.empty() : tensor<256xi64>
    %1 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel"]} outs(%0 : tensor<256xi64>) {
    ^bb0(%out: i64):
      %29 = linalg.index 0 : index
      %30 = arith.index_cast %29 : index to i64
      linalg.yield %30 : i64
    } -> tensor<256xi64>
    %expanded = tensor.expand_shape %1 [[0, 1]] output_shape [1, 256] : tensor<256xi64> into tensor<1x256xi64>
    %expanded_4 = tensor.expand_shape %1 [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
    %2 = tensor.empty() : tensor<256x256xi64>
    %3 = linalg.generic {indexing_maps = [#map1, #map2, #map3], iterator_types = ["parallel", "parallel"]} ins(%expanded, %expanded_4 : tensor<1x256xi64>, tensor<256x1xi64>) outs(%2 : tensor<256x256xi64>) {
    ^bb0(%in: i64, %in_11: i64, %out: i64):
      %29 = arith.subi %in, %in_11 : i64
      linalg.yield %29 : i64
    } -> tensor<256x256xi64>
    %4 = tensor.empty() : tensor<256x256xi1>
    %5 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%3 : tensor<256x256xi64>) outs(%4 : tensor<256x256xi1>) {
    ^bb0(%in: i64, %out: i1):
      %29 = arith.cmpi sle, %in, %c0_i64 : i64
      linalg.yield %29 : i1
    } -> tensor<256x256xi1>
    %6 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%5, %cst_2 : tensor<256x256xi1>, tensor<256x256xi1>) outs(%4 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %in_11: i1, %out: i1):
      %29 = arith.andi %in, %in_11 : i1
      linalg.yield %29 : i1
    } -> tensor<256x256xi1>
    %7 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<2x8x256x64xf32>) outs(%7 : tensor<2x8x64x256xf32>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_5 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %8 = tensor.empty() : tensor<16x256x256xf32>
    %9 = linalg.fill ins(%cst : f32) outs(%8 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %10 = linalg.batch_matmul ins(%collapsed, %collapsed_5 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%9 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded_6 = tensor.expand_shape %10 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %11 = tensor.empty() : tensor<2x8x256x256xf32>
    %12 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_6 : tensor<2x8x256x256xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = arith.mulf %in, %cst_3 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %13 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<256x256xi1>) outs(%4 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      %29 = arith.xori %in, %true : i1
      linalg.yield %29 : i1
    } -> tensor<256x256xi1>
    %14 = linalg.generic {indexing_maps = [#map5, #map6, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13, %cst_1, %12 : tensor<256x256xi1>, tensor<f32>, tensor<2x8x256x256xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_11: f32, %in_12: f32, %out: f32):
      %29 = arith.select %in, %in_11, %in_12 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %15 = tensor.empty() : tensor<2x8x256xi64>
    %16 = linalg.fill ins(%c0_i64 : i64) outs(%15 : tensor<2x8x256xi64>) -> tensor<2x8x256xi64>
    %17 = tensor.empty() : tensor<2x8x256xf32>
    %18 = linalg.fill ins(%cst_0 : f32) outs(%17 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %19:2 = linalg.generic {indexing_maps = [#map4, #map7, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%14 : tensor<2x8x256x256xf32>) outs(%18, %16 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %29 = linalg.index 3 : index
      %30 = arith.index_cast %29 : index to i64
      %31 = arith.maximumf %in, %out : f32
      %32 = arith.cmpf ogt, %in, %out : f32
      %33 = arith.select %32, %30, %out_11 : i64
      linalg.yield %31, %33 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_7 = tensor.expand_shape %19#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %20 = linalg.generic {indexing_maps = [#map4, #map8, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14, %expanded_7 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.subf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %21 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20 : tensor<2x8x256x256xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = math.exp %in : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %22 = tensor.empty() : tensor<2x8x256x1xf32>
    %23 = linalg.fill ins(%cst : f32) outs(%22 : tensor<2x8x256x1xf32>) -> tensor<2x8x256x1xf32>
    %24 = linalg.generic {indexing_maps = [#map4, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%21 : tensor<2x8x256x256xf32>) outs(%23 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = arith.addf %in, %out : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x1xf32>
    %25 = linalg.generic {indexing_maps = [#map4, #map8, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21, %24 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.divf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_8 = tensor.collapse_shape %25 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_9 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %26 = tensor.empty() : tensor<16x256x64xf32>
    %27 = linalg.fill ins(%cst : f32) outs(%26 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %28 = linalg.batch_matmul ins(%collapsed_8, %collapsed_9 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%27 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_10 = tensor.expand_shape %28 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_10 : tensor<2x8x256x64xf32>
  }
}

