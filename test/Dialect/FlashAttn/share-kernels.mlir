// Ops that differ in nothing but their operands are calls of one function; what else differs keeps them apart.
// RUN: flash-opt %s -split-input-file -flashattn-share-kernels | FileCheck %s

!t = memref<1x2x?x16xf32>

// CHECK-LABEL: func @layers
// CHECK-SAME: (%[[A:.*]]: memref<1x2x?x16xf32>, %[[B:.*]]: memref<1x2x?x16xf32>, %[[C:.*]]: memref<1x2x?x16xf32>, %[[D:.*]]: memref<1x2x?x16xf32>)
// CHECK-NEXT: call @layers_attention(%[[A]], %[[A]], %[[A]], %[[B]])
// CHECK-NEXT: call @layers_attention(%[[B]], %[[A]], %[[C]], %[[D]])
// CHECK-NEXT: return
// CHECK-LABEL: func @other
// CHECK-NEXT: call @layers_attention(
// A mask of its own.
// CHECK-NEXT: flashattn.attention mask(#flashattn.causal)
// A type of its own.
// CHECK-NEXT: flashattn.attention ins({{.*}} : memref<1x2x8x16xf32>
// CHECK: func private @layers_attention(%[[Q:.*]]: memref<1x2x?x16xf32>, %[[K:.*]]: memref<1x2x?x16xf32>, %[[V:.*]]: memref<1x2x?x16xf32>, %[[O:.*]]: memref<1x2x?x16xf32>) {
// CHECK-NEXT: flashattn.attention ins(%[[Q]], %[[K]], %[[V]] :{{.*}}) outs(%[[O]] :
// CHECK-NEXT: return
func.func @layers(%a: !t, %b: !t, %c: !t, %d: !t) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  flashattn.attention ins(%b, %a, %c : !t, !t, !t) outs(%d : !t)
  return
}
func.func @other(%a: !t, %b: !t, %x: memref<1x2x8x16xf32>, %y: memref<1x2x8x16xf32>) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  flashattn.attention mask(#flashattn.causal) ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  flashattn.attention ins(%x, %x, %x : memref<1x2x8x16xf32>, memref<1x2x8x16xf32>, memref<1x2x8x16xf32>) outs(%y : memref<1x2x8x16xf32>)
  return
}

// -----

// Scalars are arguments, those that a score_mod reads too; constants are compiled in, so each has a function.
!t = memref<1x2x?x16xf32>
// CHECK-LABEL: func @scalars
// CHECK-SAME: %[[X:[a-z0-9]+]]: f32, %[[Y:[a-z0-9]+]]: f32)
// CHECK: call @scalars_attention({{.*}}, %[[X]])
// CHECK-NEXT: call @scalars_attention({{.*}}, %[[Y]])
// CHECK-NEXT: call @scalars_attention_0({{.*}}) : (memref<1x2x?x16xf32>, memref<1x2x?x16xf32>, memref<1x2x?x16xf32>, memref<1x2x?x16xf32>) -> ()
// CHECK-NEXT: call @scalars_attention_0(
// CHECK-NEXT: flashattn.attention {{.*}} offset(
// CHECK: func private @scalars_attention(
// CHECK-SAME: %[[F:[a-z0-9]+]]: f32)
// CHECK: ^bb0(%[[S:[a-z0-9]+]]: f32
// CHECK-NEXT: arith.mulf %[[S]], %[[F]]
// CHECK: func private @scalars_attention_0(
// CHECK: %[[N:.*]] = arith.constant 3 : index
// CHECK: flashattn.attention {{.*}} offset(%[[N]])
func.func @scalars(%a: !t, %b: !t, %x: f32, %y: f32) {
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) score_mod {
  ^bb0(%s: f32, %i: index, %h: index, %p: index, %k: index):
    %z = arith.mulf %s, %x : f32
    flashattn.yield %z : f32
  } outs(%b : !t)
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) score_mod {
  ^bb0(%s: f32, %i: index, %h: index, %p: index, %k: index):
    %z = arith.mulf %s, %y : f32
    flashattn.yield %z : f32
  } outs(%b : !t)
  flashattn.attention mask(#flashattn.causal) ins(%a, %a, %a : !t, !t, !t) offset(%c3) outs(%b : !t)
  flashattn.attention mask(#flashattn.causal) ins(%a, %a, %a : !t, !t, !t) offset(%c3) outs(%b : !t)
  flashattn.attention mask(#flashattn.causal) ins(%a, %a, %a : !t, !t, !t) offset(%c4) outs(%b : !t)
  return
}

// -----

// Rows that are known to begin at multiples of 16 bytes are promised to the function; others have another one.
!t = memref<1x2x8x16xf32, strided<[?, ?, 16, 1], offset: ?>>
// CHECK-LABEL: func @rows
// CHECK-NEXT: call @rows_attention(
// CHECK-NEXT: call @rows_attention(
// CHECK-NEXT: flashattn.attention
// CHECK: func private @rows_attention(%{{[a-z0-9]*}}: memref<{{.*}}> {flashattn.aligned_rows},
func.func @rows(%a: !t {flashattn.aligned_rows}, %b: !t {flashattn.aligned_rows}, %c: !t, %d: !t) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  flashattn.attention ins(%b, %b, %b : !t, !t, !t) outs(%a : !t)
  flashattn.attention ins(%c, %c, %c : !t, !t, !t) outs(%d : !t)
  return
}

// -----

// Gradients, merges and projections likewise.
!t = memref<1x2x8x16xf32>
!p = memref<1x8x24xf32>
// CHECK-LABEL: func @kinds
// CHECK-COUNT-2: call @kinds_project(
// CHECK: func private @kinds_project(
// CHECK: flashattn.project
func.func @kinds(%a: !t, %b: !t, %w: memref<2x16x24xf32>, %p: !p, %r: !p) {
  flashattn.project ins(%a, %w : !t, memref<2x16x24xf32>) outs(%p : !p)
  flashattn.project ins(%b, %w : !t, memref<2x16x24xf32>) outs(%r : !p)
  return
}

// -----

// Each module has its own functions.
!t = memref<1x2x8x16xf32>
// CHECK-LABEL: module @inner
// CHECK: func @f
// CHECK-COUNT-2: call @f_attention(
// CHECK: func private @f_attention(
// CHECK-LABEL: func @g
// CHECK-NEXT: flashattn.attention
module @inner {
  func.func @f(%a: !t, %b: !t) {
    flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
    flashattn.attention ins(%b, %b, %b : !t, !t, !t) outs(%a : !t)
    return
  }
}
func.func @g(%a: !t, %b: !t) {
  flashattn.attention ins(%a, %a, %a : !t, !t, !t) outs(%b : !t)
  return
}
