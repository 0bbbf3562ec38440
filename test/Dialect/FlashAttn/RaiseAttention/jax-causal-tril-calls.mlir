// JAX 0.12, StableHLO's own lowering to linalg, before inlining.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// All else goes, or is strides of the op: a GPU takes the module as it is.
// RUN: flash-opt %s -flashattn-to-nvvm="chip=sm_90a raise=true" -o /dev/null
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention mask(#flashattn.causal) ins(
// CHECK-NEXT: return

#map = affine_map<(d0, d1) -> ()>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> ()>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map9 = affine_map<(d0, d1, d2) -> ()>
#map10 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map11 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
#map12 = affine_map<() -> ()>
#map13 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
module {
  func.func public @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x8x256x64xf32>, %arg2: tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %cst = arith.constant dense<true> : tensor<i1>
    %0 = tensor.empty() : tensor<256x256xi1>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst : tensor<i1>) outs(%0 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %2 = call @tril(%1) : (tensor<256x256xi1>) -> tensor<256x256xi1>
    %3 = tensor.empty() : tensor<2x8x64x256xf32>
    %4 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x256x64xf32>) outs(%3 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x256xf32>
    %5 = tensor.empty() : tensor<2x8x256x256xf32>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %6 = linalg.fill ins(%cst_0 : f32) outs(%5 : tensor<2x8x256x256xf32>) -> tensor<2x8x256x256xf32>
    %7 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %4 : tensor<2x8x256x64xf32>, tensor<2x8x64x256xf32>) outs(%6 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.mulf %in, %in_9 : f32
      %41 = arith.addf %out, %40 : f32
      linalg.yield %41 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_1 = arith.constant dense<1.250000e-01> : tensor<f32>
    %8 = tensor.empty() : tensor<2x8x256x256xf32>
    %9 = linalg.generic {indexing_maps = [#map7, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_1 : tensor<f32>) outs(%8 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %10 = tensor.empty() : tensor<2x8x256x256xf32>
    %11 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%7, %9 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%10 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.mulf %in, %in_9 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_2 = arith.constant dense<0xFF800000> : tensor<f32>
    %12 = call @_where(%2, %11, %cst_2) : (tensor<256x256xi1>, tensor<2x8x256x256xf32>, tensor<f32>) -> tensor<2x8x256x256xf32>
    %cst_3 = arith.constant dense<0xFF800000> : tensor<f32>
    %cst_4 = arith.constant 0xFF800000 : f32
    %13 = tensor.empty() : tensor<2x8x256xf32>
    %14 = linalg.fill ins(%cst_4 : f32) outs(%13 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %15 = linalg.generic {indexing_maps = [#map3, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%12 : tensor<2x8x256x256xf32>) outs(%14 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_9 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_9[] : tensor<f32>
      %extracted_10 = tensor.extract %from_elements[] : tensor<f32>
      %40 = arith.maximumf %extracted, %extracted_10 : f32
      %from_elements_11 = tensor.from_elements %40 : tensor<f32>
      %extracted_12 = tensor.extract %from_elements_11[] : tensor<f32>
      linalg.yield %extracted_12 : f32
    } -> tensor<2x8x256xf32>
    %cst_5 = arith.constant dense<0xFF800000> : tensor<f32>
    %16 = tensor.empty() : tensor<2x8x256xf32>
    %17 = linalg.generic {indexing_maps = [#map9, #map10], iterator_types = ["parallel", "parallel", "parallel"]} ins(%cst_5 : tensor<f32>) outs(%16 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256xf32>
    %18 = tensor.empty() : tensor<2x8x256xf32>
    %19 = linalg.generic {indexing_maps = [#map10, #map10, #map10], iterator_types = ["parallel", "parallel", "parallel"]} ins(%17, %15 : tensor<2x8x256xf32>, tensor<2x8x256xf32>) outs(%18 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.maximumf %in, %in_9 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256xf32>
    %20 = tensor.empty() : tensor<2x8x256x1xf32>
    %21 = linalg.generic {indexing_maps = [#map8, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%19 : tensor<2x8x256xf32>) outs(%20 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %22 = tensor.empty() : tensor<2x8x256x256xf32>
    %23 = linalg.generic {indexing_maps = [#map11, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<2x8x256x1xf32>) outs(%22 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %24 = tensor.empty() : tensor<2x8x256x256xf32>
    %25 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %23 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%24 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.subf %in, %in_9 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %26 = tensor.empty() : tensor<2x8x256x256xf32>
    %27 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%25 : tensor<2x8x256x256xf32>) outs(%26 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %40 = math.exp %in : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %cst_6 = arith.constant dense<0.000000e+00> : tensor<f32>
    %cst_7 = arith.constant 0.000000e+00 : f32
    %28 = tensor.empty() : tensor<2x8x256xf32>
    %29 = linalg.fill ins(%cst_7 : f32) outs(%28 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %30 = linalg.generic {indexing_maps = [#map3, #map8], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%27 : tensor<2x8x256x256xf32>) outs(%29 : tensor<2x8x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %from_elements = tensor.from_elements %in : tensor<f32>
      %from_elements_9 = tensor.from_elements %out : tensor<f32>
      %extracted = tensor.extract %from_elements_9[] : tensor<f32>
      %extracted_10 = tensor.extract %from_elements[] : tensor<f32>
      %40 = arith.addf %extracted, %extracted_10 : f32
      %from_elements_11 = tensor.from_elements %40 : tensor<f32>
      %extracted_12 = tensor.extract %from_elements_11[] : tensor<f32>
      linalg.yield %extracted_12 : f32
    } -> tensor<2x8x256xf32>
    %31 = tensor.empty() : tensor<2x8x256x1xf32>
    %32 = linalg.generic {indexing_maps = [#map8, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%30 : tensor<2x8x256xf32>) outs(%31 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x1xf32>
    %33 = tensor.empty() : tensor<2x8x256x256xf32>
    %34 = linalg.generic {indexing_maps = [#map11, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%32 : tensor<2x8x256x1xf32>) outs(%33 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %35 = tensor.empty() : tensor<2x8x256x256xf32>
    %36 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%27, %34 : tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.divf %in, %in_9 : f32
      linalg.yield %40 : f32
    } -> tensor<2x8x256x256xf32>
    %37 = tensor.empty() : tensor<2x8x256x64xf32>
    %cst_8 = arith.constant 0.000000e+00 : f32
    %38 = linalg.fill ins(%cst_8 : f32) outs(%37 : tensor<2x8x256x64xf32>) -> tensor<2x8x256x64xf32>
    %39 = linalg.generic {indexing_maps = [#map4, #map5, #map6], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%36, %arg2 : tensor<2x8x256x256xf32>, tensor<2x8x256x64xf32>) outs(%38 : tensor<2x8x256x64xf32>) {
    ^bb0(%in: f32, %in_9: f32, %out: f32):
      %40 = arith.mulf %in, %in_9 : f32
      %41 = arith.addf %out, %40 : f32
      linalg.yield %41 : f32
    } -> tensor<2x8x256x64xf32>
    return %39 : tensor<2x8x256x64xf32>
  }
  func.func private @tril(%arg0: tensor<256x256xi1>) -> tensor<256x256xi1> {
    %0 = tensor.empty() : tensor<256x256xi32>
    %1 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel"]} outs(%0 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %14 = linalg.index 0 : index
      %15 = arith.index_cast %14 : index to i32
      linalg.yield %15 : i32
    } -> tensor<256x256xi32>
    %cst = arith.constant dense<0> : tensor<i32>
    %2 = tensor.empty() : tensor<256x256xi32>
    %3 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst : tensor<i32>) outs(%2 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<256x256xi32>
    %4 = tensor.empty() : tensor<256x256xi32>
    %5 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%1, %3 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%4 : tensor<256x256xi32>) {
    ^bb0(%in: i32, %in_1: i32, %out: i32):
      %14 = arith.addi %in, %in_1 : i32
      linalg.yield %14 : i32
    } -> tensor<256x256xi32>
    %6 = tensor.empty() : tensor<256x256xi32>
    %7 = linalg.generic {indexing_maps = [#map1], iterator_types = ["parallel", "parallel"]} outs(%6 : tensor<256x256xi32>) {
    ^bb0(%out: i32):
      %14 = linalg.index 1 : index
      %15 = arith.index_cast %14 : index to i32
      linalg.yield %15 : i32
    } -> tensor<256x256xi32>
    %8 = tensor.empty() : tensor<256x256xi1>
    %9 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%5, %7 : tensor<256x256xi32>, tensor<256x256xi32>) outs(%8 : tensor<256x256xi1>) {
    ^bb0(%in: i32, %in_1: i32, %out: i1):
      %14 = arith.cmpi sge, %in, %in_1 : i32
      linalg.yield %14 : i1
    } -> tensor<256x256xi1>
    %cst_0 = arith.constant dense<false> : tensor<i1>
    %10 = tensor.empty() : tensor<256x256xi1>
    %11 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst_0 : tensor<i1>) outs(%10 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<256x256xi1>
    %12 = tensor.empty() : tensor<256x256xi1>
    %13 = linalg.generic {indexing_maps = [#map1, #map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%9, %arg0, %11 : tensor<256x256xi1>, tensor<256x256xi1>, tensor<256x256xi1>) outs(%12 : tensor<256x256xi1>) {
    ^bb0(%in: i1, %in_1: i1, %in_2: i1, %out: i1):
      %14 = arith.select %in, %in_1, %in_2 : i1
      linalg.yield %14 : i1
    } -> tensor<256x256xi1>
    return %13 : tensor<256x256xi1>
  }
  func.func private @_where(%arg0: tensor<256x256xi1>, %arg1: tensor<2x8x256x256xf32>, %arg2: tensor<f32>) -> tensor<2x8x256x256xf32> {
    %0 = tensor.empty() : tensor<f32>
    %1 = linalg.generic {indexing_maps = [#map12, #map12], iterator_types = []} ins(%arg2 : tensor<f32>) outs(%0 : tensor<f32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<f32>
    %2 = tensor.empty() : tensor<2x8x256x256xi1>
    %3 = linalg.generic {indexing_maps = [#map13, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0 : tensor<256x256xi1>) outs(%2 : tensor<2x8x256x256xi1>) {
    ^bb0(%in: i1, %out: i1):
      linalg.yield %in : i1
    } -> tensor<2x8x256x256xi1>
    %4 = tensor.empty() : tensor<2x8x256x256xf32>
    %5 = linalg.generic {indexing_maps = [#map7, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1 : tensor<f32>) outs(%4 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x256x256xf32>
    %6 = tensor.empty() : tensor<2x8x256x256xf32>
    %7 = linalg.generic {indexing_maps = [#map3, #map3, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%3, %arg1, %5 : tensor<2x8x256x256xi1>, tensor<2x8x256x256xf32>, tensor<2x8x256x256xf32>) outs(%6 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_0: f32, %in_1: f32, %out: f32):
      %8 = arith.select %in, %in_0, %in_1 : f32
      linalg.yield %8 : f32
    } -> tensor<2x8x256x256xf32>
    return %7 : tensor<2x8x256x256xf32>
  }
}

