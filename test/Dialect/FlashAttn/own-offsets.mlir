// RUN: split-file %s %t
// RUN: flash-opt %t/text.mlir | flash-opt | FileCheck %t/text.mlir
// RUN: flash-opt %t/text.mlir -mlir-print-op-generic | flash-opt | FileCheck %t/text.mlir
// RUN: flash-opt %t/text.mlir --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %t/text.mlir --check-prefix=BUFFERS
// RUN: flash-opt %t/tiled.mlir -transform-interpreter -canonicalize -cse | FileCheck %t/tiled.mlir
// RUN: flash-opt %t/sharded.mlir --pass-pipeline='builtin.module(func.func(sharding-propagation,shard-partition,canonicalize,cse))' | FileCheck %t/sharded.mlir
// RUN: flash-opt %t/invalid.mlir -split-input-file -verify-diagnostics -o /dev/null
// RUN: flash-opt %t/refused.mlir -transform-interpreter -verify-diagnostics=only-expected -o /dev/null

// A3: the offset may be one number for each batch.

//--- text.mlir

// CHECK-LABEL: func @text
// CHECK: flashattn.attention {{.*}} offset(%{{.*}} : tensor<2xi32>) outs(
// CHECK: flashattn.attention_backward {{.*}} offset(%{{.*}} : tensor<2xi32>) outs(
// BUFFERS: flashattn.attention {{.*}} offset(%{{.*}} : memref<2xi32>) outs(
// BUFFERS: flashattn.attention_backward {{.*}} offset(%{{.*}} : memref<2xi32>) outs(
func.func @text(%q: tensor<2x4x8x16xf16>, %offsets: tensor<2xi32>, %lse: tensor<2x4x8xf32>)
    -> (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) {
  %e = tensor.empty() : tensor<2x4x8x16xf16>
  %o = flashattn.attention mask(#flashattn.causal) ins(%q, %q, %q : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>)
      offset(%offsets : tensor<2xi32>) outs(%e : tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  %g:3 = flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %q, %q, %o, %lse, %q : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>,
          tensor<2x4x8x16xf16>, tensor<2x4x8xf32>, tensor<2x4x8x16xf16>)
      offset(%offsets : tensor<2xi32>)
      outs(%e, %e, %e : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>)
      -> tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
  return %o, %g#0 : tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>
}

//--- tiled.mlir

// A tile has the offsets of its batches.

// CHECK-LABEL: func @tiled
// CHECK-SAME: %[[OFFSETS:[a-z0-9]+]]: tensor<2xi32>
// CHECK: scf.forall (%[[B:.*]], %{{.*}}) in
// CHECK: %[[PART:.*]] = tensor.extract_slice %[[OFFSETS]][%[[B]]] [1] [1]
// CHECK: flashattn.attention mask(#flashattn.causal) {{.*}} offset(%[[PART]] : tensor<1xi32>) outs(
module attributes {transform.with_named_sequence} {
  func.func @tiled(%q: tensor<2x8x128x16xf32>, %offsets: tensor<2xi32>) -> tensor<2x8x128x16xf32> {
    %r = flashattn.attention mask(#flashattn.causal)
        ins(%q, %q, %q : tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>)
        offset(%offsets : tensor<2xi32>) outs(%q : tensor<2x8x128x16xf32>) -> tensor<2x8x128x16xf32>
    return %r : tensor<2x8x128x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 0]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

//--- sharded.mlir

// CHECK-LABEL: func @sharded
// CHECK-SAME: %[[OFFSETS:[a-z0-9]+]]: tensor<2xi32>) -> tensor<2x8x32x64xf32>
// CHECK: flashattn.attention {{.*}} offset(%[[OFFSETS]] : tensor<2xi32>)
shard.grid @grid(shape = 2x4)
func.func @sharded(%q: tensor<4x8x32x64xf32>, %init: tensor<4x8x32x64xf32>, %offsets: tensor<4xi32>) -> tensor<4x8x32x64xf32> {
  %s = shard.sharding @grid split_axes = [[0]] : !shard.sharding
  %qs = shard.shard %q to %s annotate_for_users : tensor<4x8x32x64xf32>
  %o = flashattn.attention mask(#flashattn.causal)
      ins(%qs, %qs, %qs : tensor<4x8x32x64xf32>, tensor<4x8x32x64xf32>, tensor<4x8x32x64xf32>)
      offset(%offsets : tensor<4xi32>) outs(%init : tensor<4x8x32x64xf32>) -> tensor<4x8x32x64xf32>
  return %o : tensor<4x8x32x64xf32>
}

//--- invalid.mlir

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<3xi32>) {
  // expected-error@+1 {{expected batch size of 'offsets' to be 2 as in 'q' but got 3}}
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q) offset(%x : tensor<3xi32>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2xi64>) {
  // expected-error@+1 {{expected 'offsets' with element type i32 but got 'i64'}}
  %r = flashattn.attention ins(%q, %q, %q : !q, !q, !q) offset(%x : tensor<2xi64>) outs(%q : !q) -> !q
  return
}

// -----

!q = tensor<2x4x8x16xf32>
func.func @f(%q: !q, %x: tensor<2xi32>, %n: index) {
  // expected-error@+1 {{expected one offset but got an index and 'tensor<2xi32>'}}
  %r = "flashattn.attention"(%q, %q, %q, %n, %x, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0>}>
      : (!q, !q, !q, index, tensor<2xi32>, !q) -> !q
  return
}

//--- refused.mlir

module attributes {transform.with_named_sequence} {
  func.func @queries(%q: tensor<2x8x128x16xf32>, %offsets: tensor<2xi32>) -> tensor<2x8x128x16xf32> {
    // expected-error@below {{expected one offset to tile the queries but got 'tensor<2xi32>'}}
    %r = flashattn.attention mask(#flashattn.causal)
        ins(%q, %q, %q : tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>)
        offset(%offsets : tensor<2xi32>) outs(%q : tensor<2x8x128x16xf32>) -> tensor<2x8x128x16xf32>
    return %r : tensor<2x8x128x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
