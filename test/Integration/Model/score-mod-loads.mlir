// A10: elements that a score modification loads by batch and head, in kernels of every kind: without and with warp
// specialization, with few queries, whose keys are split, with packed sequences and rows of none, and gradients. The tables
// end in NaN, which no program reads.
// DEFINE: %{heads} = --function=heads --input=random --input=random --input=random --input="0.3 0.2 0.1 0.5 0.25 -0.1 nan nan"
// DEFINE: %{few} = --function=few --input=random --input=random --input="1 2 3 4 7 7"
// DEFINE: %{packed} = --function=packed --input=random --input=random --input="0.3 -0.2 nan 0.1 0.4 nan 0.3 0.25 nan nan nan nan" --input="5 40 40 151"
// DEFINE: %{gradients} = --function=gradients --input=random --input=random --input=random --input=random --input="0.5 1 0.25 2 nan" --input="5 40 151"
// RUN: flash-run %s --device=cpu --verify %{heads} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{heads} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{heads} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{few} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{few} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{few} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{packed} | FileCheck %s
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{packed} | FileCheck %s %}
// RUN: flash-run %s --device=model:sm_90a --verify %{packed} | FileCheck %s
// RUN: flash-run %s --device=cpu --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS
// RUN: %if !asan %{ flash-run %s --device=model:sm_80 --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS %}
// RUN: flash-run %s --device=model:sm_90a --verify %{gradients} | FileCheck %s --check-prefix=GRADIENTS

// CHECK: verify o: {{.*}}PASS
// GRADIENTS: verify dq: {{.*}}PASS
// GRADIENTS: verify dk: {{.*}}PASS
// GRADIENTS: verify dv: {{.*}}PASS

!q = memref<2x4x70x64xf16>
!k = memref<2x2x150x64xf16>
func.func @heads(%q: !q, %k: !k, %v: !k, %slopes: memref<2x4xf32>, %o: !q) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !q, !k, !k)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %two = arith.constant 2 : index
        %g = arith.divui %h, %two : index
        %slope = memref.load %slopes[%g, %b] : memref<2x4xf32>
        %d = arith.subi %key, %p : index
        %i = arith.index_cast %d : index to i32
        %x = arith.sitofp %i : i32 to f32
        %y = math.fma %x, %slope, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o : !q)
  return
}

// With 3 queries, splits of the keys merge.
!fq = memref<1x4x3x128xbf16>
!fk = memref<1x4x600x128xbf16>
func.func @few(%q: !fq, %k: !fk, %n: memref<6xi32>, %o: !fq) {
  flashattn.attention ins(%q, %k, %k : !fq, !fk, !fk)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %i = memref.load %n[%h] : memref<6xi32>
        %x = arith.sitofp %i : i32 to f32
        %c = arith.constant 0.25 : f32
        %f = arith.mulf %x, %c : f32
        %y = arith.mulf %f, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o : !fq)
  return
}

// Rows 0 to 4 and 151 to 159 belong to no sequence, and sequence 1 is empty.
!pq = memref<1x2x160x64xf16>
func.func @packed(%q: !pq, %k: !pq, %slopes: memref<4x3xf32>, %starts: memref<4xi32>, %o: !pq) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %k : !pq, !pq, !pq)
      cu_seqlens_q(%starts : memref<4xi32>) cu_seqlens_k(%starts : memref<4xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %slope = memref.load %slopes[%b, %h] : memref<4x3xf32>
        %d = arith.subi %key, %p : index
        %i = arith.index_cast %d : index to i32
        %x = arith.sitofp %i : i32 to f32
        %y = math.fma %x, %slope, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o : !pq)
  return
}

!gq = memref<1x4x160x64xf16>
!gk = memref<1x2x160x64xf16>
func.func @gradients(%q: !gq, %k: !gk, %v: !gk, %do: !gq, %factors: memref<5xf32>, %starts: memref<3xi32>, %o: !gq,
                     %lse: memref<1x4x160xf32>, %dq: !gq, %dk: !gk, %dv: !gk) {
  flashattn.attention mask(#flashattn.causal) ins(%q, %k, %v : !gq, !gk, !gk)
      cu_seqlens_q(%starts : memref<3xi32>) cu_seqlens_k(%starts : memref<3xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %f = memref.load %factors[%h] : memref<5xf32>
        %y = arith.mulf %f, %s : f32
        flashattn.yield %y : f32
      }
      outs(%o, %lse : !gq, memref<1x4x160xf32>)
  flashattn.attention_backward mask(#flashattn.causal)
      ins(%q, %k, %v, %o, %lse, %do : !gq, !gk, !gk, !gq, memref<1x4x160xf32>, !gq)
      cu_seqlens_q(%starts : memref<3xi32>) cu_seqlens_k(%starts : memref<3xi32>)
      score_mod {
      ^bb0(%s: f32, %b: index, %h: index, %p: index, %key: index):
        %f = memref.load %factors[%h] : memref<5xf32>
        %y = arith.mulf %f, %s : f32
        flashattn.yield %y : f32
      }
      outs(%dq, %dk, %dv : !gq, !gk, !gk)
  return
}
