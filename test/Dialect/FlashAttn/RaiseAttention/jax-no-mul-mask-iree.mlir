// JAX 0.12, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention --remarks-filter=flashattn-raise-attention --remark-format=emitRemark 2>&1 | FileCheck %s
// CHECK: Remark="expected zero probabilities only for hidden rows and pairs but got linalg.generic"
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
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
      %40 = arith.mulf %in, %cst_0 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256xf32>
    %8 = linalg.fill ins(%cst : f32) outs(%7 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%6 : tensor<2x8x256x256xf32>) outs(%8 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %40 = arith.maximumf %out, %in : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256xf32>
    %10 = tensor.empty() : tensor<2x8x256x256xf32>
    %11 = linalg.generic {indexing_maps = [#map2, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9 : tensor<2x8x256xf32>) outs(%10 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %12 = tensor.empty() : tensor<2x8x256x256xf32>
    %13 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%6, %11 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%12 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %40 = arith.subf %in, %in_6 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %14 = tensor.empty() : tensor<2x8x256x256xf32>
    %15 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%13 : tensor<2x8x256x256xf32>) outs(%14 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %40 = math.exp %in : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %16 = tensor.empty() : tensor<2x8x256xf32>
    %17 = linalg.fill ins(%cst_1 : f32) outs(%16 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %18 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<2x8x256x256xf32>) outs(%17 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %40 = arith.addf %out, %in : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256xf32>
    %19 = tensor.empty() : tensor<2x8x256x256xf32>
    %20 = linalg.generic {indexing_maps = [#map2, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18 : tensor<2x8x256xf32>) outs(%19 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %21 = tensor.empty() : tensor<2x8x256x256xf32>
    %22 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %20 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%21 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %40 = arith.divf %in, %in_6 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %23 = tensor.empty() : tensor<256x256xi32>
    %24 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel", "parallel"]} outs(%23 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %40 = linalg.index 0 : index
      %41 = arith.index_cast %40 : index to i32
      linalg.yield %41 : i32
    } -> tensor<256x256xi32>
    %25 = tensor.empty() : tensor<256x256xi32>
    %26 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel", "parallel"]} outs(%25 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %40 = linalg.index 1 : index
      %41 = arith.index_cast %40 : index to i32
      linalg.yield %41 : i32
    } -> tensor<256x256xi32>
    %27 = tensor.empty() : tensor<256x256xi1>
    %28 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%24, %26 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%27 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_6: i32, %out: i1):
      %40 = arith.cmpi sge, %in, %in_6 : i32
      linalg.yield %40 : i1
    } -> tensor<256x256xi1>
    %29 = tensor.empty() : tensor<256x256xf32>
    %30 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%28 : tensor<256x256xi1>) outs(%29 : tensor<256x256xf32>) {
    ^bb0(%in: i1, %out: f32):
      %40 = arith.uitofp %in : i1 to f32
      linalg.yield %40 : f32
    } -> tensor<256x256xf32>
    %31 = tensor.empty() : tensor<256x256xi1>
    %32 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%30 : tensor<256x256xf32>) outs(%31 : tensor<256x256xi1>) {
    ^bb0(%in: f32, %out: i1):
      %40 = arith.cmpf une, %in, %cst_1 : f32
      linalg.yield %40 : i1
    } -> tensor<256x256xi1>
    %33 = tensor.empty() : tensor<2x8x256x256xi1>
    %34 = linalg.generic {indexing_maps = [#map4, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%32 : tensor<256x256xi1>) outs(%33 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %35 = tensor.empty() : tensor<2x8x256x256xf32>
    %36 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%34, %22 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_6: f32, %out: f32):
      %40 = arith.select %in, %in_6, %cst_1 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %36 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_4 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %37 = tensor.empty() : tensor<16x256x64xf32>
    %38 = linalg.fill ins(%cst_1 : f32) outs(%37 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %39 = linalg.batch_matmul ins(%collapsed_3, %collapsed_4 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%38 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_5 = tensor.expand_shape %39 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_5 : tensor<2x8x256x64xf32>
  }
}

