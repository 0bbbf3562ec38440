// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s --mlir-print-op-generic | flash-opt | FileCheck %s

// CHECK-LABEL: func @plain
// CHECK: flashattn.attention ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>) outs(%{{.*}} : tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
func.func @plain(%q: tensor<1x2x8x16xf32>, %k: tensor<1x2x8x16xf32>, %v: tensor<1x2x8x4xf32>,
                 %o: tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32> {
  %r = flashattn.attention
      ins(%q, %k, %v : tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x4xf32>)
      outs(%o : tensor<1x2x8x4xf32>) -> tensor<1x2x8x4xf32>
  return %r : tensor<1x2x8x4xf32>
}
