// RUN: flash-opt %s -split-input-file -transform-interpreter -canonicalize -cse -verify-diagnostics=only-expected | FileCheck %s

// Upstream's transform ops tile the batch and the key/value heads; queries and keys are summed inside the op.

// Four query heads read each key/value head (rule A4) and come with it. Operands of the scores are tiled with them,
// but for dimensions of 1; the score modification goes by the batches and query heads of the whole op.

// CHECK-DAG: #[[HEADS:.*]] = affine_map<(d0) -> (d0 * 4)>
// CHECK-LABEL: func @gqa
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: tensor<2x8x128x16xf16>, %[[K:[a-z0-9]+]]: tensor<2x2x?x16xf16>, %[[LSE:[a-z0-9]+]]: tensor<2x8x128xf32>, %[[BIAS:[a-z0-9]+]]: tensor<2x8x1x?xf32>, %[[ATTN_MASK:[a-z0-9]+]]: tensor<1x1x1x?xi1>, %[[SINKS:[a-z0-9]+]]: tensor<8xf32>, %[[LEN:[a-z0-9]+]]: tensor<2xi32>)
// CHECK: scf.forall (%[[B:.*]], %[[G:.*]]) in (2, 2) shared_outs(
// CHECK-DAG: %[[H:.*]] = affine.apply #[[HEADS]](%[[G]])
// CHECK-DAG: %[[QT:.*]] = tensor.extract_slice %[[Q]][%[[B]], %[[H]], 0, 0] [1, 4, 128, 16] [1, 1, 1, 1]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[B]], %[[G]], 0, 0] [1, 1, %{{.*}}, 16] [1, 1, 1, 1]
// CHECK-DAG: %[[LT:.*]] = tensor.extract_slice %[[LSE]][%[[B]], %[[H]], 0] [1, 4, 128] [1, 1, 1]
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[BIAS]][%[[B]], %[[H]], 0, 0] [1, 4, 1, %{{.*}}] [1, 1, 1, 1]
// CHECK-DAG: %[[ST:.*]] = tensor.extract_slice %[[SINKS]][%[[H]]] [4] [1]
// CHECK-DAG: %[[NT:.*]] = tensor.extract_slice %[[LEN]][%[[B]]] [1] [1]
// CHECK: %[[R:.*]]:4 = flashattn.attention_backward mask(#flashattn.causal) softcap(3.000000e+01) deterministic ins(%[[QT]], %[[KT]], %[[KT]], %[[QT]], %[[LT]], %[[QT]] : {{.*}}) d_lse(%[[LT]] : tensor<1x4x128xf32>)
// CHECK-SAME: bias(%[[BT]] : tensor<1x4x1x?xf32>) attn_mask(%{{.*}} : tensor<1x1x1x?xi1>) sink_logits(%[[ST]] : tensor<4xf32>) kv_len(%[[NT]] : tensor<1xi32>) score_mod {
// CHECK: ^bb0(%{{.*}}: f32, %[[OWNB:[a-z0-9]+]]: index, %[[OWNH:[a-z0-9]+]]: index,
// CHECK-DAG: arith.addi %[[OWNB]], %[[B]] : index
// CHECK-DAG: arith.addi %[[OWNH]], %[[H]] : index
// CHECK: d_bias(%{{.*}} : tensor<1x4x1x?xf32>)
// CHECK: tensor.parallel_insert_slice %[[R]]#0 into %{{.*}}[%[[B]], %[[H]], 0, 0] [1, 4, 128, 16]
// CHECK: tensor.parallel_insert_slice %[[R]]#1 into %{{.*}}[%[[B]], %[[G]], 0, 0] [1, 1, %{{.*}}, 16]
// CHECK: tensor.parallel_insert_slice %[[R]]#2 into %{{.*}}[%[[B]], %[[G]], 0, 0] [1, 1, %{{.*}}, 16]
// CHECK: tensor.parallel_insert_slice %[[R]]#3 into %{{.*}}[%[[B]], %[[H]], 0, 0] [1, 4, 1, %{{.*}}]
module attributes {transform.with_named_sequence} {
  func.func @gqa(%q: tensor<2x8x128x16xf16>, %k: tensor<2x2x?x16xf16>, %lse: tensor<2x8x128xf32>,
                 %bias: tensor<2x8x1x?xf32>, %attn_mask: tensor<1x1x1x?xi1>, %sinks: tensor<8xf32>, %len: tensor<2xi32>)
      -> (tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>, tensor<2x8x1x?xf32>) {
    %r:4 = flashattn.attention_backward mask(#flashattn.causal) softcap(30.0) deterministic
        ins(%q, %k, %k, %q, %lse, %q : tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>,
            tensor<2x8x128x16xf16>, tensor<2x8x128xf32>, tensor<2x8x128x16xf16>)
        d_lse(%lse : tensor<2x8x128xf32>) bias(%bias : tensor<2x8x1x?xf32>) attn_mask(%attn_mask : tensor<1x1x1x?xi1>)
        sink_logits(%sinks : tensor<8xf32>) kv_len(%len : tensor<2xi32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
          %n = arith.addi %b, %h : index
          %n32 = arith.index_cast %n : index to i32
          %x = arith.sitofp %n32 : i32 to f32
          %y = arith.mulf %s, %x : f32
          flashattn.yield %y : f32
        }
        outs(%q, %k, %k : tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>)
        d_bias(%bias : tensor<2x8x1x?xf32>)
        -> tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>, tensor<2x8x1x?xf32>
    return %r#0, %r#1, %r#2, %r#3 : tensor<2x8x128x16xf16>, tensor<2x2x?x16xf16>, tensor<2x2x?x16xf16>, tensor<2x8x1x?xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Memrefs, layout bshd, a number of heads that the tile does not divide, a d_sink_logits of the heads of a tile.

// CHECK-DAG: #[[FIRST:.*]] = affine_map<(d0) -> (d0 * 2)>
// CHECK-DAG: #[[MIN:.*]] = affine_map<(d0) -> (d0 * -2 + 3, 2)>
// CHECK-DAG: #[[HEADS:.*]] = affine_map<(d0) -> (d0 * 4)>
// CHECK-LABEL: func @memrefs
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: memref<1x?x6x16xf32>, %[[K:[a-z0-9]+]]: memref<1x?x3x16xf32>,
// CHECK-SAME: %[[DS:[a-z0-9]+]]: memref<6xf32>)
// CHECK: scf.forall (%[[T:.*]]) in (2)
// CHECK-DAG: %[[G:.*]] = affine.apply #[[FIRST]](%[[T]])
// CHECK-DAG: %[[N:.*]] = affine.min #[[MIN]](%[[T]])
// CHECK-DAG: %[[H:.*]] = affine.apply #[[HEADS]](%[[T]])
// CHECK-DAG: %[[NH:.*]] = affine.apply #[[FIRST]](%[[N]])
// CHECK-DAG: %[[QT:.*]] = memref.subview %[[Q]][0, 0, %[[H]], 0] [1, %{{.*}}, %[[NH]], 16] [1, 1, 1, 1]
// CHECK-DAG: %[[KT:.*]] = memref.subview %[[K]][0, 0, %[[G]], 0] [1, %{{.*}}, %[[N]], 16] [1, 1, 1, 1]
// CHECK-DAG: %[[DST:.*]] = memref.subview %[[DS]][%[[H]]] [%[[NH]]] [1]
// CHECK: flashattn.attention_backward align(top_left) layout(bshd) ins(%[[QT]], %[[KT]], %[[KT]], %[[QT]], {{.*}}) {{.*}} offset(%{{.*}}) outs({{.*}}) d_sink_logits(%[[DST]] :
module attributes {transform.with_named_sequence} {
  func.func @memrefs(%q: memref<1x?x6x16xf32>, %k: memref<1x?x3x16xf32>, %lse: memref<1x6x?xf32>, %sinks: memref<6xf32>,
                     %p: index, %dq: memref<1x?x6x16xf32>, %dk: memref<1x?x3x16xf32>, %dv: memref<1x?x3x16xf32>,
                     %ds: memref<6xf32>) {
    flashattn.attention_backward align(top_left) layout(bshd)
        ins(%q, %k, %k, %q, %lse, %q : memref<1x?x6x16xf32>, memref<1x?x3x16xf32>, memref<1x?x3x16xf32>,
            memref<1x?x6x16xf32>, memref<1x6x?xf32>, memref<1x?x6x16xf32>)
        sink_logits(%sinks : memref<6xf32>) offset(%p)
        outs(%dq, %dk, %dv : memref<1x?x6x16xf32>, memref<1x?x3x16xf32>, memref<1x?x3x16xf32>)
        d_sink_logits(%ds : memref<6xf32>)
    return
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 2]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Nothing but the batches are tiled, of which a bias is not the same: its gradient may be a sum over heads, of which
// there are as many as there are.

// CHECK-LABEL: func @other_dimension
// CHECK: scf.forall (%[[B:.*]]) in (4)
// CHECK: flashattn.attention_backward {{.*}} d_bias(%{{.*}} : tensor<1x1x8x8xf32>)
module attributes {transform.with_named_sequence} {
  func.func @other_dimension(%q: tensor<4x?x8x16xf32>, %lse: tensor<4x?x8xf32>, %bias: tensor<4x1x8x8xf32>)
      -> tensor<4x1x8x8xf32> {
    %r:4 = flashattn.attention_backward
        ins(%q, %q, %q, %q, %lse, %q : tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>,
            tensor<4x?x8x16xf32>, tensor<4x?x8xf32>, tensor<4x?x8x16xf32>)
        bias(%bias : tensor<4x1x8x8xf32>)
        outs(%q, %q, %q : tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>)
        d_bias(%bias : tensor<4x1x8x8xf32>)
        -> tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>, tensor<4x?x8x16xf32>, tensor<4x1x8x8xf32>
    return %r#3 : tensor<4x1x8x8xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Numbers of heads that are known at run time alone.

// CHECK-DAG: #[[HEADS:.*]] = affine_map<(d0)[s0, s1] -> (d0 * (s0 floordiv s1))>
// CHECK-LABEL: func @unknown_groups
// CHECK: scf.forall (%[[G:.*]]) in (%[[HKV:.*]]) shared
// CHECK: %[[H:.*]] = affine.apply #[[HEADS]](%[[G]])[%{{.*}}, %[[HKV]]]
// CHECK: tensor.extract_slice %{{.*}}[0, %[[H]], 0, 0] [1, %{{.*}}, 32, 16]
module attributes {transform.with_named_sequence} {
  func.func @unknown_groups(%q: tensor<1x?x32x16xf16>, %k: tensor<1x?x64x16xf16>, %lse: tensor<1x?x32xf32>)
      -> tensor<1x?x64x16xf16> {
    %r:3 = flashattn.attention_backward
        ins(%q, %k, %k, %q, %lse, %q : tensor<1x?x32x16xf16>, tensor<1x?x64x16xf16>, tensor<1x?x64x16xf16>,
            tensor<1x?x32x16xf16>, tensor<1x?x32xf32>, tensor<1x?x32x16xf16>)
        outs(%q, %k, %k : tensor<1x?x32x16xf16>, tensor<1x?x64x16xf16>, tensor<1x?x64x16xf16>)
        -> tensor<1x?x32x16xf16>, tensor<1x?x64x16xf16>, tensor<1x?x64x16xf16>
    return %r#1 : tensor<1x?x64x16xf16>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Sums over batches or heads are in no tile of them (rules B3 and B5).

module attributes {transform.with_named_sequence} {
  func.func @sum_over_batches(%q: tensor<2x4x8x16xf32>, %lse: tensor<2x4x8xf32>, %x: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {
    // expected-error@below {{'flashattn.attention_backward' op expected no gradient that sums over batches, along which the op is tiled, but got 'd_bias'}}
    %r:4 = flashattn.attention_backward
        ins(%q, %q, %q, %q, %lse, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>,
            tensor<2x4x8x16xf32>, tensor<2x4x8xf32>, tensor<2x4x8x16xf32>)
        bias(%x : tensor<1x4x8x8xf32>)
        outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
        d_bias(%x : tensor<1x4x8x8xf32>)
        -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<1x4x8x8xf32>
    return %r#3 : tensor<1x4x8x8xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

module attributes {transform.with_named_sequence} {
  func.func @sum_over_heads(%q: tensor<2x4x8x16xf32>, %lse: tensor<2x4x8xf32>, %x: tensor<2x1x8x8xf32>) -> tensor<2x1x8x8xf32> {
    // expected-error@below {{'flashattn.attention_backward' op expected no gradient that sums over heads, along which the op is tiled, but got 'd_bias'}}
    %r:4 = flashattn.attention_backward
        ins(%q, %q, %q, %q, %lse, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>,
            tensor<2x4x8x16xf32>, tensor<2x4x8xf32>, tensor<2x4x8x16xf32>)
        bias(%x : tensor<2x1x8x8xf32>)
        outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
        d_bias(%x : tensor<2x1x8x8xf32>)
        -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x1x8x8xf32>
    return %r#3 : tensor<2x1x8x8xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

module attributes {transform.with_named_sequence} {
  func.func @sinks_sum_over_batches(%q: tensor<2x4x8x16xf32>, %lse: tensor<2x4x8xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@below {{'flashattn.attention_backward' op expected no gradient that sums over batches, along which the op is tiled, but got 'd_sink_logits'}}
    %r:4 = flashattn.attention_backward
        ins(%q, %q, %q, %q, %lse, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>,
            tensor<2x4x8x16xf32>, tensor<2x4x8xf32>, tensor<2x4x8x16xf32>)
        sink_logits(%x : tensor<4xf32>)
        outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
        d_sink_logits(%x : tensor<4xf32>)
        -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<4xf32>
    return %r#3 : tensor<4xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention_backward"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
