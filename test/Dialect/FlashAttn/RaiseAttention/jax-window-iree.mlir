// JAX 0.12, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.window<left = 63, right = 0>) ins(
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant 0xFF800000 : f32
    %cst_0 = arith.constant 1.250000e-01 : f32
    %cst_1 = arith.constant 0.000000e+00 : f32
    %c64_i32 = arith.constant 64 : i32
    %0 = tensor.empty() : tensor<256x256xi32>
    %1 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel"]} outs(%0 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %42 = linalg.index 0 : index
      %43 = arith.index_cast %42 : index to i32
      linalg.yield %43 : i32
    } -> tensor<256x256xi32>
    %2 = tensor.empty() : tensor<256x256xi32>
    %3 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel"]} outs(%2 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %42 = linalg.index 1 : index
      %43 = arith.index_cast %42 : index to i32
      linalg.yield %43 : i32
    } -> tensor<256x256xi32>
    %4 = tensor.empty() : tensor<256x256xi1>
    %5 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%3, %1 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%4 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_6: i32, %out: i1):
      %42 = arith.cmpi sle, %in, %in_6 : i32
      linalg.yield %42 : i1
    } -> tensor<256x256xi1>
    %6 = tensor.empty() : tensor<256x256xi32>
    %7 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %3 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%6 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %in_6: i32, %out: i32):
      %42 = arith.subi %in, %in_6 : i32
      linalg.yield %42 : i32
    } -> tensor<256x256xi32>
    %8 = tensor.empty() : tensor<256x256xi1>
    %9 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%7 : tensor<256x256xi32>) outs(%8 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %out: i1):
      %42 = arith.cmpi slt, %in, %c64_i32 : i32
      linalg.yield %42 : i1
    } -> tensor<256x256xi1>
    %10 = tensor.empty() : tensor<256x256xi1>
    %11 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%5, %9 : tensor<256x256xi1>, tensor<256x256xi1>) outs(%10 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %in_6: i1, %out: i1):
      %42 = arith.andi %in, %in_6 : i1
      linalg.yield %42 : i1
    } -> tensor<256x256xi1>
    %12 = tensor.empty() : tensor<2x8x64x256xf32>
    %13 = linalg.generic {indexing_maps = [#map1, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x256x64xf32>) outs(%12 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_2 = tensor.collapse_shape %13 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %14 = tensor.empty() : tensor<16x256x256xf32>
    %15 = linalg.fill ins(%cst_1 : f32) outs(%14 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %16 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%15 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded = tensor.expand_shape %16 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %17 = tensor.empty() : tensor<2x8x256x256xf32>
    %18 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x8x256x256xf32>) outs(%17 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %42 = arith.mulf %in, %cst_0 : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256x256xf32>
    %19 = tensor.empty() : tensor<2x8x256x256xi1>
    %20 = linalg.generic {indexing_maps = [#map3, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<256x256xi1>) outs(%19 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %21 = tensor.empty() : tensor<2x8x256x256xf32>
    %22 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %18 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>) outs(%21 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_6: f32, %out: f32):
      %42 = arith.select %in, %in_6, %cst : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256x256xf32>
    %23 = tensor.empty() : tensor<2x8x256xf32>
    %24 = linalg.fill ins(%cst : f32) outs(%23 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %25 = linalg.generic {indexing_maps = [#map2, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%22 : tensor<2x8x256x256xf32>) outs(%24 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %42 = arith.maximumf %out, %in : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256xf32>
    %26 = tensor.empty() : tensor<2x8x256x256xf32>
    %27 = linalg.generic {indexing_maps = [#map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%25 : tensor<2x8x256xf32>) outs(%26 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %28 = tensor.empty() : tensor<2x8x256x256xf32>
    %29 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%22, %27 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%28 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %42 = arith.subf %in, %in_6 : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256x256xf32>
    %30 = tensor.empty() : tensor<2x8x256x256xf32>
    %31 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%29 : tensor<2x8x256x256xf32>) outs(%30 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %42 = math.exp %in : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256x256xf32>
    %32 = tensor.empty() : tensor<2x8x256xf32>
    %33 = linalg.fill ins(%cst_1 : f32) outs(%32 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %34 = linalg.generic {indexing_maps = [#map2, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%31 : tensor<2x8x256x256xf32>) outs(%33 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %42 = arith.addf %out, %in : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256xf32>
    %35 = tensor.empty() : tensor<2x8x256x256xf32>
    %36 = linalg.generic {indexing_maps = [#map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%34 : tensor<2x8x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %37 = tensor.empty() : tensor<2x8x256x256xf32>
    %38 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%31, %36 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%37 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_6: f32, %out: f32):
      %42 = arith.divf %in, %in_6 : f32
      linalg.yield %42 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_3 = tensor.collapse_shape %38 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_4 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %39 = tensor.empty() : tensor<16x256x64xf32>
    %40 = linalg.fill ins(%cst_1 : f32) outs(%39 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %41 = linalg.batch_matmul ins(%collapsed_3, %collapsed_4 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%40 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_5 = tensor.expand_shape %41 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_5 : tensor<2x8x256x64xf32>
  }
}

