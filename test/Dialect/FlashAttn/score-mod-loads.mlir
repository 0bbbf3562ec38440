// RUN: split-file %s %t
// RUN: flash-opt %t/tensors.mlir | flash-opt | FileCheck %t/tensors.mlir
// RUN: flash-opt %t/tensors.mlir -mlir-print-op-generic | flash-opt | FileCheck %t/tensors.mlir
// RUN: flash-opt %t/tensors.mlir --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %t/tensors.mlir --check-prefix=BUFFERS
// RUN: flash-opt %t/tiled.mlir -transform-interpreter -canonicalize -cse | FileCheck %t/tiled.mlir
// RUN: flash-opt %t/shared.mlir -flashattn-share-kernels | FileCheck %t/shared.mlir
// RUN: flash-opt %t/effects.mlir -canonicalize -cse | FileCheck %t/effects.mlir
// RUN: flash-opt %t/programs.mlir "-flashattn-select-schedule=chip=cpu vector-width=16" -flashattn-tile -canonicalize -cse | FileCheck %t/programs.mlir
// RUN: flash-opt %t/programs.mlir "-flashattn-select-schedule=chip=sm_90a" -flashattn-tile -canonicalize -cse | FileCheck %t/programs.mlir
// RUN: flash-opt %t/programs.mlir "-flashattn-select-schedule=chip=sm_80" -flashattn-tile -canonicalize -cse -flashattn-expand-loops | FileCheck %t/programs.mlir --check-prefix=LOOPS

// A10: a score modification loads elements of tensors and memrefs by batch and head.

//--- tensors.mlir

// Ranks 0 to 2, static and dynamic sizes, elements of several types; an index may be computed, also from another load.

// CHECK-LABEL: func @tensors
// CHECK: tensor.extract %{{.*}}[] : tensor<f32>
// CHECK: tensor.extract %{{.*}}[%{{.*}}] : tensor<4xi32>
// CHECK: tensor.extract %{{.*}}[%{{.*}}, %{{.*}}] : tensor<?x?xbf16>
// BUFFERS-LABEL: func @tensors
// BUFFERS-SAME: %[[ONE:[a-z0-9]+]]: memref<f32>, %[[NUMBERS:[a-z0-9]+]]: memref<4xi32>, %[[TABLE:[a-z0-9]+]]: memref<?x?xbf16>
// BUFFERS-NOT: alloc
// BUFFERS-NOT: copy
// BUFFERS: flashattn.attention {{.*}} score_mod {
// BUFFERS: memref.load %[[ONE]][] : memref<f32>
// BUFFERS: memref.load %[[NUMBERS]][%{{.*}}] : memref<4xi32>
// BUFFERS: memref.load %[[TABLE]][%{{.*}}, %{{.*}}] : memref<?x?xbf16>
func.func @tensors(%q: tensor<2x4x?x16xf16>, %o: tensor<2x4x?x16xf16>, %one: tensor<f32>, %numbers: tensor<4xi32>,
                   %table: tensor<?x?xbf16>) -> tensor<2x4x?x16xf16> {
  %c1 = arith.constant 1 : index
  %r = flashattn.attention ins(%q, %q, %q : tensor<2x4x?x16xf16>, tensor<2x4x?x16xf16>, tensor<2x4x?x16xf16>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        %x = tensor.extract %one[] : tensor<f32>
        %n = tensor.extract %numbers[%h] : tensor<4xi32>
        %row = arith.index_cast %n : i32 to index
        %next = arith.addi %b, %c1 : index
        %t = tensor.extract %table[%row, %next] : tensor<?x?xbf16>
        %f = arith.extf %t : bf16 to f32
        %y = math.fma %s, %x, %f : f32
        flashattn.yield %y : f32
      }
      outs(%o : tensor<2x4x?x16xf16>) -> tensor<2x4x?x16xf16>
  return %r : tensor<2x4x?x16xf16>
}

// The op reads the tensor while it writes its output, so the slice that becomes the output is not the memory read.

// BUFFERS-LABEL: func @of_the_output
// BUFFERS: memref.alloc
// BUFFERS: flashattn.attention
func.func @of_the_output(%q: tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32> {
  %flat = tensor.collapse_shape %q [[0, 1, 2, 3]] : tensor<1x4x4x4xf32> into tensor<64xf32>
  %r = flashattn.attention ins(%q, %q, %q : tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
        %x = tensor.extract %flat[%h] : tensor<64xf32>
        %y = arith.addf %s, %x : f32
        flashattn.yield %y : f32
      }
      outs(%q : tensor<1x4x4x4xf32>) -> tensor<1x4x4x4xf32>
  return %r : tensor<1x4x4x4xf32>
}

//--- tiled.mlir

// A tile reads the elements of the whole op's batches and heads.

// CHECK-LABEL: func @tiled
// CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<2x8xf32>
// CHECK: scf.forall (%[[B:.*]], %[[H:.*]], %{{.*}}) in
// CHECK: score_mod {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %[[OWNB:[a-z0-9]+]]: index, %[[OWNH:[a-z0-9]+]]: index,
// CHECK-DAG: %[[SUMB:.*]] = arith.addi %[[OWNB]], %[[B]] : index
// CHECK-DAG: %[[SUMH:.*]] = arith.addi %[[OWNH]], %[[H]] : index
// CHECK: tensor.extract %[[T]][%[[SUMB]], %[[SUMH]]] : tensor<2x8xf32>
module attributes {transform.with_named_sequence} {
  func.func @tiled(%q: tensor<2x8x128x16xf32>, %t: tensor<2x8xf32>) -> tensor<2x8x128x16xf32> {
    %r = flashattn.attention
        ins(%q, %q, %q : tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>, tensor<2x8x128x16xf32>)
        score_mod {
        ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
          %x = tensor.extract %t[%b, %h] : tensor<2x8xf32>
          %y = arith.mulf %s, %x : f32
          flashattn.yield %y : f32
        }
        outs(%q : tensor<2x8x128x16xf32>) -> tensor<2x8x128x16xf32>
    return %r : tensor<2x8x128x16xf32>
  }
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
    %op = transform.structured.match ops{["flashattn.attention"]} in %root : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [1, 1, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

//--- shared.mlir

// Equal ops share one function, of which the memrefs that they read are arguments.

!t = memref<1x2x?x16xf32>
// CHECK-LABEL: func @layers
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<2xf32>, %[[Y:[a-z0-9]+]]: memref<2xf32>)
// CHECK: call @layers_attention({{.*}}, %[[X]])
// CHECK-NEXT: call @layers_attention({{.*}}, %[[Y]])
// CHECK: func private @layers_attention(
// CHECK-SAME: %[[F:[a-z0-9]+]]: memref<2xf32>)
// CHECK: memref.load %[[F]][
func.func @layers(%a: !t, %b: !t, %x: memref<2xf32>, %y: memref<2xf32>) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) score_mod {
  ^bb0(%s: f32, %i: index, %h: index, %p: index, %k: index):
    %e = memref.load %x[%h] : memref<2xf32>
    %z = arith.mulf %s, %e : f32
    flashattn.yield %z : f32
  } outs(%b : !t)
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) score_mod {
  ^bb0(%s: f32, %i: index, %h: index, %p: index, %k: index):
    %e = memref.load %y[%h] : memref<2xf32>
    %z = arith.mulf %s, %e : f32
    flashattn.yield %z : f32
  } outs(%b : !t)
  return
}

//--- effects.mlir

// The op reads the memref: what was stored before it stays.

!t = memref<1x2x8x16xf32>
// CHECK-LABEL: func @stored
// CHECK: %[[T:.*]] = memref.alloca
// CHECK: memref.store %{{.*}}, %[[T]]
// CHECK: flashattn.attention
func.func @stored(%a: !t, %b: !t, %x: f32) {
  %c0 = arith.constant 0 : index
  %t = memref.alloca() : memref<2xf32>
  memref.store %x, %t[%c0] : memref<2xf32>
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) score_mod {
  ^bb0(%s: f32, %i: index, %h: index, %p: index, %k: index):
    %e = memref.load %t[%h] : memref<2xf32>
    %z = arith.mulf %s, %e : f32
    flashattn.yield %z : f32
  } outs(%b : !t)
  return
}

//--- programs.mlir

// A program loads the element before its loop over keys, at its own batch and head.

// CHECK-LABEL: func @forward
// CHECK-SAME: %[[T:[a-z0-9]+]]: memref<?x?xf32>
// CHECK: flashattn.program (%[[B:.*]], %[[H:.*]], %{{.*}}) in
// CHECK-NOT: flashattn.tile_loop
// CHECK: %[[X:.*]] = memref.load %[[T]][%[[B]], %[[H]]]
// CHECK-NOT: memref.load %[[T]]
// CHECK: flashattn.tile_loop
// CHECK-NOT: memref.load %[[T]]
// CHECK: vector.broadcast %[[X]]
// CHECK-LABEL: func @backward
func.func @forward(%q: memref<?x?x?x64xf16>, %o: memref<?x?x?x64xf16>, %t: memref<?x?xf32>) {
  flashattn.attention mask(#flashattn.causal)
    ins(%q, %q, %q : memref<?x?x?x64xf16>, memref<?x?x?x64xf16>, memref<?x?x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %k: index):
      %x = memref.load %t[%b, %h] : memref<?x?xf32>
      %y = arith.mulf %s, %x : f32
      flashattn.yield %y : f32
    }
    outs(%o : memref<?x?x?x64xf16>)
  return
}

// A program of a key tile goes over the query heads of its group: it loads the element once for each head, outside of
// the loop over query tiles.

// LOOPS-LABEL: func @backward
// LOOPS-SAME: %[[T:[a-z0-9]+]]: memref<?xf32>
// LOOPS: axes(batch, head, key_tile)
// LOOPS: scf.for
// LOOPS-NOT: scf.for
// LOOPS: %[[X:.*]] = memref.load %[[T]]
// LOOPS-NOT: memref.load %[[T]]
// LOOPS: scf.for
// LOOPS: vector.contract
func.func @backward(%q: memref<?x8x?x64xf16>, %k: memref<?x2x?x64xf16>, %lse: memref<?x8x?xf32>, %t: memref<?xf32>,
                    %dq: memref<?x8x?x64xf16>, %dk: memref<?x2x?x64xf16>, %dv: memref<?x2x?x64xf16>) {
  flashattn.attention_backward
    ins(%q, %k, %k, %q, %lse, %q : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>,
        memref<?x8x?x64xf16>, memref<?x8x?xf32>, memref<?x8x?x64xf16>)
    score_mod {
    ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
      %x = memref.load %t[%h] : memref<?xf32>
      %y = arith.mulf %s, %x : f32
      flashattn.yield %y : f32
    }
    outs(%dq, %dk, %dv : memref<?x8x?x64xf16>, memref<?x2x?x64xf16>, memref<?x2x?x64xf16>)
  return
}
