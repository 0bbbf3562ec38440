// JAX 0.12, StableHLO's own lowering to linalg.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) softcap(5.000000e+01) ins(
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> ()>
#map6 = affine_map<(d0, d1) -> ()>
#map7 = affine_map<(d0, d1) -> (d0, d1)>
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
    %cst_3 = arith.constant dense<true> : tensor<i1>
    %cst_4 = arith.constant dense<5.000000e+01> : tensor<f32>
    %cst_5 = arith.constant dense<1.250000e-01> : tensor<f32>
    %0 = tensor.empty() : tensor<2x8x64x256xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x256x64xf32>) outs(%0 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %2 = tensor.empty() : tensor<2x8x256x256xf32>
    %cst_6 = arith.constant 0.000000e+00 : f32
    %3 = linalg.fill ins(%cst_6 : f32) outs(%2 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %4 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %1 : tensor<2x8x256x64xf32>, tensor<2x8x64x256xf32>) outs(%3 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.mulf %in, %in_11 : f32
      %71 = arith.addf %out, %70 : f32
      linalg.yield %71 : f32
    } -> tensor<2x8x256x256xf32>
    %5 = tensor.empty() : tensor<2x8x256x256xf32>
    %6 = linalg.generic {indexing_maps = [#map5, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_5 : tensor<f32>) outs(%5 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %7 = tensor.empty() : tensor<2x8x256x256xf32>
    %8 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%4, %6 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%7 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.mulf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %9 = tensor.empty() : tensor<2x8x256x256xf32>
    %10 = linalg.generic {indexing_maps = [#map5, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_4 : tensor<f32>) outs(%9 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %11 = tensor.empty() : tensor<2x8x256x256xf32>
    %12 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %10 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%11 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.divf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %13 = tensor.empty() : tensor<2x8x256x256xf32>
    %14 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12 : tensor<2x8x256x256xf32>) outs(%13 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %70 = math.tanh %in : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %15 = tensor.empty() : tensor<2x8x256x256xf32>
    %16 = linalg.generic {indexing_maps = [#map5, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_4 : tensor<f32>) outs(%15 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %17 = tensor.empty() : tensor<2x8x256x256xf32>
    %18 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16, %14 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%17 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.mulf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %19 = tensor.empty() : tensor<256x256xi1>
    %20 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel"]} ins(%cst_3 : tensor<i1>) outs(%19 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %21 = tensor.empty() : tensor<256x256xi32>
    %22 = linalg.generic {indexing_maps = [#map7], iterator_types = ["parallel", "parallel"]} outs(%21 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %70 = linalg.index 0 : index
      %71 = arith.index_cast %70 : index to i32
      linalg.yield %71 : i32
    } -> tensor<256x256xi32>
    %23 = tensor.empty() : tensor<256x256xi32>
    %24 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel"]} ins(%cst : tensor<i32>) outs(%23 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<256x256xi32>
    %25 = tensor.empty() : tensor<256x256xi32>
    %26 = linalg.generic {indexing_maps = [#map7, #map7, #map7], iterator_types = ["parallel", "parallel"]} ins(%22, %24 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%25 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %in_11: i32, %out: i32):
      %70 = arith.addi %in, %in_11 : i32
      linalg.yield %70 : i32
    } -> tensor<256x256xi32>
    %27 = tensor.empty() : tensor<256x256xi32>
    %28 = linalg.generic {indexing_maps = [#map7], iterator_types = ["parallel", "parallel"]} outs(%27 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %70 = linalg.index 1 : index
      %71 = arith.index_cast %70 : index to i32
      linalg.yield %71 : i32
    } -> tensor<256x256xi32>
    %29 = tensor.empty() : tensor<256x256xi1>
    %30 = linalg.generic {indexing_maps = [#map7, #map7, #map7], iterator_types = ["parallel", "parallel"]} ins(%26, %28 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%29 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_11: i32, %out: i1):
      %70 = arith.cmpi sge, %in, %in_11 : i32
      linalg.yield %70 : i1
    } -> tensor<256x256xi1>
    %31 = tensor.empty() : tensor<256x256xi1>
    %32 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel"]} ins(%cst_0 : tensor<i1>) outs(%31 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %33 = tensor.empty() : tensor<256x256xi1>
    %34 = linalg.generic {indexing_maps = [#map7, #map7, #map7, #map7], iterator_types = ["parallel", "parallel"]} ins(%30, %20, %32 : tensor<256x256xi1>, tensor<256x256xi1>, tensor<256x256xi1>) outs(%33 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %in_11: i1, %in_12: i1, %out: i1):
      %70 = arith.select %in, %in_11, %in_12 : i1
      linalg.yield %70 : i1
    } -> tensor<256x256xi1>
    %35 = tensor.empty() : tensor<f32>
    %cst_7 = arith.constant 0xFF800000 : f32
    %36 = linalg.generic {indexing_maps = [#map8], iterator_types = []} outs(%35 : tensor<f32>) {
    ^bb0(%out: f32):
      linalg.yield %cst_7 : f32
    } -> tensor<f32>
    %37 = tensor.empty() : tensor<2x8x256x256xi1>
    %38 = linalg.generic {indexing_maps = [#map9, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%34 : tensor<256x256xi1>) outs(%37 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %39 = tensor.empty() : tensor<2x8x256x256xf32>
    %40 = linalg.generic {indexing_maps = [#map5, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%36 : tensor<f32>) outs(%39 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %41 = tensor.empty() : tensor<2x8x256x256xf32>
    %42 = linalg.generic {indexing_maps = [#map1, #map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%38, %18, %40 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%41 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_11: f32, %in_12: f32, %out: f32):
      %70 = arith.select %in, %in_11, %in_12 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_8 = arith.constant 0xFF800000 : f32
    %43 = tensor.empty() : tensor<2x8x256xf32>
    %44 = linalg.fill ins(%cst_8 : f32) outs(%43 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %45 = linalg.generic {indexing_maps = [#map1, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%42 : tensor<2x8x256x256xf32>) outs(%44 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_11 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_11[] : tensor<f32>
      %extracted_12 = tensor.extract %from_elements[] : tensor<f32>
      %70 = arith.maximumf %extracted, %extracted_12 : f32
      %from_elements_13 = tensor.from_elements %70 : tensor<f32>
      %extracted_14 = tensor.extract %from_elements_13[] : tensor<f32>
      linalg.yield %extracted_14 : f32
    } -> tensor<2x8x256xf32>
    %46 = tensor.empty() : tensor<2x8x256xf32>
    %47 = linalg.generic {indexing_maps = [#map11, #map12], iterator_types = ["parallel", "parallel", "parallel"]} ins(%cst_2 : tensor<f32>) outs(%46 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256xf32>
    %48 = tensor.empty() : tensor<2x8x256xf32>
    %49 = linalg.generic {indexing_maps = [#map12, #map12, #map12], iterator_types = ["parallel", "parallel", "parallel"]} ins(%47, %45 : tensor<2x8x256xf32>, tensor<2x8x256xf32>) outs(%48 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.maximumf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256xf32>
    %50 = tensor.empty() : tensor<2x8x256x1xf32>
    %51 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%49 : tensor<2x8x256xf32>) outs(%50 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %52 = tensor.empty() : tensor<2x8x256x256xf32>
    %53 = linalg.generic {indexing_maps = [#map13, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%51 : tensor<2x8x256x1xf32>) outs(%52 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %54 = tensor.empty() : tensor<2x8x256x256xf32>
    %55 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%42, %53 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%54 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.subf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %56 = tensor.empty() : tensor<2x8x256x256xf32>
    %57 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%55 : tensor<2x8x256x256xf32>) outs(%56 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %70 = math.exp %in : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_9 = arith.constant 0.000000e+00 : f32
    %58 = tensor.empty() : tensor<2x8x256xf32>
    %59 = linalg.fill ins(%cst_9 : f32) outs(%58 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %60 = linalg.generic {indexing_maps = [#map1, #map10], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%57 : tensor<2x8x256x256xf32>) outs(%59 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_11 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_11[] : tensor<f32>
      %extracted_12 = tensor.extract %from_elements[] : tensor<f32>
      %70 = arith.addf %extracted, %extracted_12 : f32
      %from_elements_13 = tensor.from_elements %70 : tensor<f32>
      %extracted_14 = tensor.extract %from_elements_13[] : tensor<f32>
      linalg.yield %extracted_14 : f32
    } -> tensor<2x8x256xf32>
    %61 = tensor.empty() : tensor<2x8x256x1xf32>
    %62 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%60 : tensor<2x8x256xf32>) outs(%61 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %63 = tensor.empty() : tensor<2x8x256x256xf32>
    %64 = linalg.generic {indexing_maps = [#map13, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%62 : tensor<2x8x256x1xf32>) outs(%63 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %65 = tensor.empty() : tensor<2x8x256x256xf32>
    %66 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%57, %64 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%65 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.divf %in, %in_11 : f32
      linalg.yield %70 : f32
    } -> tensor<2x8x256x256xf32>
    %67 = tensor.empty() : tensor<2x8x256x64xf32>
    %cst_10 = arith.constant 0.000000e+00 : f32
    %68 = linalg.fill ins(%cst_10 : f32) outs(%67 : tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32>
    %69 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%66, %arg2 : tensor<2x8x256x256xf32>, tensor<2x8x256x64xf32>) outs(%68 : tensor<2x8x256x64xf32>) {
    ^bb0(%in: f32, %in_11: f32, %out: f32):
      %70 = arith.mulf %in, %in_11 : f32
      %71 = arith.addf %out, %70 : f32
      linalg.yield %71 : f32
    } -> tensor<2x8x256x64xf32>
    return %69 : tensor<2x8x256x64xf32>
  }
}

