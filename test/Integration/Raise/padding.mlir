// BERT's padding: integers that are 0 or 1 become (1 - mask) times the lowest f32, added to the scores. Raised it is a
// bias, made as the module makes it.

// RUN: flash-opt %s -flashattn-raise-attention -canonicalize | FileCheck %s
// CHECK: flashattn.attention scale(1.250000e-01) ins({{.*}}) bias({{.*}} : tensor<1x2x1x24xf32>)

#pairs = affine_map<(b, i, j) -> (b, i, j)>
#keys = affine_map<(b, i, j) -> (b, j)>
#id = affine_map<(b, j) -> (b, j)>

func.func @main(%q: tensor<2x24x16xf32>, %k: tensor<2x16x24xf32>, %v: tensor<2x24x16xf32>, %mask: tensor<2x24xi64>) -> tensor<2x24x16xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant -3.40282347E+38 : f32
  %scale = arith.constant 0.125 : f32
  %eb = tensor.empty() : tensor<2x24xf32>
  %bias = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%mask : tensor<2x24xi64>) outs(%eb : tensor<2x24xf32>) {
  ^bb0(%in: i64, %out: f32):
    %x = arith.sitofp %in : i64 to f32
    %hidden = arith.subf %one, %x : f32
    %r = arith.mulf %hidden, %low : f32
    linalg.yield %r : f32
  } -> tensor<2x24xf32>
  %es = tensor.empty() : tensor<2x24x24xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x24x24xf32>) -> tensor<2x24x24xf32>
  %qk = linalg.batch_matmul ins(%q, %k : tensor<2x24x16xf32>, tensor<2x16x24xf32>) outs(%s0 : tensor<2x24x24xf32>) -> tensor<2x24x24xf32>
  %s = linalg.generic {indexing_maps = [#pairs, #keys, #pairs], iterator_types = ["parallel", "parallel", "parallel"]} ins(%qk, %bias : tensor<2x24x24xf32>, tensor<2x24xf32>) outs(%es : tensor<2x24x24xf32>) {
  ^bb0(%in: f32, %b: f32, %out: f32):
    %x = arith.mulf %in, %scale : f32
    %r = arith.addf %x, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x24x24xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x24x24xf32>) outs(%es : tensor<2x24x24xf32>) -> tensor<2x24x24xf32>
  %eo = tensor.empty() : tensor<2x24x16xf32>
  %o0 = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x24x16xf32>) -> tensor<2x24x16xf32>
  %o = linalg.batch_matmul ins(%p, %v : tensor<2x24x24xf32>, tensor<2x24x16xf32>) outs(%o0 : tensor<2x24x16xf32>) -> tensor<2x24x16xf32>
  return %o : tensor<2x24x16xf32>
}
