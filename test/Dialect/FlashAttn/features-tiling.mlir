// RUN: flash-opt %s -split-input-file -transform-interpreter -canonicalize -cse -verify-diagnostics=only-expected | FileCheck %s

// Operands of the scores are tiled with them, but for dimensions of 1; the score modification
// goes by the batches and heads of the whole op.

// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0) -> (d0 * 32)>
// CHECK-LABEL: func @all
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: tensor<2x1x128x256xf16>, %[[ATTN_MASK:[a-z0-9]+]]: tensor<1x8x1x256xi1>, %[[SINKS:[a-z0-9]+]]: tensor<8xf32>, %[[LEN:[a-z0-9]+]]: tensor<2xi32>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %[[T:.*]]) in (2, 8, 4)
// CHECK-DAG: %[[I:.*]] = affine.apply #[[ROW]](%[[T]])
// CHECK-DAG: %[[BT:.*]] = tensor.extract_slice %[[BIAS]][%[[B]], 0, %[[I]], 0] [1, 1, 32, 256] [1, 1, 1, 1]
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[ATTN_MASK]][0, %[[H]], 0, 0] [1, 1, 1, 256] [1, 1, 1, 1]
// CHECK-DAG: %[[LT:.*]] = tensor.extract_slice %[[LEN]][%[[B]]] [1] [1]
// CHECK-DAG: %[[ST:.*]] = tensor.extract_slice %[[SINKS]][%[[H]]] [1] [1]
// CHECK: flashattn.attention mask(#flashattn.causal) softcap(3.000000e+01) align(top_left)
// CHECK-SAME: bias(%[[BT]] : tensor<1x1x32x256xf16>) attn_mask(%[[KT]] : tensor<1x1x1x256xi1>)
// CHECK-SAME: sink_logits(%[[ST]] : tensor<1xf32>) kv_len(%[[LT]] : tensor<1xi32>) offset(%[[I]]) score_mod {
// CHECK: ^bb0(%{{.*}}: f32, %[[OWNB:[a-z0-9]+]]: index, %[[OWNH:[a-z0-9]+]]: index,
// CHECK-DAG: arith.addi %[[OWNB]], %[[B]] : index
// CHECK-DAG: arith.addi %[[OWNH]], %[[H]] : index
module attributes {transform.with_named_sequence} {
  func.func @all(%q: tensor<2x8x128x16xf32>, %k: tensor<2x4x256x16xf32>,
                 %bias: tensor<2x1x128x256xf16>, %attn_mask: tensor<1x8x1x256xi1>,
                 %sinks: tensor<8xf32>, %len: tensor<2xi32>) -> tensor<2x8x128x16xf32> {
    %r = flashattn.attention mask(#flashattn.causal) softcap(30.0) align(top_left)
        ins(%q, %k, %k : tensor<2x8x128x16xf32>, tensor<2x4x256x16xf32>, tensor<2x4x256x16xf32>)
        bias(%bias : tensor<2x1x128x256xf16>) attn_mask(%attn_mask : tensor<1x8x1x256xi1>)
        sink_logits(%sinks : tensor<8xf32>) kv_len(%len : tensor<2xi32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
          %n = arith.addi %b, %h : index
          %n32 = arith.index_cast %n : index to i32
          %x = arith.sitofp %n32 : i32 to f32
          %y = arith.mulf %s, %x : f32
          flashattn.yield %y : f32
        }
        outs(%q : tensor<2x8x128x16xf32>) -> tensor<2x8x128x16xf32>
    return %r : tensor<2x8x128x16xf32>
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

// Each batch has a position of its own for query 0 (rule A3), which one tile of queries can keep.

// CHECK-LABEL: func @own_positions
// CHECK: flashattn.attention mask(#flashattn.causal) ins({{.*}}) kv_len(%{{.*}} : tensor<1xi32>) outs(
module attributes {transform.with_named_sequence} {
  func.func @own_positions(%q: tensor<2x2x32x16xf32>, %len: tensor<2xi32>)
      -> tensor<2x2x32x16xf32> {
    %r = flashattn.attention mask(#flashattn.causal)
        ins(%q, %q, %q : tensor<2x2x32x16xf32>, tensor<2x2x32x16xf32>, tensor<2x2x32x16xf32>)
        kv_len(%len : tensor<2xi32>) outs(%q : tensor<2x2x32x16xf32>) -> tensor<2x2x32x16xf32>
    return %r : tensor<2x2x32x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

module attributes {transform.with_named_sequence} {
  func.func @no_one_offset(%q: tensor<2x2x32x16xf32>, %len: tensor<2xi32>)
      -> tensor<2x2x32x16xf32> {
    // expected-error@below {{expected an offset or align top_left to tile the queries of batches with their own lengths but got align bottom_right}}
    %r = flashattn.attention mask(#flashattn.causal)
        ins(%q, %q, %q : tensor<2x2x32x16xf32>, tensor<2x2x32x16xf32>, tensor<2x2x32x16xf32>)
        kv_len(%len : tensor<2xi32>) outs(%q : tensor<2x2x32x16xf32>) -> tensor<2x2x32x16xf32>
    return %r : tensor<2x2x32x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
