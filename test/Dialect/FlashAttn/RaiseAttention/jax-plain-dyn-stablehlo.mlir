// JAX 0.12, StableHLO's own lowering to linalg.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// CHECK: @main
// CHECK-NOT: linalg
// CHECK: flashattn.attention 
// CHECK-NOT: flashattn.attention
// CHECK-NOT: linalg

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map5 = affine_map<(d0) -> (d0)>
#map6 = affine_map<(d0, d1, d2, d3) -> ()>
#map7 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map8 = affine_map<(d0, d1, d2) -> ()>
#map9 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
module {
  func.func public @main(%arg0: tensor<2x8x?x64xf32>, %arg1: tensor<2x8x?x64xf32>, %arg2: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
    %c1_i32 = arith.constant 1 : i32
    %c8_i32 = arith.constant 8 : i32
    %c2_i32 = arith.constant 2 : i32
    %c1 = arith.constant 1 : index
    %cst = arith.constant 0xFF800000 : f32
    %cst_0 = arith.constant 0.000000e+00 : f32
    %c3 = arith.constant 3 : index
    %cst_1 = arith.constant dense<1.250000e-01> : tensor<f32>
    %cst_2 = arith.constant dense<0xFF800000> : tensor<f32>
    %c2 = arith.constant 2 : index
    %dim = tensor.dim %arg0, %c2 : tensor<2x8x?x64xf32>
    %0 = arith.index_cast %dim : index to i32
    %dim_3 = tensor.dim %arg1, %c2 : tensor<2x8x?x64xf32>
    %1 = tensor.empty(%dim_3) : tensor<2x8x64x?xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x8x?x64xf32>) outs(%1 : tensor<2x8x64x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x64x?xf32>
    %3 = tensor.empty(%dim, %dim_3) : tensor<2x8x?x?xf32>
    %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<2x8x?x?xf32>) -> tensor<2x8x?x?xf32>
    %5 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%arg0, %2 : tensor<2x8x?x64xf32>, tensor<2x8x64x?xf32>) outs(%4 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.mulf %in, %in_7 : f32
      %38 = arith.addf %out, %37 : f32
      linalg.yield %38 : f32
    } -> tensor<2x8x?x?xf32>
    %from_elements = tensor.from_elements %0 : tensor<1xi32>
    %6 = tensor.empty() : tensor<4xi32>
    %7 = linalg.generic {indexing_maps = [#map5], iterator_types = ["parallel"]} outs(%6 : tensor<4xi32>) {
    ^bb0(%out: i32):
      %37 = linalg.index 0 : index
      %38 = arith.cmpi ult, %37, %c1 : index
      %39 = scf.if %38 -> (i32) {
        scf.yield %c2_i32 : i32
      } else {
        %40 = arith.cmpi ult, %37, %c2 : index
        %41 = scf.if %40 -> (i32) {
          scf.yield %c8_i32 : i32
        } else {
          %42 = arith.cmpi ult, %37, %c3 : index
          %43 = scf.if %42 -> (i32) {
            %44 = arith.subi %37, %c2 : index
            %extracted_7 = tensor.extract %from_elements[%44] : tensor<1xi32>
            scf.yield %extracted_7 : i32
          } else {
            %44 = arith.subi %37, %c3 : index
            %extracted_7 = tensor.extract %from_elements[%44] : tensor<1xi32>
            scf.yield %extracted_7 : i32
          }
          scf.yield %43 : i32
        }
        scf.yield %41 : i32
      }
      linalg.yield %39 : i32
    } -> tensor<4xi32>
    %extracted = tensor.extract %7[%c2] : tensor<4xi32>
    %8 = arith.index_cast %extracted : i32 to index
    %extracted_4 = tensor.extract %7[%c3] : tensor<4xi32>
    %9 = arith.index_cast %extracted_4 : i32 to index
    %10 = tensor.empty(%8, %9) : tensor<2x8x?x?xf32>
    %11 = linalg.generic {indexing_maps = [#map6, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%cst_1 : tensor<f32>) outs(%10 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?x?xf32>
    %12 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %11 : tensor<2x8x?x?xf32>, tensor<2x8x?x?xf32>) outs(%3 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.mulf %in, %in_7 : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?x?xf32>
    %13 = tensor.empty(%dim) : tensor<2x8x?xf32>
    %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<2x8x?xf32>) -> tensor<2x8x?xf32>
    %15 = linalg.generic {indexing_maps = [#map1, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%12 : tensor<2x8x?x?xf32>) outs(%14 : tensor<2x8x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = arith.maximumf %out, %in : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?xf32>
    %16 = tensor.empty() : tensor<3xi32>
    %17 = linalg.generic {indexing_maps = [#map5], iterator_types = ["parallel"]} outs(%16 : tensor<3xi32>) {
    ^bb0(%out: i32):
      %37 = linalg.index 0 : index
      %38 = arith.cmpi ult, %37, %c1 : index
      %39 = scf.if %38 -> (i32) {
        scf.yield %c2_i32 : i32
      } else {
        %40 = arith.cmpi ult, %37, %c2 : index
        %41 = scf.if %40 -> (i32) {
          scf.yield %c8_i32 : i32
        } else {
          %42 = arith.subi %37, %c2 : index
          %extracted_7 = tensor.extract %from_elements[%42] : tensor<1xi32>
          scf.yield %extracted_7 : i32
        }
        scf.yield %41 : i32
      }
      linalg.yield %39 : i32
    } -> tensor<3xi32>
    %extracted_5 = tensor.extract %17[%c2] : tensor<3xi32>
    %18 = arith.index_cast %extracted_5 : i32 to index
    %19 = tensor.empty(%18) : tensor<2x8x?xf32>
    %20 = linalg.generic {indexing_maps = [#map8, #map9], iterator_types = ["parallel", "parallel", "parallel"]} ins(%cst_2 : tensor<f32>) outs(%19 : tensor<2x8x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?xf32>
    %21 = linalg.generic {indexing_maps = [#map9, #map9, #map9], iterator_types = ["parallel", "parallel", "parallel"]} ins(%20, %15 : tensor<2x8x?xf32>, tensor<2x8x?xf32>) outs(%19 : tensor<2x8x?xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.maximumf %in, %in_7 : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?xf32>
    %22 = linalg.generic {indexing_maps = [#map5], iterator_types = ["parallel"]} outs(%6 : tensor<4xi32>) {
    ^bb0(%out: i32):
      %37 = linalg.index 0 : index
      %38 = arith.cmpi ult, %37, %c1 : index
      %39 = scf.if %38 -> (i32) {
        scf.yield %c2_i32 : i32
      } else {
        %40 = arith.cmpi ult, %37, %c2 : index
        %41 = scf.if %40 -> (i32) {
          scf.yield %c8_i32 : i32
        } else {
          %42 = arith.cmpi ult, %37, %c3 : index
          %43 = scf.if %42 -> (i32) {
            %44 = arith.subi %37, %c2 : index
            %extracted_7 = tensor.extract %from_elements[%44] : tensor<1xi32>
            scf.yield %extracted_7 : i32
          } else {
            scf.yield %c1_i32 : i32
          }
          scf.yield %43 : i32
        }
        scf.yield %41 : i32
      }
      linalg.yield %39 : i32
    } -> tensor<4xi32>
    %extracted_6 = tensor.extract %22[%c2] : tensor<4xi32>
    %23 = arith.index_cast %extracted_6 : i32 to index
    %24 = tensor.empty(%23) : tensor<2x8x?x1xf32>
    %25 = linalg.generic {indexing_maps = [#map7, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21 : tensor<2x8x?xf32>) outs(%24 : tensor<2x8x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?x1xf32>
    %26 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%25 : tensor<2x8x?x1xf32>) outs(%10 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?x?xf32>
    %27 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %26 : tensor<2x8x?x?xf32>, tensor<2x8x?x?xf32>) outs(%3 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.subf %in, %in_7 : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?x?xf32>
    %28 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%27 : tensor<2x8x?x?xf32>) outs(%3 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = math.exp %in : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?x?xf32>
    %29 = linalg.fill ins(%cst_0 : f32) outs(%13 : tensor<2x8x?xf32>) -> tensor<2x8x?xf32>
    %30 = linalg.generic {indexing_maps = [#map1, #map7], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%28 : tensor<2x8x?x?xf32>) outs(%29 : tensor<2x8x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = arith.addf %out, %in : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?xf32>
    %31 = linalg.generic {indexing_maps = [#map7, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%30 : tensor<2x8x?xf32>) outs(%24 : tensor<2x8x?x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?x1xf32>
    %32 = linalg.generic {indexing_maps = [#map10, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%31 : tensor<2x8x?x1xf32>) outs(%10 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x8x?x?xf32>
    %33 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%28, %32 : tensor<2x8x?x?xf32>, tensor<2x8x?x?xf32>) outs(%3 : tensor<2x8x?x?xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.divf %in, %in_7 : f32
      linalg.yield %37 : f32
    } -> tensor<2x8x?x?xf32>
    %34 = tensor.empty(%dim) : tensor<2x8x?x64xf32>
    %35 = linalg.fill ins(%cst_0 : f32) outs(%34 : tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32>
    %36 = linalg.generic {indexing_maps = [#map2, #map3, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%33, %arg2 : tensor<2x8x?x?xf32>, tensor<2x8x?x64xf32>) outs(%35 : tensor<2x8x?x64xf32>) {
    ^bb0(%in: f32, %in_7: f32, %out: f32):
      %37 = arith.mulf %in, %in_7 : f32
      %38 = arith.addf %out, %37 : f32
      linalg.yield %38 : f32
    } -> tensor<2x8x?x64xf32>
    return %36 : tensor<2x8x?x64xf32>
  }
}

