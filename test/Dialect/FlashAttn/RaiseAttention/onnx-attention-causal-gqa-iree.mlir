// ONNX 1.23.2, IREE 3.13, --compile-to=input.
// RUN: flash-opt %s -flashattn-raise-attention -canonicalize -cse | FileCheck %s
// All else goes, or is strides of the op: a GPU takes the module as it is.
// RUN: flash-opt %s -flashattn-to-nvvm="chip=sm_90a raise=true" -o /dev/null
// CHECK: @main
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%arg0, %arg1, %arg2
// CHECK-NOT: flashattn.attention

#map = affine_map<(d0) -> (d0)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
#map3 = affine_map<(d0, d1) -> (d0, 0)>
#map4 = affine_map<(d0, d1) -> (0, d1)>
#map5 = affine_map<(d0, d1) -> (0)>
#map6 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map8 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map9 = affine_map<(d0, d1, d2, d3) -> (0)>
#map10 = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map11 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map12 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
#map13 = affine_map<(d0, d1) -> (d0)>
#map14 = affine_map<(d0, d1, d2, d3) -> (d2, 0)>
module {
  func.func @main(%arg0: tensor<2x8x256x64xf32>, %arg1: tensor<2x2x256x64xf32>, %arg2: tensor<2x2x256x64xf32>) -> tensor<2x8x256x64xf32> {
    %c0 = arith.constant 0 : index
    %c64_i64 = arith.constant 64 : i64
    %c256_i64 = arith.constant 256 : i64
    %c2_i64 = arith.constant 2 : i64
    %c0_i64 = arith.constant 0 : i64
    %true = arith.constant true
    %c1 = arith.constant 1 : index
    %cst = arith.constant 0.000000e+00 : f32
    %cst_0 = arith.constant 0xFF800000 : f32
    %cst_1 = arith.constant dense<true> : tensor<1xi1>
    %cst_2 = arith.constant dense<4> : tensor<1xi64>
    %cst_3 = arith.constant dense<false> : tensor<1xi1>
    %cst_4 = arith.constant dense<0.000000e+00> : tensor<256x256xf32>
    %cst_5 = arith.constant dense<0.000000e+00> : tensor<1xf32>
    %cst_6 = arith.constant dense<0xFF800000> : tensor<1xf32>
    %cst_7 = arith.constant dense<0> : tensor<1xi64>
    %cst_8 = arith.constant dense<1.000000e+00> : tensor<1xf32>
    %cst_9 = arith.constant dense<1> : tensor<1xi64>
    %cst_10 = arith.constant dense<6.400000e+01> : tensor<1xf32>
    %cst_11 = arith.constant dense<2> : tensor<1xi64>
    %cst_12 = arith.constant dense<256> : tensor<1xi64>
    %cst_13 = arith.constant dense<64> : tensor<1xi64>
    %0 = tensor.empty() : tensor<1xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%cst_10 : tensor<1xf32>) outs(%0 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %58 = math.sqrt %in : f32
      linalg.yield %58 : f32
    } -> tensor<1xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%cst_8, %1 : tensor<1xf32>, tensor<1xf32>) outs(%0 : tensor<1xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.divf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<1xf32>
    %3 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%2 : tensor<1xf32>) outs(%0 : tensor<1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %58 = math.sqrt %in : f32
      linalg.yield %58 : f32
    } -> tensor<1xf32>
    %4 = tensor.empty() : tensor<256xi64>
    %5 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel"]} outs(%4 : tensor<256xi64>) {
    ^bb0(%out: i64):
      %58 = linalg.index 0 : index
      %59 = arith.index_cast %58 : index to i64
      linalg.yield %59 : i64
    } -> tensor<256xi64>
    %expanded = tensor.expand_shape %5 [[0, 1]] output_shape [256, 1] : tensor<256xi64> into tensor<256x1xi64>
    %expanded_14 = tensor.expand_shape %5 [[0, 1]] output_shape [1, 256] : tensor<256xi64> into tensor<1x256xi64>
    %6 = tensor.empty() : tensor<256x1xi64>
    %7 = linalg.generic {indexing_maps = [#map1, #map2, #map1], iterator_types = ["parallel", "parallel"]} ins(%expanded, %cst_7 : tensor<256x1xi64>, tensor<1xi64>) outs(%6 : tensor<256x1xi64>) {
    ^bb0(%in: i64, %in_33: i64, %out: i64):
      %58 = arith.addi %in, %in_33 : i64
      linalg.yield %58 : i64
    } -> tensor<256x1xi64>
    %8 = tensor.empty() : tensor<256x256xi1>
    %9 = linalg.generic {indexing_maps = [#map3, #map4, #map1], iterator_types = ["parallel", "parallel"]} ins(%7, %expanded_14 : tensor<256x1xi64>, tensor<1x256xi64>) outs(%8 : tensor<256x256xi1>) {
    ^bb0(%in: i64, %in_33: i64, %out: i1):
      %58 = arith.cmpi slt, %in, %in_33 : i64
      linalg.yield %58 : i1
    } -> tensor<256x256xi1>
    %10 = tensor.empty() : tensor<256x256xf32>
    %11 = linalg.generic {indexing_maps = [#map1, #map5, #map5, #map1], iterator_types = ["parallel", "parallel"]} ins(%9, %cst_6, %cst_5 : tensor<256x256xi1>, tensor<1xf32>, tensor<1xf32>) outs(%10 : tensor<256x256xf32>) {
    ^bb0(%in: i1, %in_33: f32, %in_34: f32, %out: f32):
      %58 = arith.select %in, %in_33, %in_34 : f32
      linalg.yield %58 : f32
    } -> tensor<256x256xf32>
    %12 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel", "parallel"]} ins(%cst_4, %11 : tensor<256x256xf32>, tensor<256x256xf32>) outs(%10 : tensor<256x256xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.addf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<256x256xf32>
    %13 = tensor.empty() : tensor<1xi1>
    %14 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%cst_3 : tensor<1xi1>) outs(%13 : tensor<1xi1>) {
    ^bb0(%in: i1, %out: i1):
      %58 = arith.xori %in, %true : i1
      linalg.yield %58 : i1
    } -> tensor<1xi1>
    %15 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%14, %cst_1 : tensor<1xi1>, tensor<1xi1>) outs(%13 : tensor<1xi1>) {
    ^bb0(%in: i1, %in_33: i1, %out: i1):
      %58 = arith.andi %in, %in_33 : i1
      linalg.yield %58 : i1
    } -> tensor<1xi1>
    %16 = tensor.empty() : tensor<1xi64>
    %17 = linalg.generic {indexing_maps = [#map, #map, #map, #map], iterator_types = ["parallel"]} ins(%15, %cst_2, %cst_9 : tensor<1xi1>, tensor<1xi64>, tensor<1xi64>) outs(%16 : tensor<1xi64>) {
    ^bb0(%in: i1, %in_33: i64, %in_34: i64, %out: i64):
      %58 = arith.select %in, %in_33, %in_34 : i64
      linalg.yield %58 : i64
    } -> tensor<1xi64>
    %concat = tensor.concat dim(0) %cst_11, %cst_11, %17, %cst_12, %cst_13 : (tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<5xi64>
    %extracted_slice = tensor.extract_slice %concat[0] [1] [1] : tensor<5xi64> to tensor<1xi64>
    %extracted = tensor.extract %extracted_slice[%c0] : tensor<1xi64>
    %18 = arith.cmpi sle, %extracted, %c2_i64 : i64
    cf.assert %18, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    %extracted_slice_15 = tensor.extract_slice %concat[1] [1] [1] : tensor<5xi64> to tensor<1xi64>
    %extracted_16 = tensor.extract %extracted_slice_15[%c0] : tensor<1xi64>
    %19 = arith.cmpi sle, %extracted_16, %c2_i64 : i64
    cf.assert %19, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    %extracted_slice_17 = tensor.extract_slice %concat[2] [1] [1] : tensor<5xi64> to tensor<1xi64>
    %extracted_18 = tensor.extract %extracted_slice_17[%c0] : tensor<1xi64>
    %extracted_slice_19 = tensor.extract_slice %concat[3] [1] [1] : tensor<5xi64> to tensor<1xi64>
    %extracted_20 = tensor.extract %extracted_slice_19[%c0] : tensor<1xi64>
    %20 = arith.cmpi sle, %extracted_20, %c256_i64 : i64
    cf.assert %20, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    %extracted_slice_21 = tensor.extract_slice %concat[4] [1] [1] : tensor<5xi64> to tensor<1xi64>
    %extracted_22 = tensor.extract %extracted_slice_21[%c0] : tensor<1xi64>
    %21 = arith.cmpi sle, %extracted_22, %c64_i64 : i64
    cf.assert %21, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    %22 = arith.cmpi slt, %extracted_18, %c0_i64 : i64
    %23 = arith.index_cast %extracted_18 : i64 to index
    %24 = arith.select %22, %c1, %23 : index
    %25 = tensor.empty(%24) : tensor<2x2x?x256x64xf32>
    %26 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<2x2x256x64xf32>) outs(%25 : tensor<2x2x?x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x?x256x64xf32>
    cf.assert %18, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    cf.assert %19, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    cf.assert %20, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    cf.assert %21, "onnx.Expand input has a dim that is not statically 1; expected this dim >= dim provided shape."
    %27 = linalg.generic {indexing_maps = [#map6, #map7], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<2x2x256x64xf32>) outs(%25 : tensor<2x2x?x256x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<2x2x?x256x64xf32>
    %collapsed = tensor.collapse_shape %26 [[0], [1, 2], [3], [4]] : tensor<2x2x?x256x64xf32> into tensor<2x?x256x64xf32>
    %cast = tensor.cast %collapsed : tensor<2x?x256x64xf32> to tensor<2x8x256x64xf32>
    %collapsed_23 = tensor.collapse_shape %27 [[0], [1, 2], [3], [4]] : tensor<2x2x?x256x64xf32> into tensor<2x?x256x64xf32>
    %cast_24 = tensor.cast %collapsed_23 : tensor<2x?x256x64xf32> to tensor<2x8x256x64xf32>
    %28 = tensor.empty() : tensor<2x8x64x256xf32>
    %transposed = linalg.transpose ins(%cast : tensor<2x8x256x64xf32>) outs(%28 : tensor<2x8x64x256xf32>) permutation = [0, 1, 3, 2] 
    %29 = tensor.empty() : tensor<2x8x256x64xf32>
    %30 = linalg.generic {indexing_maps = [#map8, #map9, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0, %3 : tensor<2x8x256x64xf32>, tensor<1xf32>) outs(%29 : tensor<2x8x256x64xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.mulf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x64xf32>
    %31 = linalg.generic {indexing_maps = [#map8, #map9, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%transposed, %3 : tensor<2x8x64x256xf32>, tensor<1xf32>) outs(%28 : tensor<2x8x64x256xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.mulf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x64x256xf32>
    %collapsed_25 = tensor.collapse_shape %30 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %collapsed_26 = tensor.collapse_shape %31 [[0, 1], [2], [3]] : tensor<2x8x64x256xf32> into tensor<16x64x256xf32>
    %32 = tensor.empty() : tensor<16x256x256xf32>
    %33 = linalg.fill ins(%cst : f32) outs(%32 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %34 = linalg.batch_matmul ins(%collapsed_25, %collapsed_26 : tensor<16x256x64xf32>, tensor<16x64x256xf32>) outs(%33 : tensor<16x256x256xf32>) -> tensor<16x256x256xf32>
    %expanded_27 = tensor.expand_shape %34 [[0, 1], [2], [3]] output_shape [2, 8, 256, 256] : tensor<16x256x256xf32> into tensor<2x8x256x256xf32>
    %35 = tensor.empty() : tensor<2x8x256x256xf32>
    %36 = linalg.generic {indexing_maps = [#map8, #map10, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded_27, %12 : tensor<2x8x256x256xf32>, tensor<256x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.addf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x256xf32>
    %37 = tensor.empty() : tensor<2x8x256xi64>
    %38 = linalg.fill ins(%c0_i64 : i64) outs(%37 : tensor<2x8x256xi64>) -> tensor<2x8x256xi64>
    %39 = tensor.empty() : tensor<2x8x256xf32>
    %40 = linalg.fill ins(%cst_0 : f32) outs(%39 : tensor<2x8x256xf32>) -> tensor<2x8x256xf32>
    %41:2 = linalg.generic {indexing_maps = [#map8, #map11, #map11], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%36 : tensor<2x8x256x256xf32>) outs(%40, %38 : tensor<2x8x256xf32>, tensor<2x8x256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_33: i64):
      %58 = linalg.index 3 : index
      %59 = arith.index_cast %58 : index to i64
      %60 = arith.maximumf %in, %out : f32
      %61 = arith.cmpf ogt, %in, %out : f32
      %62 = arith.select %61, %59, %out_33 : i64
      linalg.yield %60, %62 : f32, i64
    } -> (tensor<2x8x256xf32>, tensor<2x8x256xi64>)
    %expanded_28 = tensor.expand_shape %41#0 [[0], [1], [2, 3]] output_shape [2, 8, 256, 1] : tensor<2x8x256xf32> into tensor<2x8x256x1xf32>
    %42 = linalg.generic {indexing_maps = [#map8, #map12, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%36, %expanded_28 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.subf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x256xf32>
    %43 = linalg.generic {indexing_maps = [#map8, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%42 : tensor<2x8x256x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %out: f32):
      %58 = math.exp %in : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x256xf32>
    %44 = tensor.empty() : tensor<2x8x256x1xf32>
    %45 = linalg.fill ins(%cst : f32) outs(%44 : tensor<2x8x256x1xf32>) -> tensor<2x8x256x1xf32>
    %46 = linalg.generic {indexing_maps = [#map8, #map12], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%43 : tensor<2x8x256x256xf32>) outs(%45 : tensor<2x8x256x1xf32>) {
    ^bb0(%in: f32, %out: f32):
      %58 = arith.addf %in, %out : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x1xf32>
    %47 = linalg.generic {indexing_maps = [#map8, #map12, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%43, %46 : tensor<2x8x256x256xf32>, tensor<2x8x256x1xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: f32, %in_33: f32, %out: f32):
      %58 = arith.divf %in, %in_33 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x256xf32>
    %48 = linalg.fill ins(%c0_i64 : i64) outs(%4 : tensor<256xi64>) -> tensor<256xi64>
    %49 = tensor.empty() : tensor<256xf32>
    %50 = linalg.fill ins(%cst_0 : f32) outs(%49 : tensor<256xf32>) -> tensor<256xf32>
    %51:2 = linalg.generic {indexing_maps = [#map1, #map13, #map13], iterator_types = ["parallel", "reduction"]} ins(%12 : tensor<256x256xf32>) outs(%50, %48 : tensor<256xf32>, tensor<256xi64>) {
    ^bb0(%in: f32, %out: f32, %out_33: i64):
      %58 = linalg.index 1 : index
      %59 = arith.index_cast %58 : index to i64
      %60 = arith.maximumf %in, %out : f32
      %61 = arith.cmpf ogt, %in, %out : f32
      %62 = arith.select %61, %59, %out_33 : i64
      linalg.yield %60, %62 : f32, i64
    } -> (tensor<256xf32>, tensor<256xi64>)
    %expanded_29 = tensor.expand_shape %51#0 [[0, 1]] output_shape [256, 1] : tensor<256xf32> into tensor<256x1xf32>
    %52 = tensor.empty() : tensor<256x1xi1>
    %53 = linalg.generic {indexing_maps = [#map1, #map2, #map1], iterator_types = ["parallel", "parallel"]} ins(%expanded_29, %cst_6 : tensor<256x1xf32>, tensor<1xf32>) outs(%52 : tensor<256x1xi1>) {
    ^bb0(%in: f32, %in_33: f32, %out: i1):
      %58 = arith.cmpf oeq, %in, %in_33 : f32
      linalg.yield %58 : i1
    } -> tensor<256x1xi1>
    %54 = linalg.generic {indexing_maps = [#map14, #map9, #map8, #map8], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%53, %cst_5, %47 : tensor<256x1xi1>, tensor<1xf32>, tensor<2x8x256x256xf32>) outs(%35 : tensor<2x8x256x256xf32>) {
    ^bb0(%in: i1, %in_33: f32, %in_34: f32, %out: f32):
      %58 = arith.select %in, %in_33, %in_34 : f32
      linalg.yield %58 : f32
    } -> tensor<2x8x256x256xf32>
    %collapsed_30 = tensor.collapse_shape %54 [[0, 1], [2], [3]] : tensor<2x8x256x256xf32> into tensor<16x256x256xf32>
    %collapsed_31 = tensor.collapse_shape %cast_24 [[0, 1], [2], [3]] : tensor<2x8x256x64xf32> into tensor<16x256x64xf32>
    %55 = tensor.empty() : tensor<16x256x64xf32>
    %56 = linalg.fill ins(%cst : f32) outs(%55 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %57 = linalg.batch_matmul ins(%collapsed_30, %collapsed_31 : tensor<16x256x256xf32>, tensor<16x256x64xf32>) outs(%56 : tensor<16x256x64xf32>) -> tensor<16x256x64xf32>
    %expanded_32 = tensor.expand_shape %57 [[0, 1], [2], [3]] output_shape [2, 8, 256, 64] : tensor<16x256x64xf32> into tensor<2x8x256x64xf32>
    return %expanded_32 : tensor<2x8x256x64xf32>
  }
}

