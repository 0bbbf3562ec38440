// JAX 0.12, StableHLO's own lowering to linalg.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1) -> ()>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> ()>
#map8 = affine_map<() -> ()>
#map9 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map11 = affine_map<(d0, d1, d2) -> ()>
#map12 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map13 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func public @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant dense<0> : tensor<i32>
    %cst_0 = arith.constant dense<false> : tensor<i1>
    %cst_1 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_3 = arith.constant dense<1.250000e-01> : tensor<f32>
    %cst_4 = arith.constant dense<true> : tensor<i1>
    %0 = tensor.empty() : tensor<256x256xi1>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst_4 : tensor<i1>) outs(%0 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %2 = tensor.empty() : tensor<256x256xi32>
    %3 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel"]} outs(%2 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %60 = linalg.index 0 : index
      %61 = arith.index_cast %60 : index to i32
      linalg.yield %61 : i32
    } -> tensor<256x256xi32>
    %4 = tensor.empty() : tensor<256x256xi32>
    %5 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst : tensor<i32>) outs(%4 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<256x256xi32>
    %6 = tensor.empty() : tensor<256x256xi32>
    %7 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%3, %5 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%6 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %in_10: i32, %out: i32):
      %60 = arith.addi %in, %in_10 : i32
      linalg.yield %60 : i32
    } -> tensor<256x256xi32>
    %8 = tensor.empty() : tensor<256x256xi32>
    %9 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel"]} outs(%8 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %60 = linalg.index 1 : index
      %61 = arith.index_cast %60 : index to i32
      linalg.yield %61 : i32
    } -> tensor<256x256xi32>
    %10 = tensor.empty() : tensor<256x256xi1>
    %11 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%7, %9 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%10 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_10: i32, %out: i1):
      %60 = arith.cmpi sge, %in, %in_10 : i32
      linalg.yield %60 : i1
    } -> tensor<256x256xi1>
    %12 = tensor.empty() : tensor<256x256xi1>
    %13 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst_0 : tensor<i1>) outs(%12 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %14 = tensor.empty() : tensor<256x256xi1>
    %15 = linalg.generic {indexing_maps = [#map1, #map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%11, %1, %13 : tensor<256x256xi1>, tensor<256x256xi1>, tensor<256x256xi1>) outs(%14 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %in_10: i1, %in_11: i1, %out: i1):
      %60 = arith.select %in, %in_10, %in_11 : i1
      linalg.yield %60 : i1
    } -> tensor<256x256xi1>
    %16 = tensor.empty() : tensor<2x8x64x256xf32>
    %17 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x256x64xf32>) outs(%16 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %18 = tensor.empty() : tensor<2x8x256x256xf32>
    %cst_5 = arith.constant 0.000000e+00 : f32
    %19 = linalg.fill ins(%cst_5 : f32) outs(%18 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %20 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %17 : tensor<2x8x256x64xf32>, tensor<2x8x64x256xf32>) outs(%19 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.mulf %in, %in_10 : f32
      %61 = arith.addf %out, %60 : f32
      linalg.yield %61 : f32
    } -> tensor<2x8x256x256xf32>
    %21 = tensor.empty() : tensor<2x8x256x256xf32>
    %22 = linalg.generic {indexing_maps = [#map7, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_3 : tensor<f32>) outs(%21 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %23 = tensor.empty() : tensor<2x8x256x256xf32>
    %24 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20, %22 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%23 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.mulf %in, %in_10 : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256x256xf32>
    %25 = tensor.empty() : tensor<f32>
    %cst_6 = arith.constant 0xFF800000 : f32
    %26 = linalg.generic {indexing_maps = [#map8], iterator_types = []} outs(%25 : tensor<f32>) {
    ^bb0(%out: f32):
      linalg.yield %cst_6 : f32
    } -> tensor<f32>
    %27 = tensor.empty() : tensor<2x8x256x256xi1>
    %28 = linalg.generic {indexing_maps = [#map9, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15 : tensor<256x256xi1>) outs(%27 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %29 = tensor.empty() : tensor<2x8x256x256xf32>
    %30 = linalg.generic {indexing_maps = [#map7, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%26 : tensor<f32>) outs(%29 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %31 = tensor.empty() : tensor<2x8x256x256xf32>
    %32 = linalg.generic {indexing_maps = [#map3, #map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%28, %24, %30 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%31 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_10: f32, %in_11: f32, %out: f32):
      %60 = arith.select %in, %in_10, %in_11 : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_7 = arith.constant 0xFF800000 : f32
    %33 = tensor.empty() : tensor<2x8x256xf32>
    %34 = linalg.fill ins(%cst_7 : f32) outs(%33 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %35 = linalg.generic {indexing_maps = [#map3, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%32 : tensor<2x8x256x256xf32>) outs(%34 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_10 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_10[] : tensor<f32>
      %extracted_11 = tensor.extract %from_elements[] : tensor<f32>
      %60 = arith.maximumf %extracted, %extracted_11 : f32
      %from_elements_12 = tensor.from_elements %60 : tensor<f32>
      %extracted_13 = tensor.extract %from_elements_12[] : tensor<f32>
      linalg.yield %extracted_13 : f32
    } -> tensor<2x8x256xf32>
    %36 = tensor.empty() : tensor<2x8x256xf32>
    %37 = linalg.generic {indexing_maps = [#map11, #map12], iterator_types = ["parallel", "parallel", "parallel"]} ins(%cst_2 : tensor<f32>) outs(%36 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256xf32>
    %38 = tensor.empty() : tensor<2x8x256xf32>
    %39 = linalg.generic {indexing_maps = [#map12, #map12, #map12], iterator_types = ["parallel", "parallel", "parallel"]} ins(%37, %35 : tensor<2x8x256xf32>, tensor<2x8x256xf32>) outs(%38 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.maximumf %in, %in_10 : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256xf32>
    %40 = tensor.empty() : tensor<2x8x256x1xf32>
    %41 = linalg.generic {indexing_maps = [#map10, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%39 : tensor<2x8x256xf32>) outs(%40 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %42 = tensor.empty() : tensor<2x8x256x256xf32>
    %43 = linalg.generic {indexing_maps = [#map13, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%41 : tensor<2x8x256x1xf32>) outs(%42 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %44 = tensor.empty() : tensor<2x8x256x256xf32>
    %45 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%32, %43 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%44 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.subf %in, %in_10 : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256x256xf32>
    %46 = tensor.empty() : tensor<2x8x256x256xf32>
    %47 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%45 : tensor<2x8x256x256xf32>) outs(%46 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %60 = math.exp %in : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_8 = arith.constant 0.000000e+00 : f32
    %48 = tensor.empty() : tensor<2x8x256xf32>
    %49 = linalg.fill ins(%cst_8 : f32) outs(%48 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %50 = linalg.generic {indexing_maps = [#map3, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%47 : tensor<2x8x256x256xf32>) outs(%49 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_10 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_10[] : tensor<f32>
      %extracted_11 = tensor.extract %from_elements[] : tensor<f32>
      %60 = arith.addf %extracted, %extracted_11 : f32
      %from_elements_12 = tensor.from_elements %60 : tensor<f32>
      %extracted_13 = tensor.extract %from_elements_12[] : tensor<f32>
      linalg.yield %extracted_13 : f32
    } -> tensor<2x8x256xf32>
    %51 = tensor.empty() : tensor<2x8x256x1xf32>
    %52 = linalg.generic {indexing_maps = [#map10, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%50 : tensor<2x8x256xf32>) outs(%51 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %53 = tensor.empty() : tensor<2x8x256x256xf32>
    %54 = linalg.generic {indexing_maps = [#map13, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%52 : tensor<2x8x256x1xf32>) outs(%53 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %55 = tensor.empty() : tensor<2x8x256x256xf32>
    %56 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%47, %54 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%55 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.divf %in, %in_10 : f32
      linalg.yield %60 : f32
    } -> tensor<2x8x256x256xf32>
    %57 = tensor.empty() : tensor<2x8x256x64xf32>
    %cst_9 = arith.constant 0.000000e+00 : f32
    %58 = linalg.fill ins(%cst_9 : f32) outs(%57 : tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32>
    %59 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%56, %arg2 : tensor<2x8x256x256xf32>, tensor<2x8x256x64xf32>) outs(%58 : tensor<2x8x256x64xf32>) {
    ^bb0(%in: f32, %in_10: f32, %out: f32):
      %60 = arith.mulf %in, %in_10 : f32
      %61 = arith.addf %out, %60 : f32
      linalg.yield %61 : f32
    } -> tensor<2x8x256x64xf32>
    return %59 : tensor<2x8x256x64xf32>
  }
}

