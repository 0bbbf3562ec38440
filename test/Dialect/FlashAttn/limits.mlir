// The clauses of rules S7 and S8, and rows that keep their values: the second op continues with the result of the first.
//
// RUN: flash-opt %s | flash-opt | FileCheck %s
// RUN: flash-opt %s -one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s --check-prefix=BUFFERS

// CHECK-LABEL: func.func @both
// CHECK: flashattn.attention layout(bshd) invariant ins({{.*}}) kv_len({{.*}}) cu_seqlens_q({{.*}}) max_seqlen_q(4) outs
// CHECK: flashattn.attention layout(bshd) invariant ins({{.*}}) kv_len({{.*}}) cu_seqlens_q({{.*}}) min_seqlen_q(5) max_seqlen_q(9) outs
// BUFFERS-LABEL: func.func @both
// BUFFERS-SAME: %[[O:[a-z0-9]*]]: memref<1x?x8x64xf16>) -> memref<1x?x8x64xf16>
// BUFFERS-NOT: memref.alloc
// BUFFERS: max_seqlen_q(4) outs(%[[O]] :
// BUFFERS: min_seqlen_q(5) max_seqlen_q(9) outs(%[[O]] :
// BUFFERS: return %[[O]]
func.func @both(%q: tensor<1x?x8x64xf16>, %k: tensor<?x?x2x64xf16>, %n: tensor<?xi32>, %starts: tensor<?xi32>,
                %o: tensor<1x?x8x64xf16>) -> tensor<1x?x8x64xf16> {
  %few = flashattn.attention invariant max_seqlen_q(4) layout(bshd)
      ins(%q, %k, %k : tensor<1x?x8x64xf16>, tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16>)
      kv_len(%n : tensor<?xi32>) cu_seqlens_q(%starts : tensor<?xi32>)
      outs(%o : tensor<1x?x8x64xf16>) -> tensor<1x?x8x64xf16>
  %more = flashattn.attention max_seqlen_q(9) min_seqlen_q(5) layout(bshd) invariant
      ins(%q, %k, %k : tensor<1x?x8x64xf16>, tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16>)
      kv_len(%n : tensor<?xi32>) cu_seqlens_q(%starts : tensor<?xi32>)
      outs(%few : tensor<1x?x8x64xf16>) -> tensor<1x?x8x64xf16>
  return %more : tensor<1x?x8x64xf16>
}

// The op reads the rows that it keeps, so a destination that is used again is copied.
// BUFFERS-LABEL: func.func @kept
// BUFFERS-SAME: %[[O:[a-z0-9]*]]: memref<1x?x8x64xf16>)
// BUFFERS: %[[COPY:.*]] = memref.alloc
// BUFFERS: memref.copy %[[O]], %[[COPY]]
// BUFFERS: flashattn.attention {{.*}} outs(%[[COPY]] :
// BUFFERS: return %[[COPY]], %[[O]]
func.func @kept(%q: tensor<1x?x8x64xf16>, %k: tensor<?x?x2x64xf16>, %starts: tensor<?xi32>, %o: tensor<1x?x8x64xf16>)
    -> (tensor<1x?x8x64xf16>, tensor<1x?x8x64xf16>) {
  %few = flashattn.attention max_seqlen_q(4) layout(bshd)
      ins(%q, %k, %k : tensor<1x?x8x64xf16>, tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16>)
      cu_seqlens_q(%starts : tensor<?xi32>)
      outs(%o : tensor<1x?x8x64xf16>) -> tensor<1x?x8x64xf16>
  return %few, %o : tensor<1x?x8x64xf16>, tensor<1x?x8x64xf16>
}

// CHECK-LABEL: func.func @merge
// CHECK: flashattn.combine ins({{.*}}) cu_seqlens_q({{.*}}) min_seqlen_q(2) outs
// BUFFERS-LABEL: func.func @merge
func.func @merge(%parts: tensor<3x5x2x4x64xf32>, %logs: tensor<3x5x2x4xf32>, %starts: tensor<6xi32>,
                 %o: tensor<1x2x15x64xf16>) -> tensor<1x2x15x64xf16> {
  %r = flashattn.combine min_seqlen_q(2) cu_seqlens_q(%starts : tensor<6xi32>)
      ins(%parts, %logs : tensor<3x5x2x4x64xf32>, tensor<3x5x2x4xf32>) outs(%o : tensor<1x2x15x64xf16>)
      -> tensor<1x2x15x64xf16>
  return %r : tensor<1x2x15x64xf16>
}
