// ONNX 1.23.2, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) ins(
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> ()>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, 0, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x64x64xf32>, %arg1: tensor<2x8x64x64xf32>, %arg2: tensor<2x8x64x64xf32>) -> tensor<2x8x64x64xf32> {
    %cst = arith.constant 0.000000e+00 : f32
    %c0_i64 = arith.constant 0 : i64
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<8.000000e+00> : tensor<f32>
    %cst_2 = arith.constant dense<"0x0100000000000000030000000000000007000000000000000F000000000000001F000000000000003F000000000000007F00000000000000FF00000000000000FF01000000000000FF03000000000000FF07000000000000FF0F000000000000FF1F000000000000FF3F000000000000FF7F000000000000FFFF000000000000FFFF010000000000FFFF030000000000FFFF070000000000FFFF0F0000000000FFFF1F0000000000FFFF3F0000000000FFFF7F0000000000FFFFFF0000000000FFFFFF0100000000FFFFFF0300000000FFFFFF0700000000FFFFFF0F00000000FFFFFF1F00000000FFFFFF3F00000000FFFFFF7F00000000FFFFFFFF00000000FFFFFFFF01000000FFFFFFFF03000000FFFFFFFF07000000FFFFFFFF0F000000FFFFFFFF1F000000FFFFFFFF3F000000FFFFFFFF7F000000FFFFFFFFFF000000FFFFFFFFFF010000FFFFFFFFFF030000FFFFFFFFFF070000FFFFFFFFFF0F0000FFFFFFFFFF1F0000FFFFFFFFFF3F0000FFFFFFFFFF7F0000FFFFFFFFFFFF0000FFFFFFFFFFFF0100FFFFFFFFFFFF0300FFFFFFFFFFFF0700FFFFFFFFFFFF0F00FFFFFFFFFFFF1F00FFFFFFFFFFFF3F00FFFFFFFFFFFF7F00FFFFFFFFFFFFFF00FFFFFFFFFFFFFF01FFFFFFFFFFFFFF03FFFFFFFFFFFFFF07FFFFFFFFFFFFFF0FFFFFFFFFFFFFFF1FFFFFFFFFFFFFFF3FFFFFFFFFFFFFFF7FFFFFFFFFFFFFFFFF"> : tensor<1x1x64x64xi1>
    %cst_3 = arith.constant dense<-3.40282347E+38> : tensor<f32>
    %0 = tensor.empty() : tensor<2x8x64x64xf32>
    %transposed = linalg.transpose ins(%arg1 : tensor<2x8x64x64xf32>) outs(%0 : tensor<2x8x64x64xf32>) permutation = [0, 1, 3, 2] 
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x64x64xf32> into tensor<16x64x64xf32>
    %collapsed_4 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x64xf32> into tensor<16x64x64xf32>
    %1 = tensor.empty() : tensor<16x64x64xf32>
    %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<16x64x64xf32>) -> tensor<16x64x64xf32>
    %3 = linalg.batch_matmul ins(%collapsed, %collapsed_4 : tensor<16x64x64xf32>, tensor<16x64x64xf32>) outs(%2 : tensor<16x64x64xf32>) -> tensor<16x64x64xf32>
    %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [2, 8, 64, 64] : tensor<16x64x64xf32> into tensor<2x8x64x64xf32>
    %4 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded, %cst_1 : tensor<2x8x64x64xf32>, tensor<f32>) outs(%0 : tensor<2x8x64x64xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %18 = arith.divf %in, %in_9 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x64xf32>
    %5 = linalg.generic {indexing_maps = [#map2, #map, #map1, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_2, %4, %cst_3 : tensor<1x1x64x64xi1>, tensor<2x8x64x64xf32>, tensor<f32>) outs(%0 : tensor<2x8x64x64xf32>) {
    ^bb0(%in: i1, %in_9: f32, %in_10: f32, %out: f32):
      %18 = arith.select %in, %in_9, %in_10 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x64xf32>
    %6 = tensor.empty() : tensor<2x8x64xi64>
    %7 = linalg.fill ins(%c0_i64 : i64) outs(%6 : tensor<2x8x64xi64>) -> tensor<2x8x64xi64>
    %8 = tensor.empty() : tensor<2x8x64xf32>
    %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<2x8x64xf32>) -> tensor<2x8x64xf32>
    %10:2 = linalg.generic {indexing_maps = [#map, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%5 : tensor<2x8x64x64xf32>) outs(%9, %7 : tensor<2x8x64xf32>, tensor<2x8x64xi64>) {
    ^bb0(%in: f32, %out: f32, %out_9: i64):
      %18 = linalg.index 3 : index
      %19 = arith.index_cast %18 : index to i64
      %20 = arith.maximumf %in, %out : f32
      %21 = arith.cmpf ogt, %in, %out : f32
      %22 = arith.select %21, %19, %out_9 : i64
      linalg.yield %20, %22 : f32, i64
    } -> (tensor<2x8x64xf32>, tensor<2x8x64xi64>)
    %expanded_5 = tensor.expand_shape %10#0 [[0], [1], [2, 3]] output_shape [2, 8, 64, 1] : tensor<2x8x64xf32> into tensor<2x8x64x1xf32>
    %11 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %expanded_5 : tensor<2x8x64x64xf32>, tensor<2x8x64x1xf32>) outs(%0 : tensor<2x8x64x64xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %18 = arith.subf %in, %in_9 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x64xf32>
    %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<2x8x64x64xf32>) outs(%0 : tensor<2x8x64x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = math.exp %in : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x64xf32>
    %13 = tensor.empty() : tensor<2x8x64x1xf32>
    %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<2x8x64x1xf32>) -> tensor<2x8x64x1xf32>
    %15 = linalg.generic {indexing_maps = [#map, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%12 : tensor<2x8x64x64xf32>) outs(%14 : tensor<2x8x64x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %18 = arith.addf %in, %out : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x1xf32>
    %16 = linalg.generic {indexing_maps = [#map, #map4, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %15 : tensor<2x8x64x64xf32>, tensor<2x8x64x1xf32>) outs(%0 : tensor<2x8x64x64xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %18 = arith.divf %in, %in_9 : f32
      linalg.yield %18 : f32
    } -> tensor<2x8x64x64xf32>
    %collapsed_6 = tensor.collapse_shape %16 [[0, 1], [2], [3]] : tensor<2x8x64x64xf32> into tensor<16x64x64xf32>
    %collapsed_7 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x64x64xf32> into tensor<16x64x64xf32>
    %17 = linalg.batch_matmul ins(%collapsed_6, %collapsed_7 : tensor<16x64x64xf32>, tensor<16x64x64xf32>) outs(%2 : tensor<16x64x64xf32>) -> tensor<16x64x64xf32>
    %expanded_8 = tensor.expand_shape %17 [[0, 1], [2], [3]] output_shape [2, 8, 64, 64] : tensor<16x64x64xf32> into tensor<2x8x64x64xf32>
    return %expanded_8 : tensor<2x8x64x64xf32>
  }
}

