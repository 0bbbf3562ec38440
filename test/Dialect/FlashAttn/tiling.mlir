// RUN: flash-opt %s -split-input-file -transform-interpreter -canonicalize -cse | FileCheck %s

// Upstream's transform ops tile the batch, the query heads and the queries.

// Four query heads read each key/value head (rule A4). A tile's first query stands at the tile's
// offset plus nk - nq, the position of query 0 under bottom_right (rule A3).

// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0) -> (d0 * 32)>
// CHECK-DAG: #[[KV:.*]] = affine_map<(d0) -> (d0 floordiv 4)>
// CHECK-DAG: #[[POS:.*]] = affine_map<(d0)[s0] -> (d0 * 32 + s0 - 128)>
// CHECK-LABEL: func @gqa
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: tensor<2x8x128x16xf16>, %[[K:[a-z0-9]+]]: tensor<2x2x?x16xf16>,
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in (2, 8, 4)
// CHECK-DAG: %[[I:.*]] = affine.apply #[[ROW]](%[[T]])
// CHECK-DAG: %[[NK:.*]] = tensor.dim %[[K]], %{{.*}}
// CHECK-DAG: %[[HKV:.*]] = affine.apply #[[KV]](%[[H]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[B]], %[[H]], %[[I]], 0] [1, 1, 32, 16] [1, 1, 1, 1]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[B]], %[[HKV]], 0, 0] [1, 1, %[[NK]], 16] [1, 1, 1, 1]
// CHECK-DAG: %[[P:.*]] = affine.apply #[[POS]](%[[T]])[%[[NK]]]
// CHECK: flashattn.attention mask(#flashattn.causal) ins(%[[QT]], %[[KT]], %{{.*}}) offset(%[[P]]) outs(
// CHECK: tensor.parallel_insert_slice %{{.*}}#0 into %{{.*}}[%[[B]], %[[H]], %[[I]], 0] [1, 1, 32, 16]
// CHECK: tensor.parallel_insert_slice %{{.*}}#1 into %{{.*}}[%[[B]], %[[H]], %[[I]]] [1, 1, 32]
module attributes {transform.with_named_sequence} {
  func.func @gqa(%q: tensor<2x8x128x16xf16>, %k: tensor<2x2x?x16xf16>, %v: tensor<2x2x?x16xf16>,
                 %o: tensor<2x8x128x16xf16>, %lse: tensor<2x8x128xf32>)
      -> (tensor<2x8x128x16xf16>, tensor<2x8x128xf32>) {
    %r:2 = flashattn.attention mask(#flashattn.causal)
        ins(%q, %k, %v : tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>)
        outs(%o, %lse : tensor<2x8x128x16xf16>, tensor<2x8x128xf32>)
        -> tensor<2x8x128x16xf16>, tensor<2x8x128xf32>
    return %r#0, %r#1 : tensor<2x8x128x16xf16>, tensor<2x8x128xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A tile of two whole groups reads two key/value heads; the queries are not tiled, so the mask may
// read nq.

// CHECK-LABEL: func @whole_groups
// CHECK: scf.forall (%[[H:.*]]) in (2)
// CHECK: tensor.extract_slice %{{.*}}[0, %{{.*}}, 0, 0] [1, 8, 32, 16]
// CHECK: tensor.extract_slice %{{.*}}[0, %{{.*}}, 0, 0] [1, 2, 64, 16]
// CHECK: flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (-k + nq >= 0)">)
module attributes {transform.with_named_sequence} {
  func.func @whole_groups(%q: tensor<1x16x32x16xf16>, %k: tensor<1x4x64x16xf16>)
      -> tensor<1x16x32x16xf16> {
    %r = flashattn.attention mask(#flashattn.set<"(p, k)[nq, nk] : (nq - k >= 0)">)
        ins(%q, %k, %k : tensor<1x16x32x16xf16>, tensor<1x4x64x16xf16>, tensor<1x4x64x16xf16>)
        outs(%q : tensor<1x16x32x16xf16>) -> tensor<1x16x32x16xf16>
    return %r : tensor<1x16x32x16xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 8]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Memrefs, layout bshd, an offset of the op's own, a length that the tile does not divide.

// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0) -> (d0 * 48)>
// CHECK-DAG: #[[MIN:.*]] = affine_map<(d0)[s0] -> (d0 * -48 + s0, 48)>
// CHECK-DAG: #[[POS:.*]] = affine_map<(d0)[s0] -> (d0 * 48 + s0)>
// CHECK-LABEL: func @memrefs
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: memref<2x?x4x16xf32>, %[[K:[a-z0-9]+]]: memref<2x?x4x16xf32>, %[[OWN:[a-z0-9]+]]: index,
// CHECK: scf.forall (%[[H:.*]], %[[T:.*]]) in (4, %{{.*}})
// CHECK: %[[I:.*]] = affine.apply #[[ROW]](%[[T]])
// CHECK: %[[N:.*]] = affine.min #[[MIN]](%[[T]])
// CHECK: %[[QT:.*]] = memref.subview %[[Q]][0, %[[I]], %[[H]], 0] [2, %[[N]], 1, 16] [1, 1, 1, 1]
// CHECK: memref.subview %[[K]][0, 0, %[[H]], 0] [2, %{{.*}}, 1, 16] [1, 1, 1, 1]
// CHECK: %[[P:.*]] = affine.apply #[[POS]](%[[T]])[%[[OWN]]]
// CHECK: flashattn.attention align(top_left) layout(bshd) ins(%[[QT]], {{.*}}) offset(%[[P]])
module attributes {transform.with_named_sequence} {
  func.func @memrefs(%q: memref<2x?x4x16xf32>, %k: memref<2x?x4x16xf32>, %own: index,
                     %o: memref<2x?x4x16xf32>) {
    flashattn.attention align(top_left) layout(bshd)
        ins(%q, %k, %k : memref<2x?x4x16xf32>, memref<2x?x4x16xf32>, memref<2x?x4x16xf32>)
        offset(%own) outs(%o : memref<2x?x4x16xf32>)
    return
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 1, 48]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Scales follow the batches and key/value heads of their rows (F1).

// CHECK-LABEL: func @scales
// CHECK-SAME: %[[KS:[a-z0-9]+]]: tensor<2x2x1x1xf32>, %[[VS:[a-z0-9]+]]: tensor<1x2x64x2xf32>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]]) in (2, 8)
// CHECK: %[[HKV:.*]] = affine.apply
// CHECK: %[[KST:.*]] = tensor.extract_slice %[[KS]][%[[B]], %[[HKV]], 0, 0] [1, 1, 1, 1]
// CHECK: %[[VST:.*]] = tensor.extract_slice %[[VS]][0, %[[HKV]], 0, 0] [1, 1, 64, 2]
// CHECK: flashattn.attention {{.*}} k_scale(%[[KST]] : tensor<1x1x1x1xf32>) v_scale(%[[VST]] : tensor<1x1x64x2xf32>)
module attributes {transform.with_named_sequence} {
  func.func @scales(%q: tensor<2x8x32x32xf16>, %k: tensor<2x2x64x32xf8E4M3FN>, %v: tensor<2x2x64x32xi8>,
                    %ks: tensor<2x2x1x1xf32>, %vs: tensor<1x2x64x2xf32>) -> tensor<2x8x32x32xf16> {
    %r = flashattn.attention
        ins(%q, %k, %v : tensor<2x8x32x32xf16>, tensor<2x2x64x32xf8E4M3FN>, tensor<2x2x64x32xi8>)
        k_scale(%ks : tensor<2x2x1x1xf32>) v_scale(%vs : tensor<1x2x64x2xf32>)
        outs(%q : tensor<2x8x32x32xf16>) -> tensor<2x8x32x32xf16>
    return %r : tensor<2x8x32x32xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
