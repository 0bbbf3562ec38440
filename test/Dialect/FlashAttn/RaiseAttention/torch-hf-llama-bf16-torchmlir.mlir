// PyTorch 2.11, torch-mlir 20261001, linalg on tensors.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// All else goes, or is strides of the op: a GPU takes the module as it is.
// RUN: flash-opt %s -flashattn-to-nvvm="chip=sm_90a raise=true" -o /dev/null
// CHECK: @main
// CHECK: flashattn.attention ins({{.*}}) bias(%arg3 : tensor<2x1x256x256xbf16>)
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, 0, d2, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xbf16>, %arg1: tensor<2x2x256x64xbf16>, %arg2: tensor<2x2x256x64xbf16>, %arg3: tensor<2x1x256x256xbf16>) -> tensor<2x256x8x64xbf16> {
    %c0_i64 = arith.constant 0 : i64
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant 1.250000e-01 : bf16
    %0 = tensor.empty() : tensor<2x2x4x256x64xbf16>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x256x64xbf16>) outs(%0 : tensor<2x2x4x256x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x4x256x64xbf16>
    %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<2x2x4x256x64xbf16> into tensor<2x8x256x64xbf16>
    %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x256x64xbf16>) outs(%0 : tensor<2x2x4x256x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x4x256x64xbf16>
    %3 = tensor.empty() : tensor<2x8x64x256xbf16>
    %transposed = linalg.transpose ins(%collapsed : tensor<2x8x256x64xbf16>) outs(%3 : tensor<2x8x64x256xbf16>) permutation = [0, 1, 3, 2] 
    %collapsed_2 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xbf16> into tensor<16x256x64xbf16>
    %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<2x8x64x256xbf16> into tensor<16x64x256xbf16>
    %4 = tensor.empty() : tensor<16x256x256xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<16x256x64xbf16>, tensor<16x64x256xbf16>) outs(%5 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %7 = tensor.empty() : tensor<16x256x256xbf16>
    %8 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%6 : tensor<16x256x256xf32>) outs(%7 : tensor<16x256x256xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %32 = arith.truncf %in : f32 to bf16
      linalg.yield %32 : bf16
    } -> tensor<16x256x256xbf16>
    %expanded = tensor.expand_shape %8 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xbf16> into tensor<2x8x256x256xbf16>
    %9 = tensor.empty() : tensor<2x8x256x256xbf16>
    %10 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xbf16>) outs(%9 : tensor<2x8x256x256xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %32 = arith.mulf %in, %cst_1 : bf16
      linalg.yield %32 : bf16
    } -> tensor<2x8x256x256xbf16>
    %11 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10, %arg3 : tensor<2x8x256x256xbf16>, tensor<2x1x256x256xbf16>) outs(%9 : tensor<2x8x256x256xbf16>) {
    ^bb0(%in: bf16, %in_9: bf16, %out: bf16):
      %32 = arith.addf %in, %in_9 : bf16
      linalg.yield %32 : bf16
    } -> tensor<2x8x256x256xbf16>
    %12 = tensor.empty() : tensor<2x8x256x256xf32>
    %13 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<2x8x256x256xbf16>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: bf16, %out: f32):
      %32 = arith.extf %in : bf16 to f32
      linalg.yield %32 : f32
    } -> tensor<2x8x256x256xf32>
    %14 = tensor.empty() : tensor<2x8x256xi64>
    %15 = linalg.fill ins(%c0_i64 : i64) outs(%14 : tensor<2x8x256xi64>) -> tensor<2x8x256xi64>
    %16 = tensor.empty() : tensor<2x8x256xf32>
    %17 = linalg.fill ins(%cst_0 : f32) outs(%16 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %18:2 = linalg.generic {indexing_maps = [#map3, #map5, #map5], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%13 : tensor<2x8x256x256xf32>) outs(%17, %15 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_9: i64):
      %32 = linalg.index 3 : index
      %33 = arith.index_cast %32 : index to i64
      %34 = arith.maximumf %in, %out : f32
      %35 = arith.cmpf ogt, %in, %out : f32
      %36 = arith.select %35, %33, %out_9 : i64
      linalg.yield %34, %36 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_4 = tensor.expand_shape %18#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %19 = linalg.generic {indexing_maps = [#map3, #map6, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13, %expanded_4 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %32 = arith.subf %in, %in_9 : f32
      linalg.yield %32 : f32
    } -> tensor<2x8x256x256xf32>
    %20 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19 : tensor<2x8x256x256xf32>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = math.exp %in : f32
      linalg.yield %32 : f32
    } -> tensor<2x8x256x256xf32>
    %21 = tensor.empty() : tensor<2x8x256x1xf32>
    %22 = linalg.fill ins(%cst : f32) outs(%21 : tensor<2x8x256x1xf32>) -> tensor<2x8x256x1xf32>
    %23 = linalg.generic {indexing_maps = [#map3, #map6], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%20 : tensor<2x8x256x256xf32>) outs(%22 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %32 = arith.addf %in, %out : f32
      linalg.yield %32 : f32
    } -> tensor<2x8x256x1xf32>
    %24 = linalg.generic {indexing_maps = [#map3, #map6, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %23 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %32 = arith.divf %in, %in_9 : f32
      linalg.yield %32 : f32
    } -> tensor<2x8x256x256xf32>
    %25 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%24 : tensor<2x8x256x256xf32>) outs(%9 : tensor<2x8x256x256xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %32 = arith.truncf %in : f32 to bf16
      linalg.yield %32 : bf16
    } -> tensor<2x8x256x256xbf16>
    %collapsed_5 = tensor.collapse_shape %25 [[0, 1], [2], [3]] : tensor<2x8x256x256xbf16> into tensor<16x256x256xbf16>
    %collapsed_6 = tensor.collapse_shape %2 [[0, 1, 2], [3], [4]] : tensor<2x2x4x256x64xbf16> into tensor<16x256x64xbf16>
    %26 = tensor.empty() : tensor<16x256x64xf32>
    %27 = linalg.fill ins(%cst : f32) outs(%26 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %28 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<16x256x256xbf16>, tensor<16x256x64xbf16>) outs(%27 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %29 = tensor.empty() : tensor<16x256x64xbf16>
    %30 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel"]} ins(%28 : tensor<16x256x64xf32>) outs(%29 : tensor<16x256x64xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %32 = arith.truncf %in : f32 to bf16
      linalg.yield %32 : bf16
    } -> tensor<16x256x64xbf16>
    %expanded_7 = tensor.expand_shape %30 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xbf16> into tensor<2x8x256x64xbf16>
    %31 = tensor.empty() : tensor<2x256x8x64xbf16>
    %transposed_8 = linalg.transpose ins(%expanded_7 : tensor<2x8x256x64xbf16>) outs(%31 : tensor<2x256x8x64xbf16>) permutation = [0, 2, 1, 3] 
    return %transposed_8 : tensor<2x256x8x64xbf16>
  }
}

