// JAX 0.12, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) layout(bshd) ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1) -> (d0, d1)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d1, d2, d3, d4)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d1, d2, d3, d0, d4)>
#map8 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d0, d1, d4, d2)>
#map10 = affine_map<(d0, d1, d2, d3, d4) -> (d1, d3, d4, d0, d2)>
#map11 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d0, d1, d2, d4)>
module {
  func.func @main(%arg0: tensor<2x256x8x64xbf16>, %arg1: tensor<2x256x2x64xbf16>, %arg2: tensor<2x256x2x64xbf16>) -> tensor<2x256x8x64xbf16> {
    %cst = arith.constant 0.000000e+00 : bf16
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant -2.38197633E+38 : f32
    %cst_2 = arith.constant 1.250000e-01 : f32
    %cst_3 = arith.constant 0.000000e+00 : f32
    %expanded = tensor.expand_shape %arg0 [[0], [1], [2, 3], [4]] output_shape [2, 256, 2, 4, 64] : tensor<2x256x8x64xbf16> into tensor<2x256x2x4x64xbf16>
    %0 = tensor.empty() : tensor<2x2x256x4x64xbf16>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<2x256x2x4x64xbf16>) outs(%0 : tensor<2x2x256x4x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x256x4x64xbf16>
    %2 = tensor.empty() : tensor<2x2x64x256xbf16>
    %3 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x256x2x64xbf16>) outs(%2 : tensor<2x2x64x256xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x64x256xbf16>
    %collapsed = tensor.collapse_shape %1 [[0, 1], [2, 3], [4]] : tensor<2x2x256x4x64xbf16> into tensor<4x1024x64xbf16>
    %collapsed_4 = tensor.collapse_shape %3 [[0, 1], [2], [3]] : tensor<2x2x64x256xbf16> into tensor<4x64x256xbf16>
    %4 = tensor.empty() : tensor<4x1024x256xf32>
    %5 = linalg.fill ins(%cst_3 : f32) outs(%4 : tensor<4x1024x256xf32>) -> tensor<4x1024x256xf32>
    %6 = linalg.batch_matmul ins(%collapsed, %collapsed_4 : tensor<4x1024x64xbf16>, tensor<4x64x256xbf16>) outs(%5 : tensor<4x1024x256xf32>) -> tensor<4x1024x256xf32>
    %expanded_5 = tensor.expand_shape %6 [[0, 1], [2, 3], [4]] output_shape [2, 2, 256, 4, 256] : tensor<4x1024x256xf32> into tensor<2x2x256x4x256xf32>
    %7 = tensor.empty() : tensor<2x2x256x4x256xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%expanded_5 : tensor<2x2x256x4x256xf32>) outs(%7 : tensor<2x2x256x4x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %52 = arith.mulf %in, %cst_2 : f32
      linalg.yield %52 : f32
    } -> tensor<2x2x256x4x256xf32>
    %9 = tensor.empty() : tensor<256x256xi32>
    %10 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel", "parallel"]} outs(%9 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %52 = linalg.index 0 : index
      %53 = arith.index_cast %52 : index to i32
      linalg.yield %53 : i32
    } -> tensor<256x256xi32>
    %11 = tensor.empty() : tensor<256x256xi32>
    %12 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel", "parallel"]} outs(%11 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %52 = linalg.index 1 : index
      %53 = arith.index_cast %52 : index to i32
      linalg.yield %53 : i32
    } -> tensor<256x256xi32>
    %13 = tensor.empty() : tensor<256x256xi1>
    %14 = linalg.generic {indexing_maps = [#map4, #map4, #map4], iterator_types = ["parallel", "parallel"]} ins(%10, %12 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%13 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_10: i32, %out: i1):
      %52 = arith.cmpi sge, %in, %in_10 : i32
      linalg.yield %52 : i1
    } -> tensor<256x256xi1>
    %15 = tensor.empty() : tensor<2x2x256x256xi1>
    %16 = linalg.generic {indexing_maps = [#map5, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<256x256xi1>) outs(%15 : tensor<2x2x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x2x256x256xi1>
    %17 = tensor.empty() : tensor<4x2x2x256x256xi1>
    %18 = linalg.generic {indexing_maps = [#map6, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%16 : tensor<2x2x256x256xi1>) outs(%17 : tensor<4x2x2x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<4x2x2x256x256xi1>
    %19 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %20 = linalg.generic {indexing_maps = [#map7, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%8 : tensor<2x2x256x4x256xf32>) outs(%19 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<4x2x2x256x256xf32>
    %21 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %22 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%18, %20 : tensor<4x2x2x256x256xi1>, tensor<4x2x2x256x256xf32>) outs(%21 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: i1, %in_10: f32, %out: f32):
      %52 = arith.select %in, %in_10, %cst_1 : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256x256xf32>
    %23 = tensor.empty() : tensor<4x2x2x256xf32>
    %24 = linalg.fill ins(%cst_0 : f32) outs(%23 : tensor<4x2x2x256xf32>) -> tensor<4x2x2x256xf32>
    %25 = linalg.generic {indexing_maps = [#map1, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%22 : tensor<4x2x2x256x256xf32>) outs(%24 : tensor<4x2x2x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %52 = arith.maximumf %out, %in : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256xf32>
    %26 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %27 = linalg.generic {indexing_maps = [#map8, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%25 : tensor<4x2x2x256xf32>) outs(%26 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<4x2x2x256x256xf32>
    %28 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %29 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%22, %27 : tensor<4x2x2x256x256xf32>, tensor<4x2x2x256x256xf32>) outs(%28 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %52 = arith.subf %in, %in_10 : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256x256xf32>
    %30 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %31 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%29 : tensor<4x2x2x256x256xf32>) outs(%30 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %52 = math.exp %in : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256x256xf32>
    %32 = tensor.empty() : tensor<4x2x2x256xf32>
    %33 = linalg.fill ins(%cst_3 : f32) outs(%32 : tensor<4x2x2x256xf32>) -> tensor<4x2x2x256xf32>
    %34 = linalg.generic {indexing_maps = [#map1, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%31 : tensor<4x2x2x256x256xf32>) outs(%33 : tensor<4x2x2x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %52 = arith.addf %out, %in : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256xf32>
    %35 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %36 = linalg.generic {indexing_maps = [#map8, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%34 : tensor<4x2x2x256xf32>) outs(%35 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<4x2x2x256x256xf32>
    %37 = tensor.empty() : tensor<4x2x2x256x256xf32>
    %38 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%31, %36 : tensor<4x2x2x256x256xf32>, tensor<4x2x2x256x256xf32>) outs(%37 : tensor<4x2x2x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %52 = arith.divf %in, %in_10 : f32
      linalg.yield %52 : f32
    } -> tensor<4x2x2x256x256xf32>
    %39 = tensor.empty() : tensor<4x2x2x256x256xbf16>
    %40 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%38 : tensor<4x2x2x256x256xf32>) outs(%39 : tensor<4x2x2x256x256xbf16>) {
    ^bb0(%in: f32, %out: bf16):
      %52 = arith.truncf %in : f32 to bf16
      linalg.yield %52 : bf16
    } -> tensor<4x2x2x256x256xbf16>
    %41 = tensor.empty() : tensor<2x2x64x256xbf16>
    %42 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x256x2x64xbf16>) outs(%41 : tensor<2x2x64x256xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x64x256xbf16>
    %43 = tensor.empty() : tensor<2x2x256x4x256xbf16>
    %44 = linalg.generic {indexing_maps = [#map9, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%40 : tensor<4x2x2x256x256xbf16>) outs(%43 : tensor<2x2x256x4x256xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x2x256x4x256xbf16>
    %collapsed_6 = tensor.collapse_shape %42 [[0, 1], [2], [3]] : tensor<2x2x64x256xbf16> into tensor<4x64x256xbf16>
    %collapsed_7 = tensor.collapse_shape %44 [[0, 1], [2], [3, 4]] : tensor<2x2x256x4x256xbf16> into tensor<4x256x1024xbf16>
    %45 = tensor.empty() : tensor<4x64x1024xbf16>
    %46 = linalg.fill ins(%cst : bf16) outs(%45 : tensor<4x64x1024xbf16>) -> tensor<4x64x1024xbf16>
    %47 = linalg.batch_matmul ins(%collapsed_6, %collapsed_7 : tensor<4x64x256xbf16>, tensor<4x256x1024xbf16>) outs(%46 : tensor<4x64x1024xbf16>) -> tensor<4x64x1024xbf16>
    %expanded_8 = tensor.expand_shape %47 [[0, 1], [2], [3, 4]] output_shape [2, 2, 64, 4, 256] : tensor<4x64x1024xbf16> into tensor<2x2x64x4x256xbf16>
    %48 = tensor.empty() : tensor<4x2x256x2x64xbf16>
    %49 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%expanded_8 : tensor<2x2x64x4x256xbf16>) outs(%48 : tensor<4x2x256x2x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<4x2x256x2x64xbf16>
    %50 = tensor.empty() : tensor<2x256x2x4x64xbf16>
    %51 = linalg.generic {indexing_maps = [#map11, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%49 : tensor<4x2x256x2x64xbf16>) outs(%50 : tensor<2x256x2x4x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      linalg.yield %in : bf16
    } -> tensor<2x256x2x4x64xbf16>
    %collapsed_9 = tensor.collapse_shape %51 [[0], [1], [2, 3], [4]] : tensor<2x256x2x4x64xbf16> into tensor<2x256x8x64xbf16>
    return %collapsed_9 : tensor<2x256x8x64xbf16>
  }
}

