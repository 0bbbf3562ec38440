// RUN: split-file %s %t
// RUN: flash-opt %t/ops.mlir | flash-opt | FileCheck %t/ops.mlir --check-prefix=PARSE
// RUN: flash-opt %t/ops.mlir --mlir-print-op-generic | flash-opt | FileCheck %t/ops.mlir --check-prefix=PARSE
// RUN: flash-opt %t/ops.mlir -flashattn-select-schedule=chip=cpu -flashattn-tile -cse | FileCheck %t/ops.mlir --check-prefix=TILE
// RUN: flash-opt %t/tensors.mlir --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   | FileCheck %t/tensors.mlir --check-prefix=BUFFERS
// RUN: flash-opt %t/tensors.mlir -transform-interpreter -canonicalize -cse | FileCheck %t/tensors.mlir --check-prefix=SLICES

// Rules F1 and F2: keys and values of 8 bits, and their scales.

//--- ops.mlir
// Rows and blocks have scales of their own, which are applied where tiles are loaded: those of all rows of a batch from
// its part of the operand, which is that of the load's row map with pages.
// PARSE-LABEL: func @rows
// PARSE: ins({{.*}} : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
// PARSE-SAME: k_scale(%{{.*}} : memref<2x2x?x1xf32>) v_scale(%{{.*}} : memref<2x1x1x4xf32>) offset(%{{.*}}) outs
// TILE-LABEL: func @rows
// TILE-SAME: %[[KS:[a-z0-9]+]]: memref<2x2x?x1xf32>, %[[VS:[a-z0-9]+]]: memref<2x1x1x4xf32>
// TILE: flashattn.program (%[[B:.*]], %{{.*}}, %{{.*}}) in
// TILE: flashattn.load_tile {{.*}} dims [2, 3] scales %[[KS]] : memref<2x2x?x1xf32> in_bounds [false, true] : memref<2x2x?x64xf8E4M3FN> -> vector<[[N:[0-9]+]]x64xf32>
// TILE: %[[OF:.*]] = memref.subview %[[VS]][%[[B]], 0, 0, 0] [1, 1, 1, 4] [1, 1, 1, 1]
// TILE: flashattn.load_tile {{.*}} dims [2, 3] scales %[[OF]] : {{.*}} : memref<2x2x?x64xi8> -> vector<[[N]]x64xf32>
func.func @rows(%q: memref<2x4x?x64xf16>, %k: memref<2x2x?x64xf8E4M3FN>, %v: memref<2x2x?x64xi8>, %ks: memref<2x2x?x1xf32>,
                %vs: memref<2x1x1x4xf32>, %p: index, %o: memref<2x4x?x64xf16>) {
  flashattn.attention outs(%o : memref<2x4x?x64xf16>) offset(%p) v_scale(%vs : memref<2x1x1x4xf32>) k_scale(%ks : memref<2x2x?x1xf32>)
      ins(%q, %k, %v : memref<2x4x?x64xf16>, memref<2x2x?x64xf8E4M3FN>, memref<2x2x?x64xi8>)
  return
}

// One scale for all keys is a factor of the scores, and of the output.
// PARSE-LABEL: func @one
// PARSE: k_scale(%{{.*}} : memref<2x2x1x1xf32>) v_scale(%{{.*}} : memref<1x1x1x1xf32>) outs
// TILE-LABEL: func @one
// TILE-SAME: %[[KS:[a-z0-9]+]]: memref<2x2x1x1xf32>, %[[VS:[a-z0-9]+]]: memref<1x1x1x1xf32>
// TILE: %[[KEY:.*]] = memref.load %[[KS]][%{{.*}}, %{{.*}}, %[[ZERO:c0[_0-9]*]], %[[ZERO]]]
// TILE: flashattn.tile_loop
// TILE-NOT: scales
// TILE: %[[PRODUCTS:.*]] = vector.contract
// TILE: %[[FACTOR:.*]] = vector.broadcast %[[KEY]] : f32
// TILE: arith.mulf %[[PRODUCTS]], %[[FACTOR]]
// TILE-NOT: scales
// TILE: memref.load %[[VS]][%[[ZERO]], %[[ZERO]], %[[ZERO]], %[[ZERO]]]
// TILE: arith.mulf
// TILE: flashattn.store_tile
func.func @one(%q: memref<2x4x?x64xf32>, %k: memref<2x2x?x64xf8E5M2>, %v: memref<2x2x?x64xf8E5M2>, %ks: memref<2x2x1x1xf32>,
               %vs: memref<1x1x1x1xf32>, %o: memref<2x4x?x64xf32>) {
  flashattn.attention ins(%q, %k, %v : memref<2x4x?x64xf32>, memref<2x2x?x64xf8E5M2>, memref<2x2x?x64xf8E5M2>)
      k_scale(%ks : memref<2x2x1x1xf32>) v_scale(%vs : memref<1x1x1x1xf32>) outs(%o : memref<2x4x?x64xf32>)
  return
}

// Scales are in the pages of their rows, or those of a sequence.
// PARSE-LABEL: func @pages
// PARSE: page_table(%{{.*}} : memref<2x?xi32>) k_scale(%{{.*}} : memref<?x16x2x1xf32>) v_scale(%{{.*}} : memref<2x1x1x4xf32>) outs
// TILE-LABEL: func @pages
// TILE-SAME: %[[KS:[a-z0-9]+]]: memref<?x16x2x1xf32>, %[[VS:[a-z0-9]+]]: memref<2x1x1x4xf32>
// TILE: flashattn.load_tile {{.*}} dims [1, 3] rows %{{.*}} scales %[[KS]] : memref<?x16x2x1xf32> in_bounds
// TILE: %[[OF:.*]] = memref.subview %[[VS]][%{{.*}}, 0, 0, 0] [1, 1, 1, 4]
// TILE: flashattn.load_tile {{.*}} dims [1, 3] rows %{{.*}} scales %[[OF]]
func.func @pages(%q: memref<2x?x4x64xf32>, %k: memref<?x16x2x64xi8>, %v: memref<?x16x2x64xi8>, %ks: memref<?x16x2x1xf32>,
                 %vs: memref<2x1x1x4xf32>, %n: memref<2xi32>, %t: memref<2x?xi32>, %o: memref<2x?x4x64xf32>) {
  flashattn.attention layout(bshd) ins(%q, %k, %v : memref<2x?x4x64xf32>, memref<?x16x2x64xi8>, memref<?x16x2x64xi8>)
      kv_len(%n : memref<2xi32>) page_table(%t : memref<2x?xi32>) k_scale(%ks : memref<?x16x2x1xf32>)
      v_scale(%vs : memref<2x1x1x4xf32>) outs(%o : memref<2x?x4x64xf32>)
  return
}

//--- tensors.mlir
// Scales are read in place, and sliced with the heads and batches that they do not serve all of.
// BUFFERS-LABEL: func @tiles
// BUFFERS-SAME: %[[ROWS:[a-z0-9]+]]: memref<2x53x2x1xf32>, %[[ONE:[a-z0-9]+]]: memref<2x1x1x2xf32>
// BUFFERS: flashattn.attention {{.*}} k_scale(%[[ROWS]] : memref<2x53x2x1xf32>) v_scale(%[[ONE]] : memref<2x1x1x2xf32>)
// SLICES-LABEL: func @tiles
// SLICES-SAME: %[[ROWS:[a-z0-9]+]]: tensor<2x53x2x1xf32>, %[[ONE:[a-z0-9]+]]: tensor<2x1x1x2xf32>
// SLICES: scf.forall (%[[B:.*]], %[[H:.*]], %{{.*}}) in (2, 2, 3)
// SLICES-DAG: %[[KS:.*]] = tensor.extract_slice %[[ROWS]][%[[B]], 0, %[[H]], 0] [1, 53, 1, 1] [1, 1, 1, 1]
// SLICES-DAG: %[[VS:.*]] = tensor.extract_slice %[[ONE]][%[[B]], 0, 0, 0] [1, 1, 1, 2] [1, 1, 1, 1]
// SLICES: k_scale(%[[KS]] : tensor<1x53x1x1xf32>) v_scale(%[[VS]] : tensor<1x1x1x2xf32>)
module attributes {transform.with_named_sequence} {
  func.func @tiles(%q: tensor<2x37x4x32xf32>, %k: tensor<2x53x2x32xi8>, %v: tensor<2x53x2x32xf8E5M2>, %rows: tensor<2x53x2x1xf32>,
                   %one: tensor<2x1x1x2xf32>) -> tensor<2x37x4x32xf32> {
    %r = flashattn.attention mask(#flashattn.causal) layout(bshd)
        ins(%q, %k, %v : tensor<2x37x4x32xf32>, tensor<2x53x2x32xi8>, tensor<2x53x2x32xf8E5M2>)
        k_scale(%rows : tensor<2x53x2x1xf32>) v_scale(%one : tensor<2x1x1x2xf32>)
        outs(%q : tensor<2x37x4x32xf32>) -> tensor<2x37x4x32xf32>
    return %r : tensor<2x37x4x32xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    // Two query heads share a key head.
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 2, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
