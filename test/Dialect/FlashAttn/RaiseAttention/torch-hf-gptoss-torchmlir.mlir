// PyTorch 2.11, torch-mlir 20261001, linalg on tensors.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// All else goes, or is strides of the op: a GPU takes the module as it is.
// RUN: flash-opt %s -flashattn-to-nvvm="chip=sm_90a raise=true" -o /dev/null
// CHECK: @main
// CHECK: flashattn.attention ins({{.*}}) bias(%arg3 : tensor<2x1x256x256xf32>) sink_logits(%arg4 : tensor<8xf32>)
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, 0, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x2x256x64xf32>, %arg2: tensor<2x2x256x64xf32>, %arg3: tensor<2x1x256x256xf32>, %arg4: tensor<8xf32>) -> tensor<2x256x8x64xf32> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : f32
    %0 = tensor.empty() : tensor<2x2x4x256x64xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x256x64xf32>) outs(%0 : tensor<2x2x4x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x4x256x64xf32>
    %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<2x2x4x256x64xf32> into tensor<2x8x256x64xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x256x64xf32>) outs(%0 : tensor<2x2x4x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x4x256x64xf32>
    %3 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed = linalg.transpose ins(%collapsed : tensor<2x8x256x64xf32>) outs(%3 : tensor<2x8x64x256xf32>) permutation = [0, 1, 3, 2] 
    %collapsed_2 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256x256xf32>
    %8 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = arith.mulf %in, %cst_1 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %9 = linalg.generic {indexing_maps = [#map2, #map3, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %arg3 : tensor<2x8x256x256xf32>, tensor<2x1x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.addf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x256xf32>
    %10 = tensor.empty() : tensor<2x8x256x1xf32>
    %expanded_4 = tensor.expand_shape %arg4 [[0, 1]] output_shape [8, 1] : tensor<8xf32> into tensor<8x1xf32>
    %11 = linalg.generic {indexing_maps = [#map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_4 : tensor<8x1xf32>) outs(%10 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %concat = tensor.concat dim(3) %9, %11 : (tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) -> tensor<2x8x256x257xf32>
    %12 = tensor.empty() : tensor<2x8x256xi64>
    %13 = linalg.fill ins(%c0_i64 : i64) outs(%12 : tensor<2x8x256xi64>) -> tensor<2x8x256xi64>
    %14 = tensor.empty() : tensor<2x8x256xf32>
    %15 = linalg.fill ins(%cst_0 : f32) outs(%14 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %16:2 = linalg.generic {indexing_maps = [#map2, #map5, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%concat : tensor<2x8x256x257xf32>) outs(%15, %13 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %29 = linalg.index 3 : index
      %30 = arith.index_cast %29 : index to i64
      %31 = arith.maximumf %in, %out : f32
      %32 = arith.cmpf ogt, %in, %out : f32
      %33 = arith.select %32, %30, %out_11 : i64
      linalg.yield %31, %33 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_5 = tensor.expand_shape %16#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %17 = tensor.empty() : tensor<2x8x256x257xf32>
    %18 = linalg.generic {indexing_maps = [#map2, #map6, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%concat, %expanded_5 : tensor<2x8x256x257xf32>, tensor<2x8x256x1xf32>) outs(%17 : tensor<2x8x256x257xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.subf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x257xf32>
    %19:2 = linalg.generic {indexing_maps = [#map2, #map5, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%18 : tensor<2x8x256x257xf32>) outs(%15, %13 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_11: i64):
      %29 = linalg.index 3 : index
      %30 = arith.index_cast %29 : index to i64
      %31 = arith.maximumf %in, %out : f32
      %32 = arith.cmpf ogt, %in, %out : f32
      %33 = arith.select %32, %30, %out_11 : i64
      linalg.yield %31, %33 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_6 = tensor.expand_shape %19#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %20 = linalg.generic {indexing_maps = [#map2, #map6, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18, %expanded_6 : tensor<2x8x256x257xf32>, tensor<2x8x256x1xf32>) outs(%17 : tensor<2x8x256x257xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.subf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x257xf32>
    %21 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20 : tensor<2x8x256x257xf32>) outs(%17 : tensor<2x8x256x257xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = math.exp %in : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x257xf32>
    %22 = linalg.fill ins(%cst : f32) outs(%10 : tensor<2x8x256x1xf32>) -> tensor<2x8x256x1xf32>
    %23 = linalg.generic {indexing_maps = [#map2, #map6], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%21 : tensor<2x8x256x257xf32>) outs(%22 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %29 = arith.addf %in, %out : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x1xf32>
    %24 = linalg.generic {indexing_maps = [#map2, #map6, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21, %23 : tensor<2x8x256x257xf32>, tensor<2x8x256x1xf32>) outs(%17 : tensor<2x8x256x257xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %29 = arith.divf %in, %in_11 : f32
      linalg.yield %29 : f32
    } -> tensor<2x8x256x257xf32>
    %extracted_slice = tensor.extract_slice %24[0, 0, 0, 0] [2, 8, 256, 256] [1, 1, 1, 1] : tensor<2x8x256x257xf32> to tensor<2x8x256x256xf32>
    %collapsed_7 = tensor.collapse_shape %extracted_slice [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_8 = tensor.collapse_shape %2 [[0, 1, 2], [3], [4]] : tensor<2x2x4x256x64xf32> into tensor<16x256x64xf32>
    %25 = tensor.empty() : tensor<16x256x64xf32>
    %26 = linalg.fill ins(%cst : f32) outs(%25 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %27 = linalg.batch_matmul ins(%collapsed_7, %collapsed_8 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%26 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_9 = tensor.expand_shape %27 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    %28 = tensor.empty() : tensor<2x256x8x64xf32>
    %transposed_10 = linalg.transpose ins(%expanded_9 : tensor<2x8x256x64xf32>) outs(%28 : tensor<2x256x8x64xf32>) permutation = [0, 2, 1, 3] 
    return %transposed_10 : tensor<2x256x8x64xf32>
  }
}

